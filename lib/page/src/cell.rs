//! Cells of tables.

use serde_json::Value;

use crate::escape::escape;

/// A cell of a table.
#[derive(Clone, Debug)]
pub struct Cell {
    pub(crate) text: Option<String>,
    /// The value and the decimals of a number.
    pub(crate) number: Option<(Value, usize)>,
    class: &'static str,
}

/// How good or bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Needs attention.
    Fair,
    /// Needs repair.
    Bad,
}

impl Cell {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::known(Some(text))
    }

    /// Text; a dash if it is unknown.
    pub fn known(text: Option<impl Into<String>>) -> Self {
        Self {
            text: text.map(Into::into),
            number: None,
            class: "",
        }
    }

    /// A right-aligned number; a dash if it is unknown.
    pub fn number(text: Option<impl Into<String>>) -> Self {
        Self {
            class: "number",
            ..Self::known(text)
        }
    }

    /// A number with so many decimals, its digits in groups of three; a dash if it is unknown.
    pub fn decimals(value: Option<f64>, decimals: usize) -> Self {
        Self {
            number: value.map(|value| (value.into(), decimals)),
            ..Self::number(value.map(|value| grouped(&format!("{value:.decimals$}"))))
        }
    }

    /// A share, 0 to 1, in percent.
    pub fn percent(share: Option<f64>) -> Self {
        Self::decimals(share.map(|share| share * 100.0), 1)
    }

    /// A whole number, its digits in groups of three; a dash if it is unknown.
    pub fn count(count: impl Into<Option<u64>>) -> Self {
        let count: Option<u64> = count.into();
        Self {
            number: count.map(|count| (count.into(), 0)),
            ..Self::number(count.map(|count| grouped(&count.to_string())))
        }
    }

    /// A highlighted word.
    pub fn badge(tone: Tone, text: impl Into<String>) -> Self {
        Self {
            class: match tone {
                Tone::Good => "good",
                Tone::Fair => "fair",
                Tone::Bad => "bad",
            },
            ..Self::text(text)
        }
    }

    /// Returns the number, or the text, if it is known.
    pub(crate) fn json(&self) -> Option<Value> {
        let number = self.number.as_ref().map(|(value, _)| value.clone());
        number.or_else(|| self.text.clone().map(Value::from))
    }

    /// Returns the cell as HTML.
    pub(crate) fn content(&self) -> String {
        let text = self.text.as_deref().map_or_else(|| "–".to_owned(), escape);
        match self.class {
            "" | "number" => text,
            tone => format!("<span class=\"badge {tone}\">{text}</span>"),
        }
    }

    /// Returns the class of a cell in a column of numbers.
    pub(crate) fn alignment(&self) -> &'static str {
        match self.class {
            "number" => " class=\"number\"",
            _ => "",
        }
    }
}

/// Groups the digits before the decimal point by three.
fn grouped(number: &str) -> String {
    let integer = number.find('.').unwrap_or(number.len());
    let mut text = String::new();
    for (place, digit) in number.chars().enumerate() {
        if place > 0 && place < integer && (integer - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
