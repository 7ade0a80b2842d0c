//! Whether files that are taken as one set were made by the same work.

use std::collections::{BTreeMap, BTreeSet};

use plmkit_contract::{Provenance, Quoted, RowDigest, SOURCE, plural};

use crate::check::Check;
use crate::violation::Violations;

/// What the embeddings and the shards say of their origin.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    embeddings: FileSet,
    shards: FileSet,
    /// What the shards become when they are packed.
    batches: BTreeSet<String>,
    /// Batches that the embeddings were made from, each with the file that says so.
    embedded: Vec<(String, String)>,
    /// The lists of what is not in the embeddings, as these know them.
    expected_rejects: BTreeSet<String>,
    /// Those that were given: name and digest.
    rejects: Vec<(String, String)>,
    different: Violations,
}

/// Files of one kind: their number, and the first, which the others are compared with.
#[derive(Debug, Default)]
struct FileSet {
    first: Option<(String, Provenance)>,
    files: u64,
}

impl FileSet {
    /// How the origin of one more file differs from that of the first.
    fn add(&mut self, file: &str, provenance: &Provenance) -> Option<String> {
        self.files += 1;
        let Some((first, expected)) = &self.first else {
            self.first = Some((file.to_owned(), provenance.clone()));
            return None;
        };
        let (what, expected, found) = expected.changed_work(provenance)?;
        Some(format!(
            "{file}: expected {what} {expected} as in {first}, found {found}"
        ))
    }

    /// The first file, if it was made from other inputs.
    fn first_of_other_inputs(&self, provenance: &Provenance) -> Option<&str> {
        let (first, expected) = self.first.as_ref()?;
        (expected.inputs != provenance.inputs).then_some(first)
    }
}

impl Origin {
    /// Adds an embeddings file.
    pub(crate) fn add_embeddings(&mut self, file: &str, provenance: &Provenance) {
        let problem = self.embeddings.add(file, provenance).or_else(|| {
            let (first, expected) = self.embeddings.first.as_ref()?;
            (expected.options.get(SOURCE) != provenance.options.get(SOURCE))
                .then(|| format!("{file}: not of the same set of shards as {first}"))
        });
        if let Some(problem) = problem {
            self.different.add_file(problem);
        }
        self.expected_rejects.extend(provenance.rejects.clone());
        let batches = provenance.inputs.iter().cloned();
        self.embedded
            .extend(batches.map(|batches| (file.to_owned(), batches)));
    }

    /// Adds a shard and the digest of the batches that it becomes.
    pub(crate) fn add_shard(&mut self, file: &str, provenance: &Provenance, batches: RowDigest) {
        self.batches.insert(batches.to_string());
        let problem = self.shards.add(file, provenance).or_else(|| {
            let first = self.shards.first_of_other_inputs(provenance)?;
            Some(format!("{file}: made from other inputs than {first}"))
        });
        if let Some(problem) = problem {
            self.different.add_file(problem);
        }
    }

    /// Adds a list of rows that are not in the embeddings.
    pub(crate) fn add_rejects(&mut self, file: &str, digest: String) {
        self.rejects.push((file.to_owned(), digest));
    }

    /// The check `origin`.
    pub(crate) fn finish(self) -> Check {
        let mut other_batches = Violations::default();
        let known = |batches: &String| self.shards.files == 0 || self.batches.contains(batches);
        for (file, batches) in self.embedded.iter().filter(|(_, batches)| !known(batches)) {
            let batches = Quoted(batches);
            other_batches.add_file(format_args!(
                "{file}: made from batches {batches}, which are not those of a shard"
            ));
        }
        let mut embedded_twice = Violations::default();
        let mut first_of = BTreeMap::new();
        for (file, batches) in self
            .embedded
            .iter()
            .filter(|(_, batches)| !is_empty(batches))
        {
            if let Some(first) = first_of.insert(batches, file) {
                let problem = format_args!("{file}: made from the same batches as {first}");
                embedded_twice.add_file(problem);
            }
        }
        let mut other_rejects = Violations::default();
        let known = |digest: &String| self.expected_rejects.contains(digest);
        for (file, _) in self.rejects.iter().filter(|(_, digest)| !known(digest)) {
            let problem = format_args!("{file}: not the list of any of the embeddings, or altered");
            other_rejects.add_file(problem);
        }
        let summary = format!(
            "{}, {}: {} of other work than the first, {} batches of other shards, {} batches embedded twice, \
             {} rejects of other embeddings",
            plural(self.embeddings.files, "embeddings file"),
            plural(self.shards.files, "shard"),
            self.different.count,
            other_batches.count,
            embedded_twice.count,
            other_rejects.count
        );
        Check::judged(
            "origin",
            summary,
            [
                ("embeddings", self.embeddings.files),
                ("shards", self.shards.files),
            ],
            [
                ("different", self.different),
                ("other_batches", other_batches),
                ("embedded_twice", embedded_twice),
                ("other_rejects", other_rejects),
            ],
        )
    }
}

/// Whether batches of this digest have no rows: all such have the same.
fn is_empty(batches: &str) -> bool {
    batches
        .parse()
        .is_ok_and(|digest: RowDigest| digest.rows() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CheckOutcome;

    fn embeddings(model: &str, batches: &str) -> Provenance {
        Provenance::new("gpu-embed", vec![batches.to_owned()]).with("model", model)
    }

    fn shard(max_residues: u32, input: &str) -> Provenance {
        Provenance::new("fasta-shard", vec![input.to_owned()]).with("max_residues", max_residues)
    }

    #[test]
    fn embeddings_of_two_models_are_no_set() {
        let mut origin = Origin::default();
        for (file, model) in [("a", "m"), ("b", "m"), ("c", "n")] {
            origin.add_embeddings(file, &embeddings(model, file));
        }
        origin.add_embeddings("d", &Provenance::new("another", vec![]).with("model", "m"));
        let check = origin.finish();
        assert_eq!(
            (check.counts["embeddings"], check.counts["different"]),
            (4, 2)
        );
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "c: expected model \"m\" as in a, found \"n\"",
                "d: expected the program 'gpu-embed' as in a, found 'another'",
            ]
        );
    }

    #[test]
    fn embeddings_of_two_sets_of_shards_or_of_the_same_batches_are_no_set() {
        let mut origin = Origin::default();
        for (file, source, batches) in [("a", "s", "x"), ("b", "t", "y"), ("c", "s", "x")] {
            origin.add_embeddings(file, &embeddings("m", batches).with(SOURCE, source));
        }
        let lines = origin.finish().violations;
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "b: not of the same set of shards as a",
                "c: made from the same batches as a",
            ]
        );
    }

    #[test]
    fn shards_of_other_inputs_or_options_are_no_set() {
        let mut origin = Origin::default();
        let batches = RowDigest::default();
        origin.add_shard("a", &shard(1022, "x"), batches);
        origin.add_shard("b", &shard(1022, "x"), batches);
        origin.add_shard("c", &shard(1022, "y"), batches);
        origin.add_shard("d", &shard(500, "x"), batches);
        let check = origin.finish();
        assert_eq!((check.counts["shards"], check.counts["different"]), (4, 2));
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "c: made from other inputs than a",
                "d: expected max_residues 1022 as in a, found 500",
            ]
        );
    }

    #[test]
    fn batches_are_compared_where_there_are_shards() {
        let batches = RowDigest::default();
        for (input, shards, outcome) in [
            ("other", 0, CheckOutcome::Pass),
            ("other", 1, CheckOutcome::Fail),
            (batches.to_string().as_str(), 1, CheckOutcome::Pass),
        ] {
            let mut origin = Origin::default();
            for _ in 0..shards {
                origin.add_shard("s", &shard(1022, "x"), batches);
            }
            origin.add_embeddings("e", &embeddings("m", input));
            let check = origin.finish();
            assert_eq!(check.outcome, outcome, "{input} {shards}");
        }
    }

    #[test]
    fn a_list_of_rejects_is_known_by_an_embeddings_file() {
        let mut origin = Origin::default();
        for list in ["x", "y"] {
            origin.add_embeddings(list, &embeddings("m", list).with_rejects(list.to_owned()));
        }
        for list in ["x", "z"] {
            origin.add_rejects(list, list.to_owned());
        }
        let check = origin.finish();
        assert_eq!(check.counts["other_rejects"], 1);
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["z: not the list of any of the embeddings, or altered"]
        );
    }
}
