//! How a table and a tree fit a terminal.
//!
//! Invariant: pure; what is not a terminal is not cut, since programs read it. A cut text ends with `…`.

/// A column narrower than this says nothing: it goes.
const LEAST: usize = 12;
/// Between two columns.
const GAP: usize = 2;

/// How wide the columns become: the last is cut, or goes where nothing would be left of it.
pub(super) fn columns(wanted: &[usize], width: usize) -> Vec<usize> {
    let mut kept = wanted.to_vec();
    while let Some(last) = kept.pop() {
        let before: usize = kept.iter().map(|column| column + GAP).sum();
        let room = width.saturating_sub(before);
        if kept.is_empty() || last <= room || room >= LEAST {
            kept.push(last.min(room));
            break;
        }
    }
    kept
}

/// A text of at most so many characters.
pub(super) fn cut_to(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// The last lines that can be drawn again in place: what has left the screen above cannot, and would flood what can be scrolled back to.
pub(super) fn newest(mut lines: Vec<String>, height: usize) -> Vec<String> {
    let surplus = lines.len().saturating_sub(height.saturating_sub(1).max(1));
    lines.split_off(surplus)
}

/// Columns and rows of the terminal.
pub(super) fn terminal() -> (usize, usize) {
    let (width, height) = ratatui::crossterm::terminal::size().unwrap_or((80, 24));
    let told = |name| std::env::var(name).ok()?.parse().ok().filter(|size| *size > 0);
    (told("COLUMNS").unwrap_or(width.into()), told("LINES").unwrap_or(height.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_any_width() {
        let list = [11, 13, 9, 10, 9, 36, 38];
        assert_eq!(columns(&list, 200), list);
        assert_eq!(columns(&list, 80), [11, 13, 9, 10, 9, 18]);
        assert_eq!(columns(&list, 40), [11, 13, 9]);
        assert_eq!(columns(&[44, 10], 40), [40]);
        for width in 0..200 {
            let fits = columns(&list, width);
            let whole = fits.iter().sum::<usize>() + GAP * (fits.len() - 1);
            assert!(!fits.is_empty() && whole <= width, "{width}: {fits:?}");
        }
        assert_eq!((cut_to("état", 4).as_str(), cut_to("état", 3).as_str()), ("état", "ét…"));
    }

    #[test]
    fn a_tree_is_never_higher_than_its_screen() {
        let lines: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        assert_eq!(newest(lines.clone(), 24), lines[7..]);
        assert_eq!(newest(lines.clone(), 0), lines[29..]);
        assert_eq!(newest(lines.clone(), 99), lines);
    }
}
