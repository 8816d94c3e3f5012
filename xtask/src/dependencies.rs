//! Checks the dependencies by `deny.toml` with `cargo deny check`, as far as its tools and its database are available. A test in this file
//! checks licences and sources without them.

use crate::step::{Failed, cargo, cargo_has, run as run_step};

/// Checks licences, bans and sources, and advisories if their database is available. Prints what was not checked. `Failed` if a check
/// fails.
pub fn run() -> Result<(), Failed> {
    if !cargo_has("deny") {
        println!("    NOT CHECKED: advisories and bans, for cargo-deny is not installed (`cargo install cargo-deny --locked`)");
        return Ok(());
    }
    let checked = run_step(&mut cargo(&["deny", "--workspace", "check", "licenses", "bans", "sources"]));
    if run_step(&mut cargo(&["deny", "fetch", "db"])).is_ok() {
        checked.and(run_step(&mut cargo(&["deny", "--workspace", "check", "advisories"])))
    } else {
        println!("    NOT CHECKED: advisories, for their database cannot be fetched from here");
        checked
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use serde_json::Value;
    use spdx::{Expression, LicenseReq, ParseMode};

    use crate::step::{cargo, root};

    /// The licences that `deny.toml` allows.
    fn allowed() -> Vec<String> {
        let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml is there");
        let list = text.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).expect("it has a list of licences");
        list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// Returns true if an SPDX expression can be satisfied with allowed licences. A licence with an exception grants more rights than the
    /// licence alone. `/` is read as `OR`, as crates.io does.
    fn permits(expression: &str, allowed: &[String]) -> bool {
        let is_allowed = |wanted: &LicenseReq| wanted.license.id().is_some_and(|id| allowed.iter().any(|allowed| allowed == id.name));
        Expression::parse_mode(expression, ParseMode::LAX).is_ok_and(|expression| expression.evaluate(is_allowed))
    }

    #[test]
    fn a_licence_is_permitted_if_one_choice_is() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned);
        for fine in
            ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(MIT OR GPL-3.0) AND Unicode-3.0", "Apache-2.0 WITH LLVM-exception OR GPL-3.0"]
        {
            assert!(permits(fine, &allowed), "{fine}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "GPL-3.0 OR (MIT AND AGPL-3.0)", "MIT)"] {
            assert!(!permits(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn every_dependency_has_an_allowed_licence_and_comes_from_the_registry() {
        let answer = cargo(&["metadata", "--format-version", "1", "--locked", "--all-features"])
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo runs");
        assert!(answer.status.success(), "cargo metadata failed");
        let metadata: Value = serde_json::from_slice(&answer.stdout).expect("it answers with JSON");
        let packages = metadata["packages"].as_array().expect("with a list of packages");
        assert!(packages.len() > 150, "{} packages are not all of them", packages.len());
        let allowed = allowed();
        for package in packages {
            let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or_default());
            assert!(permits(licence, &allowed), "{name} has the licence `{licence}`, and deny.toml allows {allowed:?}");
            let source = package["source"].as_str();
            let is_ours =
                source.is_none() && package["manifest_path"].as_str().is_some_and(|path| path.starts_with(&*root().to_string_lossy()));
            let is_from_registry = source == Some("registry+https://github.com/rust-lang/crates.io-index");
            assert!(is_ours || is_from_registry, "{name} comes from {source:?}");
        }
    }
}
