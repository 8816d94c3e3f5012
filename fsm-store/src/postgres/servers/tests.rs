//! The choice of the server that fits.

use super::Servers;
use super::role::{Role, Wanted};

#[test]
fn a_server_fits_by_its_role_as_libpq_has_it() {
    let role = |is_standby, is_read_only| Role { is_standby, is_read_only };
    let (primary, protected, standby) = (role(false, false), role(false, true), role(true, true));
    let cases = [
        (Wanted::Any, [true, true, true]),
        (Wanted::ReadWrite, [true, false, false]),
        (Wanted::ReadOnly, [false, true, true]),
        (Wanted::Primary, [true, true, false]),
        (Wanted::Standby, [false, false, true]),
        (Wanted::PreferStandby, [true, true, true]),
    ];
    for (wanted, fits) in cases {
        assert_eq!([primary, protected, standby].map(|role| wanted.refusal(role).is_none()), fits, "{wanted:?}");
    }
}

#[test]
fn the_server_that_fitted_last_is_asked_first() {
    let servers = Servers::parse("postgres://h1,h2,h3/db").expect("it is a URL");
    assert_eq!(servers.order(), [0, 1, 2]);
    servers.shared.latest.store(1, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(servers.clone().order(), [1, 2, 0]);
}

#[test]
fn with_load_balancing_every_server_is_asked_first_at_times() {
    let servers = Servers::parse("postgres://h1,h2,h3/db?load_balance_hosts=random").expect("it is a URL");
    let mut first = [0; 3];
    for _ in 0..300 {
        let order = servers.order();
        let mut sorted: Vec<usize> = order.iter().copied().collect();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2]);
        first[order[0]] += 1;
    }
    assert!(first.iter().all(|often| *often > 30), "{first:?}");
}
