//! The engine as it is, and engines with one mistake that others have made: each of these has to be found, by the promise
//! that it breaks.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// As it is.
    True,
    /// A report closes whatever attempt of its call executes. A session holds an attempt once, so that number and session are two
    /// locks on one door: both are left open here.
    GuardWithoutSession,
    /// A report closes the newest attempt of its call, whatever has become of that.
    LateReportById,
    /// The next attempt of a call takes the row of the last one.
    RowsReused,
    /// Due attempts are read by one statement and taken by another.
    ReadThenClaim,
    /// The next attempt is inserted after the commit that closed the last one.
    RetryOutsideTheTransaction,
    /// Whoever has a session may sweep at once, also after an outage.
    SweepWithoutGrace,
    /// Whoever renewed a lease before it ran out may sweep, also after an outage that was almost as long as a lease.
    SweepOnALeaseThatSurvived,
    /// What the sweeper found dead is lost, even if it ended meanwhile.
    SweepWithoutLooking,
    /// Nobody gives back what a session holds and does not run.
    StraysStay,
    /// A send under a dedup id does not look whether it is known.
    DedupWithoutLooking,
    /// A send whose commit had an unknown end does not look for itself.
    RepeatWithoutLooking,
    /// A timer fires without looking whether it is still there.
    TimerWithoutGuard,
    /// An operator's act does not mind that the attempt was claimed meanwhile.
    OperatorWithoutGuard,
    /// An operator's act without an id of its own is decided again after a commit with an unknown end.
    OperatorWithoutId,
    /// What was foreseen of the events that wait is believed although the instance went another way.
    OutlookKept,
    /// What a verb sent is written in a transaction of its own, before the verb's end is.
    OutgoingApart,
    /// The one statement writes whatever was read, without looking whether it is so still.
    StampNotCompared,
    /// It looks, and locks nothing: somebody else may be about to write what he decided under his locks.
    StampWithoutLock,
    /// It looks whether the instance has made a transition, and not whether it was written.
    VersionForAStamp,
    /// The stamp is read after that which it is to stand for.
    StampReadLater,
    /// What a process remembers of an instance outlives its own next commit to it, and passes for what is there now.
    MemoryKept,
    /// It outlives the commit of another instance's verb that sent to it.
    MemoryOfAReceiverKept,
    /// What was decided ahead is written, whoever wrote meanwhile.
    EpochNotCompared,
    /// The epoch is read after that which it is to stand for.
    EpochReadLater,
    /// What was remembered in another epoch passes for what is there now.
    MemoryOfAnotherEpoch,
    /// Where one guard fails the others of the batch are written, and all are answered.
    HalfOfABatch,
    /// What is remembered is taken to the committer when the attempt ends, and other commits of the process come first.
    MemoryTakenEarly,
    /// An event that a verb sends to a full inbox is dropped, and the transition of the sender is committed.
    FullInboxDrops,
    /// A new instance whose key is taken meanwhile is left out, and not what belongs to it.
    KeyWithoutGuard,
}
