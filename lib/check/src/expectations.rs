//! What a user says that the embeddings should be.

use std::collections::BTreeMap;
use std::str::FromStr;

use plmkit_contract::{Column, Quoted, Reason};

use crate::check::Tally;
use crate::files::EmbeddedFile;
use crate::violation::FILE;

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
    /// By what it is of: the name of the model or the first digits of its digest, the type, and the columns.
    values: BTreeMap<&'static str, String>,
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
            let values = &mut expected.values;
            match name {
                "model" => _ = values.insert("model", value.to_owned()),
                "dtype" if DTYPES.contains(&value) => _ = values.insert("dtype", value.to_owned()),
                "dtype" => {
                    let (known, found) = (DTYPES.join(", "), Quoted(value));
                    return Err(format!("expected one of {known}, found {found}"));
                }
                "columns" => _ = values.insert("columns", columns(value)?),
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

/// The names of columns, which have a plus sign between them, as a list.
fn columns(text: &str) -> Result<String, String> {
    let mut names = text.split('+');
    match names.find(|name| name.parse::<Column>().is_err()) {
        None => Ok(text.replace('+', ", ")),
        Some(name) => Err(format!(
            "expected columns such as mean_33+max_33, found {}",
            Quoted(name)
        )),
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
    pub fn and(mut self, others: Self) -> Self {
        self.values.extend(others.values);
        self.max_rejected = others.max_rejected.or(self.max_rejected);
        self
    }

    /// Compares a file with what is expected of it.
    fn compare(&self, file: &EmbeddedFile, tally: &mut Tally) {
        let made_by = &file.provenance;
        let option = |name| made_by.text_option(name).unwrap_or("unknown").to_owned();
        let columns = file.layout.columns.iter().map(ToString::to_string);
        for (&what, expected) in &self.values {
            let (kind, found) = match what {
                "model" => ("other_model", option("model")),
                "dtype" => ("other_dtype", option("dtype")),
                _ => (
                    "other_columns",
                    columns.clone().collect::<Vec<_>>().join(", "),
                ),
            };
            let model = made_by.model.as_ref().filter(|_| what == "model");
            let by_digest = what == "model"
                && expected.len() >= MIN_DIGEST
                && found.starts_with(expected.as_str());
            if by_digest || *expected == found || model.is_some_and(|model| model.name == *expected)
            {
                continue;
            }
            let (name, expected) = (&file.name, Quoted(expected));
            let found = match model {
                Some(model) => format!("{} ({found})", Quoted(&model.name)),
                None => Quoted(&found).to_string(),
            };
            let problem = format_args!("{name}: expected {what} {expected}, found {found}");
            tally.add(kind, FILE, problem);
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
    tally: &mut Tally,
) {
    for file in embeddings {
        expected.compare(file, tally);
    }
    let rejected: u64 = by_reason.values().sum();
    tally.count("records", records);
    tally.count("rejected", rejected);
    let accepted = nothing_to_embed || expected.max_rejected == Some(1.0);
    if rows == 0 && rejected == 0 && !accepted {
        tally.add("empty", FILE, "the embeddings have no rows");
    }
    // A list that was altered may have more lines than there are records.
    let share = (rejected as f64 / records.max(1) as f64).min(1.0);
    let most = expected.max_rejected.unwrap_or(MAX_REJECTED);
    if share > most {
        let reasons = reasons(by_reason, embeddings);
        let (share, most) = (100.0 * share, 100.0 * most);
        let problem = if rejected >= records {
            format!(
                "every record was rejected, see rejects.csv: {reasons}; --expect max-rejected=100% accepts it"
            )
        } else {
            format!(
                "{rejected} of {records} records are rejected, {share:.3} %: expected at most {most:.3} %, or --expect max-rejected=SHARE: {reasons}"
            )
        };
        tally.add("too_many_rejected", FILE, problem);
    }
}
