//! A machine has at least one state.
use fsm::prelude::*;

fsm! {
    machine Door = "door" {
    }
}

fn main() {}
