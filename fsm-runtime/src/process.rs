//! The identity of this process, and the check whether another process of this machine still exists. Both work on Linux only.

use std::fs;

use fsm_core::process::{ProcessIdentity, ProcessLookup, ProcessPlace};

/// The namespaces of the machine itself have fixed numbers; those of containers have others.
const OF_THE_MACHINE: [(&str, &str); 2] = [("pid", "pid:[4026531836]"), ("uts", "uts:[4026531838]")];

/// The identity of this process.
pub(crate) fn identity() -> ProcessIdentity {
    let host = std::env::var("HOSTNAME").or_else(|_| fs::read_to_string("/etc/hostname")).unwrap_or_default();
    ProcessIdentity { host: host.trim().to_owned(), pid: std::process::id(), place: place() }
}

/// `None` if the system does not provide all of it, or hides processes from each other.
fn place() -> Option<ProcessPlace> {
    // A container may see the processes of its host instead of its own.
    let is_own = fs::read_link("/proc/self").ok()?.to_str()?.parse() == Ok(std::process::id());
    if !is_own || hides_processes(&fs::read_to_string("/proc/self/mounts").ok()?) {
        return None;
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
    let ProcessLookup::StartedAt(started) = started(&fs::read_to_string("/proc/self/stat").ok()?) else { return None };
    // The start time is counted from the start of the machine as the namespace of time shows it.
    let namespaces = format!("{} {}", namespace("pid")?, namespace("time").unwrap_or_default());
    (!boot.is_empty()).then_some(ProcessPlace { machine: machine(), boot, namespaces, started })
}

/// The id of the machine; `None` in a container.
fn machine() -> Option<String> {
    let is_in_a_container = OF_THE_MACHINE.iter().any(|(kind, number)| namespace(kind).as_deref() != Some(number));
    let id = fs::read_to_string("/etc/machine-id").ok()?.trim().to_owned();
    (!is_in_a_container && !id.is_empty()).then_some(id)
}

fn namespace(kind: &str) -> Option<String> {
    Some(fs::read_link(format!("/proc/self/ns/{kind}")).ok()?.to_str()?.to_owned())
}

/// Asks the system about a process id. Only for a process that has an [`identity`] with a place.
pub(crate) fn look_up(pid: u32) -> ProcessLookup {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => started(&stat),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => ProcessLookup::NoSuchProcess,
        Err(_) => ProcessLookup::Unknown,
    }
}

/// The start of the process that a line of `/proc/<pid>/stat` describes.
fn started(stat: &str) -> ProcessLookup {
    // The name of the program is in parentheses and may contain any character.
    let fields: Vec<&str> = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let (state, threads, started) = (fields.first(), fields.get(17), fields.get(19));
    // The parent of a process that ended may not have looked yet. A first thread may end before the others.
    if matches!(state, Some(&("Z" | "X"))) && threads.is_some_and(|threads| matches!(*threads, "0" | "1")) {
        return ProcessLookup::NoSuchProcess;
    }
    started.and_then(|ticks| ticks.parse().ok()).map_or(ProcessLookup::Unknown, ProcessLookup::StartedAt)
}

/// Returns true if `/proc` shows each user only their own processes.
fn hides_processes(mounts: &str) -> bool {
    let mut options = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        (fields.next()? == "/proc" && fields.next()? == "proc").then(|| fields.next().unwrap_or_default())
    });
    options.any(|options| options.split(',').any(|one| one.strip_prefix("hidepid=").is_some_and(|how| how != "0" && how != "off")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_not_found_although_nobody_has_looked() {
        let line = |state: &str, threads: u32| format!("7 (a ) b) {state} 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 4711 0 0");
        assert_eq!(started(&line("S", 4)), ProcessLookup::StartedAt(4711));
        assert_eq!(started(&line("Z", 1)), ProcessLookup::NoSuchProcess);
        assert_eq!(started(&line("Z", 3)), ProcessLookup::StartedAt(4711), "other threads of it run");
        assert_eq!(started("7 (x"), ProcessLookup::Unknown);
    }

    #[test]
    fn where_processes_are_hidden_nothing_counts_as_gone() {
        assert!(hides_processes("proc /proc proc rw,nosuid,hidepid=2 0 0"));
        assert!(hides_processes("proc /proc proc rw,hidepid=invisible,gid=4 0 0"));
        assert!(!hides_processes("proc /proc proc rw,nosuid,hidepid=0 0 0\nsysfs /sys sysfs rw 0 0"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_not_gone_and_a_child_that_ended_is() {
        let me = identity();
        assert!(!me.is_gone(&me, look_up));
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("`sleep` is there");
        let Some(place) = &me.place else {
            child.kill().and_then(|()| child.wait()).expect("it runs");
            return;
        };
        let ProcessLookup::StartedAt(started) = look_up(child.id()) else { panic!("the child runs") };
        let childs = ProcessIdentity { pid: child.id(), place: Some(ProcessPlace { started, ..place.clone() }), ..me.clone() };
        assert!(!childs.is_gone(&me, look_up), "it runs");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!(childs.is_gone(&me, look_up));
    }
}
