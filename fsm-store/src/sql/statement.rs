//! A statement in both dialects, and its text for each database.

/// One statement in both dialects.
pub(crate) struct Sql {
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

pub(super) const fn same(text: &'static str) -> Sql {
    Sql { sqlite: text, postgres: text }
}

/// One statement for many rows, which it reads from `w`.
pub(crate) struct Many {
    /// The columns of `w`: name and PostgreSQL type. `same` marks those that mostly have one value in all rows of a batch.
    pub columns: &'static str,
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

pub(super) const fn many(columns: &'static str, text: &'static str) -> Many {
    Many { columns, sqlite: text, postgres: text }
}

impl Many {
    /// The text for PostgreSQL, with an array for each column.
    pub(crate) fn for_postgres(&self) -> String {
        self.among_others(1, "true", false)
    }

    /// The text for use beside other statements in one query. Its parameters are numbered from `first` on: an array for each column or, if
    /// `has_same`, one value for each column marked `same`. It applies to the rows for which `condition` holds, which refers to a row as `u`.
    pub(crate) fn among_others(&self, first: usize, condition: &str, has_same: bool) -> String {
        let (names, mut columns, mut in_arrays, mut arrays) = (self.names(), Vec::new(), Vec::new(), Vec::new());
        for ((column, is_same), n) in self.columns.split(", ").zip(self.same()).zip(first..) {
            let mut words = column.split(' ');
            let (name, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            if has_same && is_same {
                columns.push(format!("${n}::{kind}"));
            } else {
                columns.push(format!("u.{name}"));
                in_arrays.push(name);
                arrays.push(format!("${n}::{kind}[]"));
            }
        }
        let (columns, arrays, in_arrays) = (columns.join(", "), arrays.join(", "), in_arrays.join(", "));
        format!("with w ({names}) as (select {columns} from unnest({arrays}) as u ({in_arrays}) where {condition})\n{}", self.postgres)
    }

    /// For each column, whether it is marked `same`.
    pub(crate) fn same(&self) -> impl Iterator<Item = bool> {
        self.columns.split(", ").map(|column| column.ends_with(" same"))
    }

    /// The text for SQLite, for one row whose values come in the order of the columns. If the text permits it, the values replace the
    /// columns of `w`, because a table of one row costs more than the rest of the statement.
    pub(crate) fn for_sqlite(&self) -> String {
        let text = self.sqlite.trim();
        let places = vec!["?"; self.types().count()].join(", ");
        let all_of_w = text.split_once("select *").and_then(|(before, after)| Some((before, after.trim_start().strip_prefix("from w")?)));
        match (text.split_once("from w\n"), all_of_w) {
            (_, Some((insert, after))) if insert.starts_with("insert") => {
                let after = after.trim_start();
                format!("{insert}values ({places}) {}", after.strip_prefix("where true").unwrap_or(after))
            }
            (Some((before, after)), _) if text.starts_with("update") => self.in_place(&(before.to_owned() + after)),
            (None, _) if !text.contains("from w") => self.in_place(text),
            _ => format!("with w ({}) as (values ({places}))\n{text}", self.names()),
        }
    }

    /// Returns the text with each column of `w` replaced by the number of its parameter.
    fn in_place(&self, text: &str) -> String {
        let mut parts = text.split("w.");
        let mut put = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let name = part.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let number = self.names().split(", ").position(|column| column == name).expect("a statement names columns of `w`") + 1;
            put.push_str(&format!("?{number}{}", &part[name.len()..]));
        }
        put
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.columns.split(", ").filter_map(|column| column.split(' ').next()).collect();
        names.join(", ")
    }

    fn types(&self) -> impl Iterator<Item = &'static str> {
        self.columns.split(", ").filter_map(|column| column.split(' ').nth(1))
    }
}
