//! Whether files that are taken as one set were made by the same work.

use std::collections::{BTreeMap, BTreeSet};

use plmkit_contract::{ByteDigest, Provenance, Quoted, RowDigest, SOURCE, plural};

use crate::check::Check;
use crate::majority::majority;
use crate::violation::Violations;

/// What the embeddings and the shards say of their origin.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    embeddings: Vec<FileOrigin>,
    shards: Vec<FileOrigin>,
    /// What the shards become when they are packed.
    batches: BTreeSet<String>,
}

#[derive(Debug)]
struct FileOrigin {
    file: String,
    provenance: Provenance,
}

/// A list of rows without rows.
const EMPTY_LIST: &[u8] = b"ordinal,id,length,reason,start\n";

/// Lists of rows that are not in the embeddings: name and digest of each.
pub(crate) type RejectsFiles = Vec<(String, String)>;

/// How the work of the most files, the first of which is `typical`, differs from that of another file: what it is, there and
/// here.
fn different_work(typical: &FileOrigin, file: &FileOrigin) -> Option<(String, String, String)> {
    let (what, expected, found) = typical.provenance.changed_work(&file.provenance)?;
    if what != "model" {
        return Some((what.to_owned(), expected, found));
    }
    let [expected, found] = [(typical, expected), (file, found)].map(|(file, digest)| {
        let model = file.provenance.model.as_ref();
        model.map_or(digest.clone(), |model| {
            format!("{digest} ({})", Quoted(&model.name))
        })
    });
    Some((what.to_owned(), expected, found))
}

/// Adds the files that were made by other work than most.
fn add_odd_files(files: &[FileOrigin], different: &mut Violations) {
    let Some(most) = majority(files, |a, b| different_work(a, b).is_none()) else {
        return;
    };
    let place = most.place(&most.typical.file);
    for file in &most.odd {
        if let Some((what, expected, found)) = different_work(most.typical, file) {
            let file = &file.file;
            different.add_file(format_args!(
                "{file}: expected {what} {expected} {place}, found {found}"
            ));
        }
    }
}

impl Origin {
    /// Adds an embeddings file.
    pub(crate) fn add_embeddings(&mut self, file: &str, provenance: &Provenance) {
        self.embeddings.push(FileOrigin {
            file: file.to_owned(),
            provenance: provenance.clone(),
        });
    }

    /// Adds a shard and the digest of the batches that it becomes.
    pub(crate) fn add_shard(&mut self, file: &str, provenance: &Provenance, batches: RowDigest) {
        self.batches.insert(batches.to_string());
        self.shards.push(FileOrigin {
            file: file.to_owned(),
            provenance: provenance.clone(),
        });
    }

    /// The embeddings whose list of rejected rows, which is not empty, was not given.
    pub(crate) fn without_list(&self, given: &RejectsFiles) -> Violations {
        let empty = ByteDigest::compute(EMPTY_LIST).to_string();
        let mut without = Violations::default();
        for FileOrigin { file, provenance } in &self.embeddings {
            let list = provenance.rejects.as_ref().filter(|list| **list != empty);
            if list.is_some_and(|list| given.iter().all(|(_, digest)| digest != list)) {
                without.add_file(format_args!(
                    "{file}: rows may be missing because they were rejected, and their list is not among --rejects"
                ));
            }
        }
        without
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.embeddings.extend(other.embeddings);
        self.shards.extend(other.shards);
        self.batches.extend(other.batches);
    }

    /// The check `origin`, where these lists of rejects were given.
    pub(crate) fn finish(self, rejects: &RejectsFiles) -> Check {
        let mut different = Violations::default();
        add_odd_files(&self.embeddings, &mut different);
        add_odd_files(&self.shards, &mut different);
        let source = |file: &FileOrigin| file.provenance.options.get(SOURCE).cloned();
        if let Some(most) = majority(&self.embeddings, |a, b| source(a) == source(b)) {
            for file in &most.odd {
                let (file, typical) = (&file.file, &most.typical.file);
                different.add_file(format_args!(
                    "{file}: not of the same set of shards as {typical}"
                ));
            }
        }
        let inputs = |file: &FileOrigin| file.provenance.inputs.clone();
        if let Some(most) = majority(&self.shards, |a, b| inputs(a) == inputs(b)) {
            for file in &most.odd {
                let (file, typical) = (&file.file, &most.typical.file);
                different.add_file(format_args!(
                    "{file}: made from other inputs than {typical}"
                ));
            }
        }
        let mut other_batches = Violations::default();
        let mut embedded_twice = Violations::default();
        let mut first_of: BTreeMap<&str, &str> = BTreeMap::new();
        for FileOrigin {
            file, provenance, ..
        } in &self.embeddings
        {
            for batches in &provenance.inputs {
                if !self.shards.is_empty() && !self.batches.contains(batches) {
                    let batches = Quoted(batches);
                    other_batches.add_file(format_args!(
                        "{file}: made from batches {batches}, which are not those of a shard"
                    ));
                }
                // All batches without rows have the same digest.
                let first = (!is_empty(batches)).then(|| first_of.insert(batches, file));
                if let Some(first) = first.flatten() {
                    embedded_twice.add_file(if first == file {
                        format!("{file}: given twice")
                    } else {
                        format!("{file}: made from the same batches as {first}")
                    });
                }
            }
        }
        let known: BTreeSet<&str> = self
            .embeddings
            .iter()
            .filter_map(|file| file.provenance.rejects.as_deref())
            .collect();
        let mut other_rejects = Violations::default();
        for (file, _) in rejects
            .iter()
            .filter(|(_, digest)| !known.contains(digest.as_str()))
        {
            let problem = format_args!("{file}: not the list of any of the embeddings, or altered");
            other_rejects.add_file(problem);
        }
        let (embeddings, shards) = (self.embeddings.len() as u64, self.shards.len() as u64);
        let summary = format!(
            "{}, {}: {} of other work than most, {} batches of other shards, {} batches embedded twice, \
             {} rejects of other embeddings",
            plural(embeddings, "embeddings file"),
            plural(shards, "shard"),
            different.count,
            other_batches.count,
            embedded_twice.count,
            other_rejects.count
        );
        Check::judged(
            "origin",
            summary,
            [("embeddings", embeddings), ("shards", shards)],
            [
                ("different", different),
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
        let check = origin.finish(&Vec::new());
        assert_eq!(
            (check.counts["embeddings"], check.counts["different"]),
            (4, 2)
        );
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "c: expected model \"m\" as in a and 1 more, found \"n\"",
                "d: expected the program 'gpu-embed' as in a and 1 more, found 'another'",
            ]
        );
    }

    #[test]
    fn embeddings_of_two_sets_of_shards_or_of_the_same_batches_are_no_set() {
        let mut origin = Origin::default();
        for (file, source, batches) in [("a", "s", "x"), ("b", "t", "y"), ("c", "s", "x")] {
            origin.add_embeddings(file, &embeddings("m", batches).with(SOURCE, source));
        }
        let lines = origin.finish(&Vec::new()).violations;
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
        let check = origin.finish(&Vec::new());
        assert_eq!((check.counts["shards"], check.counts["different"]), (4, 2));
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "d: expected max_residues 1022 as in a and 2 more, found 500",
                "c: made from other inputs than a",
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
            let check = origin.finish(&Vec::new());
            assert_eq!(check.outcome, outcome, "{input} {shards}");
        }
    }

    #[test]
    fn a_list_of_rejects_is_known_by_an_embeddings_file() {
        let mut origin = Origin::default();
        for list in ["x", "y"] {
            origin.add_embeddings(list, &embeddings("m", list).with_rejects(list.to_owned()));
        }
        let given = ["x", "z"].map(|list| (list.to_owned(), list.to_owned()));
        let check = origin.finish(&given.to_vec());
        assert_eq!(check.counts["other_rejects"], 1);
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["z: not the list of any of the embeddings, or altered"]
        );
    }
}
