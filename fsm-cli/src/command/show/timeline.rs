//! Draws the history of an instance as a tree with a branch for each call.

use fsm_core::call::AttemptState;
use fsm_core::time::Timestamp;
use fsm_runtime::handle::history::{HistoryEntry, HistoryEvent};
use unicode_width::UnicodeWidthStr;

use crate::clean::clean;
use crate::stage::short;
use crate::table::{BAD, FAINT, GOOD, OPEN, cut, painted};

/// The width of the time column.
const MOMENTS: usize = 23;
/// The minimum number of consecutive attempts with the same error that are shown as one line.
const ALIKE: usize = 4;
/// The minimum width to which a line is cut.
const NARROWEST: usize = 40;

/// The options of the drawing.
pub(super) struct Drawing {
    /// The last branch stays open, because more entries follow.
    pub goes_on: bool,
    /// The columns of the terminal, if it is one.
    pub width: Option<usize>,
    /// Attempts with the same error are shown one by one.
    pub in_full: bool,
}

/// Draws the history. Each line shows one entry, or several that are combined.
pub(super) fn drawn(entries: &[HistoryEntry], drawing: &Drawing, is_shown: impl Fn(&HistoryEntry) -> bool) -> String {
    let mut text = String::new();
    let mut begun: Option<Timestamp> = None;
    let mut place = 0;
    while let Some(entry) = entries.get(place) {
        let begins = matches!(entry.event, HistoryEvent::Event { .. }) || begun.is_none();
        let alike = if drawing.in_full { 0 } else { alike(&entries[place..]) };
        let count = alike.max(entries_in_line(&entries[place..]));
        let next = entries.get(place + count);
        let is_last = next.map_or(!drawing.goes_on, |next| matches!(next.event, HistoryEvent::Event { .. }));
        let branch = match (begins, is_last) {
            (true, _) => "●",
            (false, false) => "├",
            (false, true) => "╰",
        };
        let last = &entries[place + count - 1];
        let moment = match begun.filter(|_| !begins) {
            Some(begun) => format!("+{}", short(last.at.since(begun))),
            None => moment(entry.at, drawing.width.is_some().then_some(begun).flatten()),
        };
        if begins {
            begun = Some(entry.at);
        }
        if entries[place..place + count].iter().any(&is_shown) {
            let says = if alike > 0 {
                line_of_many(&entries[place..place + count])
            } else {
                line_of(&entry.event, entries.get(place + 1).filter(|_| count > 1))
            };
            let room = drawing.width.map_or(usize::MAX, |width| width.saturating_sub(MOMENTS + 5).max(NARROWEST));
            let (says, below) = says.drawn(room);
            let padded = format!("{moment:>MOMENTS$}");
            text.push_str(&format!("  {} {branch} {says}\n", painted(&padded, FAINT)));
            let branch = if branch == "╰" { " " } else { "│" };
            text.extend(below.map(|below| format!("  {:MOMENTS$} {branch}   {below}\n", "")));
        }
        place += count;
    }
    text
}

/// A time to the millisecond, without the date if `before` is on the same day.
fn moment(at: Timestamp, before: Option<Timestamp>) -> String {
    let of = |at: Timestamp| {
        let text = at.to_string();
        let (day, time) =
            text.trim_end_matches('Z').split_once('T').map(|(day, time)| (day.to_owned(), time.to_owned())).unwrap_or_default();
        let (seconds, fraction) = time.split_once('.').unwrap_or((&time, ""));
        (day, format!("{seconds}.{:0<3}", fraction.get(..3).unwrap_or(fraction)))
    };
    let (day, time) = of(at);
    if before.is_some_and(|before| of(before).0 == day) { time } else { format!("{day} {time}") }
}

/// The number of entries in the next line. A failed attempt and the schedule of the next one share a line unless the next one is still to
/// come.
fn entries_in_line(entries: &[HistoryEntry]) -> usize {
    match entries {
        [failed, next, _, ..] if is_failure(failed) && is_schedule(next) => 2,
        _ => 1,
    }
}

/// The number of entries that are consecutive attempts with the same error or snoozed attempts, each with the schedule of the next one; 0 if there are few.
fn alike(entries: &[HistoryEntry]) -> usize {
    let error_of = |entry: &HistoryEntry| match &entry.event {
        HistoryEvent::Attempt { error: Some(error), .. } if is_failure(entry) => Some(error.clone()),
        HistoryEvent::Attempt { state: AttemptState::Snoozed, .. } => Some(String::new()),
        _ => None,
    };
    let Some(first) = entries.first().and_then(error_of) else { return 0 };
    let pairs = entries.chunks_exact(2).take_while(|pair| error_of(&pair[0]).as_ref() == Some(&first) && is_schedule(&pair[1])).count();
    // The last schedule may still be due. It is then drawn on its own line.
    let pairs = if pairs * 2 == entries.len() { pairs.saturating_sub(1) } else { pairs };
    if pairs >= ALIKE { pairs * 2 } else { 0 }
}

fn is_failure(entry: &HistoryEntry) -> bool {
    use AttemptState::{Error, Lost, Released, Snoozed};
    matches!(entry.event, HistoryEvent::Attempt { state: Error | Lost | Released | Snoozed, .. })
}

fn is_schedule(entry: &HistoryEntry) -> bool {
    matches!(entry.event, HistoryEvent::Scheduled { .. })
}

/// A line: its mark, its own text with a style, and the text of an error or a reason.
struct EntryLine {
    mark: &'static str,
    style: anstyle::Style,
    says: String,
    theirs: Option<String>,
}

impl EntryLine {
    fn of(mark: &'static str, style: anstyle::Style, says: impl Into<String>) -> EntryLine {
        EntryLine { mark, style, says: says.into(), theirs: None }
    }

    /// The line, at most `width` columns wide. If the other text does not fit beside it, it is returned separately, for the line below.
    fn drawn(&self, width: usize) -> (String, Option<String>) {
        let says = cut(&self.says, width.saturating_sub(2));
        let theirs = self.theirs.as_deref().unwrap_or_default();
        let is_beside = says.width() + theirs.width() + 4 <= width;
        let below = (!is_beside).then(|| cut(theirs, width.saturating_sub(2)));
        let theirs = if theirs.is_empty() || !is_beside { String::new() } else { format!(": {theirs}") };
        let mark = if self.mark.is_empty() { String::new() } else { painted(self.mark, self.style) + " " };
        (format!("{mark}{}{theirs}", painted(&says, self.style)), below)
    }
}

fn line_of(what: &HistoryEvent, next: Option<&HistoryEntry>) -> EntryLine {
    let plain = anstyle::Style::new();
    match what {
        HistoryEvent::Event { event, verb } => EntryLine::of("", plain, format!("`{}` calls `{}`", clean(event), clean(verb))),
        HistoryEvent::Attempt { number, state, took, error, .. } => {
            let (mark, style) = match state {
                AttemptState::Success => ("✓", GOOD),
                AttemptState::Error | AttemptState::Lost => ("✗", BAD),
                AttemptState::Executing | AttemptState::Scheduled => ("▶", OPEN),
                AttemptState::Released | AttemptState::Cancelled | AttemptState::Snoozed => ("■", OPEN),
            };
            let took = took.map_or_else(String::new, |took| format!(" after {}", short(took)));
            let then = match next.map(|next| &next.event) {
                Some(HistoryEvent::Scheduled { wait, .. }) if wait.is_zero() => ", the next at once".to_owned(),
                Some(HistoryEvent::Scheduled { wait, .. }) => format!(", the next in {}", short(*wait)),
                _ => String::new(),
            };
            let says = format!("attempt {number}: {state}{took}{then}");
            EntryLine { theirs: error.as_deref().map(clean), ..EntryLine::of(mark, style, says) }
        }
        HistoryEvent::Scheduled { number, wait, .. } if wait.is_zero() => {
            EntryLine::of("…", plain, format!("attempt {number} is due at once"))
        }
        HistoryEvent::Scheduled { number, at, wait, .. } => {
            EntryLine::of("…", plain, format!("attempt {number} in {}, at {at}", short(*wait)))
        }
        HistoryEvent::Exhausted { attempts: 1, .. } => EntryLine::of("✗", BAD, "exhausted after one attempt"),
        HistoryEvent::Exhausted { attempts, .. } => EntryLine::of("✗", BAD, format!("exhausted after {attempts} attempts")),
        HistoryEvent::Transition { from: Some(from), to } => {
            EntryLine::of("→", plain, format!("from `{}` to `{}`", clean(from), clean(to)))
        }
        HistoryEvent::Transition { from: None, to } => EntryLine::of("→", plain, format!("begins in `{}`", clean(to))),
        HistoryEvent::Stayed { state } => EntryLine::of("→", plain, format!("stays in `{}`", clean(state))),
        HistoryEvent::Note { kind, detail, actor } => {
            let actor = actor.as_deref().map_or_else(String::new, |actor| format!(" by {}", clean(actor)));
            EntryLine { theirs: detail.as_deref().map(clean), ..EntryLine::of("!", OPEN, format!("{kind}{actor}")) }
        }
    }
}

/// The line for consecutive attempts with the same error.
fn line_of_many(entries: &[HistoryEntry]) -> EntryLine {
    let number = |entry: &HistoryEntry| match &entry.event {
        HistoryEvent::Attempt { number, .. } => *number,
        _ => 0,
    };
    let waits = entries.iter().filter_map(|entry| match &entry.event {
        HistoryEvent::Scheduled { wait, .. } => Some(*wait),
        _ => None,
    });
    let (shortest, longest) = (waits.clone().min().unwrap_or_default(), waits.max().unwrap_or_default());
    let waits = if shortest == longest { short(shortest) } else { format!("{} to {}", short(shortest), short(longest)) };
    let (first, last) = (&entries[0], &entries[entries.len() - 2]);
    let snoozed = matches!(first.event, HistoryEvent::Attempt { state: AttemptState::Snoozed, .. });
    let (mark, style, how) = if snoozed { ("■", OPEN, "snoozed") } else { ("✗", BAD, "failed alike") };
    let says = format!("attempts {} to {} {how}, {waits} apart", number(first), number(last));
    let theirs = match &first.event {
        HistoryEvent::Attempt { error, .. } => error.as_deref().map(clean),
        _ => None,
    };
    EntryLine { theirs, ..EntryLine::of(mark, style, says) }
}
