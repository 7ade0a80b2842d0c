//! What a user says that the embeddings should be.

use std::str::FromStr;

use plmkit_contract::{EmbeddingLayout, Provenance, Quoted};

use crate::check::Check;
use crate::violation::Violations;

/// The least number of digits that stand for a model's digest.
const MIN_DIGEST: usize = 8;

/// What every embeddings file should be, and how many records may be missing: `model=…,dtype=…,columns=…,max-rejected=…`.
///
/// ```
/// use plmkit_check::Expectations;
/// let expected: Expectations = "model=facebook/esm2_t6_8M_UR50D,columns=mean_6+max_6,max-rejected=1%".parse().unwrap();
/// assert!("modle=x".parse::<Expectations>().is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations {
    /// Name of the model, or the first digits of its digest.
    model: Option<String>,
    dtype: Option<String>,
    columns: Option<Vec<String>>,
    /// The share of the records that may be rejected.
    max_rejected: Option<f64>,
}

impl FromStr for Expectations {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut expected = Self::default();
        for entry in text.split(',') {
            let (name, value) = entry
                .split_once('=')
                .filter(|(_, value)| !value.is_empty())
                .ok_or_else(|| format!("expected NAME=VALUE, found {}", Quoted(entry)))?;
            match name {
                "model" => expected.model = Some(value.to_owned()),
                "dtype" => expected.dtype = Some(value.to_owned()),
                "columns" => expected.columns = Some(value.split('+').map(str::to_owned).collect()),
                "max-rejected" => expected.max_rejected = Some(parse_share(value)?),
                _ => {
                    let known = "model, dtype, columns or max-rejected";
                    return Err(format!("expected {known}, found {}", Quoted(name)));
                }
            }
        }
        Ok(expected)
    }
}

/// A share: a number from 0 to 1, or a percentage such as `1%`.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let share = number.parse::<f64>().map(|number| number * unit);
    share
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| {
            format!(
                "expected a share such as 1% or 0.01, found {}",
                Quoted(text)
            )
        })
}

impl Expectations {
    /// These and others; of what both say, the others hold.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self {
            model: others.model.or(self.model),
            dtype: others.dtype.or(self.dtype),
            columns: others.columns.or(self.columns),
            max_rejected: others.max_rejected.or(self.max_rejected),
        }
    }
}

/// The files that are not as expected.
#[derive(Debug, Default)]
pub(crate) struct Unexpected {
    model: Violations,
    dtype: Violations,
    columns: Violations,
}

impl Unexpected {
    /// Compares an embeddings file.
    pub(crate) fn add(
        &mut self,
        expected: &Expectations,
        file: &str,
        provenance: &Provenance,
        layout: &EmbeddingLayout,
    ) {
        let digest = provenance.text_option("model").unwrap_or("unknown");
        let name = provenance
            .model
            .as_ref()
            .map_or("unknown", |model| &model.name);
        if let Some(model) = &expected.model {
            let by_digest = model.len() >= MIN_DIGEST && digest.starts_with(model.as_str());
            if model != name && !by_digest {
                self.model.add_file(format_args!(
                    "{file}: expected model {}, found {} ({digest})",
                    Quoted(model),
                    Quoted(name)
                ));
            }
        }
        if let Some(dtype) = &expected.dtype {
            let found = provenance.text_option("dtype").unwrap_or("unknown");
            if found != dtype {
                let (dtype, found) = (Quoted(dtype), Quoted(found));
                self.dtype.add_file(format_args!(
                    "{file}: expected dtype {dtype}, found {found}"
                ));
            }
        }
        if let Some(columns) = &expected.columns {
            let found: Vec<String> = layout.columns.iter().map(ToString::to_string).collect();
            if found != *columns {
                let (columns, found) = (columns.join(", "), found.join(", "));
                self.columns.add_file(format_args!(
                    "{file}: expected columns {}, found {found}",
                    Quoted(&columns)
                ));
            }
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.model.merge(other.model);
        self.dtype.merge(other.dtype);
        self.columns.merge(other.columns);
    }

    /// The check `expectations`, of embeddings with `rows`, beside which `rejected` records of `records` were rejected.
    pub(crate) fn finish(
        self,
        expected: &Expectations,
        rows: u64,
        rejected: u64,
        records: u64,
    ) -> Check {
        let mut empty = Violations::default();
        // Where all may be rejected, that there is nothing is what was expected.
        if rows == 0 && expected.max_rejected != Some(1.0) {
            empty.add_file(match rejected {
                0 => "the embeddings have no rows".to_owned(),
                _ => format!("the embeddings have no rows: all {rejected} records are rejected"),
            });
        }
        let mut too_many_rejected = Violations::default();
        let share = rejected as f64 / records.max(1) as f64;
        if let Some(most) = expected.max_rejected.filter(|&most| share > most) {
            too_many_rejected.add_file(format_args!(
                "{rejected} of {records} records are rejected, {:.3} %: expected at most {:.3} %",
                100.0 * share,
                100.0 * most
            ));
        }
        let kinds = [
            ("empty", empty),
            ("too_many_rejected", too_many_rejected),
            ("other_model", self.model),
            ("other_dtype", self.dtype),
            ("other_columns", self.columns),
        ];
        let unmet: u64 = kinds.iter().map(|(_, kind)| kind.count).sum();
        let summary = format!("{unmet} not met, {rejected} of {records} records rejected");
        Check::judged("expectations", summary, [], kinds)
    }
}
