//! axe-core, which finds what keeps people out of a page: contrast, names, labels, order.
//!
//! Invariant: it is the one version that `.ci/run` puts into `target/axe`, and runs in the page through the browser, not
//! through the page's own rules for scripts. Where npm is not there to install it, that is said.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::browser::Page;
use super::{all_required, say};

/// Where `.ci/run` puts it, from the root of the source tree.
const PLACE: &str = "target/axe/node_modules/axe-core/axe.min.js";

/// The text of the checker.
pub struct Axe(String);

impl Axe {
    /// `None`: it is not installed, which was said.
    pub fn available_or_explain(root: &Path) -> Option<Axe> {
        let path = root.join(PLACE);
        if let Ok(text) = std::fs::read_to_string(&path) {
            return Some(Axe(text));
        }
        let npm = Command::new("npm").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let could = npm.is_ok_and(|status| status.success());
        assert!(!(could && all_required()), "axe-core is needed and not at {}: `.ci/run` installs it", path.display());
        say("SKIPPED: pages are not checked by axe-core: it is not installed");
        None
    }

    /// What it finds on a page by all of its rules, those of good practice too: a line a place.
    pub fn violations(&self, page: &Page) -> Vec<String> {
        self.found(page, "", &["color-contrast", "empty-table-header", "heading-order", "region"])
    }

    /// The same of what colours alone decide.
    pub fn violations_of_contrast(&self, page: &Page) -> Vec<String> {
        self.found(page, "runOnly: { type: 'rule', values: ['color-contrast'] },", &["color-contrast"])
    }

    /// `wanted`: rules that it must have looked for, so that silence is no oversight.
    fn found(&self, page: &Page, only: &str, wanted: &[&str]) -> Vec<String> {
        if page.js("typeof axe") != "object" {
            page.js(&format!("{}; 0", self.0));
        }
        let found = page.js(&format!(
            "axe.run(document, {{ {only} resultTypes: ['violations'], elementRef: false }})
                .then(({{ violations, passes, incomplete, inapplicable }}) => {{
                    const known = [violations, passes, incomplete, inapplicable].flat().map(({{ id }}) => id);
                    const missed = {wanted:?}.filter((id) => !known.includes(id)).map((id) => `${{id}} was not looked for`);
                    return missed.concat(violations.flatMap(({{ id, help, nodes }}) => nodes.map(({{ html, any }}) =>
                        `${{id}} (${{help}}): ${{html.slice(0, 200)}} ${{any[0]?.message ?? ''}}`)));
                }})"
        ));
        found.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }
}
