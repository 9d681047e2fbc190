//! Other replicas of this gateway: what is shared with them, through a store that all of them reach.
//!
//! A single process needs nothing of it, and the rooms above know its traits alone.

pub mod redis;
