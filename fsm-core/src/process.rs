//! The identity of a worker process on its machine, and the proof that such a process no longer exists.

use std::fmt;

/// The facts that distinguish one process from every other one, on this machine and on others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The host name, as the process sees it.
    pub host: String,
    /// The process id, as the process sees it.
    pub pid: u32,
    /// The facts that only some systems provide. Without them, nothing can be proved about the process.
    pub place: Option<ProcessPlace>,
}

/// The place of a process: the machine, the start of the machine, and the namespaces in which its process id has a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessPlace {
    /// The id of the machine; `None` in a container, whose files may be copies of those of another machine.
    pub machine: Option<String>,
    /// The random id that the kernel chose when it started.
    pub boot: String,
    /// The ids of the namespaces of process ids and of time. Two containers never share the first one by chance.
    pub namespaces: String,
    /// The time at which the process started, in clock ticks since the machine started.
    pub started: u64,
}

/// The answer of the operating system about a process id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessLookup {
    /// No process has this id, or the one that had it has ended.
    NoSuchProcess,
    /// A process with this id started at this time, in clock ticks since the machine started.
    StartedAt(u64),
    /// The system does not provide the information.
    Unknown,
}

impl ProcessIdentity {
    /// True only with proof that this process no longer exists. `me` is the process that asks, and `look` asks the operating system about a
    /// process id of `me`'s own namespace. In doubt the answer is false, and the lease decides.
    ///
    /// - The same start of the same machine and the same namespaces: there is no process with this id, or it started at another time.
    /// - Another start of the same machine: no process outlives its machine. This needs the machine's own id and host name, which a
    ///   container does not have.
    pub fn is_gone(&self, me: &ProcessIdentity, look: impl FnOnce(u32) -> ProcessLookup) -> bool {
        let (Some(its), Some(mine)) = (&self.place, &me.place) else { return false };
        if its.boot != mine.boot {
            return its.machine.is_some() && its.machine == mine.machine && self.host == me.host;
        }
        its.namespaces == mine.namespaces
            && match look(self.pid) {
                ProcessLookup::NoSuchProcess => true,
                ProcessLookup::StartedAt(started) => started != its.started,
                ProcessLookup::Unknown => false,
            }
    }
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on `{}`", self.pid, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::ProcessLookup::{NoSuchProcess, StartedAt, Unknown};
    use super::*;

    fn process() -> ProcessIdentity {
        let place = ProcessPlace { machine: Some("m1".into()), boot: "b1".into(), namespaces: "pid:[1]".into(), started: 500 };
        ProcessIdentity { host: "h1".into(), pid: 7, place: Some(place) }
    }

    fn with(change: impl FnOnce(&mut ProcessIdentity, &mut ProcessPlace)) -> ProcessIdentity {
        let mut other = process();
        let mut place = other.place.take().expect("it has a place");
        change(&mut other, &mut place);
        ProcessIdentity { place: Some(place), ..other }
    }

    #[test]
    fn only_a_process_that_provably_does_not_exist_is_gone() {
        let anywhere = ProcessIdentity { place: None, ..process() };
        let in_a_container = |boot: &str, namespaces: &str| {
            with(|_, place| (place.machine, place.boot, place.namespaces) = (None, boot.into(), namespaces.into()))
        };
        let cases = [
            ("its id is free", process(), process(), NoSuchProcess, true),
            ("it runs", process(), process(), StartedAt(500), false),
            ("another process has its id", process(), process(), StartedAt(501), true),
            ("the system does not tell", process(), process(), Unknown, false),
            ("it is in another container", with(|_, place| place.namespaces = "pid:[2]".into()), process(), NoSuchProcess, false),
            ("it was in the same container", in_a_container("b1", "pid:[2]"), in_a_container("b1", "pid:[2]"), NoSuchProcess, true),
            ("the machine was restarted", with(|_, place| place.boot = "b0".into()), process(), StartedAt(500), true),
            ("the host was renamed", with(|it, place| (it.host, place.boot) = ("h0".into(), "b0".into())), process(), NoSuchProcess, false),
            (
                "another machine",
                with(|_, place| (place.machine, place.boot) = (Some("m2".into()), "b2".into())),
                process(),
                NoSuchProcess,
                false,
            ),
            (
                "a container on a machine that may be another one",
                in_a_container("b0", "pid:[2]"),
                in_a_container("b1", "pid:[2]"),
                NoSuchProcess,
                false,
            ),
            ("it did not say where it is", anywhere.clone(), process(), NoSuchProcess, false),
            ("nobody knows where this one is", process(), anywhere, NoSuchProcess, false),
        ];
        for (what, other, me, found, is_gone) in cases {
            assert_eq!(other.is_gone(&me, |pid| if pid == 7 { found } else { Unknown }), is_gone, "{what}");
        }
    }
}
