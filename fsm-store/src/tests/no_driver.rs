//! The error about a database whose feature is off, in a build with one driver.

use crate::error::Class;
use crate::open::Store;
use crate::settings::Settings;

#[tokio::test]
async fn a_url_of_a_database_without_its_driver_names_the_feature() {
    let cases: &[(&str, &str)] = match cfg!(feature = "sqlite") {
        true => &[
            ("postgres://me:s3cret@host/db", "`postgres://me:***@host/db` needs the feature `postgres` of durable-fsm"),
            ("postgresql://h1,h2/db", "`postgresql://h1,h2/db` needs the feature `postgres` of durable-fsm"),
        ],
        false => &[
            ("sqlite://payments.db", "`sqlite://payments.db` needs the feature `sqlite` of durable-fsm"),
            ("sqlite::memory:", "`sqlite::memory:` needs the feature `sqlite` of durable-fsm"),
            ("payments.db", "`payments.db` needs the feature `sqlite` of durable-fsm"),
        ],
    };
    for (url, says) in cases {
        let error = Store::open(Settings::new(*url)).await.map(|_| ()).expect_err(url);
        assert_eq!(error.class(), Class::Misfit, "{url}: it is not retried");
        let text = error.to_string();
        assert!(text.starts_with(says) && text.contains("Cargo.toml"), "{text}");
    }
}
