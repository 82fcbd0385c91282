//! The form that gives a run more of what it lacks, where it waits for that.
//!
//! Invariant: what it offers is what the command beside it gives, and can be changed to more or less; what may be given to
//! whom is decided in `crate::top_up`, as for the command line and the API.

use maud::{Markup, html};
use serde_json::Value;

use super::{form_of, place_of};
use crate::api::people::top_up_refused;
use crate::api::problem::Problem;
use crate::backend::Backend;
use crate::cli::budget::micros;
use crate::cli::spent::TOP_UP;
use crate::inbox::HumanRequest;
use crate::inbox::became::fresh_key;
use crate::supervisor::spec::Span;
use crate::top_up::{MoreBudget, top_up};
use crate::ui::forms::{Fields, Visitor};

/// What a run lacks, and how much of it is offered; of what is only allowed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lack<'r> {
    pub of: &'r str,
    pub offered: &'r str,
}

/// What the command that answers a request gives. Its last option is ours, whatever the id of the run says.
pub(super) fn lack(request: &Value) -> Option<Lack<'_>> {
    let (_, option) = request["answer"].as_str()?.strip_prefix(TOP_UP)?.rsplit_once(" --")?;
    let (of, offered) = option.split_once(' ').unwrap_or((option, ""));
    ["tokens", "calls", "cost", "wall", "allow-unpriced"].contains(&of).then_some(Lack { of, offered })
}

pub(super) fn form(visitor: &Visitor, one: &HumanRequest, lack: Lack<'_>) -> Markup {
    let id = format!("more-{}", place_of(one));
    let label = match lack.of {
        "cost" => "Dollars more",
        "wall" => "Time more",
        "calls" => "Calls more",
        _ => "Tokens more",
    };
    let body = html! {
        input type="hidden" name="of" value=(lack.of);
        @if lack.of == "allow-unpriced" {
            div.line { button.primary type="submit" name="do" value="top_up" { "Allow calls whose price is not known" } }
        } @else {
            label for=(id) { (label) }
            input id=(id) name="more" value=(lack.offered) autocomplete="off";
            div.line { button.primary type="submit" name="do" value="top_up" { "Give it, and go on" } }
        }
    };
    form_of(visitor, one, body)
}

/// What the form asks for.
fn asked(fields: &Fields) -> Result<MoreBudget, Problem> {
    let text = fields.text("more").unwrap_or_default().trim();
    let wrong = |why: String| Problem::bad_request(format!("more: {why}"));
    let number = || text.parse::<u64>().map_err(|_| wrong(format!("`{text}` is no whole number")));
    let nothing = MoreBudget::default();
    match fields.text("of").unwrap_or_default() {
        "tokens" => Ok(MoreBudget { tokens: Some(number()?), ..nothing }),
        "calls" => Ok(MoreBudget { calls: Some(number()?), ..nothing }),
        "cost" => {
            let amount = micros(text.trim_start_matches('$')).map_err(wrong)?;
            Ok(MoreBudget { cost_micros: Some(amount), ..nothing })
        }
        "wall" => {
            let span: Span = serde_json::from_value(text.into()).map_err(|why| wrong(why.to_string()))?;
            let wall = std::time::Duration::from(span).as_millis();
            Ok(MoreBudget { wall_ms: Some(u64::try_from(wall).unwrap_or(u64::MAX)), ..nothing })
        }
        "allow-unpriced" => Ok(MoreBudget { allow_unpriced: true, ..nothing }),
        other => Err(Problem::bad_request(format!("of: a run is given no {other:?}"))),
    }
}

pub(super) async fn give(backend: &dyn Backend, found: &HumanRequest, fields: &Fields) -> Result<(), Problem> {
    let more = asked(fields)?;
    let no_key = |why: std::io::Error| {
        Problem::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "no_random_numbers", why.to_string())
    };
    // Sent again on the way, it is given once.
    let key = fresh_key().map_err(no_key)?;
    let done = top_up(backend, &found.target, &more, (None, Some(&key))).await.map_err(top_up_refused)?;
    if done.too_little {
        let why = "it has more now, and what is spent is still all that it may: give it more";
        return Err(Problem::new(axum::http::StatusCode::CONFLICT, "too_little", why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_form_offers_what_the_command_gives() {
        let of =
            |answer: &str| lack(&json!({ "answer": answer })).map(|Lack { of, offered }| format!("{of}={offered}"));
        assert_eq!(of("bosun budget top-up story --tokens 350").as_deref(), Some("tokens=350"));
        assert_eq!(of("bosun budget top-up -w='-a --b' --cost 0.010000").as_deref(), Some("cost=0.010000"));
        assert_eq!(of("bosun budget top-up story --allow-unpriced").as_deref(), Some("allow-unpriced="));
        assert_eq!(of("bosun resume 'x --tokens 1'"), None);
        assert_eq!(of("bosun budget top-up story --calls N --no-such"), None);
    }

    #[test]
    fn what_is_typed_is_read_exactly_or_refused() {
        let read = |of: &str, more: &str| asked(&Fields::of(&[("of", of), ("more", more)]));
        assert_eq!(read("cost", "$0.50").unwrap().cost_micros, Some(500_000));
        assert_eq!(read("tokens", " 7 ").unwrap().tokens, Some(7));
        assert_eq!(read("wall", "10m").unwrap().wall_ms, Some(600_000));
        assert!(read("allow-unpriced", "").unwrap().allow_unpriced);
        for (of, more) in [("cost", "1e3"), ("tokens", "-1"), ("calls", ""), ("wall", "soon"), ("owner", "1")] {
            assert!(read(of, more).is_err(), "{of} {more}");
        }
    }
}
