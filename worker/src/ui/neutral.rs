//! The text of a page without what turns its lines round or hides in them: bidi overrides, zero-width and control characters.
//!
//! Invariant: every page and every exported file goes through [`text_of`] as the last thing before it is sent; what is shown is
//! what the command line shows of the same text, U+FFFD in place of each such character. What a form carries unseen and sends back is
//! kept exactly, written as a reference, so that an odd id can still be acted on.

use std::borrow::Cow;
use std::fmt::Write;

use maud::Markup;

use crate::cli::{misleads, printable};

/// A finished document, as it is sent.
pub(super) fn text_of(document: Markup) -> String {
    let html = document.into_string();
    // Nearly always.
    if !html.contains(is_odd) {
        return html;
    }
    // What was typed in a browser comes back as one line break is read.
    let html = html.replace("\r\n", "\n");
    let mut text = String::with_capacity(html.len());
    let mut rest = html.as_str();
    // In text and in values every `<` and `>` is escaped: what is left of them are tags.
    while let Some((before, more)) = rest.split_once('<') {
        text.push_str(&printable(before));
        let (tag, after) = more.split_once('>').unwrap_or((more, ""));
        text.push('<');
        text.push_str(&tag_text(tag));
        text.push('>');
        rest = after;
    }
    text.push_str(&printable(rest));
    text
}

fn is_odd(c: char) -> bool {
    misleads(c) && c != '\n' && c != '\t'
}

/// A tag without its brackets.
fn tag_text(tag: &str) -> Cow<'_, str> {
    if !tag.contains(is_odd) {
        return tag.into();
    }
    let unseen = ["type=\"hidden\"", "type=\"checkbox\"", "type=\"radio\""].iter().any(|kind| tag.contains(kind));
    let carries = unseen || tag.starts_with("option") || tag.starts_with("button");
    match tag.split_once(" value=\"").filter(|_| carries) {
        Some((before, value)) => {
            let (value, after) = value.split_once('"').unwrap_or((value, ""));
            format!("{} value=\"{}\"{}", printable(before), referred(value), printable(after)).into()
        }
        None => printable(tag).into(),
    }
}

/// A value that a browser reads as it is, without its odd characters in the text of the page.
fn referred(value: &str) -> String {
    value.chars().fold(String::with_capacity(value.len()), |mut text, c| {
        if is_odd(c) {
            // Writing to a string does not fail.
            let _ = write!(text, "&#x{:x};", u32::from(c));
        } else {
            text.push(c);
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;

    #[test]
    fn what_would_mislead_is_shown_as_replaced_and_sent_as_it_is() {
        let odd = "pay \u{202e}001\u{2066} <b>\u{200b}";
        let document = html! {
            p title=(odd) { (odd) }
            input type="hidden" name="id" value=(odd);
            input name="typed" value=(odd);
            textarea { (odd) "\n" }
        };
        let text = text_of(document);
        assert!(!text.contains(is_odd), "{text}");
        let shown = "pay \u{fffd}001\u{fffd} &lt;b&gt;\u{fffd}";
        assert_eq!(text.matches(shown).count(), 4, "{text}");
        assert!(text.contains("value=\"pay &#x202e;001&#x2066; &lt;b&gt;&#x200b;\""), "{text}");
    }

    #[test]
    fn other_texts_stay() {
        let document = html! { p { "žluťoučký 漢字\n\t" } textarea { "a\r\nb" } };
        assert_eq!(text_of(document), "<p>žluťoučký 漢字\n\t</p><textarea>a\nb</textarea>");
    }
}
