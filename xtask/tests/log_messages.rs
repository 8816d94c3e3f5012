//! The guide lists every message that the library logs, with its level, its target and its fields, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::visit::{Visit, visit_macro};
use syn::{Expr, Ident, LitStr, Macro, Result, Token};

/// The crates that log.
const CRATES: [&str; 5] = ["fsm-cli", "fsm-console", "fsm-core", "fsm-runtime", "fsm-store"];
const PAGE: &str = "docs/guide/src/log-messages.md";
const LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];

/// A message, in the order of the table: level, text, target, fields.
type Message = (String, String, String, String);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace")
}

/// An argument of a logging macro: a field, or the text, or a value of the text.
enum Argument {
    Field(String),
    Text(String),
    Value,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> Result<Argument> {
        if input.peek(LitStr) {
            return Ok(Argument::Text(input.parse::<LitStr>()?.value()));
        }
        sigil(input)?;
        if !input.peek(Ident) {
            input.parse::<Expr>()?;
            return Ok(Argument::Value);
        }
        let name: Ident = input.parse()?;
        if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            sigil(input)?;
            input.parse::<Expr>()?;
        }
        Ok(Argument::Field(name.to_string()))
    }
}

/// The sign before a value that is logged by `Display` or `Debug`.
fn sigil(input: ParseStream<'_>) -> Result<()> {
    if input.peek(Token![%]) {
        input.parse::<Token![%]>()?;
    } else if input.peek(Token![?]) {
        input.parse::<Token![?]>()?;
    }
    Ok(())
}

struct Messages<'m> {
    target: String,
    found: &'m mut BTreeSet<Message>,
}

impl Visit<'_> for Messages<'_> {
    fn visit_macro(&mut self, called: &Macro) {
        visit_macro(self, called);
        let name = called.path.segments.last().expect("a path has a segment").ident.to_string();
        if !LEVELS.contains(&name.as_str()) {
            // The arguments of other macros are not parsed, so a message in them would not be found.
            let tokens = called.tokens.to_string();
            let is_hidden = LEVELS.iter().any(|level| tokens.contains(&format!("tracing :: {level} !")));
            assert!(!is_hidden, "{}: move the message out of `{name}!`", self.target);
            return;
        }
        let arguments = called.parse_body_with(Punctuated::<Argument, Token![,]>::parse_terminated).expect("a macro of tracing");
        let (mut fields, mut text) = (BTreeSet::new(), None);
        for argument in arguments {
            match argument {
                Argument::Field(field) => drop(fields.insert(field)),
                Argument::Text(written) => text = Some(written),
                Argument::Value => {}
            }
        }
        let text = text.unwrap_or_else(|| panic!("{}: a message of the level {name} has no text", self.target));
        let fields = fields.into_iter().collect::<Vec<_>>().join(", ");
        self.found.insert((name, text, self.target.clone(), fields));
    }
}

/// The module path of a file, as tracing names it.
fn target(package: &str, path: &Path) -> String {
    let parts = path.with_extension("");
    let parts = parts.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).filter(|part| part != "lib");
    [package.replace('-', "_")].into_iter().chain(parts).collect::<Vec<_>>().join("::")
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    paths
        .flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
        .collect()
}

fn logged() -> BTreeSet<Message> {
    let mut found = BTreeSet::new();
    for package in CRATES {
        let folder = root().join(package).join("src");
        for path in files_below(&folder) {
            let file = syn::parse_file(&fs::read_to_string(&path).expect("a source file is text")).expect("it compiles");
            let target = target(package, path.strip_prefix(&folder).expect("it is below the folder"));
            Messages { target, found: &mut found }.visit_file(&file);
        }
    }
    found
}

/// The rows of the page. The headings are the levels.
fn listed() -> Vec<Message> {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page is there");
    let (mut level, mut rows) = (String::new(), Vec::new());
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            level = heading.to_lowercase();
        } else if LEVELS.contains(&level.as_str()) && line.starts_with("| ") && !line.starts_with("| message") {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [text, target, fields, meaning] = cells[..] else { panic!("not four cells: {line}") };
            assert!(!meaning.is_empty(), "no meaning: {line}");
            rows.push((level.clone(), text.to_owned(), target.replace('`', ""), fields.replace(['`', '–'], "")));
        }
    }
    rows
}

#[test]
fn the_guide_lists_every_log_message_and_no_other() {
    let (logged, listed) = (logged(), listed());
    assert!(logged.len() > 50, "{} messages are not all of them", logged.len());
    let rows: BTreeSet<_> = listed.iter().cloned().collect();
    let missing: Vec<_> =
        logged.difference(&rows).map(|(level, text, target, fields)| format!("{level}: | {text} | `{target}` | `{fields}` |")).collect();
    let stale: Vec<_> =
        rows.difference(&logged).map(|(level, text, target, fields)| format!("{level}: | {text} | `{target}` | `{fields}` |")).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "\n{PAGE} lacks\n{}\nand lists what is not logged\n{}",
        missing.join("\n"),
        stale.join("\n")
    );
    assert_eq!(rows.len(), listed.len(), "{PAGE} lists a message twice");
}
