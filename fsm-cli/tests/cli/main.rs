//! What the `fsm` command shows and does, on both databases.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod acting;
mod keeping;
mod reading;
mod screens;
mod shop;
mod simulate;
mod support;
