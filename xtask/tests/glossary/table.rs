//! The tables of the glossary: the words that it rejects, and the places where they are right because they mean something else.

use crate::source::{Piece, Place};

/// A word, or several in a row, that the glossary rejects.
pub struct Rejected {
    pub word: String,
    /// The word of the glossary for this meaning.
    pub instead: String,
    parts: Vec<String>,
}

/// One place where a rejected word is right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    pub word: String,
    place: Permitted,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Permitted {
    /// In all texts, and in the names of variables, functions and modules. Types and columns have to be named.
    Text,
    Identifier(String),
    /// A folder with its final `/`, or a file.
    Path(String),
    /// In texts and names that contain the phrase.
    Phrase(String),
}

pub struct Glossary {
    pub rejected: Vec<Rejected>,
    pub permissions: Vec<Permission>,
}

impl Glossary {
    /// Reads every table whose header is `word | meaning | not` or `word | other meaning | where`.
    pub fn read(text: &str) -> Glossary {
        let mut glossary = Glossary { rejected: Vec::new(), permissions: Vec::new() };
        let mut header = String::new();
        for line in text.lines() {
            let Some(row) = line.strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
                header.clear();
                continue;
            };
            if row.starts_with('-') {
                continue;
            }
            let cells: Vec<&str> = row.split(" | ").map(str::trim).collect();
            let &[first, meaning, last] = cells.as_slice() else { panic!("a row with other than three cells: {line}") };
            match header.as_str() {
                "" => header = format!("{meaning}, {last}"),
                "meaning, not" => items(last).for_each(|word| glossary.reject(word, first)),
                "other meaning, where" => glossary.permissions.extend(items(last).map(|place| Permission::new(first, place))),
                other => panic!("a table with the columns {other}"),
            }
        }
        for Permission { word, .. } in &glossary.permissions {
            assert!(glossary.rejected.iter().any(|rejected| rejected.word == *word), "`{word}` is permitted and not rejected");
        }
        glossary
    }

    fn reject(&mut self, word: &str, instead: &str) {
        match self.rejected.iter_mut().find(|rejected| rejected.word == word) {
            Some(rejected) => rejected.instead = format!("{} or {instead}", rejected.instead),
            None => self.rejected.push(Rejected::new(word, instead)),
        }
    }
}

fn items(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(',').map(str::trim).filter(|item| !item.is_empty())
}

impl Rejected {
    fn new(word: &str, instead: &str) -> Rejected {
        let parts = word.split(' ').map(str::to_owned).collect();
        Rejected { word: word.to_owned(), instead: instead.to_owned(), parts }
    }

    /// True if the words occur in a row, each as it is or with an `s` or `es`.
    pub fn occurs_in(&self, words: &[String]) -> bool {
        let is_form = |(word, part): (&String, &String)| matches!(word.strip_prefix(part.as_str()), Some("" | "s" | "es"));
        words.windows(self.parts.len()).any(|window| window.iter().zip(&self.parts).all(is_form))
    }
}

impl Permission {
    fn new(word: &str, place: &str) -> Permission {
        let place = match place.trim_matches('`') {
            "text" => Permitted::Text,
            phrase if phrase.starts_with('"') => Permitted::Phrase(phrase.trim_matches('"').to_owned()),
            path if path.contains(['/', '.']) => Permitted::Path(path.to_owned()),
            identifier => Permitted::Identifier(identifier.to_owned()),
        };
        Permission { word: word.to_owned(), place }
    }

    pub fn covers(&self, path: &str, piece: &Piece) -> bool {
        match &self.place {
            Permitted::Text => matches!(piece.place, Place::Text | Place::Name),
            Permitted::Identifier(name) => match piece.place {
                Place::Text => piece.text.contains(&format!("`{name}`")) || (!is_a_word(name) && piece.text.contains(name.as_str())),
                Place::Name | Place::Type | Place::Column => piece.text == *name,
            },
            Permitted::Path(start) => path == start || (start.ends_with('/') && path.starts_with(start.as_str())),
            Permitted::Phrase(phrase) => piece.text.to_lowercase().replace('_', " ").contains(phrase.as_str()),
        }
    }
}

/// True if the identifier can also be a word of a sentence.
fn is_a_word(name: &str) -> bool {
    name.chars().all(|c| c.is_lowercase())
}
