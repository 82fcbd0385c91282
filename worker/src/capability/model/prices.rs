//! What an answer costs, in millionths of a US dollar, from a table of prices with dates.
//!
//! Invariant: whole numbers only (floats drift); a model that is not in the table, or an answer whose tokens were not
//! counted, is unpriced and never free. Amounts are rounded up. Pure but for [`Prices::read`].

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{ChatResponse, Usage};

/// The price of one answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Millionths of a US dollar.
    Micros(u64),
    /// Why nobody knows.
    Unpriced(String),
}

/// Prices by `provider/model` or `model`. None ship with the program: one that nobody has looked up would be spent by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// When these prices were looked up: `2026-11-20`.
    pub as_of: String,
    /// The price of each model.
    pub models: BTreeMap<String, ModelPrice>,
}

/// Millionths of a US dollar for a million tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// Of a million tokens of input.
    pub input: u64,
    /// What was read from a cache; like other input without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    /// What was written to a cache; like other input without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Of a million tokens of output.
    pub output: u64,
    /// When this price was looked up, if not with the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
}

impl Prices {
    /// The owner's table, as JSON.
    pub fn read(path: &Path) -> Result<Prices, String> {
        let text = std::fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?;
        serde_json::from_str(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// What an answer costs. The model that answered counts, and the one that was asked if that one has no price.
    pub fn cost(&self, provider: &str, asked: &str, response: &ChatResponse) -> Cost {
        let price = [response.model.as_str(), asked].into_iter().find_map(|model| self.price(provider, model));
        let Some(price) = price else { return Cost::Unpriced(format!("no price for {provider}/{asked}")) };
        price.of(&response.usage)
    }

    fn price(&self, provider: &str, model: &str) -> Option<&ModelPrice> {
        let named = |model: &str| self.models.get(&format!("{provider}/{model}")).or_else(|| self.models.get(model));
        named(model).or_else(|| named(without_date(model)?))
    }
}

/// `gpt-4o-2024-08-06` and `claude-sonnet-4-5-20250929` are editions of `gpt-4o` and `claude-sonnet-4-5`.
fn without_date(model: &str) -> Option<&str> {
    let is_digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let (name, last) = model.rsplit_once('-')?;
    if is_digits(last, 8) {
        return Some(name);
    }
    let (name, month) = name.rsplit_once('-')?;
    let (name, year) = name.rsplit_once('-')?;
    (is_digits(last, 2) && is_digits(month, 2) && is_digits(year, 4)).then_some(name)
}

impl Cost {
    /// The same, by another price where the table has none for the model.
    pub(crate) fn or_by(self, price: Option<&ModelPrice>, response: &ChatResponse) -> Cost {
        match (&self, price) {
            (Cost::Unpriced(_), Some(price)) => price.of(&response.usage),
            _ => self,
        }
    }
}

impl ModelPrice {
    /// Reasoning is part of the output.
    fn of(&self, usage: &Usage) -> Cost {
        let (Some(input), Some(output)) = (usage.input, usage.output) else {
            return Cost::Unpriced("the provider did not count the tokens".into());
        };
        let (read, written) = (usage.cache_read.unwrap_or(0), usage.cache_write.unwrap_or(0));
        let Some(plain) = input.checked_sub(read).and_then(|rest| rest.checked_sub(written)) else {
            return Cost::Unpriced("the provider counted more cached tokens than tokens".into());
        };
        let parts = [
            (plain, self.input),
            (read, self.cached.unwrap_or(self.input)),
            (written, self.cache_write.unwrap_or(self.input)),
            (output, self.output),
        ];
        let sum = parts.iter().try_fold(0_u128, |sum, (tokens, price)| {
            sum.checked_add(u128::from(*tokens).checked_mul(u128::from(*price))?)
        });
        match sum.and_then(|sum| u64::try_from(sum.div_ceil(1_000_000)).ok()) {
            Some(micros) => Cost::Micros(micros),
            None => Cost::Unpriced("the provider counted more tokens than there can be".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::capability::model::{AssistantMessage, StopReason};

    fn answer(model: &str, usage: Usage) -> ChatResponse {
        ChatResponse { said: AssistantMessage::default(), stop: StopReason::End, usage, model: model.into(), id: None }
    }

    fn usage(input: u64, output: u64) -> Usage {
        Usage { input: Some(input), output: Some(output), ..Usage::default() }
    }

    fn table() -> Prices {
        let models = json!({
            "m": {"input": 3_000_000, "cached": 300_000, "cache_write": 3_750_000, "output": 15_000_000},
            "local/m": {"input": 0, "output": 0},
            "plain": {"input": 1, "output": 2},
        });
        serde_json::from_value(json!({"as_of": "2026-11-01", "models": models})).unwrap()
    }

    #[test]
    fn every_kind_of_token_has_its_price() {
        let cost = |usage| table().cost("p", "m", &answer("m", usage));
        assert_eq!(cost(usage(1_000_000, 0)), Cost::Micros(3_000_000));
        assert_eq!(cost(usage(1_000, 100)), Cost::Micros(3_000 + 1_500));
        let cached = Usage { cache_read: Some(600), cache_write: Some(200), ..usage(1_000, 100) };
        assert_eq!(cost(cached), Cost::Micros(600 + 180 + 750 + 1_500));
        // A part of a millionth is one.
        assert_eq!(table().cost("p", "plain", &answer("plain", usage(1, 1))), Cost::Micros(1));
    }

    #[test]
    fn what_is_not_known_is_unpriced() {
        let is_unpriced = |cost| matches!(cost, Cost::Unpriced(_));
        assert!(is_unpriced(table().cost("p", "other", &answer("other", usage(1, 1)))));
        assert!(is_unpriced(table().cost("p", "m", &answer("m", Usage::default()))));
        assert!(is_unpriced(table().cost("p", "m", &answer("m", Usage { input: Some(1), ..Usage::default() }))));
        assert!(is_unpriced(table().cost("p", "m", &answer("m", Usage { cache_read: Some(2), ..usage(1, 1) }))));
        assert!(is_unpriced(table().cost("p", "m", &answer("m", usage(u64::MAX, u64::MAX)))));
    }

    /// What the spec says that a model costs stands in for a price that the table does not have, and never goes before one.
    #[test]
    fn another_price_stands_in_for_one_that_is_not_known() {
        let spec: ModelPrice = serde_json::from_value(json!({"input": 1_000_000_000, "output": 0})).unwrap();
        let cost = |model: &str, usage| {
            let answer = answer(model, usage);
            table().cost("p", model, &answer).or_by(Some(&spec), &answer)
        };
        assert_eq!(cost("other", usage(2_000, 7)), Cost::Micros(2_000_000));
        assert_eq!(cost("m", usage(1_000, 100)), Cost::Micros(3_000 + 1_500));
        assert!(
            matches!(cost("other", Usage::default()), Cost::Unpriced(_)),
            "tokens that nobody counted have no price"
        );
        let answer = answer("other", usage(1, 1));
        assert!(matches!(table().cost("p", "other", &answer).or_by(None, &answer), Cost::Unpriced(_)));
    }

    #[test]
    fn names_are_found_with_provider_and_without_date() {
        let cost = |provider, asked, answered| table().cost(provider, asked, &answer(answered, usage(1_000_000, 0)));
        assert_eq!(cost("local", "m", "m"), Cost::Micros(0));
        assert_eq!(cost("p", "m", "m-2026-08-06"), Cost::Micros(3_000_000));
        assert_eq!(cost("p", "m", "m-20260806"), Cost::Micros(3_000_000));
        assert_eq!(cost("p", "m", "somebody-else"), Cost::Micros(3_000_000), "by what was asked");
        assert!(matches!(cost("p", "m-2", "m-2"), Cost::Unpriced(_)), "another model is not an edition");
    }

    #[test]
    fn a_table_is_the_owners_and_holds_no_floats() {
        assert!(matches!(Prices::default().cost("p", "m", &answer("m", usage(1, 1))), Cost::Unpriced(_)));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prices.json");
        std::fs::write(&path, serde_json::to_string(&table()).unwrap()).unwrap();
        assert_eq!(Prices::read(&path), Ok(table()));
        std::fs::write(&path, "{\"as_of\": \"x\", \"models\": {\"m\": {\"input\": 0.5, \"output\": 1}}}").unwrap();
        assert!(Prices::read(&path).is_err());
    }

    #[test]
    fn a_cost_is_readable_data() {
        assert_eq!(serde_json::to_value(Cost::Micros(5)).unwrap(), json!({"micros": 5}));
        assert_eq!(serde_json::to_value(Cost::Unpriced("w".into())).unwrap(), json!({"unpriced": "w"}));
    }
}
