//! The answers of a check as JUnit XML, which build servers read.
//!
//! Invariant: the output is well-formed XML whatever a workflow id or a message holds: markup is escaped, and characters
//! that XML 1.0 cannot hold are replaced. A history that does not fit is a `failure`, one that cannot be read an `error`.

use std::time::Duration;

use super::verdict::{CheckedHistory, Class, ReplayAnswer};

pub(super) fn junit(checked: &[CheckedHistory]) -> String {
    let count = |class| checked.iter().filter(|one| one.class() == class).count();
    let counts = format!(
        r#"tests="{}" failures="{}" errors="{}" time="{}""#,
        checked.len(),
        count(Class::DoesNotFit),
        count(Class::Unreadable),
        seconds(checked.iter().map(|one| one.took).sum()),
    );
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"bosun replay check\" {counts}>\n"
    );
    checked.iter().for_each(|one| case(one, &mut xml));
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

fn case(one: &CheckedHistory, xml: &mut String) {
    let workflow_type = match &one.answer {
        ReplayAnswer::Replayed(report, _) => report.run.as_ref().map(|run| run.workflow_type.as_str()),
        ReplayAnswer::Stuck | ReplayAnswer::Foreign | ReplayAnswer::Unreadable(_) => None,
    };
    let name = format!(
        r#"    <testcase classname="{}" name="{}" time="{}""#,
        escaped(workflow_type.unwrap_or("history")),
        escaped(&one.name),
        seconds(one.took)
    );
    xml.push_str(&name);
    let element = match one.class() {
        Class::Fits => return xml.push_str("/>\n"),
        Class::DoesNotFit => "failure",
        Class::Unreadable => "error",
    };
    let why = one.explanation().unwrap_or_default();
    let first = why.lines().next().unwrap_or_default();
    xml.push_str(&format!(
        ">\n      <{element} type=\"{}\" message=\"{}\">{}</{element}>\n    </testcase>\n",
        one.verdict(),
        escaped(first),
        escaped(&why)
    ));
}

fn seconds(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64())
}

pub(in crate::cli) fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' | '\t' => out.push(c),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c < ' ' => out.push('\u{fffd}'),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &str, answer: ReplayAnswer) -> CheckedHistory {
        CheckedHistory { name: name.to_owned(), answer, took: Duration::from_millis(1_500) }
    }

    #[test]
    fn the_xml_is_well_formed_whatever_a_name_holds() {
        let checked = [
            answer("a<b>&\"'\x1b\u{1}]]>", ReplayAnswer::Unreadable("no <history>\nat all & none".to_owned())),
            answer("slow", ReplayAnswer::Stuck),
        ];
        let xml = junit(&checked);
        let expected = "\
<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites tests=\"2\" failures=\"1\" errors=\"1\" time=\"3.000\">
  <testsuite name=\"bosun replay check\" tests=\"2\" failures=\"1\" errors=\"1\" time=\"3.000\">
    <testcase classname=\"history\" name=\"a&lt;b&gt;&amp;&quot;&apos;\u{fffd}\u{fffd}]]&gt;\" time=\"1.500\">
      <error type=\"unreadable\" message=\"no &lt;history&gt;\">no &lt;history&gt;
at all &amp; none</error>
    </testcase>
    <testcase classname=\"history\" name=\"slow\" time=\"1.500\">
      <failure type=\"stuck\"";
        assert!(xml.starts_with(expected), "{xml}");
        assert!(xml.ends_with("</failure>\n    </testcase>\n  </testsuite>\n</testsuites>\n"), "{xml}");
    }
}
