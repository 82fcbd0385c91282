//! What is told, in the words of each kind of channel.
//!
//! Invariant: the same notification has the same words in every attempt, as long as the same is asked and its links are not old,
//! so that its signature differs by the time alone; what
//! comes from a run is text, and is escaped where text has signs of its own. Signatures are those of Standard Webhooks.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bosun_engine::Timestamp;
use ring::hmac;
use serde_json::{Value, json};

use super::occasion::Occasion;
use crate::cli::request_text::with_moments;

/// Links of one notification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TellLinks {
    /// The page of what it is about, for whoever may sign in.
    pub page: Option<String>,
    /// The pages that decide.
    pub approve: Option<String>,
    pub reject: Option<String>,
    pub expires_at: Option<Timestamp>,
}

/// The JSON that webhooks and commands get.
pub fn body(id: &str, channel: &str, occasion: &Occasion, links: &TellLinks) -> Value {
    let Occasion { id: occasion_id, kind, at, namespace, about, title, text, asked } = occasion;
    let mut body = json!({
        "id": id, "occasion": occasion_id, "channel": channel, "kind": kind, "at": at.to_string(), "title": title,
        "text": text, "namespace": namespace,
    });
    if let Some(about) = about {
        body["workflow_id"] = json!(about.workflow_id);
        body["run_id"] = json!(about.run_id);
        body["workflow_type"] = json!(about.workflow_type);
    }
    if let Some(asked) = asked {
        let request = with_moments(&asked.request, |at| json!(at.to_string()));
        body["asked"] = json!({ "id": asked.id, "kind": asked.word, "shown": asked.shown, "request": request });
    }
    let TellLinks { page, approve, reject, expires_at } = links;
    if page.is_some() {
        body["links"] = json!({ "page": page });
    }
    if let (Some(approve), Some(reject), Some(expires_at)) = (approve, reject, expires_at) {
        body["links"]["approve"] = json!(approve);
        body["links"]["reject"] = json!(reject);
        body["links"]["expires_at"] = json!(expires_at.to_string());
    }
    body
}

/// The characters of a block of Slack.
const BLOCK_MAX: usize = 2_800;

/// The JSON of an incoming webhook of Slack.
pub fn slack(occasion: &Occasion, links: &TellLinks) -> Value {
    let title = escaped(&occasion.title);
    let text: String = occasion.text.chars().take(BLOCK_MAX).collect();
    let mut blocks = vec![json!({ "type": "section", "text": { "type": "mrkdwn", "text": format!("*{title}*") } })];
    if !text.trim().is_empty() {
        // As it is: nothing in it is a sign.
        blocks.push(json!({ "type": "section", "text": { "type": "plain_text", "text": text } }));
    }
    let button = |text: &str, url: &Option<String>, style: Option<&str>| {
        let url = url.as_ref()?;
        let label = json!({ "type": "plain_text", "text": text });
        let mut button = json!({ "type": "button", "text": label, "url": url });
        if let Some(style) = style {
            button["style"] = json!(style);
        }
        Some(button)
    };
    let buttons: Vec<Value> = [
        button("Approve…", &links.approve, Some("primary")),
        button("Reject…", &links.reject, Some("danger")),
        button("Open", &links.page, None),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !buttons.is_empty() {
        blocks.push(json!({ "type": "actions", "elements": buttons }));
    }
    json!({ "text": title, "blocks": blocks })
}

/// Slack reads these three as signs.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The least bytes of a key: the one in the examples of Standard Webhooks has 18, and fewer than 16 can be guessed.
const KEY_MIN: usize = 16;

/// The key that a secret stands for: what follows `whsec_` in base64. Another text is none: whoever verifies as Standard
/// Webhooks say could not do it, and a short key can be guessed.
///
/// # Errors
/// It does not begin with `whsec_`, what follows is no base64, or stands for less than 16 bytes. The text says none of it.
pub fn signing_key(secret: &str) -> Result<Vec<u8>, &'static str> {
    let coded = secret.trim().strip_prefix("whsec_");
    coded.and_then(|coded| STANDARD.decode(coded).ok()).filter(|key| key.len() >= KEY_MIN).ok_or(
        "the secret is not `whsec_` and at least 16 bytes in base64; \
         `echo whsec_$(openssl rand -base64 32)` makes one",
    )
}

/// The header `webhook-signature` of a body that is sent at a second of Unix time.
///
/// # Errors
/// The secret is none, as [`signing_key`] says.
pub fn signature(secret: &str, id: &str, second: i64, body: &[u8]) -> Result<String, &'static str> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &signing_key(secret)?);
    let mut signed = format!("{id}.{second}.").into_bytes();
    signed.extend_from_slice(body);
    Ok(format!("v1,{}", STANDARD.encode(hmac::sign(&key, &signed))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::run_info;
    use crate::notify::rules::occasion::OccasionKind;

    fn occasion() -> Occasion {
        let info = run_info("order-7", bosun_engine::WorkflowStatus::Failed);
        Occasion::of(&info, OccasionKind::Failed, Timestamp(1_000_000), "failed")
            .says("<order> & more".into(), "line *one*\n<!channel>")
    }

    /// The example of the specification of Standard Webhooks.
    #[test]
    fn a_signature_is_that_of_the_specification() {
        let secret = "whsec_plJ3nmyCDGBKInavdOK15jsl";
        let body = br#"{"event_type":"ping","data":{"success":true}}"#;
        let signed = signature(secret, "msg_loFOjxBNrRLzqYUf", 1_731_705_121, body).unwrap();
        assert_eq!(signed, "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=");
        let other = signature("whsec_plJ3nmyCDGBKInavdOK15jsm", "msg_loFOjxBNrRLzqYUf", 1_731_705_121, body).unwrap();
        assert_ne!(signed, other);
        // What nobody could verify, or what anybody could forge, signs nothing.
        for none in ["correct-horse-battery", "whsec_", "whsec_!!!", "whsec_c2hvcnQ="] {
            assert!(signature(none, "id", 0, body).is_err(), "{none}");
        }
    }

    #[test]
    fn slack_is_told_no_signs_of_a_run() {
        let links = TellLinks { page: Some("https://b.example/x".into()), ..TellLinks::default() };
        let told = slack(&occasion(), &links);
        assert_eq!(told["text"], "&lt;order&gt; &amp; more");
        assert_eq!(told["blocks"][1]["text"]["type"], "plain_text");
        assert_eq!(told["blocks"][2]["elements"].as_array().map(Vec::len), Some(1), "{told}");
        assert!(slack(&occasion(), &TellLinks::default())["blocks"].as_array().unwrap().len() == 2);
    }

    #[test]
    fn a_body_says_what_happened_where_and_how_to_decide_it() {
        let at = Some(Timestamp(2_000_000));
        let link = |text: &str| Some(text.to_owned());
        let links = TellLinks { page: link("p"), approve: link("a"), reject: link("r"), expires_at: at };
        let told = body("m-1", "ops", &occasion(), &links);
        assert_eq!(
            (told["id"].as_str(), told["kind"].as_str(), told["workflow_id"].as_str()),
            (Some("m-1"), Some("failed"), Some("order-7"))
        );
        assert_eq!(told["links"]["approve"], "a");
        assert_eq!(body("m-1", "ops", &occasion(), &TellLinks::default()).get("links"), None);
    }
}
