//! Options with a few possible values, which libraries define without clap.

use std::fmt::Display;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use strum::{EnumMessage, VariantArray};

/// Parses one of `values` in its display form, which the metadata of files use too.
pub fn one_of<T>(values: impl IntoIterator<Item = T>) -> impl TypedValueParser<Value = T>
where
    T: Copy + Display + Send + Sync + 'static,
{
    parser(values.into_iter().map(|value| (value, None)).collect())
}

/// Parses a variant of an enum in its display form. The documentation of the variants is the help of the values.
pub fn variant<T>() -> impl TypedValueParser<Value = T>
where
    T: Copy + Display + EnumMessage + VariantArray + Send + Sync,
{
    let documented = |value: &T| (*value, value.get_documentation());
    parser(T::VARIANTS.iter().map(documented).collect())
}

fn parser<T>(values: Vec<(T, Option<&'static str>)>) -> impl TypedValueParser<Value = T>
where
    T: Copy + Display + Send + Sync + 'static,
{
    let possible = values.iter().map(|(value, help)| match help {
        Some(help) => PossibleValue::new(value.to_string()).help(*help),
        None => PossibleValue::new(value.to_string()),
    });
    PossibleValuesParser::new(possible.collect::<Vec<_>>()).try_map(move |text| {
        let mut values = values.iter();
        let found = values.find(|(value, _)| value.to_string() == text);
        found
            .map(|(value, _)| *value)
            .ok_or("expected one of the possible values")
    })
}
