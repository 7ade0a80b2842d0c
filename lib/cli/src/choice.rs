//! Options with a few possible values, which libraries define without clap.

use std::fmt::Display;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use strum::{EnumMessage, VariantArray};

/// Parses a variant of an enum in its display form. The documentation of the variants is the help of the values.
pub fn variant<T>() -> impl TypedValueParser<Value = T>
where
    T: Copy + Display + EnumMessage + VariantArray + Send + Sync,
{
    let possible = T::VARIANTS
        .iter()
        .map(|variant| PossibleValue::new(variant.to_string()).help(variant.get_documentation()));
    PossibleValuesParser::new(possible.collect::<Vec<_>>()).try_map(|text| {
        let mut variants = T::VARIANTS.iter();
        let found = variants.find(|variant| variant.to_string() == text);
        found.copied().ok_or("expected one of the possible values")
    })
}
