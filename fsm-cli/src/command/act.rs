//! `fsm retry`, `cancel`, `pause`, `resume` and `skip`: acts on one instance, or on all that match a filter.

use std::future::IntoFuture;

use fsm_core::decide::operate::Act;
use fsm_runtime::admin::whole::{Located, WholeDatabase};
use fsm_runtime::error::Error;
use fsm_runtime::handle::operate::OperateRequest;
use serde_json::json;
use tokio::task::JoinSet;

use super::ls;
use super::session::Session;
use crate::args::Acting;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::table::{BAD, Cell, GOOD, Table};

/// The number of instances on a page of the search, and the number of acts that run at once.
const TOGETHER: u32 = 200;
/// The maximum number of keys that the confirmation prompt lists.
const SHOWN: usize = 10;

pub(super) async fn run(session: &mut Session<'_, '_>, act: Act, acting: Acting) -> Result<(), Problem> {
    let opening = acting.key.iter().fold(session.opening.clone(), |opening, key| opening.of_key(key));
    let database = WholeDatabase::open(if acting.dry_run { opening } else { opening.acting() }).await?;
    let done = operate(session, &database, act, acting).await;
    let checked = session.check_partitions(&database);
    done.and(checked)
}

async fn operate(session: &mut Session<'_, '_>, database: &WholeDatabase, act: Act, acting: Acting) -> Result<(), Problem> {
    database.machine(&acting.machine)?;
    let keys = match &acting.key {
        Some(_) if acting.wanted.is_some() => return Err(Problem::Usage("give a key or a filter, not both".into())),
        Some(key) => {
            // The partition of the key alone is open.
            let admin = &database.opened()[0];
            let row = admin.details(&acting.machine, key).await?.seen.row.key;
            vec![Located { partition: admin.partition().map(|partition| partition.number()), row }]
        }
        None if !acting.wanted.is_some() => {
            let filters = "`--key`, `--where`, `--state`, `--status`, `--error`, `--retrying`, `--older` or `--paused`";
            return Err(Problem::Usage(format!("give the key of an instance, or say which ones by {filters}")));
        }
        None => {
            ls::check_state(database, Some(&acting.machine), &acting.wanted)?;
            matching(database, &acting).await?
        }
    };
    let (word, done_word) = words(&act);
    if acting.dry_run {
        let outcomes = keys.into_iter().map(|located| (located.row, None)).collect();
        return report(session, &acting, word, &format!("would be {done_word}"), outcomes);
    }
    if keys.is_empty() {
        session.stage.say("no instance is like that");
        return report(session, &acting, word, done_word, Vec::new());
    }
    if acting.key.is_none() && !acting.yes {
        let some: Vec<_> = keys.iter().take(SHOWN).map(|located| format!("`{}`", located.row)).collect();
        let more = if keys.len() > SHOWN { ", …" } else { "" };
        let question = format!("{word} {} instances of `{}`: {}{more}.", keys.len(), acting.machine, some.join(", "));
        session.stage.confirm(&question, &keys.len().to_string())?;
    }
    let actor = acting.actor.clone().or_else(|| session.stage.actor.clone());
    let operate = |located: &Located<String>| {
        let operating = database.partition(located.partition).operate(&acting.machine, &located.row, act.clone());
        let operating = actor.iter().fold(operating, |operating, actor| operating.actor(actor));
        acting.reason.iter().fold(operating, |operating, reason| operating.reason(reason))
    };
    if let (Some(key), [located]) = (&acting.key, keys.as_slice()) {
        operate(located).await?;
        return report(session, &acting, word, done_word, vec![(key.clone(), None)]);
    }
    let outcomes = carry_out(session, &keys, operate).await?;
    report(session, &acting, word, done_word, outcomes)
}

/// The keys of all instances that match the filter now.
async fn matching(database: &WholeDatabase, acting: &Acting) -> Result<Vec<Located<String>>, Problem> {
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let listed = database.page(&acting.machine, &ls::filter(&acting.wanted, after, TOGETHER, database.now())).await?;
        keys.extend(listed.instances.into_iter().map(|seen| Located { partition: seen.partition, row: seen.row.row.key }));
        // Acted on all the same: the act does not need the value that does not decode.
        keys.extend(listed.unreadable.into_iter().map(|one| Located { partition: one.partition, row: one.row.key }));
        after = listed.next;
        if after.is_none() {
            return Ok(keys);
        }
    }
}

/// Carries out the act on each instance. A refusal does not affect the others. An error of the database ends the loop; its text says how
/// many acts were carried out.
async fn carry_out(
    session: &mut Session<'_, '_>,
    keys: &[Located<String>],
    operate: impl Fn(&Located<String>) -> OperateRequest,
) -> Result<Vec<(String, Option<String>)>, Problem> {
    let mut outcomes = Vec::with_capacity(keys.len());
    let progress = Progress::of(session.stage, Some(keys.len() as u64), "instances");
    for some in keys.chunks(TOGETHER as usize) {
        let mut under_way = JoinSet::new();
        for (place, key) in some.iter().enumerate() {
            let acting = operate(key).into_future();
            under_way.spawn(async move { (place, acting.await) });
        }
        let mut ended: Vec<(usize, Result<(), Error>)> = under_way.join_all().await;
        ended.sort_by_key(|(place, _)| *place);
        for (place, ended) in ended {
            match ended {
                Ok(()) => outcomes.push((some[place].row.clone(), None)),
                Err(error) if error.is_database() => {
                    return Err(Problem::Database(format!("{error}; {} of {} instances had their turn", outcomes.len(), keys.len())));
                }
                Err(error) => outcomes.push((some[place].row.clone(), Some(error.to_string()))),
            }
        }
        progress.at(outcomes.len() as u64);
    }
    Ok(outcomes)
}

/// Prints the result for each instance. Returns `Refused` if one of them refused.
fn report(
    session: &mut Session<'_, '_>,
    acting: &Acting,
    word: &str,
    done_word: &str,
    outcomes: Vec<(String, Option<String>)>,
) -> Result<(), Problem> {
    let refused = outcomes.iter().filter(|(_, why)| why.is_some()).count();
    if session.is_json {
        let of = |(key, why): &(String, Option<String>)| json!({ "key": key, "done": why.is_none() && !acting.dry_run, "why": why });
        let instances: Vec<_> = outcomes.iter().map(of).collect();
        let answer = json!({ "act": word, "machine": acting.machine, "dry_run": acting.dry_run, "instances": instances });
        session.stage.json(&answer)?;
    } else {
        let mut table = Table::of_sentences(&["MACHINE", "KEY", "OUTCOME"]);
        for (key, why) in &outcomes {
            let outcome = match why {
                Some(why) => Cell::styled(why, BAD),
                None => Cell::styled(done_word, GOOD),
            };
            table.row([Cell::from(&acting.machine), Cell::from(key), outcome]);
        }
        session.stage.table(&table)?;
    }
    match refused {
        0 => Ok(()),
        n => Err(Problem::Refused(format!("{n} of {} instances refused", outcomes.len()))),
    }
}

/// The verb for an act, and its past participle.
fn words(act: &Act) -> (&'static str, &'static str) {
    match act {
        Act::Retry => ("retry", "retried"),
        Act::Cancel => ("cancel", "cancelled"),
        Act::Pause => ("pause", "paused"),
        Act::Resume => ("resume", "resumed"),
        Act::Skip => ("skip", "skipped"),
        Act::SetRetry(_) => ("reschedule", "rescheduled"),
    }
}
