//! Splits files into identifiers and texts: Rust, SQL, and files that are text as a whole. Names of files count as identifiers.

use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A comment, a string, or a line of a document or screen.
    Text,
    /// The name of a variable, function, module or file.
    Name,
    /// The name of a type, trait or variant.
    Type,
    /// A name in SQL.
    Column,
}

/// An identifier or a text.
#[derive(Debug)]
pub struct Piece {
    pub place: Place,
    pub text: String,
    /// The number of the line, from 1; 0 for the name of the file.
    pub line: usize,
}

impl Piece {
    /// Returns the words in lower case. `InboxLen`, `inbox_len` and "inbox len" have the same words.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut word = String::new();
        let mut previous = ' ';
        for c in self.text.chars().chain([' ']) {
            let begins = c.is_uppercase() && previous.is_lowercase();
            if (begins || !c.is_alphanumeric()) && !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            if c.is_alphanumeric() {
                word.extend(c.to_lowercase());
            }
            previous = c;
        }
        words
    }
}

/// Returns the identifiers and texts of a file, and the name of the file.
pub fn pieces(path: &str, text: &str) -> Vec<Piece> {
    let name = Path::new(path).file_stem().expect("a file has a name").to_string_lossy().into_owned();
    let mut pieces = vec![Piece { place: Place::Name, text: name, line: 0 }];
    if path.ends_with(".rs") {
        pieces.extend(Scanner { rest: text, line: 1, name: Place::Name, comment: "//" });
    } else if path.ends_with(".sql") {
        pieces.extend(Scanner { rest: text, line: 1, name: Place::Column, comment: "--" });
    } else {
        let mut is_rust = false;
        for (n, line) in text.lines().enumerate() {
            is_rust = if line.starts_with("```") { line.starts_with("```rust") } else { is_rust };
            if is_rust {
                pieces.extend(Scanner { rest: line, line: n + 1, name: Place::Name, comment: "//" });
            } else {
                pieces.push(Piece { place: Place::Text, text: line.to_owned(), line: n + 1 });
            }
        }
    }
    pieces
}

struct Scanner<'t> {
    rest: &'t str,
    line: usize,
    /// The place of an identifier that begins with a small letter.
    name: Place,
    comment: &'static str,
}

impl<'t> Scanner<'t> {
    fn take(&mut self, length: usize) -> (&'t str, usize) {
        let (taken, rest) = self.rest.split_at(length);
        let line = self.line;
        self.line += taken.matches('\n').count();
        self.rest = rest;
        (taken, line)
    }
}

impl Iterator for Scanner<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        loop {
            let first = self.rest.chars().next()?;
            let (length, place) = if self.rest.starts_with(self.comment) {
                (self.rest.find('\n').unwrap_or(self.rest.len()), Some(Place::Text))
            } else if let Some(length) = string(self.rest) {
                (length, Some(Place::Text))
            } else if first.is_alphabetic() || first == '_' {
                let length = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
                let is_type = first.is_uppercase() && self.rest[..length].contains(char::is_lowercase) && self.name == Place::Name;
                (length, Some(if is_type { Place::Type } else { self.name }))
            } else if self.rest.starts_with("'\\") || (first == '\'' && self.rest.chars().nth(2) == Some('\'')) {
                // A character may be a quotation mark. A lifetime has no second apostrophe.
                let begin = if self.rest.starts_with("'\\") { 3 } else { 1 };
                (self.rest[begin..].find('\'').map_or(self.rest.len(), |end| begin + end + 1), None)
            } else {
                (first.len_utf8(), None)
            };
            let (text, line) = self.take(length);
            if let Some(place) = place {
                return Some(Piece { place, text: text.to_owned(), line });
            }
        }
    }
}

/// Returns the length of the string literal at the start of the text, if there is one.
fn string(text: &str) -> Option<usize> {
    let raw = text.strip_prefix('b').unwrap_or(text);
    if let Some(raw) = raw.strip_prefix('r') {
        let hashes = raw.bytes().take_while(|byte| *byte == b'#').count();
        let body = raw[hashes..].strip_prefix('"')?;
        let end = body.find(&format!("\"{}", "#".repeat(hashes)))?;
        return Some(text.len() - body.len() + end + 1 + hashes);
    }
    let body = raw.strip_prefix('"')?;
    let mut is_escaped = false;
    let end = body.find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    })?;
    Some(text.len() - body.len() + end + 1)
}
