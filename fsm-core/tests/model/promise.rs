//! The names of the promises that a schedule is checked against. Each deliberate mistake names the promise that it breaks.

use std::fmt;

/// A promise that holds after every step, or once everything has come to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// An open instance has a live attempt.
    I1,
    /// Only the last attempt of a call is live.
    I2,
    /// A call succeeds at most once.
    I3,
    /// A live attempt is the open attempt of its instance.
    I4,
    /// An instance is in error if and only if its newest call is exhausted.
    I5,
    /// The version is the number of transitions.
    I6,
    /// The transitions are a chain without a gap.
    I7,
    /// Each transition is a declared edge.
    I8,
    /// The attempts of a call are numbered from 1 without a gap.
    I9,
    /// No call fails more often than its budget allows.
    I10,
    /// No attempt begins before its time.
    I11,
    /// The times of an attempt are in order.
    I12,
    /// The inbox has no gap, and no event waits for an instance that is free.
    I13,
    /// Each dedup id has its own call as its answer.
    I14,
    /// An attempt that began was given to a session.
    I15,
    /// A state's timer belongs to the state that the instance is in.
    I16,
    /// The first event of each line of the outbox, and no other, has the time of the next delivery.
    I17,
    /// The log of a session has every instance in which it executes an attempt.
    I19,
    /// The stored forecast of an inbox has the states that all waiting events lead to.
    OutlookIsTrue,
    /// A dedup id is stored once (`fsm_requests_pkey`).
    DedupIdWrittenOnce,
    /// A position in an inbox is used once (`fsm_inbox_pkey`).
    PlaceGivenOnce,
    /// An event waits in one place (`fsm_inbox_call`).
    WaitsInOnePlace,
    /// The payload of an event that is taken from the inbox exists.
    PayloadIsThere,
    /// An attempt is stored once (`fsm_async_calls_pkey`).
    AttemptWrittenOnce,
    /// An instance has at most one live attempt: its row has room for one.
    OneLiveAttempt,
    /// A timer is stored once (`fsm_timers_pkey`).
    TimerWrittenOnce,
    /// A verb runs only for an instance that exists.
    NoRunWithoutAnInstance,
    /// An attempt runs at most once.
    AttemptRunsOnce,
    /// A verb without a retry policy is not run again, unless it snoozed.
    NoPolicyNoSecondRun,
    /// An attempt that snoozed uses no retry, leaves the backoff as it is, and is counted.
    SnoozeUsesNoRetry,
    /// Only the session that holds an attempt ends it, and only for the run that holds it.
    OnlyTheHolderReports,
    /// An attempt ends once.
    AttemptEndsOnce,
    /// An attempt that has begun is not returned as one that has not.
    NotReturnedOnceBegun,
    /// An attempt that executes is not ended as one that is only scheduled.
    NotEndedWhileItExecutes,
    /// Events of one instance are taken in the order in which they came.
    FirstComeFirstServed,
    /// An event that interrupts waits neither for a retry nor for an operator.
    InterruptDoesNotWait,
    /// An internal transition changes no timer of its state.
    StayKeepsTheTimer,
    /// An acknowledged event is in the database.
    AcknowledgedIsKept,
    /// Once everything has come to rest, each acknowledged event has succeeded or was rejected, exhausted or cancelled.
    AcknowledgedIsAnswered,
    /// An event is taken at most once.
    TakenOnce,
    /// A rejected event never begins.
    RejectedNeverBegins,
    /// Only an attempt that succeeded has sent its events.
    OnlySuccessSends,
    /// No event of a committed transition is dropped for lack of room.
    NoneDroppedForLackOfRoom,
    /// The events from one sender to one receiver arrive in the order in which they were sent.
    SentInOrder,
    /// An event that a verb sent to another partition is in the outbox until it was taken, refused or cancelled. Its refusal or cancelling is in
    /// the history of its sender.
    KeptBetweenPartitions,
    /// A delayed event that was cancelled is not delivered.
    CancelledIsNotDelivered,
    /// An act of an operator is carried out at most once.
    OperatedOnce,
    /// A worker that is alive and renews its lease keeps its attempts.
    LiveWorkerKeepsItsWork,
    /// An event is refused only if it does not fit.
    RefusedForAReason,
    /// No work is left over: attempts end, and delayed events are delivered.
    EverythingComesToRest,
}

/// A broken promise, with a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The promise.
    pub promise: Promise,
    /// The description for people.
    pub says: String,
}

impl Promise {
    /// Returns the error that this promise is broken.
    pub fn broken<T>(self, says: impl Into<String>) -> Result<T, Broken> {
        Err(Broken { promise: self, says: says.into() })
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.says)
    }
}

impl From<Broken> for String {
    fn from(broken: Broken) -> String {
        broken.to_string()
    }
}
