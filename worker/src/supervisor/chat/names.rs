//! Which agents a text names.
//!
//! Invariant: a name counts if it stands as a whole word and in its own case; an underscore, a space and an escaped
//! underscore (`\_`, as models write it in Markdown) are the same in it. It does not decide who speaks.

/// The names the text mentions, each once, in the order of `names`.
pub fn mentioned<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let text: Vec<char> = text.chars().collect();
    names.into_iter().filter(|name| mentions(&text, name)).collect()
}

fn mentions(text: &[char], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    if name.is_empty() {
        return false;
    }
    (0..text.len()).any(|at| {
        let free_before = at == 0 || !is_word(text[at - 1]);
        free_before
            && matched(&text[at..], &name).is_some_and(|end| text.get(at + end).is_none_or(|next| !is_word(*next)))
    })
}

/// How many characters of the text the name takes up, if it begins there.
fn matched(text: &[char], name: &[char]) -> Option<usize> {
    let mut at = 0;
    for wanted in name {
        let found = *text.get(at)?;
        if is_separator(*wanted) && found == '\\' && text.get(at + 1) == Some(&'_') {
            at += 2;
        } else if found == *wanted || (is_separator(*wanted) && is_separator(found)) {
            at += 1;
        } else {
            return None;
        }
    }
    Some(at)
}

fn is_separator(c: char) -> bool {
    c == '_' || c == ' '
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
