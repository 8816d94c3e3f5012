//! User items whose names are also names of the standard library or of the macros' output.
#![allow(dead_code, non_snake_case, non_camel_case_types)]

use fsm::{fsm, retry, verb};

struct Result;
struct Option;
struct Box;
struct String;
struct Vec;
struct Duration;
struct Machine;
struct Verb;
struct Ok;
struct Some;
struct None;
trait Send {}
trait Default {}
trait Future {}
mod std {}
mod core {}

#[derive(serde::Serialize, serde::Deserialize)]
struct Begun;

#[derive(serde::Serialize, serde::Deserialize)]
struct Ran;

#[derive(serde::Serialize, serde::Deserialize, ::std::default::Default)]
struct Record;

#[verb(timeout = "5s")]
#[retry(10, "5s", within = "1h")]
async fn run(ctx: &mut fsm::Ctx<'_>, record: &mut Record, data: fsm::Data<u32>, input: Ran) -> fsm::Result {
    let _ = (ctx, record, *data, input);
    ::std::result::Result::Ok(())
}

#[verb]
async fn record(event: Begun) -> fsm::Result {
    let _ = event;
    ::std::result::Result::Ok(())
}

#[verb]
async fn outcome(timeout: fsm::Timeout) -> fsm::Result {
    let _ = timeout;
    ::std::result::Result::Ok(())
}

fsm! {
    machine Hygiene = "hygiene" {
        keeps Record;
        start record;
        record -> run;
        record after "1s" -> outcome;
        end run, outcome;
    }
}

#[test]
fn names_of_the_user_do_not_meet_those_of_the_macros() {
    assert_eq!(<Hygiene as fsm::Machine>::ENTRY.edges.len(), 3);
}
