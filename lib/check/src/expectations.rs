//! What a user says that the embeddings should be.

use std::collections::BTreeMap;
use std::str::FromStr;

use plmkit_contract::{Column, Quoted, Reason};

use crate::check::Check;
use crate::files::EmbeddedFile;
use crate::violation::Violations;

/// The least number of digits that stand for a model's digest.
const MIN_DIGEST: usize = 8;

/// The types that `gpu-embed` computes in.
const DTYPES: [&str; 4] = ["f32", "bf16", "f16", "int8"];

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
    /// The share of the records that may be rejected; [`MAX_REJECTED`] if nothing is said.
    max_rejected: Option<f64>,
}

/// More rejected records than this are rarely meant.
const MAX_REJECTED: f64 = 0.05;

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
                "dtype" if DTYPES.contains(&value) => expected.dtype = Some(value.to_owned()),
                "dtype" => {
                    let (known, found) = (DTYPES.join(", "), Quoted(value));
                    return Err(format!("expected one of {known}, found {found}"));
                }
                "columns" => expected.columns = Some(columns(value)?),
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

/// The names of columns, with a plus sign between them.
fn columns(text: &str) -> Result<Vec<String>, String> {
    let names = text.split('+');
    let columns = names.map(|name| match name.parse::<Column>() {
        Ok(_) => Ok(name.to_owned()),
        Err(()) => Err(format!(
            "expected columns such as mean_33+max_33, found {}",
            Quoted(name)
        )),
    });
    columns.collect()
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

/// How many records were rejected for which reasons, and what the reason of most of them means.
fn reasons(rejected: &BTreeMap<Reason, u64>, embeddings: &[EmbeddedFile]) -> String {
    let counts = rejected.iter();
    let counts = counts.map(|(reason, count)| format!("{count} {reason}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let not_finite = rejected.get(&Reason::NotFinite).copied().unwrap_or(0);
    let model = embeddings.iter().find_map(|file| {
        let name = &file.provenance.model.as_ref()?.name;
        Some(format!(" of {}", Quoted(name)))
    });
    let model = model.unwrap_or_default();
    if 2 * not_finite > rejected.values().sum() {
        format!(
            "{counts}; probably weights{model} are NaN or infinite, or values too large for the type"
        )
    } else {
        counts
    }
}

/// The check `expectations`, of `embeddings` with `rows`, beside which these of `records` were rejected. `nothing_to_embed` is whether
/// that there are no rows is no surprise.
pub(crate) fn check(
    expected: &Expectations,
    embeddings: &[EmbeddedFile],
    rows: u64,
    by_reason: &BTreeMap<Reason, u64>,
    records: u64,
    nothing_to_embed: bool,
) -> Check {
    let rejected: u64 = by_reason.values().sum();
    let [mut other_model, mut other_dtype, mut other_columns] = <[Violations; 3]>::default();
    for EmbeddedFile {
        name: file,
        provenance,
        layout,
    } in embeddings
    {
        let digest = provenance.text_option("model").unwrap_or("unknown");
        let name = provenance
            .model
            .as_ref()
            .map_or("unknown", |model| &model.name);
        if let Some(model) = &expected.model {
            let by_digest = model.len() >= MIN_DIGEST && digest.starts_with(model.as_str());
            if model != name && !by_digest {
                other_model.add_file(format_args!(
                    "{file}: expected model {}, found {} ({digest})",
                    Quoted(model),
                    Quoted(name)
                ));
            }
        }
        let dtype = provenance.text_option("dtype").unwrap_or("unknown");
        if let Some(expected) = expected
            .dtype
            .as_ref()
            .filter(|&expected| expected != dtype)
        {
            let (expected, found) = (Quoted(expected), Quoted(dtype));
            other_dtype.add_file(format_args!(
                "{file}: expected dtype {expected}, found {found}"
            ));
        }
        let columns: Vec<String> = layout.columns.iter().map(ToString::to_string).collect();
        if let Some(expected) = expected
            .columns
            .as_ref()
            .filter(|&expected| *expected != columns)
        {
            let (expected, found) = (expected.join(", "), columns.join(", "));
            other_columns.add_file(format_args!(
                "{file}: expected columns {}, found {found}",
                Quoted(&expected)
            ));
        }
    }
    let mut empty = Violations::default();
    let accepted = nothing_to_embed || expected.max_rejected == Some(1.0);
    if rows == 0 && rejected == 0 && !accepted {
        empty.add_file("the embeddings have no rows");
    }
    let mut too_many_rejected = Violations::default();
    // A list that was altered may have more lines than there are records.
    let share = (rejected as f64 / records.max(1) as f64).min(1.0);
    let most = expected.max_rejected.unwrap_or(MAX_REJECTED);
    if share > most {
        too_many_rejected.add_file(format_args!(
            "{rejected} of {records} records are rejected, {:.3} %: expected at most {:.3} %, or --expect max-rejected=SHARE: {}",
            100.0 * share,
            100.0 * most,
            reasons(by_reason, embeddings)
        ));
    }
    let kinds = [
        ("empty", empty),
        ("too_many_rejected", too_many_rejected),
        ("other_model", other_model),
        ("other_dtype", other_dtype),
        ("other_columns", other_columns),
    ];
    let unmet: u64 = kinds.iter().map(|(_, kind)| kind.count).sum();
    let summary = format!("{unmet} not met, {rejected} of {records} records rejected");
    Check::judged("expectations", summary, [], kinds)
}
