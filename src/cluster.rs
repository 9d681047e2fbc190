//! Other replicas: who they are, and how a request reaches the one that holds its call.
//!
//! A single process needs none of it. Replicas are those that have a sealing key; whatever they say to each other goes
//! through a listener that lets nobody else in, and a request goes through it once: who is reached that way never sends
//! it on again.

pub mod hop;
pub mod identity;
pub mod redis;
