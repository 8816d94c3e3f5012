//! Tests of the `fsm` command's output and effects on both databases.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod acting;
mod all_partitions;
mod dividing;
mod dividing_families;
mod embedded;
mod families;
mod keeping;
mod moving;
mod partitions;
mod reading;
mod schedules;
mod screens;
mod shop;
mod simulate;
mod support;
mod terminal;
mod truth;
