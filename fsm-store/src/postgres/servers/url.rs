//! libpq's URL of several hosts: `postgres://user@h1:5432,h2:5433/db?target_session_attrs=read-write`.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

use super::role::Wanted;
use super::{CONNECT_TIMEOUT, Servers, Shared};

/// The longest `connect_timeout`, in seconds: a day.
const LONGEST_S: u64 = 86_400;

impl Servers {
    /// Parses a URL. The error text continues a sentence that begins with the URL.
    ///
    /// Hosts are in the authority or in `host=` (or `hostaddr=`), ports after the hosts or in `port=`: one for each host, or one for all.
    /// In addition to the driver's parameters it accepts `target_session_attrs` (default `read-write` for several hosts, else `any`),
    /// `connect_timeout` in seconds for each host (default 5; 0 is a day) and `load_balance_hosts` (`disable` or `random`).
    pub(crate) fn parse(url: &str) -> Result<Servers, String> {
        let is_no_url = || "is no PostgreSQL URL".to_owned();
        let (scheme, rest) = url.split_once("://").ok_or_else(is_no_url)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, places) = authority.rsplit_once('@').map_or((None, authority), |(login, places)| (Some(login), places));
        let mut hosts = Hosts::of_authority(places)?;
        let (mut wanted, mut connect_timeout, mut is_random) = (None, CONNECT_TIMEOUT, false);
        let mut others = Vec::new();
        let mut addresses = None;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=').unwrap_or((parameter, "")) {
                ("host", value) => hosts.names = listed(value),
                ("hostaddr", value) => addresses = Some(listed(value)),
                ("port", value) => hosts.ports = listed(value),
                ("target_session_attrs", value) => wanted = Some(Wanted::parse(value)?),
                ("connect_timeout", value) => connect_timeout = seconds(value)?,
                ("load_balance_hosts", "disable") => is_random = false,
                ("load_balance_hosts", "random") => is_random = true,
                ("load_balance_hosts", value) => {
                    return Err(format!("has `load_balance_hosts={value}`, which is neither `disable` nor `random`"));
                }
                _ => others.push(parameter.to_owned()),
            }
        }
        if let Some(addresses) = addresses {
            hosts.names = addresses;
        }
        let login = login.map(|login| format!("{login}@")).unwrap_or_default();
        let options = hosts.each()?.into_iter().map(|(host, port)| {
            let mut query = others.clone();
            query.extend(host.as_ref().map(|host| format!("host={host}")));
            query.extend(port.map(|port| format!("port={port}")));
            // The driver requires a host after a login. The parameter `host` overrides it.
            let place = if host.is_some() || !login.is_empty() { "localhost" } else { "" };
            let url = format!("{scheme}://{login}{place}{path}?{}", query.join("&"));
            PgConnectOptions::from_str(&url).map_err(|_| is_no_url())
        });
        let hosts = options.collect::<Result<Vec<_>, _>>()?;
        let wanted = wanted.unwrap_or(if hosts.len() > 1 { Wanted::ReadWrite } else { Wanted::Any });
        Ok(Servers { hosts, wanted, connect_timeout, is_random, shared: Arc::<Shared>::default() })
    }
}

/// A host and its port.
type Place = (Option<String>, Option<u16>);

/// The hosts and ports of a URL, still percent-encoded.
struct Hosts<'u> {
    names: Vec<&'u str>,
    ports: Vec<&'u str>,
}

impl<'u> Hosts<'u> {
    fn of_authority(places: &'u str) -> Result<Hosts<'u>, String> {
        let mut hosts = Hosts { names: Vec::new(), ports: Vec::new() };
        for place in places.split(',') {
            let (name, port) = match place.strip_prefix('[') {
                Some(bracketed) => {
                    let (name, after) = bracketed.split_once(']').ok_or("has a bracket that is not closed")?;
                    (name, after.strip_prefix(':').unwrap_or(after))
                }
                None => place.split_once(':').unwrap_or((place, "")),
            };
            hosts.names.push(name);
            hosts.ports.push(port);
        }
        if hosts.ports.iter().all(|port| port.is_empty()) {
            hosts.ports.clear();
        }
        Ok(hosts)
    }

    /// Each host with its port. `None` is the driver's default, which environment variables may set.
    fn each(&self) -> Result<Vec<Place>, String> {
        let (names, ports) = (&self.names, &self.ports);
        if ports.len() > 1 && ports.len() != names.len() {
            return Err(format!("has {} hosts and {} ports; one port for each host or one for all would do", names.len(), ports.len()));
        }
        let each = names.iter().enumerate().map(|(place, name)| {
            let port = ports.get(place).or(ports.first().filter(|_| ports.len() == 1)).filter(|port| !port.is_empty());
            let port = port.map(|port| port.parse::<u16>().map_err(|_| "has a port that is no number".to_owned())).transpose()?;
            Ok(((!name.is_empty()).then(|| (*name).to_owned()), port))
        });
        each.collect()
    }
}

/// The values of a list. Its commas may be percent-encoded.
fn listed(value: &str) -> Vec<&str> {
    value.split(',').flat_map(|part| part.split("%2C")).flat_map(|part| part.split("%2c")).collect()
}

fn seconds(value: &str) -> Result<Duration, String> {
    match value.parse::<u64>() {
        Ok(0) => Ok(Duration::from_secs(LONGEST_S)),
        Ok(seconds) => Ok(Duration::from_secs(seconds.min(LONGEST_S))),
        Err(_) => Err(format!("has `connect_timeout={value}`, which is no number of seconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_name_several_hosts_as_libpq_does() {
        let cases = [
            ("postgres://me@h1:5433,h2:5434/db", "h1:5433, h2:5434", Wanted::ReadWrite),
            ("postgres://me:se,cret@h1,h2:5434/db", "h1:5432, h2:5434", Wanted::ReadWrite),
            ("postgres://me@[::1]:5433,[fe80::1]/db", "[::1]:5433, [fe80::1]:5432", Wanted::ReadWrite),
            ("postgres://me@/db?host=h1,h2&port=6000", "h1:6000, h2:6000", Wanted::ReadWrite),
            ("postgres://me@/db?host=h1%2Ch2&port=6000,6001", "h1:6000, h2:6001", Wanted::ReadWrite),
            ("postgres://me@h1,h2/db?hostaddr=10.0.0.1,10.0.0.2", "10.0.0.1:5432, 10.0.0.2:5432", Wanted::ReadWrite),
            ("postgres://me@%2Ftmp%2Fone,h2:7/db", "/tmp/one, h2:7", Wanted::ReadWrite),
            ("postgres://me@%2Ftmp%2Fone/db", "/tmp/one", Wanted::Any),
            ("postgres://h1:5433/db?target_session_attrs=primary", "h1:5433", Wanted::Primary),
            ("postgresql://h1,h2/db?target_session_attrs=prefer-standby", "h1:5432, h2:5432", Wanted::PreferStandby),
        ];
        for (url, names, wanted) in cases {
            let servers = Servers::parse(url).unwrap_or_else(|says| panic!("{url} {says}"));
            assert_eq!((servers.names().as_str(), servers.wanted), (names, wanted), "{url}");
            assert!(servers.hosts.iter().all(|options| options.get_database() == Some("db")), "{url}");
            if url.contains("me") {
                assert!(servers.hosts.iter().all(|options| options.get_username() == "me"), "{url}");
            }
        }
    }

    #[test]
    fn a_wrong_url_says_what_is_wrong() {
        let cases = [
            ("postgres://h1:1,h2:2/db?port=1,2,3", "2 hosts and 3 ports"),
            ("postgres://h1:x,h2/db", "a port that is no number"),
            ("postgres://[::1,h2/db", "bracket"),
            // A part of a password may be in the place of a port, and must not be shown.
            ("postgres://me:s3c/ret@h1/db", "has a port that is no number"),
            ("postgres://h1,h2/db?target_session_attrs=writable", "none of any, read-write"),
            ("postgres://h1,h2/db?connect_timeout=soon", "no number of seconds"),
            ("postgres://h1,h2/db?load_balance_hosts=yes", "neither `disable` nor `random`"),
        ];
        for (url, says) in cases {
            let error = Servers::parse(url).map(|servers| servers.names()).expect_err(url);
            assert!(error.contains(says), "{url}: {error}");
        }
    }
}
