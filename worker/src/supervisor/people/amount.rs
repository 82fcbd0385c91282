//! The texts of ratios and money: two decimals, as the seeds print them.
//!
//! Invariant: a text prints the integer it is given and nothing else, so the same state prints the same text. What is
//! compared is compared elsewhere, as integers.

use crate::supervisor::spec::{Money, Ratio};

/// `%.2f` of a ratio: 6000 basis points are `0.60`.
pub(super) fn ratio_text(ratio: Ratio) -> String {
    format!("{:.2}", f64::from(ratio.as_bp()) / 10_000.0)
}

/// `%.2f` of money: 1 500 000 micros are `1.50`.
pub(super) fn money_text(money: Money) -> String {
    format!("{:.2}", money.as_micros() as f64 / 1_000_000.0)
}

/// `%.1f` of a part of a whole in per cent: 45 of 50 is `90.0`; nothing of nothing is `0.0`.
pub(super) fn percent_text(part: u64, whole: u64) -> String {
    let ratio = if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    format!("{:.1}", ratio * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_decimals_of_the_seeds() {
        assert_eq!([4_550, 6_000, 5].map(|bp| ratio_text(Ratio::from_bp(bp))).join(" "), "0.46 0.60 0.00");
        assert_eq!([1_000_000, 1_236_000, 0].map(|n| money_text(Money::from_micros(n))).join(" "), "1.00 1.24 0.00");
        assert_eq!([percent_text(45, 50), percent_text(1, 3), percent_text(0, 0)].join(" "), "90.0 33.3 0.0");
    }
}
