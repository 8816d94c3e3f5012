//! Code that the macros accept, and the entries that they register. Rejected code is in `ui.rs`.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, clippy::all)]

mod macros {
    mod forms;
    mod hygiene;
    mod payment;
}
