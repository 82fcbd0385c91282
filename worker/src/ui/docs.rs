//! The guide, as pages: the files of `worker/guide`, which are in the program, and the same text that rustdoc shows.
//!
//! Invariant: whatever a chapter links to is there: another chapter by its file or its module, a place of its own, or an
//! address of the web. HTML in a chapter is text. Nothing of the worker is asked, so that a chapter can be read while nothing
//! else answers. Works without a script.

use std::collections::BTreeSet;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{PreEscaped, html};
use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd};

use super::forms::Visitor;
use super::layout::{Page, PageError, Place};
use crate::api::problem::Problem;
use crate::guide::{CHAPTERS, Chapter};

/// All chapters, each with what it is about.
pub(super) async fn index(visitor: Visitor) -> Response {
    let body = html! {
        h1 { "Guide" }
        p.muted { "The guide of this version, as it stands in the program." }
        ul.chapters { @for chapter in &CHAPTERS {
            li { a href={ "/docs/" (chapter.name) } { (title(chapter)) } " " span.muted { (chapter.about) } }
        } }
        p.muted { "What each command takes: " code { "bosun COMMAND --help" } ". The API: " a href="/docs/openapi.json" { "openapi.json" } "." }
    };
    Page { title: "Guide", place: Place::Docs, live: None, body }.response(&visitor)
}

/// The document of the API, for whoever is signed in: the API itself takes no cookie.
pub(super) async fn openapi(_: Visitor) -> Response {
    crate::api::people::openapi().await
}

pub(super) async fn chapter(visitor: Visitor, Path(name): Path<String>) -> Result<Response, PageError> {
    let place = CHAPTERS.iter().position(|chapter| chapter.name == name);
    let place = place.ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, "not_found", "the guide has no such chapter: /docs lists all of them")
    })?;
    let chapter = &CHAPTERS[place];
    let Rendered { html: text, sections } = rendered(chapter.text);
    let before = place.checked_sub(1).map(|place| &CHAPTERS[place]);
    let body = html! {
        p.muted { a href="/docs" { "Guide" } }
        article.guide {
            // Sections stand behind the title: a chapter begins with it.
            @if sections.len() > 2 { nav.sections aria-label="Sections" { ul {
                @for (id, title) in &sections { li { a href={ "#" (id) } { (title) } } }
            } } }
            (PreEscaped(text))
        }
        p.line {
            @if let Some(before) = before { a rel="prev" href={ "/docs/" (before.name) } { "← " (title(before)) } }
            @if let Some(next) = CHAPTERS.get(place + 1) { a rel="next" href={ "/docs/" (next.name) } { (title(next)) " →" } }
        }
    };
    Ok(Page { title: title(chapter), place: Place::Docs, live: None, body }.response(&visitor))
}

/// The first line of a chapter is its title.
fn title(chapter: &Chapter) -> &'static str {
    chapter.text.lines().next().unwrap_or_default().trim_start_matches('#').trim()
}

/// A chapter as HTML, and the sections that it has.
struct Rendered {
    html: String,
    sections: Vec<(String, String)>,
}

fn rendered(text: &'static str) -> Rendered {
    let mut sections = Vec::new();
    let mut ids = BTreeSet::new();
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let parsed: Vec<Event<'_>> = Parser::new_ext(text, options).collect();
    let mut events = Vec::with_capacity(parsed.len());
    let mut rust = false;
    for (at, event) in parsed.iter().enumerate() {
        match event {
            Event::Start(Tag::Heading { level, classes, attrs, .. }) => {
                let title = heading(&parsed[at + 1..]);
                let id = only_one(anchor(&title), &mut ids);
                if *level as usize == 2 {
                    sections.push((id.clone(), title));
                }
                let (level, classes, attrs) = (*level, classes.clone(), attrs.clone());
                events.push(Event::Start(Tag::Heading { level, id: Some(id.into()), classes, attrs }));
            }
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let (link_type, dest_url) = (*link_type, place_of(dest_url).into());
                events.push(Event::Start(Tag::Link { link_type, dest_url, title: title.clone(), id: id.clone() }));
            }
            // What is wider than the page scrolls by itself, also by keyboard.
            Event::Start(Tag::CodeBlock(kind)) => {
                rust = matches!(kind, CodeBlockKind::Fenced(info) if info.is_empty() || info.starts_with("rust"));
                events.push(Event::Html("<pre tabindex=\"0\"><code>".into()));
            }
            Event::End(TagEnd::CodeBlock) => {
                rust = false;
                events.push(Event::Html("</code></pre>\n".into()));
            }
            Event::Start(Tag::Table(columns)) => {
                let scroll = "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table\">";
                events.extend([Event::Html(scroll.into()), Event::Start(Tag::Table(columns.clone()))]);
            }
            Event::End(TagEnd::Table) => {
                events.extend([Event::End(TagEnd::Table), Event::Html("</div>\n".into())]);
            }
            Event::Text(text) if rust => events.push(Event::Text(without_hidden(text))),
            Event::Html(html) | Event::InlineHtml(html) => events.push(Event::Text(html.clone())),
            other => events.push(other.clone()),
        }
    }
    let mut html = String::new();
    pulldown_cmark::html::push_html(&mut html, events.into_iter());
    Rendered { html, sections }
}

/// The words of a heading that has begun.
fn heading(after: &[Event<'_>]) -> String {
    let within = after.iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    let words = within.filter_map(|event| match event {
        Event::Text(text) | Event::Code(text) => Some(&**text),
        _ => None,
    });
    words.collect()
}

/// As GitHub makes it.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The id of a heading, where others before it have the same words: numbered, as GitHub does it.
fn only_one(id: String, taken: &mut BTreeSet<String>) -> String {
    let numbered = (1..).map(|n| format!("{id}-{n}"));
    let free = std::iter::once(id.clone()).chain(numbered).find(|id| !taken.contains(id)).unwrap_or(id);
    taken.insert(free.clone());
    free
}

/// Where a link of a chapter leads on the pages.
fn place_of(link: &str) -> String {
    let (file, part) = link.split_once('#').map_or((link, None), |(file, part)| (file, Some(part)));
    let name = file.strip_prefix("crate::guide::").or_else(|| file.strip_suffix(".md"));
    match (name, part) {
        (Some(name), Some(part)) => format!("/docs/{name}#{part}"),
        (Some(name), None) => format!("/docs/{name}"),
        (None, _) => link.to_owned(),
    }
}

/// Lines that rustdoc compiles and does not show.
fn without_hidden<'t>(text: &CowStr<'t>) -> CowStr<'t> {
    let hidden = |line: &str| {
        let line = line.trim_start();
        line == "#" || line == "#\n" || line.starts_with("# ")
    };
    if !text.lines().any(hidden) {
        return text.clone();
    }
    text.split_inclusive('\n').filter(|line| !hidden(line)).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses that something names so.
    fn named<'h>(html: &'h str, name: &str) -> Vec<&'h str> {
        html.split(&format!("{name}=\"")).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn whatever_a_chapter_links_to_is_there() {
        let chapters: Vec<(&str, String)> = CHAPTERS.iter().map(|one| (one.name, rendered(one.text).html)).collect();
        let mut places = BTreeSet::from(["/docs".to_owned()]);
        for (name, html) in &chapters {
            places.insert(format!("/docs/{name}"));
            places.extend(named(html, "id").into_iter().map(|id| format!("/docs/{name}#{id}")));
        }
        for (name, html) in &chapters {
            for link in named(html, "href") {
                let whole = if link.starts_with('#') { format!("/docs/{name}{link}") } else { link.to_owned() };
                assert!(whole.starts_with("https://") || places.contains(&whole), "{name}: {link} leads nowhere");
            }
        }
    }

    /// A link to a place leads to one place.
    #[test]
    fn headings_of_the_same_words_have_ids_of_their_own() {
        for chapter in &CHAPTERS {
            let html = rendered(chapter.text).html;
            let ids = named(&html, "id");
            let unique: BTreeSet<&str> = ids.iter().copied().collect();
            assert_eq!(ids.len(), unique.len(), "{}: {ids:?}", chapter.name);
        }
        let Rendered { html, sections } = rendered("# A\n\n## Try it\n\n## Try it 1\n\n## Try it\n\n## Try it\n");
        let ids: Vec<&str> = sections.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["try-it", "try-it-1", "try-it-2", "try-it-3"]);
        assert_eq!(named(&html, "id"), ["a", "try-it", "try-it-1", "try-it-2", "try-it-3"]);
    }

    #[test]
    fn a_chapter_is_its_text_and_nothing_that_it_could_do() {
        let text = "# A <b>title</b>\n\n## Part `x`, too\n\n<script>alert(1)</script>\n\n```rust\n# hidden();\nshown(\"<i>\");\n```\n\n| a | b |\n|---|---|\n| 1 | [c](cluster.md#here) |\n";
        let Rendered { html, sections } = rendered(text);
        assert_eq!(sections, [("part-x-too".to_owned(), "Part x, too".to_owned())]);
        for part in [
            "<h2 id=\"part-x-too\">",
            "&lt;script&gt;",
            "shown(\"&lt;i&gt;\")",
            "<div class=\"scroll\" tabindex=\"0\"",
            "href=\"/docs/cluster#here\"",
            "&lt;b&gt;title",
        ] {
            assert!(html.contains(part) || html.contains(&part.replace('"', "&quot;")), "{part}: {html}");
        }
        assert!(!html.contains("hidden()") && !html.contains("<script>") && !html.contains("<b>"), "{html}");
    }

    /// A file of the guide that no page shows would be one that nobody finds.
    #[test]
    fn every_file_of_the_guide_is_a_chapter() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/guide");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let files: BTreeSet<String> = files.filter_map(|file| Some(file.strip_suffix(".md")?.to_owned())).collect();
        assert_eq!(files, CHAPTERS.iter().map(|chapter| chapter.name.to_owned()).collect());
    }
}
