//! Instances in error and instances that are being retried, grouped by verb and by the common part of their errors.

use std::collections::HashMap;

use fsm_core::time::Timestamp;
use fsm_store::overview::Failing;

use super::Admin;
use super::whole::WholeDatabase;
use crate::error::Error;

/// The number of instances that one read returns.
const PAGE: u32 = 500;
/// The maximum length of a fingerprint, in characters.
const LONGEST: usize = 200;

/// Instances with the same problem.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorGroup {
    /// The machine.
    pub machine: String,
    /// The verb that failed, if it is known.
    pub verb: Option<String>,
    /// True if the instances are being retried, false if they are in error.
    pub is_retried: bool,
    /// The common part of the errors: the first line, with `#` for each word that contains a digit.
    pub fingerprint: String,
    /// The number of instances.
    pub count: usize,
    /// The instance that failed first.
    pub first: Failing,
    /// The time at which the last one failed.
    pub last_at: Timestamp,
    /// The earliest time of the next attempts, if the group is being retried.
    pub next_at: Option<Timestamp>,
}

/// The groups of one machine or of all, the largest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ErrorGroups {
    /// The groups.
    pub groups: Vec<ErrorGroup>,
    /// The machines that have more instances than were read.
    pub more_in: Vec<String>,
}

/// The properties that the instances of a group share.
#[derive(PartialEq, Eq, Hash)]
struct Shared {
    verb: Option<String>,
    is_retried: bool,
    fingerprint: String,
}

impl Admin {
    /// The groups of one machine, or of all. Reads at most `most` instances in error for all machines together, and for each machine at most
    /// `most` that are being retried, among the first `look_at` scheduled attempts.
    pub async fn error_groups(&self, machine: Option<&str>, most: usize, look_at: u32) -> Result<ErrorGroups, Error> {
        let machines: Vec<&str> = match machine {
            Some(name) => vec![self.machine(name)?.machine.name.as_str()],
            None => self.machines().iter().map(|known| known.machine.name.as_str()).collect(),
        };
        let mut found = ErrorGroups::default();
        let mut read = 0;
        for machine in machines {
            let mut places = HashMap::new();
            let retrying = self.retrying(machine, u32::try_from(most).unwrap_or(u32::MAX), look_at).await?;
            let mut is_cut = retrying.len() >= most;
            for one in retrying {
                found.add(&mut places, machine, one.failing, Some(one.next_at));
            }
            let mut before = None;
            loop {
                let page = self.failing(machine, before, PAGE).await?;
                let is_last = page.len() < PAGE as usize;
                before = page.last().map(|last| last.id);
                read += page.len();
                page.into_iter().for_each(|failing| found.add(&mut places, machine, failing, None));
                if is_last {
                    break;
                }
                if read >= most {
                    is_cut = true;
                    break;
                }
            }
            found.more_in.extend(is_cut.then(|| machine.to_owned()));
        }
        found.sort();
        Ok(found)
    }
}

impl WholeDatabase {
    /// The groups of one machine, or of all, in all partitions. The limits are for each partition, as in [`Admin::error_groups`].
    pub async fn error_groups(&self, machine: Option<&str>, most: usize, look_at: u32) -> Result<ErrorGroups, Error> {
        self.selected(machine)?;
        let read = async |admin: &Admin| match machine {
            Some(name) if admin.machine(name).is_err() => Ok(ErrorGroups::default()),
            _ => admin.error_groups(machine, most, look_at).await,
        };
        Ok(ErrorGroups::merged(self.read(read).await?.into_iter().map(|located| located.row)))
    }
}

impl ErrorGroup {
    /// Returns true if the instances of another group, such as one of another partition, have the same problem.
    pub fn is_as(&self, other: &ErrorGroup) -> bool {
        fn shared(of: &ErrorGroup) -> (bool, &str, Option<&str>, &str) {
            (of.is_retried, &of.machine, of.verb.as_deref(), &of.fingerprint)
        }
        shared(self) == shared(other)
    }
}

impl ErrorGroups {
    /// The groups of several partitions, as if there were one.
    pub fn merged(each: impl IntoIterator<Item = ErrorGroups>) -> ErrorGroups {
        let mut all = ErrorGroups::default();
        for ErrorGroups { groups, more_in } in each {
            groups.into_iter().for_each(|group| all.join(group));
            all.more_in.extend(more_in);
        }
        all.more_in.sort();
        all.more_in.dedup();
        all.sort();
        all
    }

    /// Puts the largest groups first.
    fn sort(&mut self) {
        self.groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (&a.machine, &a.fingerprint).cmp(&(&b.machine, &b.fingerprint))));
    }

    /// Adds a group of another partition.
    fn join(&mut self, other: ErrorGroup) {
        let Some(group) = self.groups.iter_mut().find(|group| group.is_as(&other)) else { return self.groups.push(other) };
        group.count += other.count;
        group.last_at = group.last_at.max(other.last_at);
        group.next_at = group.next_at.min(other.next_at);
        if other.first.since < group.first.since {
            group.first = other.first;
        }
    }

    fn add(&mut self, places: &mut HashMap<Shared, usize>, machine: &str, failing: Failing, next_at: Option<Timestamp>) {
        let (verb, is_retried, fingerprint) = (failing.verb.clone(), next_at.is_some(), fingerprint(&failing.error));
        let shared = Shared { verb: verb.clone(), is_retried, fingerprint: fingerprint.clone() };
        let place = *places.entry(shared).or_insert_with(|| {
            let (first, last_at) = (failing.clone(), failing.since);
            self.groups.push(ErrorGroup { machine: machine.to_owned(), verb, is_retried, fingerprint, count: 0, first, last_at, next_at });
            self.groups.len() - 1
        });
        let group = &mut self.groups[place];
        group.count += 1;
        group.last_at = group.last_at.max(failing.since);
        group.next_at = group.next_at.min(next_at);
        if failing.since < group.first.since {
            group.first = failing;
        }
    }
}

/// The first line of an error, with `#` for each word that contains a digit, because numbers, ids, addresses and times differ from case to
/// case.
pub fn fingerprint(error: &str) -> String {
    let line = error.trim().lines().next().unwrap_or_default();
    let mut print = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let is_word = rest.starts_with(is_of_word);
        let end = rest.find(|c| is_of_word(c) != is_word).unwrap_or(rest.len());
        let (piece, left) = rest.split_at(end);
        print.push_str(if is_word && piece.contains(|c: char| c.is_ascii_digit()) { "#" } else { piece });
        rest = left;
    }
    print.chars().take(LONGEST).collect()
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn a_fingerprint_forgets_what_differs_from_case_to_case() {
        let cases = [
            ("the gateway is down, 3 to go", "the gateway is down, # to go"),
            ("no row 0192f0c1-7c1e-7000-8000-0242ac120002", "no row #"),
            ("timeout after 30s\nat line 3", "timeout after #"),
            ("card declined", "card declined"),
            ("connect 10.0.0.1:5432", "connect #.#.#.#:#"),
        ];
        for (error, expected) in cases {
            assert_eq!(fingerprint(error), expected);
        }
    }
}
