//! From the result of a tool to what is kept of it.
//!
//! Invariant: bounded by the bytes that were asked for, and what was cut is said. Secrets are cut out before anything is
//! measured. What is no text (images, sounds, files) is named and left out.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use super::super::McpOutput;
use super::secrets::Secrets;

/// More parts of an answer are left out.
const PARTS_MAX: usize = 1_000;

pub(super) fn output(result: CallToolResult, most: u64, secrets: &Secrets) -> McpOutput {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut left_out = Vec::new();
    if result.content.len() > PARTS_MAX {
        left_out.push(format!("{} more parts", result.content.len() - PARTS_MAX));
    }
    let parts: Vec<String> = result.content.into_iter().take(PARTS_MAX).map(part).collect();
    let mut text = secrets.text(&parts.join("\n"));
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        left_out.push(format!("{} more bytes of text", text.len() - end));
        text.truncate(end);
        text = secrets.cut_text(&text);
    }
    let structured = result.structured_content.filter(|value| !value.is_null()).and_then(|mut value| {
        secrets.value(&mut value);
        let bytes = value.to_string().len();
        if bytes > most {
            left_out.push(format!("the structured part, of {bytes} bytes"));
            return None;
        }
        Some(value)
    });
    McpOutput { text, is_error: result.is_error == Some(true), structured, left_out }
}

fn part(part: ContentBlock) -> String {
    match part {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => format!("[an image, {}, {} bytes in base64]", image.mime_type, image.data.len()),
        ContentBlock::Audio(audio) => format!("[a sound, {}, {} bytes in base64]", audio.mime_type, audio.data.len()),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                format!("[{uri}, {} bytes in base64]", blob.len())
            }
            _ => "[a resource of another kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}]", link.uri),
        _ => "[a part of another kind]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(result: Value, most: u64, secret: &str) -> McpOutput {
        output(serde_json::from_value(result).unwrap(), most, &Secrets::of_texts(&[secret]))
    }

    #[test]
    fn texts_are_kept_in_order_and_other_parts_named() {
        let content = json!([
            { "type": "text", "text": "one" },
            { "type": "image", "mimeType": "image/png", "data": "AAAA" },
            { "type": "resource", "resource": { "uri": "file:///a", "text": "two" } },
            { "type": "resource_link", "uri": "file:///b", "name": "b" },
        ]);
        let output = of(json!({ "content": content, "structuredContent": { "n": 1 } }), 1_000, "");
        assert_eq!(output.text, "one\n[an image, image/png, 4 bytes in base64]\n[file:///a]\ntwo\n[file:///b]");
        assert_eq!((output.structured, output.is_error), (Some(json!({ "n": 1 })), false));
        assert_eq!(output.left_out, Vec::<String>::new());
    }

    #[test]
    fn a_long_answer_is_cut_between_characters_and_says_so() {
        let content = json!([{ "type": "text", "text": "äöü" }]);
        let output = of(json!({ "content": content, "structuredContent": { "long": "x".repeat(10) } }), 3, "");
        assert_eq!((output.text.as_str(), output.structured), ("ä", None));
        assert_eq!(output.left_out, ["4 more bytes of text", "the structured part, of 21 bytes"]);
    }

    #[test]
    fn a_secret_is_cut_out_of_texts_and_data_also_where_the_cut_is_in_it() {
        let content = json!([{ "type": "text", "text": "key sk-live-0123456789" }]);
        let result = json!({ "content": content, "structuredContent": { "k": "sk-live-0123456789" } });
        for most in [14, 16, 20, 1_000] {
            let output = of(result.clone(), most, "sk-live-0123456789");
            assert!(!json!(output).to_string().contains("sk-live"), "{most}: {output:?}");
        }
    }
}
