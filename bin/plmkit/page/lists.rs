//! The first truncated and rejected records.

use std::path::Path;

use plmkit_cli::Stop;
use plmkit_contract::{KeyColumns, REJECTS_FILE};
use plmkit_dataset::{Dataset, Merge, SummaryLine};
use plmkit_kit::path_text;
use plmkit_page::{Cell, Column, Page};
use plmkit_store::{files_in, read_rejects};

use crate::judged_sample::JudgedSample;

/// How many are listed.
const LISTED: usize = 100;
/// Rows in which truncated ones are looked for. All are counted in the table of the samples.
const SEARCHED: usize = 1_000_000;

/// A record.
pub(super) struct ListedRecord {
    sample: String,
    id: String,
    ordinal: u64,
    /// The length of a truncated one, or why it was rejected.
    what: Cell,
}

const SAMPLE: Column<ListedRecord> = Column::new("sample", "", |record| Cell::text(&record.sample));
const ID: Column<ListedRecord> = Column::new("id", "", |record| Cell::text(&record.id));
const ORDINAL: Column<ListedRecord> =
    Column::new("record", "", |record| Cell::count(record.ordinal + 1));
const WHY: Column<ListedRecord> = Column::new("reason", "", |record| record.what.clone());
const LENGTH: Column<ListedRecord> = Column::new("residues", "", |record| record.what.clone());

/// Adds the first records that were truncated, and those that were rejected, folded.
pub(super) fn add(
    page: &mut Page,
    samples: &[JudgedSample],
    truncated: &[ListedRecord],
    rejected: &[ListedRecord],
) {
    let lines = || samples.iter().map(|sample| &sample.line);
    let counts = [
        lines().map(|line| line.truncated).sum::<u64>(),
        lines().map(|line| line.rejected).sum(),
    ];
    if counts != [0, 0] {
        page.heading("Truncated and rejected records");
    }
    let several = samples.len() > 1;
    for (what, records, last) in [
        (format!("{} truncated", counts[0]), truncated, LENGTH),
        (format!("{} rejected", counts[1]), rejected, WHY),
    ] {
        let columns = [SAMPLE, ID, ORDINAL, last];
        let summary = match records.len() {
            0 => continue,
            LISTED => format!("{what}; the first {LISTED}"),
            _ => what,
        };
        page.fold(true, &summary, |page| {
            page.table(records, &columns[usize::from(!several)..]);
        });
    }
}

/// Finds the first truncated records. Adds what cannot be read to `problems`.
pub(super) fn find_truncated(
    datasets: &[(&SummaryLine, Dataset)],
    problems: &mut Vec<String>,
    stop: &Stop,
) -> Vec<ListedRecord> {
    let (mut records, mut searched) = (Vec::new(), 0);
    for (line, dataset) in datasets {
        let mut merge = Merge::new(&dataset.parts, [], stop);
        let mut left = line.truncated;
        while left > 0
            && records.len() < LISTED
            && searched < SEARCHED
            && let Some(rows) = merge.next_rows().unwrap_or_else(|error| {
                problems.push(error.to_string());
                None
            })
        {
            searched += rows.num_rows();
            let keys = KeyColumns::new(&rows);
            let truncated = keys.rows().filter(|key| key.truncated);
            for key in truncated.take(LISTED - records.len()) {
                left = left.saturating_sub(1);
                records.push(ListedRecord {
                    sample: line.name.clone(),
                    id: key.id.to_owned(),
                    ordinal: key.ordinal,
                    what: Cell::count(u64::from(key.length)),
                });
            }
        }
    }
    records
}

/// Finds the first rejected records: those that became no row come before those that were not embedded. Adds what cannot be read to
/// `problems`.
pub(super) fn find_rejected(
    out: &Path,
    samples: &[JudgedSample],
    problems: &mut Vec<String>,
) -> Vec<ListedRecord> {
    let mut records = Vec::new();
    for sample in samples.iter().filter(|sample| sample.line.rejected > 0) {
        let folder = out.join(&sample.line.name);
        let mut lists = vec![folder.join("shards").join(REJECTS_FILE)];
        lists.extend(files_in(&folder.join("rejects"), &["csv"]).unwrap_or_default());
        lists.retain(|list| list.exists());
        if lists.is_empty() {
            problems.push(format!(
                "{}: the list of rejected records is lost",
                path_text(&folder)
            ));
        }
        for list in lists {
            let list = match read_rejects(&list) {
                Ok(list) => list,
                Err(error) => {
                    problems.push(error.to_string());
                    continue;
                }
            };
            let room = LISTED - records.len();
            records.extend(list.lines.into_iter().take(room).map(|line| ListedRecord {
                sample: sample.line.name.clone(),
                id: line.id,
                ordinal: line.ordinal,
                what: Cell::text(line.reason.to_string()),
            }));
        }
    }
    records
}
