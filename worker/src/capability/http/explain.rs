//! What went wrong, in a line: the words of an error and of an answer, for failures.
//!
//! Invariant: a line is short whatever it is made of, and making it costs no more than a few times its length. Secrets
//! are cut out by whoever has them. Pure.

use std::error::Error;

use super::RefusedAddress;

/// One line of at most so many characters, and an ellipsis where something is left out.
pub(in crate::capability) fn excerpt(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        // Enough, even if every character takes four bytes.
        if line.len() > chars_max * 4 {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    match line.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// What the innermost source of an error says, which is what happened; or the address that our own guard refused.
pub(in crate::capability) fn innermost<'a>(why: &'a (dyn Error + 'static)) -> Result<String, &'a RefusedAddress> {
    let mut error = why;
    loop {
        if let Some(refused) = error.downcast_ref::<RefusedAddress>() {
            return Err(refused);
        }
        match error.source() {
            Some(source) => error = source,
            None => return Ok(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_short_and_says_where_it_was_cut() {
        assert_eq!(excerpt(" two\n words ", 9), "two words");
        assert_eq!(excerpt("two words", 8), "two word…");
        assert_eq!(excerpt(&"ä ".repeat(10_000), 4), "ä ä …");
        assert_eq!(excerpt("", 4), "");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("outside")]
    struct Outside(#[source] Box<dyn Error + 'static>);

    #[test]
    fn the_innermost_source_is_what_is_said() {
        let why = Outside(Outside("no route".into()).into());
        assert_eq!(innermost(&why), Ok("no route".to_owned()));
        let refused = RefusedAddress { host: "h".into(), address: [127, 0, 0, 1].into() };
        assert_eq!(innermost(&Outside(Box::new(refused.clone()))), Err(&refused));
    }
}
