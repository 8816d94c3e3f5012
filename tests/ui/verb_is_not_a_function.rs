//! A verb is a function.
use fsm::prelude::*;

#[verb]
struct Opened;

fn main() {}
