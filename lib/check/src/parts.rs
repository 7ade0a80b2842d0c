//! Whether embeddings are the parts that a dataset is known to have.

use std::collections::BTreeMap;

use plmkit_contract::LONG_SHARD_PREFIX;

use crate::EmbeddedFile;
use crate::check::Tally;
use crate::violation::FILE;

/// The parts of a dataset.
#[derive(Debug, Default)]
pub struct DatasetParts {
    /// Name and digest of each, as an earlier validation listed them; none where the shards say what is expected.
    pub listed: Option<Vec<(String, String)>>,
    /// Whether that validation failed: its list may lack what should be there.
    pub failed_before: bool,
    /// What lies among the parts and is none: readers of the folder would take it for one, or stop at it.
    pub strays: Vec<String>,
}

impl DatasetParts {
    /// The check `parts`: whether the embeddings are the parts of the dataset, and in the order of the input.
    pub(crate) fn check(&self, embeddings: &[EmbeddedFile], tally: &mut Tally) {
        let found = embeddings.iter();
        let found = found.map(|file| (file.name.clone(), file.rows.to_string()));
        let found: Vec<(String, String)> = found.collect();
        tally.count("found", found.len() as u64);
        for stray in &self.strays {
            let problem = format_args!("{stray}: among the embeddings, and no Parquet file");
            tally.add("strays", FILE, problem);
        }
        if self.failed_before {
            let problem = "dataset.json: the validation that listed the parts failed";
            tally.add("failed_before", FILE, problem);
        }
        // With shards, the checks of coverage say what is missing.
        let listed = self.listed.as_deref().unwrap_or(&found);
        let expected = listed.iter().map(|(file, digest)| (file, digest));
        let mut expected: BTreeMap<_, _> = expected.collect();
        for (file, digest) in &found {
            match expected.remove(file) {
                None => tally.add(
                    "unlisted_parts",
                    FILE,
                    format_args!("{file}: not a part of the dataset"),
                ),
                Some(expected) if expected != digest => tally.add(
                    "altered_parts",
                    FILE,
                    format_args!("{file}: expected rows {expected}, found {digest}"),
                ),
                Some(_) => {}
            }
        }
        for file in expected.keys() {
            let problem = format_args!("{file}: a part of the dataset, and missing");
            tally.add("missing_parts", FILE, problem);
        }
        check_order(embeddings, tally);
    }
}

/// Adds the parts that begin before the part that readers of the folder read before them. Parts of long proteins are in shards of
/// their own, which have an order of their own.
fn check_order(embeddings: &[EmbeddedFile], tally: &mut Tally) {
    let sorted = embeddings.iter().filter_map(|file| {
        let is_long = file.name.contains(LONG_SHARD_PREFIX);
        Some((is_long, file.name.as_str(), file.begins?))
    });
    let mut sorted: Vec<(bool, &str, u64)> = sorted.collect();
    sorted.sort_unstable();
    for pair in sorted.windows(2) {
        let [(is_long, before, earlier), (is_next_long, file, first)] = [pair[0], pair[1]];
        if is_long == is_next_long && first < earlier {
            let problem = format_args!(
                "{file}: begins with ordinal {first}, {before} with {earlier}: readers of the folder go by name; expected the names in the order of the input"
            );
            tally.add("parts_out_of_order", FILE, problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Provenance, RowDigest};

    use super::*;
    use crate::{Check, CheckOutcome};

    /// The digest of some rows.
    fn rows(value: u8) -> RowDigest {
        let text = format!("xxh3-128-sum:{value:032x}:1");
        text.parse().expect("a digest")
    }

    fn check(parts: &DatasetParts, found: &[(&str, u8, u64)]) -> Check {
        let mut tallies = crate::check::Tallies::default();
        let found = found.iter().map(|&(name, value, begins)| EmbeddedFile {
            rows: rows(value),
            begins: Some(begins),
            ..EmbeddedFile::of(name, Provenance::new("gpu-embed", Vec::new()), &["mean_6"])
        });
        parts.check(&found.collect::<Vec<_>>(), tallies.of("parts"));
        tallies.result("parts")
    }

    #[test]
    fn every_part_is_there_with_its_rows_and_no_other() {
        let files = [("a", 1, 0), ("b", 2, 1), ("c", 3, 2)];
        let listed = files.map(|(name, value, _)| (name.to_owned(), rows(value).to_string()));
        let known = || DatasetParts {
            listed: Some(listed.to_vec()),
            ..DatasetParts::default()
        };
        let failed = DatasetParts {
            failed_before: true,
            ..known()
        };
        let with_stray = DatasetParts {
            strays: vec!["notes.txt".to_owned()],
            ..known()
        };
        for (parts, outcome) in [
            (DatasetParts::default(), CheckOutcome::Pass),
            (known(), CheckOutcome::Pass),
            (failed, CheckOutcome::Fail),
            (with_stray, CheckOutcome::Fail),
        ] {
            assert_eq!(check(&parts, &files).outcome, outcome);
        }
        let check = check(&known(), &[("a", 1, 0), ("b", 9, 1), ("d", 3, 2)]);
        assert_eq!(check.outcome, CheckOutcome::Fail);
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "c: a part of the dataset, and missing",
                "d: not a part of the dataset",
                &format!("b: expected rows {}, found {}", rows(2), rows(9)),
            ]
        );
    }

    #[test]
    fn names_are_in_the_order_of_the_input() {
        for (first, second, outcome) in [
            (("shard-00000", 0), ("shard-00001", 5), CheckOutcome::Pass),
            (("shard-00000", 5), ("shard-00001", 0), CheckOutcome::Fail),
            (("shard-00001", 5), ("zrenamed", 0), CheckOutcome::Fail),
        ] {
            let files = [first, second, ("shard-long-00000", 2)];
            let files = files.map(|(name, begins)| (name, 1, begins));
            let check = check(&DatasetParts::default(), &files);
            assert_eq!(check.outcome, outcome, "{second:?}");
        }
    }
}
