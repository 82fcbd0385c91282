//! The cells of a table, and how they find their place in the width of a terminal.
//!
//! Invariant: no row is wider than the room there is, down to a few columns; the text of the last column goes on below itself
//! and loses nothing; an id is shown whole or left out, but for the one that says what a row is about: where nothing else is left, it is
//! cut in its middle. How a row stands, and what was found, goes last of all; what is left out is said. Without a terminal everything
//! is as wide as it is. Widths are those that a terminal gives to characters.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Blanks between columns.
pub(super) const GAP: usize = 2;
/// A text is cut down to this before a column is left out; the last one goes on below itself and needs more.
const TEXT_MIN: usize = 12;
const LAST_MIN: usize = 20;
/// The last columns to be left out, but for the first: what tables are looked at for.
const KEPT: [&str; 5] = ["status", "state", "check", "finding", "why"];
/// What is left of them, and of the first one.
const KEPT_MIN: usize = 10;
/// What is left of any column where there is no other way.
const CELL_MIN: usize = 4;

/// How a terminal shows a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextStyle {
    Plain,
    Dim,
    Bold,
    Green,
    Yellow,
    Red,
    Blue,
}

impl TextStyle {
    pub(super) fn escape(self) -> &'static str {
        match self {
            TextStyle::Plain => "",
            TextStyle::Dim => "\x1b[2m",
            TextStyle::Bold => "\x1b[1m",
            TextStyle::Green => "\x1b[32m",
            TextStyle::Yellow => "\x1b[33m",
            TextStyle::Red => "\x1b[31m",
            TextStyle::Blue => "\x1b[34m",
        }
    }
}

/// One cell of a table.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub text: String,
    pub paint: TextStyle,
}

impl Cell {
    pub(super) fn of(text: impl Into<String>, paint: TextStyle) -> Self {
        Cell { text: text.into(), paint }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::of(text, TextStyle::Plain)
    }
}

/// The columns that are shown, with their widths, and those that are not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TableLayout {
    pub shown: Vec<(usize, usize)>,
    pub left_out: Vec<usize>,
}

/// Gives each column its width. `may_leave_out`: nobody has named the columns.
pub(super) fn layout(names: &[&str], widths: &[usize], room: Option<usize>, may_leave_out: bool) -> TableLayout {
    let mut shown: Vec<(usize, usize)> = widths.iter().copied().enumerate().collect();
    let Some(room) = room else { return TableLayout { shown, left_out: Vec::new() } };
    let mut left_out = Vec::new();
    loop {
        let mut tried = shown.clone();
        let last = tried.last().map_or(0, |(column, _)| *column);
        let least = |column: usize| match column {
            _ if is_id(names[column]) => usize::MAX,
            _ if column == last => LAST_MIN,
            _ => TEXT_MIN,
        };
        shrink(&mut tried, room, least);
        if total(&tried) <= room {
            return TableLayout { shown: tried, left_out };
        }
        // The id that takes most, then whatever stands at the end.
        let ids = shown.iter().skip(1).filter(|(column, _)| is_id(names[*column]));
        let others = shown.iter().skip(1).rfind(|(column, _)| !KEPT.contains(&names[*column]));
        let mut leaves = ids.max_by_key(|(_, width)| *width).or(others);
        if leaves.is_none() && may_leave_out {
            shrink(&mut tried, room, |_| KEPT_MIN);
            if total(&tried) <= room {
                return TableLayout { shown: tried, left_out };
            }
            leaves = shown.iter().skip(1).last();
        }
        let leaves = leaves.map(|(column, _)| *column);
        let Some(leaves) = leaves.filter(|_| may_leave_out) else {
            shrink(&mut tried, room, |_| CELL_MIN);
            return TableLayout { shown: tried, left_out };
        };
        shown.retain(|(column, _)| *column != leaves);
        left_out.push(leaves);
    }
}

pub(super) fn is_id(name: &str) -> bool {
    matches!(name, "id" | "name" | "key") || name.ends_with("_id")
}

fn total(shown: &[(usize, usize)]) -> usize {
    shown.iter().map(|(_, width)| width).sum::<usize>() + GAP * shown.len().saturating_sub(1)
}

/// Takes from the widest first.
fn shrink(shown: &mut [(usize, usize)], room: usize, least: impl Fn(usize) -> usize) {
    while total(shown) > room {
        let Some(widest) = shown.iter_mut().filter(|(column, width)| *width > least(*column)).max_by_key(|one| one.1)
        else {
            return;
        };
        widest.1 -= 1;
    }
}

pub(super) fn width_of(text: &str) -> usize {
    text.width()
}

/// How many lines a terminal of this width breaks a text into: a character that has no room in a line begins the next one.
pub(super) fn lines_of(text: &str, width: usize) -> usize {
    let (mut lines, mut used) = (1, 0);
    for wide in text.chars().map(|c| c.width().unwrap_or(0)) {
        used += wide;
        if used > width.max(1) && used > wide {
            (lines, used) = (lines + 1, wide);
        }
    }
    lines
}

/// As much as fits, with a sign that there is more.
pub(super) fn cut_to(text: &str, width: usize, more: char) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut = beginning(text, width.saturating_sub(1)).to_owned();
    cut.push(more);
    cut
}

/// The two ends of an id, which tell it from others, with a sign that there is more between them.
pub(super) fn cut_in_the_middle(text: &str, width: usize, more: char) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let begin = beginning(text, room.div_ceil(2));
    let mut left = room - begin.width();
    let kept = text.chars().rev().take_while(|c| {
        let fits = c.width().unwrap_or(0) <= left;
        left -= if fits { c.width().unwrap_or(0) } else { left };
        fits
    });
    let end: Vec<char> = kept.collect();
    let end: String = end.into_iter().rev().collect();
    format!("{begin}{more}{end}")
}

/// The longest beginning that is not wider.
fn beginning(text: &str, width: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(_, c)| {
        used += c.width().unwrap_or(0);
        used > width
    });
    end.map_or(text, |(at, _)| &text[..at])
}

/// The text in lines of at most this width, broken between words where that leaves no large hole.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while rest.width() > width {
        let whole = beginning(rest, width);
        // A character that is wider than the line stands there all the same.
        let whole = if whole.is_empty() { &rest[..rest.chars().next().map_or(0, char::len_utf8)] } else { whole };
        let at = match whole.rfind(' ') {
            Some(at) if !rest[whole.len()..].starts_with(' ') && at > whole.len() / 2 => at,
            _ => whole.len(),
        };
        lines.push(rest[..at].trim_end());
        rest = rest[at..].trim_start();
    }
    if !rest.is_empty() || lines.is_empty() {
        lines.push(rest);
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIST: [&str; 5] = ["workflow_id", "status", "started_at", "run_id", "summary"];

    fn widths(room: usize, may_leave_out: bool) -> (Vec<(usize, usize)>, Vec<usize>) {
        let TableLayout { shown, left_out } = layout(&LIST, &[20, 9, 12, 36, 60], Some(room), may_leave_out);
        (shown, left_out)
    }

    #[test]
    fn ids_are_whole_or_left_out_and_the_last_column_takes_what_is_left() {
        assert_eq!(layout(&LIST, &[20, 9, 12, 36, 60], None, true).shown.len(), 5);
        assert_eq!(widths(145, true), (vec![(0, 20), (1, 9), (2, 12), (3, 36), (4, 60)], vec![]));
        assert_eq!(widths(120, true), (vec![(0, 20), (1, 9), (2, 12), (3, 36), (4, 35)], vec![]));
        assert_eq!(widths(80, true), (vec![(0, 20), (1, 9), (2, 12), (4, 33)], vec![3]));
        assert_eq!(widths(46, true), (vec![(0, 20), (1, 9), (2, 12)], vec![3, 4]));
        assert_eq!(widths(25, true), (vec![(0, 14), (1, 9)], vec![3, 4, 2]), "the id is cut, and the status stays");
        assert_eq!(widths(10, true), (vec![(0, 10)], vec![3, 4, 2, 1]));
        // A list on a narrow terminal says how a run stands, whatever else has no room.
        let list = ["workflow_id", "workflow_type", "status", "started_at", "run_id"];
        let narrow = layout(&list, &[36, 12, 9, 12, 36], Some(60), true);
        assert_eq!(narrow, TableLayout { shown: vec![(0, 36), (2, 9)], left_out: vec![4, 3, 1] });
        let narrower = layout(&list, &[36, 12, 9, 12, 36], Some(40), true);
        assert_eq!(narrower, TableLayout { shown: vec![(0, 29), (2, 9)], left_out: vec![4, 3, 1] });
        // What a doctor has found is never left out: it goes on below itself.
        let found = layout(&["state", "check", "finding"], &[7, 14, 90], Some(40), true);
        assert_eq!(found, TableLayout { shown: vec![(0, 7), (1, 12), (2, 17)], left_out: vec![] });
        // Who names columns has them all.
        assert_eq!(widths(80, false).0.len(), 5);
    }

    #[test]
    fn texts_are_cut_and_broken_as_a_terminal_measures_them() {
        assert_eq!(cut_to("abcdef", 6, '…'), "abcdef");
        assert_eq!(cut_to("abcdef", 4, '…'), "abc…");
        assert_eq!(cut_to("日本語", 4, '…'), "日…", "each takes two columns");
        assert_eq!(cut_in_the_middle("plan-audit-3168fa7b3cbc", 11, '…'), "plan-…b3cbc");
        assert_eq!(cut_in_the_middle("日本語日本語", 6, '…'), "日…語");
        assert_eq!(cut_in_the_middle("abc", 3, '…'), "abc");
        assert_eq!(wrapped("the model does not answer", 12), ["the model", "does not", "answer"]);
        assert_eq!(wrapped("aaaaaaaaaaaaaaaa b", 6), ["aaaaaa", "aaaaaa", "aaaa b"]);
        assert_eq!(wrapped("日本", 1), ["日", "本"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!([lines_of("", 5), lines_of("abcde", 5), lines_of("abcdef", 5)], [1, 1, 2]);
        assert_eq!(lines_of("日本語日", 3), 4, "each line has room for one, and one column is left");
    }

    proptest! {
        #[test]
        fn nothing_is_wider_than_the_room_and_no_word_is_lost(text in "[a-z日 ]{0,80}", room in 2_usize..40) {
            let lines = wrapped(&text, room);
            prop_assert!(lines.iter().all(|line| line.width() <= room), "{lines:?}");
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }

        #[test]
        fn a_layout_fits(widths in prop::collection::vec(0_usize..70, 5), room in 30_usize..200) {
            for may_leave_out in [false, true] {
                let found = layout(&LIST, &widths, Some(room), may_leave_out);
                prop_assert!(total(&found.shown) <= room, "{found:?}");
                prop_assert_eq!(found.shown.len() + found.left_out.len(), 5);
                prop_assert!(found.shown.iter().all(|(column, width)| *width <= widths[*column]));
            }
        }
    }
}
