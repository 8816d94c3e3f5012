//! Rows in columns: aligned on a terminal and never wider than it, with tabs between elsewhere.

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::clean::clean;

/// A heading.
const HEADING: Style = Style::new().bold();
/// What asks for a person.
pub const BAD: Style = AnsiColor::Red.on_default();
/// What will be well by itself, or not.
pub const OPEN: Style = AnsiColor::Yellow.on_default();
/// What is well.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// What is beside the point.
pub const FAINT: Style = Style::new().dimmed();
/// No column is cut narrower than this.
const NARROWEST: usize = 12;

/// A table under construction.
pub struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// One text of a table, made harmless.
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// In this style.
    pub fn styled(text: impl AsRef<str>, style: Style) -> Cell {
        Cell { text: clean(text.as_ref()), style }
    }

    /// The text in its style.
    pub fn drawn(&self) -> String {
        painted(&self.text, self.style)
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::styled(text, Style::new())
    }
}

impl Table {
    /// With these columns.
    pub fn new(heads: &[&'static str]) -> Table {
        Table { heads: heads.to_vec(), rows: Vec::new() }
    }

    /// Another row, as wide as the heading.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows with tabs between, whole and without heading.
    pub fn tabbed(&self) -> String {
        let line = |row: &Vec<Cell>| row.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join("\t") + "\n";
        self.rows.iter().map(line).collect()
    }

    /// The table, no wider than `width` where that can be: the widest columns are cut first, never below a few letters.
    pub fn drawn(&self, width: usize) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let widths = self.widths(width);
        let heads: Vec<Cell> = self.heads.iter().map(|head| Cell::styled(head, HEADING)).collect();
        std::iter::once(&heads).chain(&self.rows).map(|row| drawn_row(row, &widths)).collect()
    }

    fn widths(&self, most: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self.heads.iter().map(|head| head.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        let gaps = 2 * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > most {
            match widths.iter_mut().filter(|width| **width > NARROWEST).max() {
                Some(widest) => *widest -= 1,
                None => break,
            }
        }
        widths
    }
}

fn drawn_row(row: &[Cell], widths: &[usize]) -> String {
    let mut line = String::new();
    for (place, (cell, width)) in row.iter().zip(widths).enumerate() {
        let shown = cut(&cell.text, *width);
        let is_last = place + 1 == row.len();
        let gap = if is_last { 0 } else { width - shown.width() + 2 };
        line.push_str(&painted(&shown, cell.style));
        line.push_str(&" ".repeat(gap));
    }
    line.truncate(line.trim_end().len());
    line + "\n"
}

/// The text in a style.
pub fn painted(text: &str, style: Style) -> String {
    if text.is_empty() || style == Style::new() { text.to_owned() } else { format!("{style}{text}{style:#}") }
}

/// The beginning of the text that is no wider than `width`.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| match left.checked_sub(c.width().unwrap_or(0)) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    text.chars().take_while(fits).collect::<String>() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(&["KEY", "ERROR"]);
        table.row(["order-7".into(), "the gateway is down, and so is all else".into()]);
        table.row(["日本-1".into(), Cell::styled("none", BAD)]);
        table
    }

    #[test]
    fn a_table_is_aligned_and_as_wide_as_the_terminal() {
        let drawn = anstream::adapter::strip_str(&sample().drawn(30)).to_string();
        assert_eq!(drawn, "KEY      ERROR\norder-7  the gateway is down,…\n日本-1   none\n");
    }

    #[test]
    fn a_table_elsewhere_is_whole_and_has_tabs() {
        assert_eq!(sample().tabbed(), "order-7\tthe gateway is down, and so is all else\n日本-1\tnone\n");
    }
}
