//! A report that the engine can keep: one that is too large is told with less of it, and says so.
//!
//! Invariant: what was done is never lost for the length of what came of it: the run closes with its report, and a result that
//! had to be cut is no full success, since whoever reads it would take a part for the whole. What a report of usual length says
//! is not touched. Pure: the limit is the same for every worker.

use bosun_engine::Payload;
use serde_json::Value;

use super::{EndReason, SupervisorOutput};
use crate::supervisor::core::phase::Phase;
use crate::supervisor::reading::text_of;

/// The bytes of a report. The engine takes 2 MiB, and a report stands in a failure, or in the answer of a run below.
const REPORT_MAX: usize = 1536 * 1024;
/// What is left of a result that is cut.
const RESULT_MAX: usize = 512 * 1024;
/// What is left of other texts then.
const TEXT_MAX: usize = 2_000;
/// As many errors and tasks as are told then.
const LISTED_MAX: usize = 200;

/// The code of a run whose result was cut.
const RESULT_CUT: &str = "result_cut";

fn bytes(output: &SupervisorOutput) -> usize {
    Payload::encode(output).map_or(usize::MAX, |payload| payload.data.len())
}

/// The report, with no more of it than can be kept.
pub(super) fn fitted(mut output: SupervisorOutput) -> SupervisorOutput {
    let whole = bytes(&output);
    if whole <= REPORT_MAX {
        return output;
    }
    output.details = Value::Null;
    output.errors.push(format!("the report had {whole} bytes, and at most {REPORT_MAX} are kept: it has no details"));
    if bytes(&output) <= REPORT_MAX {
        return output;
    }
    cut_result(&mut output);
    if bytes(&output) > REPORT_MAX {
        cut_lists(&mut output);
    }
    // Some characters take six bytes where they are kept.
    while bytes(&output) > REPORT_MAX {
        let Some(Value::String(result)) = &mut output.final_result else { break };
        match result.len() / 2 {
            0 => output.final_result = None,
            half => *result = beginning(result, half),
        }
    }
    output
}

fn cut_result(output: &mut SupervisorOutput) {
    let Some(result) = output.final_result.as_ref().map(text_of).filter(|result| result.len() > RESULT_MAX) else {
        return;
    };
    let why = format!(
        "the result had {} bytes, and {RESULT_MAX} of them are kept; the history has what every call gave",
        result.len()
    );
    output.final_result = Some(Value::from(beginning(&result, RESULT_MAX)));
    output.errors.push(why.clone());
    let reason = || EndReason { code: RESULT_CUT.to_owned(), message: why, tasks: Vec::new() };
    output.reason.get_or_insert_with(reason);
    output.success = false;
    output.code.get_or_insert_with(|| RESULT_CUT.to_owned());
    if output.status == Phase::Completed.as_str() {
        output.status = Phase::Partial.as_str().to_owned();
    }
}

fn cut_lists(output: &mut SupervisorOutput) {
    let cut = |text: &mut String| *text = beginning(text, TEXT_MAX);
    output.tasks.truncate(LISTED_MAX);
    output.errors.truncate(LISTED_MAX);
    output.errors.iter_mut().for_each(cut);
    output.handed_up.truncate(LISTED_MAX);
    output.handed_up.iter_mut().for_each(|up| cut(&mut up.words));
    [&mut output.objective, &mut output.summary].into_iter().for_each(cut);
    output.error.iter_mut().chain(output.so_far.iter_mut()).for_each(cut);
    for task in &mut output.tasks {
        cut(&mut task.title);
        task.error.iter_mut().for_each(cut);
    }
    if let Some(reason) = &mut output.reason {
        cut(&mut reason.message);
        reason.tasks.truncate(LISTED_MAX);
        reason.tasks.iter_mut().for_each(|task| cut(&mut task.why));
    }
    output.recruits = Value::Array(Vec::new());
}

/// As much of a text as fits, in whole characters.
fn beginning(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(result: Value, details: Value) -> SupervisorOutput {
        serde_json::from_value(json!({
            "objective": "o", "status": "completed", "success": true, "summary": "", "error": null, "code": null,
            "details": details, "final_result": result, "tasks": [], "errors": [], "recruits": [], "spec_hash": "",
            "tokens": 5, "calls": 1,
        }))
        .unwrap()
    }

    #[test]
    fn what_came_of_a_run_is_kept_as_far_as_it_fits() {
        let usual = report(json!({ "a": "x".repeat(1_000_000) }), Value::Null);
        assert_eq!(fitted(usual.clone()), usual);

        // Details say again what stands elsewhere: the result is whole, and so is the success.
        let (long, twice) = ("\u{e4}".repeat(400_000), "\u{e4}".repeat(500_000));
        let without = fitted(report(json!(long), json!({ "messages": twice })));
        assert_eq!(
            (&without.final_result, without.success, &without.details),
            (&Some(json!(long)), true, &Value::Null)
        );
        assert!(without.errors[0].contains("no details"), "{:?}", without.errors);

        let cut = fitted(report(json!("\u{e4}".repeat(1_000_000)), Value::Null));
        let result = cut.final_result.as_ref().and_then(Value::as_str).unwrap();
        assert!(result.len() <= RESULT_MAX && result.len() > RESULT_MAX - 4 && bytes(&cut) <= REPORT_MAX);
        let told =
            (cut.success, cut.status.as_str(), cut.code.as_deref(), cut.reason.as_ref().map(|why| why.code.as_str()));
        assert_eq!(told, (false, "partial", Some(RESULT_CUT), Some(RESULT_CUT)));

        let errors: Vec<String> = (0..1_000).map(|n| format!("{n} {}", "e".repeat(5_000))).collect();
        let many = fitted(SupervisorOutput { errors, ..report(json!("short"), Value::Null) });
        assert!(bytes(&many) <= REPORT_MAX && many.success && many.final_result == Some(json!("short")));
    }
}
