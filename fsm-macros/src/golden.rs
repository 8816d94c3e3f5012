//! Golden test: the printed expansion of each macro, so that a review shows the effect of a change.

use proc_macro2::TokenStream;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/door.rs");

const VERB: (&str, &str) = (
    r#"timeout = "30s""#,
    r#"
        /// Opens the door.
        #[retry(10, "5s", "1h", give_up_on(Jammed), catch = recover)]
        pub async fn opened(ctx: &mut Ctx<'_>, record: &mut Count, motor: Data<Motor>, event: Opened) -> Result {
            anything that has (balanced) brackets
        }
    "#,
);

const MACHINE: &str = r#"
    /// A door.
    pub machine Door = "door" {
        retry("1s");
        keeps Count;
        start opened;
        opened -> doors::closed;
        opened after "30m" -> expired;
        on Lock {
            opened -> locked;
            closed -> bolted;
        }
        end expired, locked, bolted;
    }
"#;

fn tokens(text: &str) -> TokenStream {
    text.parse().expect("tokens")
}

fn pretty(tokens: TokenStream) -> String {
    prettyplease::unparse(&syn::parse2(tokens).expect("an expansion is items"))
}

/// Expands the macros. The body is passed on as it is, so it is replaced by one that parses before the output is printed.
fn expansion() -> String {
    let verb = crate::verb::expand(tokens(VERB.0), tokens(VERB.1)).to_string();
    let verb = verb.replace("anything that has (balanced) brackets", "");
    format!("// `#[verb]`\n\n{}\n// `fsm!`\n\n{}", pretty(tokens(&verb)), pretty(crate::machine::expand(tokens(MACHINE))))
}

#[test]
fn an_expansion_is_as_it_was() {
    let found = expansion();
    if std::env::var_os("GOLDEN").is_some_and(|value| value == "overwrite") {
        std::fs::write(GOLDEN, &found).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    assert!(found == expected, "the expansion changed; `GOLDEN=overwrite cargo test -p fsm-macros` writes it to {GOLDEN}:\n{found}");
}

/// Incomplete code is returned unchanged, beside the errors.
#[test]
fn what_cannot_be_read_comes_back_untouched() {
    let half = "async fn opened(event: Opened) -> Result { let x = ; match { }";
    for item in [half.replace(['{', '}'], ""), format!("{half} }}"), "struct Opened".into(), "async fn".into()] {
        let found = crate::verb::expand(TokenStream::new(), tokens(&item)).to_string();
        assert!(found.starts_with(&tokens(&item).to_string()), "{item}: {found}");
    }
}
