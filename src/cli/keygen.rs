//! `holdfast keygen`: a fresh sealing key, base64 of 32 random bytes, on standard output.

use std::io::Write;

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};

use super::Failure;

pub(super) fn run() -> Result<(), Failure> {
    let mut key = [0_u8; 32];
    getrandom::fill(&mut key)
        .context("the operating system gave no randomness")
        .map_err(Failure::Runtime)?;
    writeln!(std::io::stdout(), "{}", STANDARD.encode(key))
        .context("standard output is closed")
        .map_err(Failure::Runtime)
}
