//! Whether there are rows, and whether too many records were rejected.

use std::collections::BTreeMap;

use plmkit_contract::Reason;
use plmkit_kit::Quoted;

use crate::check::Tallies;
use crate::checks::rejected;
use crate::criteria::Criteria;
use crate::findings::Findings;
use crate::violation::FILE;

/// More rejected records than this are rarely meant.
const MAX_REJECTED: f64 = 0.05;

/// Parses a share: a number from 0 to 1, or a percentage such as `1%`.
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

/// Tells how many records were rejected for which reasons, and what the reason of most of them means, of a model of this name.
pub fn count_reasons(rejected: &BTreeMap<Reason, u64>, model: Option<&str>) -> String {
    let counts = rejected.iter();
    let counts = counts.map(|(reason, count)| format!("{count} {reason}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let not_finite = rejected.get(&Reason::NotFinite).copied().unwrap_or(0);
    let model = model.map(|name| format!(" of {}", Quoted(name)));
    let model = model.unwrap_or_default();
    if 2 * not_finite > rejected.values().sum() {
        format!(
            "{counts}; probably weights{model} are NaN or infinite, or values too large for the type"
        )
    } else {
        counts
    }
}

/// The check `rejected`, where so many records and rows were rejected for each reason.
pub(crate) fn check(
    findings: &Findings,
    criteria: &Criteria,
    by_reason: &BTreeMap<Reason, u64>,
    tallies: &mut Tallies,
) {
    let (rows, rejected) = (findings.rows, by_reason.values().sum::<u64>());
    let known = criteria.counted().map(|(records, _)| records);
    // Rows that were lost count, too.
    let records = known.unwrap_or(findings.ordinals.len().max(rows) + rejected);
    tallies.count(rejected::records, records);
    tallies.count(rejected::rejected, rejected);
    if rows == 0 && criteria.allow_empty {
        return;
    }
    let manifest = criteria.manifest.as_ref();
    let nothing_to_embed =
        known > Some(0) && manifest.is_none_or(|(_, manifest)| manifest.rows == 0);
    let accepted = nothing_to_embed || criteria.max_rejected == Some(1.0);
    if rows == 0 && rejected == 0 && !accepted {
        tallies.add(rejected::empty, FILE, "the embeddings have no rows");
    }
    // A list that was altered may have more lines than there are records.
    let share = (rejected as f64 / records.max(1) as f64).min(1.0);
    let most = criteria.max_rejected.unwrap_or(MAX_REJECTED);
    if share > most {
        let files = findings.embeddings.iter();
        let mut models = files.filter_map(|file| file.provenance.model.as_ref());
        let model = models.next().map(|model| &*model.name);
        let reasons = count_reasons(by_reason, model);
        let (share, most) = (100.0 * share, 100.0 * most);
        let problem = if rejected >= records {
            format!(
                "every record was rejected, see rejects.csv: {reasons}; --allow-empty accepts it"
            )
        } else {
            format!(
                "{rejected} of {records} records are rejected, {share:.3} %: expected at most {most:.3} %, or --max-rejected SHARE: {reasons}"
            )
        };
        tallies.add(rejected::too_many_rejected, FILE, problem);
    }
}
