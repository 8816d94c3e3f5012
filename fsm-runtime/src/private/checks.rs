//! The rules that only the compiler can check, with their messages.

use std::time::Duration;

use fsm_core::machine::Due;
use fsm_core::time::Timestamp;

use crate::registry::{Keeps, KeepsNothing, RetryEntry, Verb, VerbEntry, VerbOf};
use crate::timeout::{Caught, Timeout};

/// A condition of a rule of a machine. A trait that only the true condition implements fails the compilation with its own message.
pub struct Condition<const IS: bool>;

/// True if two names are equal, at compile time.
pub const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// True if none of `others` equals `name`, at compile time.
pub const fn is_none_of(name: &str, others: &[&str]) -> bool {
    let mut i = 0;
    while i < others.len() {
        if same(name, others[i]) {
            return false;
        }
        i += 1;
    }
    true
}

/// A permitted return type of a verb: a `Result` whose error is `E`.
#[diagnostic::on_unimplemented(
    message = "a verb returns `Result<(), E>`, not `{Self}`",
    label = "returned by a verb",
    note = "write `-> Result`, which is `Result<(), Failure>`, or `-> Result<(), YourError>`"
)]
pub trait Returned<E> {
    /// The value itself.
    fn into_result(self) -> Result<(), E>;
}

impl<E> Returned<E> for Result<(), E> {
    fn into_result(self) -> Result<(), E> {
        self
    }
}

/// Converts the return value of a verb into a `Result`.
pub fn returned<R: Returned<E>, E>(value: R) -> Result<(), E> {
    value.into_result()
}

/// Implemented by the event of a catch verb for the event of the verb that names it under `catch`.
#[diagnostic::on_unimplemented(
    message = "the verb under `catch` takes `{Self}`; here it takes `Caught<{E}>`",
    note = "a catch verb takes the exhausted call: `Caught` of the event of the verb that names it"
)]
pub trait Catches<E> {}

impl<E> Catches<E> for Caught<E> {}

/// Fails to compile unless `C` is `Caught<E>`.
pub const fn catches<C: Catches<E>, E>() {}

/// Implemented by each type for itself: a verb's event type must be that of its `on` block.
#[diagnostic::on_unimplemented(
    message = "this verb takes `{Self}`; its `on` block is for `{E}`",
    note = "every verb in an `on` block takes that very type; declare the others outside of it"
)]
pub trait IsEvent<E> {}

impl<E> IsEvent<E> for E {}

/// Fails to compile unless `A` is `E`.
pub const fn is_event<A: IsEvent<E>, E>() {}

/// Implemented by the event type that a timer's verb must take.
#[diagnostic::on_unimplemented(
    message = "a timer leads to a verb that takes `{Self}`; it must take `Timeout`",
    note = "a verb behind `after` takes `fsm::Timeout`, the event that a timer delivers"
)]
pub trait IsTimeout {}

impl IsTimeout for Timeout {}

/// Fails to compile unless `E` is `Timeout`.
pub const fn is_timeout<E: IsTimeout>() {}

/// The result of a function behind `after`.
#[diagnostic::on_unimplemented(
    message = "a function behind `after` returns `Duration` or `Timestamp`, not `{Self}`",
    note = "it is `fn(&Record) -> Duration`, the time in the state, or `fn(&Record) -> Timestamp`, a point in time"
)]
pub trait TimerWait {
    /// The same as the engine stores it.
    fn due(self) -> Due;
}

impl TimerWait for Duration {
    fn due(self) -> Due {
        Due::After(self)
    }
}

impl TimerWait for Timestamp {
    fn due(self) -> Due {
        Due::At(self)
    }
}

/// Calls the function of a computed timer.
pub fn due<R, T: TimerWait>(record: &R, function: fn(&R) -> T) -> Due {
    function(record).due()
}

/// Implemented by the types that a search field may have.
#[diagnostic::on_unimplemented(
    message = "a search field is a text, and `{Self}` has none: it does not implement `Display`",
    label = "not `Display`",
    note = "name a field under `search` whose type implements `Display`, like `String` or `u64`"
)]
pub trait SearchValue {
    /// The value as text.
    fn text(&self) -> String;
}

#[diagnostic::do_not_recommend]
impl<T: std::fmt::Display + ?Sized> SearchValue for T {
    fn text(&self) -> String {
        self.to_string()
    }
}

/// The text of a search field.
pub fn search_value<T: SearchValue + ?Sized>(field: &T) -> String {
    field.text()
}

/// Fails to compile unless exactly one machine has the verb.
pub const fn is_in_one_machine<V: VerbOf<M>, M>() {}

/// True for the name of the event type of a catch verb.
pub const fn is_any_caught(event: &str) -> bool {
    begins_with(event, "Caught<")
}

/// True for the names of the event types by which children report to their parent.
pub const fn is_of_children(event: &str) -> bool {
    same(event, "ChildrenEnded") || begins_with(event, "ChildEnded<") || begins_with(event, "ChildFailed<")
}

const fn begins_with(event: &str, start: &str) -> bool {
    let (event, start) = (event.as_bytes(), start.as_bytes());
    let mut i = 0;
    while i < start.len() {
        if i >= event.len() || event[i] != start[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Implemented by each verb for itself: two paths must name the same verb.
#[diagnostic::on_unimplemented(
    message = "`{Self}` and `{V}` are two verbs of one name: within a machine names are unique",
    note = "rename one of the two functions"
)]
pub trait IsVerb<V> {}

impl<V> IsVerb<V> for V {}

/// Fails to compile unless `A` and `V` are the same verb.
pub const fn is_verb<A: IsVerb<V>, V>() {}

/// Fails to compile unless `V` and its catch verb can run in a machine whose record is `R`.
pub const fn keeps<V: Verb + Keeps<R>, R>()
where
    V::Catch: Keeps<R>,
{
}

/// Fails to compile unless `V` and its catch verb can run in a machine without a record.
pub const fn keeps_nothing<V: Verb + KeepsNothing>()
where
    V::Catch: KeepsNothing,
{
}

/// True if a verb has no retry policy of its own and uses its machine's default.
pub const fn inherits(verb: &VerbEntry) -> bool {
    matches!(verb.retry, RetryEntry::Inherit)
}

/// True if the event type named `caught` is `Caught` of the one named `event`, or of any JSON.
pub const fn is_caught(caught: &str, event: &str) -> bool {
    if same(caught, "Caught<Value>") {
        return true;
    }
    let (caught, event) = (caught.as_bytes(), event.as_bytes());
    let before = b"Caught<";
    if caught.len() != before.len() + event.len() + 1 {
        return false;
    }
    let mut i = 0;
    while i < caught.len() {
        let expected = if i < before.len() {
            before[i]
        } else if i < caught.len() - 1 {
            event[i - before.len()]
        } else {
            b'>'
        };
        if caught[i] != expected {
            return false;
        }
        i += 1;
    }
    true
}

/// Selects `E` if the condition is true, else `Other`. It avoids a second implementation for an event type about which another rule already
/// reports an error.
pub trait Pick<E, Other> {
    /// The selected type.
    type Picked;
}

impl<E, Other> Pick<E, Other> for Condition<true> {
    type Picked = E;
}

impl<E, Other> Pick<E, Other> for Condition<false> {
    type Picked = Other;
}
