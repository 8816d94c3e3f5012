//! The year of the example, and a crash at every point of a shorter one.

use std::sync::Arc;
use std::time::Instant;

use super::*;

/// Returns the time that the year took.
async fn a_year_as_expected(bank: &Bank, bed: &TestBed) -> Duration {
    let began = Instant::now();
    live(bed, bank, bed.now(), &YEAR, 365).await.expect("every send is accepted");
    let took = began.elapsed();
    for (name, state, status, periods) in EXPECTED {
        let found = bed.machine::<Subscription>().get(name).await.expect("the database works").expect("everybody subscribed");
        assert_eq!((found.state, found.status, found.record.periods), (Some(state), status, periods), "{name}");
        assert_eq!(bank.booked.happened(&format!("{name} pays")), periods, "{name}");
        assert_eq!(found.record.refunds, u32::from(name == "ada"), "{name}");
    }
    took
}

/// The fastest of three runs counts, because other programs may use the machine.
#[tokio::test]
async fn a_year_passes_in_less_than_a_second() {
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let bank = Bank::default();
        fastest = fastest.min(a_year_as_expected(&bank, &subscriptions(&bank).sqlite().await).await);
    }
    println!("the year took {fastest:?}");
    assert!(fastest < Duration::from_secs(1), "the year took {fastest:?}");
}

#[tokio::test]
async fn a_year_ends_the_same_on_postgres() {
    let bank = Bank::default();
    a_year_as_expected(&bank, &subscriptions(&bank).postgres().await).await;
}

/// Lets the process die at every point of `year`. The end is the same, and so is each payment.
async fn no_crash_changes_the_end(year: &[(u32, &str, Act)], last_day: u32) {
    let bank = Bank::default();
    let bed = subscriptions(&bank).sqlite().await;
    let begin = bed.now();
    let scenario = async |bed: Arc<TestBed>| {
        bank.set_away(false);
        live(&bed, &bank, begin, year, last_day).await.expect("every send is accepted");
        let kim = bed.machine::<Subscription>().get("kim").await.expect("the database works").expect("she subscribed");
        (kim.state, kim.status, kim.record)
    };
    let crashes = bed.crash_at_every_point(scenario).await;
    println!("{crashes}");
    assert!(crashes.points > 100, "{crashes}");
}

#[tokio::test]
async fn a_crash_at_any_point_of_the_dunning_changes_nothing_about_the_end() {
    let year = [(0, "kim", Act::Subscribe { card: "bad", trial_days: 14 }), (15, "kim", Act::UpdateCard("4545"))];
    no_crash_changes_the_end(&year, 18).await;
}

/// The charge of day 14 is retried when she cancels.
#[tokio::test]
async fn a_crash_at_any_point_of_a_refund_and_a_cancellation_changes_nothing_about_the_end() {
    let year = [
        (0, "kim", Act::Subscribe { card: "4545", trial_days: 14 }),
        (20, "kim", Act::Refund),
        (43, "", Act::BankIsAway(true)),
        (44, "kim", Act::Cancel("too expensive")),
    ];
    no_crash_changes_the_end(&year, 44).await;
}
