//! Calls that a test allows: of a kind everywhere, or at one place of the code.
//!
//! Invariant: a place allows calls that were made there or in what is called from there, and no others; a call whose place
//! is not known is allowed by its kind only.

use std::collections::BTreeSet;

use super::trip::{CallSite, ForbiddenCall, Trip};

/// What is no finding.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowed {
    kinds: BTreeSet<ForbiddenCall>,
    sites: BTreeSet<(ForbiddenCall, String)>,
}

impl Allowed {
    pub(super) fn everywhere(&mut self, call: ForbiddenCall) {
        self.kinds.insert(call);
    }
    pub(super) fn at(&mut self, call: ForbiddenCall, site: String) {
        self.sites.insert((call, site));
    }
    /// Whether the call may be made.
    pub(crate) fn covers(&self, trip: &Trip) -> bool {
        let at = |site: &str| trip.stack.iter().any(|on_the_way| is_at(on_the_way, site));
        self.kinds.contains(&trip.call) || self.sites.iter().any(|(call, site)| *call == trip.call && at(site))
    }
}

/// Whether a function on the stack is the one that is meant: by `file:line`, by file, or by the end of its path.
fn is_at(on_the_way: &CallSite, site: &str) -> bool {
    let place = on_the_way.place.as_str();
    let line = place.rsplit_once(':').map_or(place, |(line, _)| line);
    let file = line.rsplit_once(':').map_or(line, |(file, _)| file);
    let ends = |whole: &str, end: &str, separator: &str| {
        whole.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with(separator))
    };
    if [line, file, place].iter().any(|place| ends(place, site, "/")) {
        return true;
    }
    // An async function is a closure of itself.
    let mut function = on_the_way.function.as_str();
    while let Some(outer) = function.strip_suffix("::{{closure}}").or_else(|| function.strip_suffix("::{closure#0}")) {
        function = outer;
    }
    // Of some functions only the end of the path is known.
    ends(function, site, "::") || (site.contains("::") && ends(site, function, "::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_a_line_a_file_or_the_end_of_a_path() {
        let site = CallSite { function: "app::audit::stamp::{{closure}}".into(), place: "./src/audit.rs:12:9".into() };
        for meant in ["audit.rs:12", "src/audit.rs:12", "audit.rs", "stamp", "audit::stamp", "app::audit::stamp"] {
            assert!(is_at(&site, meant), "{meant}");
        }
        for other in ["audit.rs:1", "audit.rs:121", "dit.rs:12", "tamp", "other::stamp", "audit"] {
            assert!(!is_at(&site, other), "{other}");
        }
    }
}
