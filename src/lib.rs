//! holdfast: a migration gateway for the Model Context Protocol.
//!
//! A request walks down this list, a result walks back up; no module reaches around its neighbour.

pub mod cache;
pub mod call;
pub mod cluster;
pub mod config;
pub mod hold;
pub mod listen;
pub mod observe;
pub mod route;
pub mod session;
pub mod subscription;
pub mod translate;
pub mod upstream;
pub mod wire;
