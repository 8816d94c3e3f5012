//! The Rust code of the guide (`docs/guide`), compiled as doc tests.

macro_rules! chapters {
    ($($name:ident: $file:literal),+ $(,)?) => {
        $(
            #[doc = include_str!(concat!("../docs/guide/src/", $file))]
            mod $name {}
        )+
    };
}

chapters! {
    getting_started: "getting-started.md",
    modelling: "modelling.md",
    priorities: "priorities.md",
    any_time: "any-time.md",
    retries: "retries.md",
    events: "events.md",
    schedules: "schedules.md",
    own_sql: "own-sql.md",
    testing: "testing.md",
    production: "production.md",
    observability: "observability.md",
    partitions: "partitions.md",
    security: "security.md",
    operating: "operating.md",
    console: "console.md",
}
