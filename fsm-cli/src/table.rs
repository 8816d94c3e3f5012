//! Tables: aligned and cut to the width of a terminal, or with tabs between the cells.

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::clean::clean;

/// The style of headings.
const HEADING: Style = Style::new().bold();
/// The style of states that need an operator.
pub const BAD: Style = AnsiColor::Red.on_default();
/// The style of work in progress.
pub const OPEN: Style = AnsiColor::Yellow.on_default();
/// The style of success.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// The style of less important text.
pub const FAINT: Style = Style::new().dimmed();
/// The minimum width to which a column is cut.
const NARROWEST: usize = 12;

/// A table.
pub struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    wraps: bool,
}

/// A cell, with its text made harmless for a terminal.
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A cell in this style.
    pub fn styled(text: impl AsRef<str>, style: Style) -> Cell {
        Cell { text: clean(text.as_ref()), style }
    }

    /// The text with its style.
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
    /// An empty table with these columns.
    pub fn new(heads: &[&'static str]) -> Table {
        Table { heads: heads.to_vec(), rows: Vec::new(), wraps: false }
    }

    /// An empty table whose last column has sentences. They are wrapped instead of cut.
    pub fn of_sentences(heads: &[&'static str]) -> Table {
        Table { wraps: true, ..Table::new(heads) }
    }

    /// Adds a row with as many cells as there are columns.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Returns true if the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows with tabs between the cells, uncut and without the heading.
    pub fn tabbed(&self) -> String {
        let line = |row: &Vec<Cell>| row.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join("\t") + "\n";
        self.rows.iter().map(line).collect()
    }

    /// The aligned table, at most `width` wide if possible. The widest columns are cut first, down to a minimum width.
    pub fn drawn(&self, width: usize) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let widths = self.widths(width);
        let heads: Vec<Cell> = self.heads.iter().map(|head| Cell::styled(head, HEADING)).collect();
        std::iter::once(&heads).chain(&self.rows).map(|row| drawn_row(row, &widths, self.wraps)).collect()
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

fn drawn_row(row: &[Cell], widths: &[usize], wraps: bool) -> String {
    if let (true, Some((last, before))) = (wraps, row.split_last()) {
        let pieces = wrapped(&last.text, widths[before.len()]);
        let mut lines = String::new();
        for (n, piece) in pieces.iter().enumerate() {
            let piece = Cell { text: piece.clone(), style: last.style };
            let blank = || Cell::from("");
            let cells = before.iter().map(|cell| if n == 0 { Cell { text: cell.text.clone(), style: cell.style } } else { blank() });
            lines.push_str(&drawn_row(&cells.chain([piece]).collect::<Vec<_>>(), widths, false));
        }
        return lines;
    }
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

/// Wraps a text into lines of at most `width` columns if possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.width() + 1 + word.width() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The text with a style.
pub fn painted(text: &str, style: Style) -> String {
    if text.is_empty() || style == Style::new() { text.to_owned() } else { format!("{style}{text}{style:#}") }
}

/// Cuts a text to `width` columns.
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
    fn sentences_go_on_in_the_next_line() {
        let mut table = Table::of_sentences(&["KEY", "ERROR"]);
        table.row(["order-7".into(), "the gateway is down, and so is all else".into()]);
        let drawn = anstream::adapter::strip_str(&table.drawn(30)).to_string();
        assert_eq!(drawn, "KEY      ERROR\norder-7  the gateway is down,\n         and so is all else\n");
    }

    #[test]
    fn a_table_elsewhere_is_whole_and_has_tabs() {
        assert_eq!(sample().tabbed(), "order-7\tthe gateway is down, and so is all else\n日本-1\tnone\n");
    }
}
