//! What the macros accept, and what they register. What they refuse is in `ui.rs`.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, clippy::all)]

mod macros {
    mod forms;
    mod hygiene;
    mod payment;
}
