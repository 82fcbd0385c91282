//! The parser: recursive descent over the tokens, one function per rule of the grammar in the module above.
//!
//! Invariant: it recurses only for `NOT` and parentheses, and counts both; chains of `AND` and `OR` are loops. Every
//! error names its place and what was expected there.

use super::condition::{FilterCondition, Literal};
use super::field::Field;
use super::lexer::{FilterToken, tokens};
use super::{FILTER_DEPTH_MAX, FILTER_LENGTH_MAX, Filter, FilterError, OrderBy, SortDirection};

const KEY_WORDS: [&str; 14] =
    ["AND", "OR", "NOT", "BETWEEN", "IN", "STARTS_WITH", "IS", "NULL", "ORDER", "BY", "ASC", "DESC", "TRUE", "FALSE"];

pub(super) fn is_key_word(word: &str) -> bool {
    KEY_WORDS.iter().any(|key| key.eq_ignore_ascii_case(word))
}

pub(super) fn parse(text: &str) -> Result<Filter, FilterError> {
    if text.len() > FILTER_LENGTH_MAX {
        let message = format!("the filter is {} bytes long; at most {FILTER_LENGTH_MAX} are allowed", text.len());
        return Err(FilterError::new(text, 0, message));
    }
    let mut parser = FilterParser { text, tokens: tokens(text)?, next: 0, depth: 0 };
    let mut filter = Filter::default();
    if *parser.peek() != FilterToken::End && !parser.at_key("ORDER") {
        filter.condition = Some(parser.any()?);
    }
    if parser.eat_key("ORDER") {
        parser.expect_key("BY")?;
        filter.order = parser.order()?;
    }
    match parser.peek() {
        FilterToken::End => Ok(filter),
        _ => parser.expected("AND, OR, ORDER BY or the end of the filter"),
    }
}

struct FilterParser<'a> {
    text: &'a str,
    /// Ends with `End`, which is never taken.
    tokens: Vec<(usize, FilterToken)>,
    next: usize,
    depth: usize,
}

impl FilterParser<'_> {
    fn peek(&self) -> &FilterToken {
        &self.tokens[self.next].1
    }
    fn at(&self) -> usize {
        self.tokens[self.next].0
    }
    fn bump(&mut self) -> FilterToken {
        let token = self.peek().clone();
        if token != FilterToken::End {
            self.next += 1;
        }
        token
    }
    fn eat(&mut self, wanted: &FilterToken) -> bool {
        let found = self.peek() == wanted;
        if found {
            self.bump();
        }
        found
    }
    fn at_key(&self, key: &str) -> bool {
        matches!(self.peek(), FilterToken::Word(word) if word.eq_ignore_ascii_case(key))
    }
    fn eat_key(&mut self, key: &str) -> bool {
        let found = self.at_key(key);
        if found {
            self.bump();
        }
        found
    }
    fn expect_key(&mut self, key: &str) -> Result<(), FilterError> {
        if self.eat_key(key) { Ok(()) } else { self.expected(key) }
    }
    fn error<T>(&self, at: usize, message: impl Into<String>) -> Result<T, FilterError> {
        Err(FilterError::new(self.text, at, message))
    }
    fn expected<T>(&self, what: &str) -> Result<T, FilterError> {
        self.error(self.at(), format!("expected {what}, found {}", self.peek().found()))
    }

    fn any(&mut self) -> Result<FilterCondition, FilterError> {
        let mut conditions = vec![self.all()?];
        while self.eat_key("OR") {
            conditions.push(self.all()?);
        }
        Ok(if conditions.len() == 1 { conditions.remove(0) } else { FilterCondition::Any(conditions) })
    }

    fn all(&mut self) -> Result<FilterCondition, FilterError> {
        let mut conditions = vec![self.one()?];
        while self.eat_key("AND") {
            conditions.push(self.one()?);
        }
        Ok(if conditions.len() == 1 { conditions.remove(0) } else { FilterCondition::All(conditions) })
    }

    fn one(&mut self) -> Result<FilterCondition, FilterError> {
        if self.depth == FILTER_DEPTH_MAX {
            return self.error(self.at(), format!("the filter is nested more than {FILTER_DEPTH_MAX} levels deep"));
        }
        self.depth += 1;
        let condition = if self.eat_key("NOT") {
            FilterCondition::Not(Box::new(self.one()?))
        } else if self.eat(&FilterToken::Open) {
            let inner = self.any()?;
            if !self.eat(&FilterToken::Close) {
                return self.expected("AND, OR or `)`");
            }
            inner
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(condition)
    }

    fn field(&mut self) -> Result<Field, FilterError> {
        let at = self.at();
        let named = match self.peek() {
            FilterToken::Word(word) if is_key_word(word) => {
                let message = format!("expected a field, found {word}; for a field of this name use backquotes");
                return self.error(at, message);
            }
            FilterToken::Word(word) => Field::named(word, false),
            FilterToken::Quoted(name) => Field::named(name, true),
            _ => return self.expected("a field"),
        };
        self.bump();
        named.or_else(|why| self.error(at, why))
    }

    fn test(&mut self) -> Result<FilterCondition, FilterError> {
        let field = self.field()?;
        let at = self.at();
        if let FilterToken::Comparison(comparison) = *self.peek() {
            if !field.allows(comparison) {
                return self.error(at, format!("{field} has no order: use =, !=, IN or NOT IN"));
            }
            self.bump();
            let literal = self.literal(&field)?;
            return Ok(FilterCondition::Compare { field, comparison, literal });
        }
        if self.eat_key("IS") {
            let negated = self.eat_key("NOT");
            self.expect_key("NULL")?;
            return Ok(FilterCondition::IsNull { field, negated });
        }
        let negated = self.eat_key("NOT");
        if self.at_key("BETWEEN") {
            self.between(field, negated)
        } else if self.eat_key("IN") {
            self.list(field, negated)
        } else if self.at_key("STARTS_WITH") {
            self.starts_with(field, negated)
        } else if negated {
            self.expected("BETWEEN, IN or STARTS_WITH")
        } else {
            self.expected(&format!("=, !=, <, <=, >, >=, BETWEEN, IN, NOT, STARTS_WITH or IS after the field {field}"))
        }
    }

    fn between(&mut self, field: Field, negated: bool) -> Result<FilterCondition, FilterError> {
        if !field.allows(super::condition::Comparison::Less) {
            return self.error(self.at(), format!("{field} has no order: use =, !=, IN or NOT IN"));
        }
        self.expect_key("BETWEEN")?;
        let low = self.literal(&field)?;
        self.expect_key("AND")?;
        let high = self.literal(&field)?;
        Ok(FilterCondition::Between { field, negated, low, high })
    }

    fn list(&mut self, field: Field, negated: bool) -> Result<FilterCondition, FilterError> {
        if !self.eat(&FilterToken::Open) {
            return self.expected("`(` and a list of values");
        }
        let mut literals = vec![self.literal(&field)?];
        while self.eat(&FilterToken::Comma) {
            literals.push(self.literal(&field)?);
        }
        if !self.eat(&FilterToken::Close) {
            return self.expected("`,` or `)`");
        }
        Ok(FilterCondition::In { field, negated, literals })
    }

    fn starts_with(&mut self, field: Field, negated: bool) -> Result<FilterCondition, FilterError> {
        if !field.has_prefix() {
            return self.error(self.at(), format!("{field} is not a text, so it cannot start with one"));
        }
        self.expect_key("STARTS_WITH")?;
        let FilterToken::Literal(Literal::Text { text: prefix, .. }) = self.peek().clone() else {
            return self.expected("a text in quotes");
        };
        self.bump();
        Ok(FilterCondition::StartsWith { field, negated, prefix })
    }

    /// A value that fits the field.
    fn literal(&mut self, field: &Field) -> Result<Literal, FilterError> {
        let at = self.at();
        let literal = match self.peek() {
            FilterToken::Literal(literal) => literal.clone(),
            FilterToken::Word(_) if self.at_key("TRUE") => Literal::Bool(true),
            FilterToken::Word(_) if self.at_key("FALSE") => Literal::Bool(false),
            FilterToken::Word(word) => {
                return self.error(at, format!("expected a value, found {word}; texts stand in quotes: '{word}'"));
            }
            _ => return self.expected("a value"),
        };
        self.bump();
        field.literal(literal).or_else(|why| self.error(at, why))
    }

    fn order(&mut self) -> Result<Vec<OrderBy>, FilterError> {
        let mut order = Vec::new();
        loop {
            let field = self.field()?;
            // Temporal's default direction is ascending once a field is named.
            let direction = if !self.eat_key("ASC") && self.eat_key("DESC") {
                SortDirection::Descending
            } else {
                SortDirection::Ascending
            };
            order.push(OrderBy { field, direction });
            if !self.eat(&FilterToken::Comma) {
                return Ok(order);
            }
        }
    }
}
