//! Fuzz tests with random tokens, and with machines and directives in which a few tokens are moved, removed or inserted: no macro panics,
//! and each returns an error or code that parses.
//!
//! Each test has a fixed seed, which it prints. `FSM_FUZZ_SEED=…` is another one, `FSM_FRESH_SEEDS=1` a new one for each run, and
//! `FSM_FUZZ_CASES=…` runs more.

use proc_macro2::TokenStream;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngSeed, TestRunner};

const WORDS: &[&str] = &[
    "machine",
    "start",
    "end",
    "on",
    "after",
    "any",
    "keeps",
    "retry",
    "none",
    "pub",
    "fn",
    "async",
    "type",
    "self",
    "Self",
    "crate",
    "super",
    "_",
    "r#type",
    "created",
    "paid",
    "failed",
    "Cancel",
    "Door",
    "Caught",
    "Timeout",
    "catch",
    "delay",
    "give_up_on",
    "retries",
    "max_attempts",
    "min",
    "max",
    "backoff",
    "jitter",
    "within",
    "timeout",
    "\"5s\"",
    "\"1h\"",
    "\"\"",
    "\"nonsense\"",
    "\"door\"",
    "'c'",
    "b\"5s\"",
    "0",
    "3",
    "-1",
    "4294967296",
    "99999999999999999999",
    "1.5",
    "0.5",
    "1e400",
    "true",
    "->",
    "=>",
    "|",
    ",",
    ";",
    "=",
    "::",
    "<",
    ">",
    "#",
    "!",
    "&",
    "'a",
    "..",
    "()",
    "{}",
    "[]",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "/// docs\n",
    "#[doc = \"x\"]",
    "&mut",
    "Ctx<'_>",
    "event:",
    "-> Result",
];

const MACHINE: &str = r#"/// A door.
    pub machine Door = "door" { retry ( 3 , "1s" , "1m" ) ; keeps Count ; start opened | made ; opened -> doors :: closed | jammed ;
    opened after "30m" -> expired ; any ( opened , made ) -> broken ; on Lock { opened -> locked ; closed -> bolted ; }
    end expired , locked , bolted , jammed , broken ; }"#;

const VERB: &str = r#"#[retry ( 10 , "5s" , "1h" , give_up_on ( Jammed ) , catch = recover )] pub async fn opened ( ctx : & mut Ctx < '_ > ,
    record : & mut Count , motor : Data < Motor > , event : Opened ) -> Result < ( ) , Error > { Ok ( ( ) ) }"#;

const DIRECTIVES: [&str; 5] = [
    r#"10 , "5s" , "1h" , jitter = 0.1"#,
    r#"max_attempts = 11 , min = "5s" , max = "1h" , backoff = 3.0 , within = "24h""#,
    r#"none"#,
    r#"retries = 3 , delay = my :: delay , give_up_on ( CardDeclined , Fraud )"#,
    r#""5s" , "10m" , catch = recover"#,
];

/// The seed of every test, unless the environment names another.
const SEED: u64 = 17;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}

fn seed() -> u64 {
    let fresh = || std::time::UNIX_EPOCH.elapsed().map_or(SEED, |since| since.as_nanos() as u64);
    setting("FSM_FUZZ_SEED").unwrap_or_else(|| if std::env::var_os("FSM_FRESH_SEEDS").is_some() { fresh() } else { SEED })
}

fn try_all<S: Strategy>(cases: u32, values: S, holds: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let seed = seed();
    let cases = setting("FSM_FUZZ_CASES").and_then(|cases| u32::try_from(cases).ok()).unwrap_or(cases);
    println!("FSM_FUZZ_SEED={seed} FSM_FUZZ_CASES={cases}");
    let config = Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(&values, holds).unwrap_or_else(|failure| panic!("{failure}"));
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![9 => prop::sample::select(WORDS).prop_map(str::to_owned), 1 => "[a-zA-Zß_][a-z0-9_]{0,8}"]
}

fn anything() -> impl Strategy<Value = String> {
    prop::collection::vec(word(), 0..40).prop_map(|words| words.join(" "))
}

/// Returns the text with a few words removed, doubled, moved or replaced.
fn mutated(text: &'static str) -> impl Strategy<Value = String> {
    prop::collection::vec((any::<Index>(), any::<Index>(), 0..5_u8, word()), 0..6).prop_map(move |changes| {
        let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        for (one, other, how, word) in changes {
            let (one, other) = (one.index(words.len()), other.index(words.len()));
            match how {
                0 => drop(words.remove(one)),
                1 => words.insert(other, words[one].clone()),
                2 => words.swap(one, other),
                3 => words[one] = word,
                _ => words.insert(one, word),
            }
            if words.is_empty() {
                words.push(";".to_owned());
            }
        }
        words.join(" ")
    })
}

/// Returns the tokens of a text; `None` if its brackets and quotes do not match, because the compiler never passes such tokens to a macro.
fn tokens(text: &str) -> Option<TokenStream> {
    text.parse().ok()
}

fn is_an_error_or_code(expansion: TokenStream, input: &str) -> Result<(), TestCaseError> {
    let text = expansion.to_string();
    let is_fine = text.contains("compile_error") || syn::parse2::<syn::File>(expansion).is_ok();
    prop_assert!(is_fine, "{} comes out as {}", input, text);
    Ok(())
}

#[test]
fn any_tokens_are_a_machine_or_an_error() {
    try_all(2_000, prop_oneof![anything(), mutated(MACHINE), mutated(MACHINE)], |text| match tokens(&text) {
        Some(tokens) => is_an_error_or_code(crate::machine::expand(tokens), &text),
        None => Ok(()),
    });
}

#[test]
fn a_machine_without_a_mutation_is_no_error() {
    let text = crate::machine::expand(tokens(MACHINE).expect("tokens")).to_string();
    assert!(!text.contains("compile_error"), "{text}");
}

#[test]
fn any_tokens_are_a_verb_with_options_or_an_error() {
    let items = prop_oneof![anything(), mutated(VERB), mutated(VERB), mutated(VERB)];
    let options = prop_oneof![Just(String::new()), anything(), mutated(r#"timeout = "30s""#)];
    try_all(4_000, (options, items), |(options, item)| match (tokens(&options), tokens(&item)) {
        (Some(options), Some(item)) => {
            let text = item.to_string();
            let expansion = crate::verb::expand(options, item);
            // Bodies are passed on without being parsed. If the item is not valid Rust, the macro returns it as it is, and the compiler
            // reports the error.
            if syn::parse_str::<syn::Item>(&text).is_ok() { is_an_error_or_code(expansion, &text) } else { Ok(()) }
        }
        _ => Ok(()),
    });
}

#[test]
fn any_tokens_are_a_retry_policy_or_an_error() {
    let directive = prop::sample::select(&DIRECTIVES[..]).prop_flat_map(mutated);
    try_all(20_000, prop_oneof![anything(), directive], |text| {
        let Some(tokens) = tokens(&text) else { return Ok(()) };
        let mut mistakes = crate::mistake::Mistakes::default();
        let policy = crate::retry::parse(tokens, proc_macro2::TokenStream::new(), &mut mistakes);
        prop_assert_eq!(policy.is_some(), mistakes.is_empty(), "`{}` is both or neither: {:?}", text, mistakes.messages());
        if let Some(crate::retry::Retry::Policy(policy)) = policy {
            prop_assert!(policy.backoff >= 1.0 && policy.jitter >= 0.0 && policy.min <= policy.max, "`{}` is no sound policy", text);
            prop_assert!(policy.max_attempts != Some(0), "`{}` allows no attempt", text);
        }
        Ok(())
    });
}
