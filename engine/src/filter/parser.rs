//! The parser: recursive descent over the tokens, one function per rule of the grammar in the module above.
//!
//! Invariant: it recurses only for `NOT` and parentheses, and counts both; chains of `AND` and `OR` are loops. Every
//! error names its place and what was expected there.

use super::condition::Condition;
use super::field::Field;
use super::lexer::{Token, tokens};
use super::{Direction, FILTER_DEPTH_MAX, FILTER_LENGTH_MAX, Filter, FilterError, Literal, OrderBy};

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
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, depth: 0 };
    let mut filter = Filter::default();
    if *parser.peek() != Token::End && !parser.at_key("ORDER") {
        filter.condition = Some(parser.any()?);
    }
    if parser.eat_key("ORDER") {
        parser.expect_key("BY")?;
        filter.order = parser.order()?;
    }
    match parser.peek() {
        Token::End => Ok(filter),
        _ => parser.expected("AND, OR, ORDER BY or the end of the filter"),
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Ends with `End`, which is never taken.
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }
    fn at(&self) -> usize {
        self.tokens[self.next].0
    }
    fn bump(&mut self) -> Token {
        let token = self.peek().clone();
        if token != Token::End {
            self.next += 1;
        }
        token
    }
    fn eat(&mut self, wanted: &Token) -> bool {
        let found = self.peek() == wanted;
        if found {
            self.bump();
        }
        found
    }
    fn at_key(&self, key: &str) -> bool {
        matches!(self.peek(), Token::Word(word) if word.eq_ignore_ascii_case(key))
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

    fn any(&mut self) -> Result<Condition, FilterError> {
        let mut conditions = vec![self.all()?];
        while self.eat_key("OR") {
            conditions.push(self.all()?);
        }
        Ok(if conditions.len() == 1 { conditions.remove(0) } else { Condition::Any(conditions) })
    }

    fn all(&mut self) -> Result<Condition, FilterError> {
        let mut conditions = vec![self.one()?];
        while self.eat_key("AND") {
            conditions.push(self.one()?);
        }
        Ok(if conditions.len() == 1 { conditions.remove(0) } else { Condition::All(conditions) })
    }

    fn one(&mut self) -> Result<Condition, FilterError> {
        if self.depth == FILTER_DEPTH_MAX {
            return self.error(self.at(), format!("the filter is nested more than {FILTER_DEPTH_MAX} levels deep"));
        }
        self.depth += 1;
        let condition = if self.eat_key("NOT") {
            Condition::Not(Box::new(self.one()?))
        } else if self.eat(&Token::Open) {
            let inner = self.any()?;
            if !self.eat(&Token::Close) {
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
            Token::Word(word) if is_key_word(word) => {
                let message = format!("expected a field, found {word}; for a field of this name use backquotes");
                return self.error(at, message);
            }
            Token::Word(word) => Field::named(word, false),
            Token::Quoted(name) => Field::named(name, true),
            _ => return self.expected("a field"),
        };
        self.bump();
        named.or_else(|why| self.error(at, why))
    }

    fn test(&mut self) -> Result<Condition, FilterError> {
        let field = self.field()?;
        let at = self.at();
        if let Token::Comparison(comparison) = *self.peek() {
            if !field.allows(comparison) {
                return self.error(at, format!("{field} has no order: use =, !=, IN or NOT IN"));
            }
            self.bump();
            let literal = self.literal(&field)?;
            return Ok(Condition::Compare { field, comparison, literal });
        }
        if self.eat_key("IS") {
            let negated = self.eat_key("NOT");
            self.expect_key("NULL")?;
            return Ok(Condition::IsNull { field, negated });
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

    fn between(&mut self, field: Field, negated: bool) -> Result<Condition, FilterError> {
        if !field.allows(super::Comparison::Less) {
            return self.error(self.at(), format!("{field} has no order: use =, !=, IN or NOT IN"));
        }
        self.expect_key("BETWEEN")?;
        let low = self.literal(&field)?;
        self.expect_key("AND")?;
        let high = self.literal(&field)?;
        Ok(Condition::Between { field, negated, low, high })
    }

    fn list(&mut self, field: Field, negated: bool) -> Result<Condition, FilterError> {
        if !self.eat(&Token::Open) {
            return self.expected("`(` and a list of values");
        }
        let mut literals = vec![self.literal(&field)?];
        while self.eat(&Token::Comma) {
            literals.push(self.literal(&field)?);
        }
        if !self.eat(&Token::Close) {
            return self.expected("`,` or `)`");
        }
        Ok(Condition::In { field, negated, literals })
    }

    fn starts_with(&mut self, field: Field, negated: bool) -> Result<Condition, FilterError> {
        if !field.has_prefix() {
            return self.error(self.at(), format!("{field} is not a text, so it cannot start with one"));
        }
        self.expect_key("STARTS_WITH")?;
        let Token::Literal(Literal::Text { text: prefix, .. }) = self.peek().clone() else {
            return self.expected("a text in quotes");
        };
        self.bump();
        Ok(Condition::StartsWith { field, negated, prefix })
    }

    /// A value that fits the field.
    fn literal(&mut self, field: &Field) -> Result<Literal, FilterError> {
        let at = self.at();
        let literal = match self.peek() {
            Token::Literal(literal) => literal.clone(),
            Token::Word(_) if self.at_key("TRUE") => Literal::Bool(true),
            Token::Word(_) if self.at_key("FALSE") => Literal::Bool(false),
            Token::Word(word) => {
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
            let direction =
                if !self.eat_key("ASC") && self.eat_key("DESC") { Direction::Descending } else { Direction::Ascending };
            order.push(OrderBy { field, direction });
            if !self.eat(&Token::Comma) {
                return Ok(order);
            }
        }
    }
}
