//! Whether embeddings are the parts that a dataset is known to have.

use std::collections::BTreeMap;

use crate::check::Check;
use crate::offender::{Offender, Offenders};

/// The check `parts`: of `found`, each with the name of its file and its digest, against `listed`, if there is a list.
pub fn parts(listed: Option<&[(String, String)]>, found: &[(String, String)]) -> Check {
    let Some(listed) = listed else {
        return Check::skipped("parts", "the shards say what is expected, or nothing does");
    };
    let mut expected: BTreeMap<&str, &str> = listed
        .iter()
        .map(|(file, digest)| (file.as_str(), digest.as_str()))
        .collect();
    let (mut unlisted, mut altered) = (Offenders::default(), Offenders::default());
    for (file, digest) in found {
        match expected.remove(file.as_str()) {
            None => unlisted.add(|| Offender::file(format!("{file}: not a part of the dataset"))),
            Some(expected) if expected != digest => altered.add(|| {
                Offender::file(format!("{file}: expected rows {expected}, found {digest}"))
            }),
            Some(_) => {}
        }
    }
    let mut missing = Offenders::default();
    for file in expected.keys() {
        missing.add(|| Offender::file(format!("{file}: a part of the dataset, and missing")));
    }
    let summary = format!(
        "{} of {} parts: {} missing, {} not listed, {} with other rows",
        found.len(),
        listed.len(),
        missing.count,
        unlisted.count,
        altered.count
    );
    Check::judged(
        "parts",
        summary,
        [("listed", listed.len() as u64)],
        [
            ("missing_parts", missing),
            ("unlisted_parts", unlisted),
            ("altered_parts", altered),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;

    fn of(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |&(file, digest): &(&str, &str)| (file.to_owned(), digest.to_owned());
        files.iter().map(owned).collect()
    }

    #[test]
    fn every_part_is_there_with_its_rows_and_no_other() {
        let listed = of(&[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(parts(None, &listed).outcome, Outcome::Skipped);
        assert_eq!(parts(Some(&listed), &listed).outcome, Outcome::Pass);
        let check = parts(Some(&listed), &of(&[("a", "1"), ("b", "9"), ("d", "3")]));
        assert_eq!(check.outcome, Outcome::Fail);
        let lines: Vec<String> = check.offenders.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "c: a part of the dataset, and missing",
                "d: not a part of the dataset",
                "b: expected rows 2, found 9",
            ]
        );
    }
}
