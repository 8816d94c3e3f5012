//! The web console in a real Chromium. `cargo xtask test` installs it; `cargo xtask screenshots` keeps the pictures of these tests.

#[path = "../promises/support.rs"]
#[allow(dead_code, unused_imports, unused_macros, clippy::unwrap_used, reason = "the tests in a browser need a folder only")]
mod support;

mod accessible;
mod acts;
mod chromium;
mod claims;
mod deliveries;
mod moves;
mod partitioned;
mod screens;
mod site;
