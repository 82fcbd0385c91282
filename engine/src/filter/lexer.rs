//! Words of the filter language: the text cut into tokens, each with its place.
//!
//! Invariant: every token's place is the byte it begins at, and tokens cover the whole text but its white space. What
//! the words mean is the parser's business; key words are recognised there, without regard to case.

use super::FilterError;
use super::condition::{Comparison, Literal};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum FilterToken {
    /// A name or a key word.
    Word(String),
    /// A name in backquotes: never a key word.
    Quoted(String),
    Literal(Literal),
    Comparison(Comparison),
    Open,
    Close,
    Comma,
    End,
}

impl FilterToken {
    /// How errors name it.
    pub(super) fn found(&self) -> String {
        match self {
            FilterToken::Word(word) => format!("`{word}`"),
            FilterToken::Quoted(name) => format!("the field `{name}`"),
            FilterToken::Literal(literal) => format!("the value {literal}"),
            FilterToken::Comparison(comparison) => format!("`{}`", comparison.sign()),
            FilterToken::Open => "`(`".into(),
            FilterToken::Close => "`)`".into(),
            FilterToken::Comma => "`,`".into(),
            FilterToken::End => "the end of the filter".into(),
        }
    }
}

/// Cuts the text; the last token is `End`.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, FilterToken)>, FilterError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.take_while(char::is_whitespace);
        let at = lexer.at;
        let token = lexer.token()?;
        let end = token == FilterToken::End;
        tokens.push((at, token));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }
    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }
    /// Takes the character if it is the one asked for.
    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }
    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(&wanted) {
            self.bump();
        }
        &self.text[start..self.at]
    }
    fn error<T>(&self, at: usize, message: impl Into<String>) -> Result<T, FilterError> {
        Err(FilterError::new(self.text, at, message))
    }

    fn token(&mut self) -> Result<FilterToken, FilterError> {
        let start = self.at;
        let Some(first) = self.peek() else { return Ok(FilterToken::End) };
        if first.is_alphabetic() || first == '_' {
            return Ok(FilterToken::Word(self.take_while(in_word).to_owned()));
        }
        if first.is_ascii_digit() || matches!(first, '-' | '+') {
            return self.number();
        }
        self.bump();
        Ok(match first {
            '(' => FilterToken::Open,
            ')' => FilterToken::Close,
            ',' => FilterToken::Comma,
            '=' => FilterToken::Comparison(Comparison::Equal),
            '!' if self.eat('=') => FilterToken::Comparison(Comparison::NotEqual),
            '<' if self.eat('=') => FilterToken::Comparison(Comparison::LessOrEqual),
            '<' if self.eat('>') => FilterToken::Comparison(Comparison::NotEqual),
            '<' => FilterToken::Comparison(Comparison::Less),
            '>' if self.eat('=') => FilterToken::Comparison(Comparison::GreaterOrEqual),
            '>' => FilterToken::Comparison(Comparison::Greater),
            '\'' | '"' => FilterToken::Literal(Literal::text(self.quoted(start, first)?)),
            '`' => match self.quoted(start, '`')? {
                name if name.is_empty() => return self.error(start, "a field name in backquotes is empty"),
                name => FilterToken::Quoted(name),
            },
            other => return self.error(start, format!("expected a field, a value or an operator, found {other:?}")),
        })
    }

    /// The inside of a quoted text, its opening quote already taken.
    fn quoted(&mut self, start: usize, quote: char) -> Result<String, FilterError> {
        let mut inside = String::new();
        loop {
            let at = self.at;
            match self.bump() {
                None => return self.error(start, format!("this {quote} has no closing {quote}")),
                Some(c) if c == quote => {
                    if !self.eat(quote) {
                        return Ok(inside);
                    }
                    inside.push(quote);
                }
                Some('\\') if quote != '`' => match self.bump() {
                    Some('n') => inside.push('\n'),
                    Some('r') => inside.push('\r'),
                    Some('t') => inside.push('\t'),
                    Some(c @ ('\\' | '\'' | '"')) => inside.push(c),
                    _ => return self.error(at, r#"expected one of \\ \' \" \n \r \t; write \\ for a backslash"#),
                },
                Some(c) => inside.push(c),
            }
        }
    }

    fn number(&mut self) -> Result<FilterToken, FilterError> {
        let start = self.at;
        if !self.eat('-') {
            self.eat('+');
        }
        let mut well_formed = !self.take_while(|c| c.is_ascii_digit()).is_empty();
        let mut whole = true;
        if self.eat('.') {
            whole = false;
            well_formed &= !self.take_while(|c| c.is_ascii_digit()).is_empty();
        }
        if self.eat('e') || self.eat('E') {
            whole = false;
            if !self.eat('-') {
                self.eat('+');
            }
            well_formed &= !self.take_while(|c| c.is_ascii_digit()).is_empty();
        }
        if !well_formed || self.peek().is_some_and(in_word) {
            return self.error(start, "this is not a number; texts and times stand in quotes: 'text'");
        }
        let digits = &self.text[start..self.at];
        if whole {
            return match digits.parse() {
                Ok(number) => Ok(FilterToken::Literal(Literal::Int(number))),
                Err(_) => self.error(start, "this whole number does not fit into 64 bits"),
            };
        }
        match digits.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(FilterToken::Literal(Literal::Float(number))),
            _ => self.error(start, "this number is too large"),
        }
    }
}

/// The characters of a name without backquotes.
pub(super) fn in_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.')
}
