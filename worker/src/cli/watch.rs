//! What stands in place of what was shown before, for verbs that look again and again.
//!
//! Invariant: only a terminal is cleared; into a file or a pipe goes one text after the other, each with its time.

use std::io::{self, IsTerminal};

use super::output::{Format, Screen};

impl Screen {
    /// Before a text that stands in place of one that was shown: a terminal is cleared, elsewhere a line says when it was.
    pub(super) fn begin_anew(&mut self, is_first: bool) {
        if self.format != Format::Text {
            return;
        }
        if self.live && io::stdout().is_terminal() {
            self.write("\x1b[H\x1b[2J");
        } else if !is_first {
            let at = self.now.to_string();
            self.write(&format!("\n{at}\n"));
        }
    }
}
