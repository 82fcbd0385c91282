//! Ratios and money as integers, and their texts: what is compared is an integer, what people read has two decimals.
//!
//! Invariant: a JSON number is rounded to basis points or micros once, where it comes in; texts print that integer and
//! nothing else, so the same state prints the same text. It compares nothing.

/// A ratio in basis points: `0.6` is 6000. Nothing for what is no number between 0 and 1.
pub fn bp_of(ratio: f64) -> Option<u32> {
    (0.0..=1.0).contains(&ratio).then(|| (ratio * 10_000.0).round() as u32)
}

/// Money in micros: `1.005` is 1 005 000. Nothing for what is no finite amount, or beyond nine trillion.
pub fn micros_of(amount: f64) -> Option<i64> {
    let micros = (amount * 1_000_000.0).round();
    (micros.is_finite() && micros.abs() < 9e18).then_some(micros as i64)
}

/// `%.2f` of a ratio: 6000 is `0.60`.
pub(super) fn ratio_text(bp: u32) -> String {
    format!("{:.2}", f64::from(bp) / 10_000.0)
}

/// `%.2f` of money: 1 500 000 is `1.50`.
pub(super) fn money_text(micros: i64) -> String {
    format!("{:.2}", micros as f64 / 1_000_000.0)
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
    fn numbers_are_rounded_once_and_nonsense_is_none() {
        assert_eq!(bp_of(0.6), Some(6_000));
        assert_eq!(bp_of(0.59999), Some(6_000));
        assert_eq!(bp_of(0.5999), Some(5_999));
        assert_eq!([bp_of(0.0), bp_of(1.0)], [Some(0), Some(10_000)]);
        assert_eq!([bp_of(-0.1), bp_of(1.1), bp_of(f64::NAN)], [None; 3]);
        assert_eq!(micros_of(1.0), Some(1_000_000));
        assert_eq!(micros_of(1.000_001), Some(1_000_001));
        assert_eq!([micros_of(f64::INFINITY), micros_of(f64::NAN), micros_of(1e30)], [None; 3]);
    }

    #[test]
    fn texts_have_the_decimals_of_the_seeds() {
        assert_eq!([ratio_text(4_550), ratio_text(6_000), ratio_text(5)].join(" "), "0.46 0.60 0.00");
        assert_eq!([money_text(1_000_000), money_text(1_236_000), money_text(-5)].join(" "), "1.00 1.24 -0.00");
        assert_eq!([percent_text(45, 50), percent_text(1, 3), percent_text(0, 0)].join(" "), "90.0 33.3 0.0");
    }
}
