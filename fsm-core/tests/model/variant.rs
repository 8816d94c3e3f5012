//! The correct engine, and engines with one mistake each that other engines have made. The simulation must find each mistake by the promise
//! that it breaks.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// The correct engine.
    True,
    /// A report closes the live attempt of its call, whichever it is. A session holds an attempt only once, so the number and the session
    /// guard the same thing: this variant checks neither.
    GuardWithoutSession,
    /// A report closes the newest attempt of its call, whatever the state of that attempt is.
    LateReportById,
    /// The next attempt of a call overwrites the row of the last one.
    RowsReused,
    /// A claim reads due attempts in one statement and takes them in another.
    ReadThenClaim,
    /// The next attempt is inserted after the commit that closed the last one.
    RetryOutsideTheTransaction,
    /// A session may sweep at once, even directly after an outage.
    SweepWithoutGrace,
    /// A session may sweep if it renewed its lease before it expired, even after an outage that was almost as long as a lease.
    SweepOnALeaseThatSurvived,
    /// A session that a commit renews late, after an outage, may go on sweeping at once.
    RenewedByACommitWithoutGrace,
    /// An attempt that the sweeper found is closed as lost, even if it ended meanwhile.
    SweepWithoutLooking,
    /// Attempts that a session holds and does not run are never released.
    HeldButNotRunningStays,
    /// A send with a deduplication id does not look for an earlier request.
    DedupWithoutLooking,
    /// A send whose commit had an unknown outcome does not look for its own first commit.
    RepeatWithoutLooking,
    /// A timer fires without the guard that it still exists.
    TimerWithoutGuard,
    /// An operation does not check whether the attempt was claimed meanwhile.
    OperatorWithoutGuard,
    /// An operation without a request id is decided again after a commit with an unknown outcome.
    OperatorWithoutId,
    /// The stored forecast of the inbox is used although the instance took another path.
    OutlookKept,
    /// The events that a verb sent are written in a separate transaction, before the verb's report is written.
    OutgoingApart,
    /// The single statement writes the changes without comparing the row version.
    RowVersionNotCompared,
    /// The row version is compared, but the row is not locked. Another process may be about to write a decision that it made under locks.
    RowVersionWithoutLock,
    /// The number of transitions is compared instead of the row version, so that other writes are missed.
    VersionForARowVersion,
    /// The row version is read after the data that it guards.
    RowVersionReadLater,
    /// The cached snapshot of an instance survives the next commit to it by the same process.
    SnapshotKept,
    /// The cached snapshot survives a commit of another instance's verb that sent an event to it.
    SnapshotOfAReceiverKept,
    /// A speculative decision is written without comparing the file version.
    FileVersionNotCompared,
    /// The file version is read after the data that it guards.
    FileVersionReadLater,
    /// A snapshot that was cached at another file version is used.
    SnapshotOfAnotherFileVersion,
    /// A request that is stale when its batch is written is answered as if it had been written.
    StaleAnswered,
    /// A request that was stale is decided again on the same snapshot, with the current row version.
    StaleUsedAgain,
    /// An attempt that is followed by another one of its call is not kept.
    AttemptNotAppended,
    /// The log of a session is not written in the commit that begins the attempt.
    LogApart,
    /// The log of a session loses rows whose attempts still execute.
    LogTrimmedTooEarly,
    /// The cached snapshot is passed to the committer when the attempt ends, although other commits of the process come first.
    SnapshotTakenEarly,
    /// An event that a verb sends to a full inbox is dropped, and the transition of the sender is committed.
    FullInboxDrops,
    /// A line of the outbox is delivered as it was read before its receiver was locked.
    OutboxDeliversTwice,
    /// An event is put into an inbox that has room although earlier events from its sender wait in the outbox.
    OutboxOutOfOrder,
    /// A line whose receiver has no room is tried again at once.
    OutboxRetriesForEver,
    /// A process counts as gone because its process id does not exist here, although it runs in another container.
    TakeoverByPidAlone,
    /// An attempt that snoozed uses a retry, as a failed one does.
    SnoozeUsesARetry,
    /// If the key of a new instance is taken in the meantime, its row is left out, but the rows that belong to it are written.
    KeyWithoutGuard,
    /// The success of an attempt drops an event that waits to interrupt it.
    InterruptLosesToSuccess,
    /// A call is retried although an event waits that interrupts it.
    InterruptWaits,
    /// An internal transition restarts the timer of its state, as a self-edge does.
    StayMovesTheTimer,
    /// An event is sent to another partition without a deduplication id.
    PartitionEventDeliveredTwice,
    /// An event is sent to another partition although an earlier one for the same receiver waits for its next delivery.
    PartitionEventsOutOfOrder,
    /// A claim marks the first event of a line only, so that a later one can be cancelled while it is delivered.
    PartitionClaimOfTheFirstOnly,
    /// A claim is finished although it has ended and another process has claimed the line.
    PartitionFinishWithoutClaim,
    /// A delivery goes on after a refusal, which is noted with the end of the claim.
    PartitionRefusalNotedLater,
    /// An event that is sent under a claim is taken after the claim has ended.
    PartitionSendOutlivesItsClaim,
    /// The rows of a partition are copied before it takes no more commits.
    PartitionEventLostInAMove,
    /// A partition is moved while it takes commits, and a process with an old directory goes on there.
    StaleDirectory,
}
