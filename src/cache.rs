//! What is remembered of a server between calls: discovery and lists within their time to live, and what its tools
//! declare. It is forgotten when a list changes or a session is lost, on whichever session that is seen. What one replica
//! has read is found by the others.

pub mod commons;
pub mod naming;
pub mod results;
pub mod tools;
