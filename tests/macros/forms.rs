//! Every way to write a policy, a verb and a machine.

use std::fmt;

use fsm::__private::{Accepts, PolicyEntry, RetryEntry, Verb, VerbEntry, WaitEntry};
use fsm::prelude::*;
use fsm::{Machine, RetryAdvice, Retryable};
use serde::{Deserialize, Serialize};

macro_rules! events {
    ($($name:ident)*) => { $(#[derive(Debug, Clone, Serialize, Deserialize)] struct $name;)* };
}

events!(Opened Closed Locked Shut Painted);

/// An error with retry advice of its own.
#[derive(Debug)]
struct Declined;

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("declined")
    }
}

impl std::error::Error for Declined {}

impl Retryable for Declined {
    fn retry(&self) -> RetryAdvice {
        RetryAdvice::Never
    }
}

fn my_delay(failed: &FailedAttempt<'_>) -> Option<Duration> {
    Some(Duration::from_secs(failed.attempt().into()))
}

#[derive(Default, Serialize, Deserialize)]
struct Colours(u32);

#[verb]
async fn recover(caught: Caught<Opened>) -> Result {
    let _ = caught.event;
    Ok(())
}

#[fsm::retry(10, "5s", "1h", jitter = 0.1, within = "24h", give_up_on(Declined, std::num::ParseIntError), catch = recover)]
#[verb]
async fn opened(_event: Opened) -> Result<(), Declined> {
    Err(Declined)
}

#[verb]
#[retry(none)]
async fn closed(_event: Closed) -> Result<(), std::num::ParseIntError> {
    "1".parse::<u32>().map(drop)
}

#[verb]
#[cfg_attr(all(), retry(10, delay = my_delay))]
#[allow(clippy::needless_lifetimes)]
async fn locked<'a>(ctx: &'a mut fsm::Ctx<'_>, _event: self::Locked) -> fsm::Result {
    let _ = ctx;
    Ok(())
}

#[cfg_attr(all(), fsm::retry("5s", "10m"))]
#[cfg_attr(all(), fsm::verb(timeout = "1h30m"))]
#[cfg(test)]
async fn painted(record: &mut Colours, _events: Data<Vec<u32>>, _event: Painted) -> Result {
    record.0 += 1;
    Ok(())
}

#[verb]
async fn expired(_timeout: Timeout) -> Result {
    Ok(())
}

/// Verbs with the same names as those outside this module, and states that are named `end`, `start`, `any` and `on`.
mod words {
    use super::*;

    #[verb]
    pub async fn end(_event: Opened) -> Result {
        Ok(())
    }

    #[verb]
    #[retry("5s")]
    pub(crate) async fn start(_event: Shut) -> Result {
        Ok(())
    }

    #[verb]
    pub(super) async fn any(_event: Shut) -> Result {
        Ok(())
    }

    #[verb]
    pub(in crate::macros) async fn on(_event: Closed) -> Result {
        Ok(())
    }

    #[verb]
    pub async fn r#move(_event: Locked) -> Result {
        Ok(())
    }
}

fsm! {
    machine Door = "door" {
        keeps Colours;
        retry("1s");
        start opened | painted;
        any(opened, painted) -> closed | locked;
        any(opened, closed) after "1d" -> expired;
        closed -> opened;
        end locked; end expired;
    }
}

fsm! {
    pub(crate) machine Words = "words-of_2" {
        start words::end;
        end -> crate::macros::forms::words::on | words::r#move;
        on -> words::end;
        on Shut {
            end -> words::start;
            any(on, start) -> words::any;
        }
        any -> words::end;
        end r#move;
    }
}

fn policy<V: Verb>() -> &'static PolicyEntry {
    let RetryEntry::Policy(policy) = V::ENTRY.retry else { panic!("`{}` has a policy", V::ENTRY.name) };
    policy
}

fn seconds(policy: &PolicyEntry) -> (Option<u32>, u64, u64) {
    (policy.max_attempts, policy.min.as_secs(), policy.max.as_secs())
}

#[test]
fn a_policy_is_read_above_and_below_the_verb() {
    assert_eq!(seconds(policy::<opened>()), (Some(11), 5, 3600));
    assert_eq!(seconds(policy::<locked>()), (Some(11), 1, 3600));
    assert_eq!(seconds(policy::<painted>()), (None, 5, 600));
    assert_eq!(seconds(policy::<words::start>()), (None, 5, 5));
    assert!(matches!(<closed as Verb>::ENTRY.retry, RetryEntry::Never));
    assert_eq!(<painted as Verb>::ENTRY.timeout, Some(Duration::from_secs(5400)));
}

#[test]
fn a_policy_carries_errors_functions_and_the_verb_that_catches() {
    let full = policy::<opened>();
    assert_eq!((full.backoff, full.jitter, full.within), (2.0, 0.1, Some(Duration::from_secs(86_400))));
    let names: Vec<&str> = full.give_up_on.iter().map(|error| error.name).collect();
    assert_eq!(names, ["Declined", "std::num::ParseIntError"]);
    assert!((full.give_up_on[0].is)(&Declined) && !(full.give_up_on[1].is)(&Declined));
    let catch: &VerbEntry = full.catch.unwrap();
    assert_eq!((catch.name, catch.event), ("recover", "Caught<Opened>"));
    let delay = policy::<locked>().delay.as_ref().unwrap();
    assert_eq!(delay.name, "my_delay");
}

#[test]
fn machines_of_several_edges_at_once() {
    let edges = |entry: &fsm::__private::MachineEntry| -> Vec<String> {
        let text = |edge: &fsm::__private::EdgeEntry| format!("{}>{}", edge.from.unwrap_or(""), edge.verb.name);
        entry.edges.iter().map(text).collect()
    };
    assert_eq!(
        edges(Door::ENTRY).join(" "),
        ">opened >painted opened>closed opened>locked painted>closed painted>locked opened>expired closed>expired closed>opened"
    );
    assert_eq!(edges(Words::ENTRY).join(" "), ">end end>on end>move on>end end>start on>any start>any any>end");
    assert_eq!((Words::NAME, <Words as Accepts<Shut>>::EVENT), ("words-of_2", "Shut"));
    assert_eq!([WordsState::Move, WordsState::End].map(WordsState::as_str), ["move", "end"]);
}

/// A machine inside a function, as a test would declare it.
#[test]
fn a_machine_can_be_declared_in_a_function() {
    #[verb]
    async fn here(_event: Opened) -> Result {
        Ok(())
    }
    fsm! { machine Here = "here" { start here; end here; } }
    assert_eq!(Here::ENTRY.edges.len(), 1);
}

/// A machine from a macro of the user, whose fragments are wrapped in groups.
#[test]
fn a_machine_can_be_declared_by_another_macro() {
    macro_rules! lamp {
        ($machine:ident, $name:literal, $after:literal, $verb:ident($event:ty) $body:block, $record:ty, $off:path) => {
            #[verb(timeout = $after)]
            #[retry(3, $after)]
            async fn $verb(record: &mut $record, event: $event) -> Result {
                let _ = (record, event);
                $body
            }
            fsm! {
                machine $machine = $name {
                    keeps $record;
                    start $verb;
                    $verb after $after -> $off;
                    end $off;
                }
            }
        };
    }
    lamp!(Lamp, "lamp", "5s", lit(Opened) { Ok(()) }, Colours, self::expired);
    let [on, off] = Lamp::ENTRY.edges else { panic!("two edges") };
    assert!(matches!(off.after, Some(WaitEntry::Fixed(wait)) if wait == Duration::from_secs(5)));
    assert_eq!((on.verb.event, on.verb.timeout), ("Opened", Some(Duration::from_secs(5))));
    assert_eq!(Lamp::ENTRY.record, Some("Colours"));
}
