//! Whether embeddings are the parts that a dataset is known to have.

use std::collections::BTreeMap;

use plmkit_contract::{LONG_SHARD_PREFIX, plural};

use crate::check::Check;
use crate::violation::Violations;

/// What is known of the parts of a dataset before they are read.
#[derive(Debug, Default)]
pub struct Parts {
    /// Name and digest of each, as an earlier validation listed them; none where the shards say what is expected.
    pub listed: Option<Vec<(String, String)>>,
    /// Whether that validation failed: its list may lack what should be there.
    pub failed_before: bool,
    /// What lies among the parts and is none: readers of the folder would take it for one, or stop at it.
    pub strays: Vec<String>,
}

/// The parts, by name, that begin before the part that readers of the folder read before them. `begins` has the first ordinal of
/// each part that has rows. Parts of long proteins are in shards of their own, which have an order of their own.
fn out_of_order(begins: &[(String, u64)]) -> Violations {
    let mut sorted: Vec<(bool, &str, u64)> = begins
        .iter()
        .map(|(file, first)| (file.contains(LONG_SHARD_PREFIX), file.as_str(), *first))
        .collect();
    sorted.sort_unstable();
    let mut violations = Violations::default();
    for pair in sorted.windows(2) {
        let [(_, before, earlier), (_, file, first)] = [pair[0], pair[1]];
        if pair[0].0 == pair[1].0 && first < earlier {
            violations.add_file(format_args!(
                "{file}: begins with ordinal {first}, {before} with {earlier}: readers of the folder go by name; expected the names in the order of the input"
            ));
        }
    }
    violations
}

/// The check `parts`: whether `found`, each with the name of its file and its digest, are the parts of a dataset, and in the order
/// of the input. `begins` has the first ordinal of each part that has rows.
pub fn check_parts(
    dataset: Option<Parts>,
    found: &[(String, String)],
    begins: &[(String, u64)],
) -> Check {
    let Some(dataset) = dataset else {
        return Check::skipped("parts", "no dataset was given");
    };
    let mut strays = Violations::default();
    for stray in &dataset.strays {
        strays.add_file(format_args!(
            "{stray}: among the embeddings, and no Parquet file"
        ));
    }
    let mut failed_before = Violations::default();
    if dataset.failed_before {
        failed_before.add_file("dataset.json: the validation that listed the parts failed");
    }
    // With shards, the checks of coverage say what is missing.
    let listed = dataset.listed.as_deref().unwrap_or(found);
    let mut expected: BTreeMap<&str, &str> = listed
        .iter()
        .map(|(file, digest)| (file.as_str(), digest.as_str()))
        .collect();
    let (mut unlisted, mut altered) = (Violations::default(), Violations::default());
    for (file, digest) in found {
        match expected.remove(file.as_str()) {
            None => unlisted.add_file(format_args!("{file}: not a part of the dataset")),
            Some(expected) if expected != digest => {
                altered.add_file(format_args!(
                    "{file}: expected rows {expected}, found {digest}"
                ));
            }
            Some(_) => {}
        }
    }
    let mut missing = Violations::default();
    for file in expected.keys() {
        missing.add_file(format_args!("{file}: a part of the dataset, and missing"));
    }
    let out_of_order = out_of_order(begins);
    let summary = format!(
        "{} found, {} expected: {} missing, {} not listed, {} with other rows, {} out of order, {} other files among them",
        plural(found.len(), "part"),
        listed.len(),
        missing.count,
        unlisted.count,
        altered.count,
        out_of_order.count,
        strays.count
    );
    Check::judged(
        "parts",
        summary,
        [("listed", listed.len() as u64)],
        [
            ("missing_parts", missing),
            ("unlisted_parts", unlisted),
            ("altered_parts", altered),
            ("parts_out_of_order", out_of_order),
            ("failed_before", failed_before),
            ("strays", strays),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CheckOutcome;

    fn of(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |&(file, digest): &(&str, &str)| (file.to_owned(), digest.to_owned());
        files.iter().map(owned).collect()
    }

    #[test]
    fn every_part_is_there_with_its_rows_and_no_other() {
        let listed = of(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let known = || Parts {
            listed: Some(listed.clone()),
            ..Parts::default()
        };
        assert_eq!(
            check_parts(None, &listed, &[]).outcome,
            CheckOutcome::Skipped
        );
        for dataset in [Parts::default(), known()] {
            assert_eq!(
                check_parts(Some(dataset), &listed, &[]).outcome,
                CheckOutcome::Pass
            );
        }
        let strays = vec!["notes.txt".to_owned()];
        for dataset in [
            Parts {
                failed_before: true,
                ..known()
            },
            Parts { strays, ..known() },
        ] {
            assert_eq!(
                check_parts(Some(dataset), &listed, &[]).outcome,
                CheckOutcome::Fail
            );
        }
        let found = of(&[("a", "1"), ("b", "9"), ("d", "3")]);
        let check = check_parts(Some(known()), &found, &[]);
        assert_eq!(check.outcome, CheckOutcome::Fail);
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "c: a part of the dataset, and missing",
                "d: not a part of the dataset",
                "b: expected rows 2, found 9",
            ]
        );
    }

    #[test]
    fn names_are_in_the_order_of_the_input() {
        let check = |begins: &[(&str, u64)]| {
            let begins: Vec<(String, u64)> = begins
                .iter()
                .map(|&(file, first)| (file.to_owned(), first))
                .collect();
            check_parts(Some(Parts::default()), &[], &begins).outcome
        };
        let right = [
            ("shard-00000", 0),
            ("shard-00001", 5),
            ("shard-long-00000", 2),
        ];
        assert_eq!(check(&right), CheckOutcome::Pass);
        let swapped = [("shard-00000", 5), ("shard-00001", 0)];
        assert_eq!(check(&swapped), CheckOutcome::Fail);
        let renamed = [("shard-00001", 5), ("zrenamed", 0)];
        assert_eq!(check(&renamed), CheckOutcome::Fail);
    }
}
