//! holdfast: a migration gateway for the Model Context Protocol.
//!
//! A request walks down this list, a result walks back up; no module reaches around its neighbour.

pub mod cli;
pub mod translate;
pub mod wire;
