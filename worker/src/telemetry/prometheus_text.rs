//! The metrics as Prometheus text (0.0.4), for whoever cannot read OpenMetrics.
//!
//! Invariant: the same samples with the same values; only what the older format does not know is said otherwise: a counter is called as
//! its sample is, an info is a gauge, and there are neither units nor an end.

use std::collections::BTreeMap;

/// What the names of some samples end with, where the format before has no such ending.
fn named<'n>(name: &'n str, kinds: &BTreeMap<&str, &str>) -> std::borrow::Cow<'n, str> {
    match kinds.get(name) {
        Some(&"counter") => format!("{name}_total").into(),
        Some(&"info") => format!("{name}_info").into(),
        _ => name.into(),
    }
}

/// OpenMetrics as Prometheus text.
pub(crate) fn prometheus_text(open_metrics: &str) -> String {
    // The help of a metric comes before its type.
    let types = open_metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let kinds: BTreeMap<&str, &str> = types.collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let about =
            ["# HELP ", "# TYPE "].iter().find_map(|what| Some((*what, line.strip_prefix(what)?.split_once(' ')?)));
        match about {
            Some((what, (name, rest))) => {
                let rest = match (what, rest) {
                    ("# TYPE ", "info" | "stateset") => "gauge",
                    ("# TYPE ", "unknown") => "untyped",
                    (_, rest) => rest,
                };
                text.push_str(&format!("{what}{} {rest}", named(name, &kinds)));
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_older_format_does_not_know_is_said_otherwise() {
        let open = "# HELP b_turns Turns.\n# TYPE b_turns counter\nb_turns_total 3\n# HELP b_time_seconds T.\n\
                    # TYPE b_time_seconds histogram\n# UNIT b_time_seconds seconds\nb_time_seconds_sum 1.0\n\
                    # HELP b_build B.\n# TYPE b_build info\nb_build_info{version=\"1\"} 1\n# EOF\n";
        let text = "# HELP b_turns_total Turns.\n# TYPE b_turns_total counter\nb_turns_total 3\n# HELP b_time_seconds T.\n\
                    # TYPE b_time_seconds histogram\nb_time_seconds_sum 1.0\n\
                    # HELP b_build_info B.\n# TYPE b_build_info gauge\nb_build_info{version=\"1\"} 1\n";
        assert_eq!(prometheus_text(open), text);
    }
}
