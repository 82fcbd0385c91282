//! The depth of JSON text, measured without building it, so that a bomb costs one pass over its bytes (G34).
//!
//! Invariant: brackets inside strings do not count. This does not check that the text is JSON; the parser does.

/// The deepest nesting the control API reads.
pub const JSON_DEPTH_MAX: usize = 64;

/// And where a history may be sent: as deep as the parser goes. What a history may be is checked behind that.
pub const HISTORY_DEPTH_MAX: usize = 127;

/// How deeply arrays and objects are nested.
pub fn json_depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G34: JSON depth, at the limit and one beyond it.
    #[test]
    fn depth_counts_nesting_outside_strings() {
        assert_eq!(json_depth(b"1"), 0);
        assert_eq!(json_depth(br#"{"a":[1,{"b":2}],"c":[]}"#), 3);
        assert_eq!(json_depth(br#"{"a":"[[[[\"[["}"#), 1);
        for depth in [63, 64, 65] {
            assert_eq!(json_depth("[".repeat(depth).as_bytes()), depth);
        }
    }
}
