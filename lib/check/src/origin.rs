//! Whether files that are taken as one set were made by the same work.

use std::collections::{BTreeMap, BTreeSet};

use plmkit_contract::{ByteDigest, COMBINED, Provenance, Quoted, RowDigest, SOURCE, plural};

use crate::check::Check;
use crate::files::{EmbeddedFile, ShardFile};
use crate::violation::Violations;

/// A list of rows without rows.
const EMPTY_LIST: &[u8] = b"ordinal,id,length,reason,start\n";

/// Lists of rows that are not in the embeddings: name and digest of each.
pub(crate) type RejectsFiles = Vec<(String, String)>;

/// How the work of a `typical` file differs from that of another file: what it is, there and here.
fn different_work(typical: &Provenance, file: &Provenance) -> Option<(String, String, String)> {
    let (what, expected, found) = typical.changed_work(file)?;
    if what != "model" {
        return Some((what.to_owned(), expected, found));
    }
    let [expected, found] = [(typical, expected), (file, found)].map(|(work, digest)| {
        let model = work.model.as_ref();
        model.map_or(digest.clone(), |model| {
            format!("{digest} ({})", Quoted(&model.name))
        })
    });
    Some((what.to_owned(), expected, found))
}

/// Adds the files, each with its name, that were made by other work than the first.
fn add_odd_files(files: &[(&str, &Provenance)], different: &mut Violations) {
    let Some(((first, work), others)) = files.split_first() else {
        return;
    };
    for (file, found) in others {
        if let Some((what, expected, found)) = different_work(work, found) {
            different.add_file(format_args!(
                "{file}: expected {what} {expected} as in {first}, found {found}"
            ));
        }
    }
}

/// The embeddings whose list of rejected rows, which is not empty, was not given.
pub(crate) fn without_list(embeddings: &[EmbeddedFile], given: &RejectsFiles) -> Violations {
    let empty = ByteDigest::compute(EMPTY_LIST).to_string();
    let mut without = Violations::default();
    for file in embeddings {
        let list = file.provenance.rejects.as_ref();
        let list = list.filter(|list| **list != empty);
        if list.is_some_and(|list| given.iter().all(|(_, digest)| digest != list)) {
            without.add_file(format_args!(
                "{}: rows may be missing because they were rejected, and their list is not among --rejects",
                file.name
            ));
        }
    }
    without
}

/// The check `origin`, where these lists of rejects were given. The embeddings `unlike_known` were made by other work than the
/// known datasets.
pub(crate) fn check(
    embeddings: &[EmbeddedFile],
    shards: &[ShardFile],
    rejects: &RejectsFiles,
    unlike_known: Violations,
) -> Check {
    let mut different = Violations::default();
    let works = embeddings
        .iter()
        .map(|file| (file.name.as_str(), &file.provenance));
    add_odd_files(&works.collect::<Vec<_>>(), &mut different);
    let works = shards
        .iter()
        .map(|file| (file.name.as_str(), &file.provenance));
    add_odd_files(&works.collect::<Vec<_>>(), &mut different);
    let source = |file: &EmbeddedFile| file.provenance.options.get(SOURCE).cloned();
    if let Some((first, others)) = embeddings.split_first() {
        for file in others.iter().filter(|file| source(file) != source(first)) {
            let (file, first) = (&file.name, &first.name);
            different.add_file(format_args!(
                "{file}: not of the same set of shards as {first}"
            ));
        }
    }
    if let Some((first, others)) = shards.split_first() {
        let differs = |file: &&ShardFile| file.provenance.inputs != first.provenance.inputs;
        for file in others.iter().filter(differs) {
            let (file, first) = (&file.name, &first.name);
            different.add_file(format_args!("{file}: made from other inputs than {first}"));
        }
    }
    let known: BTreeSet<String> = shards.iter().map(|file| file.batches.to_string()).collect();
    let mut other_batches = Violations::default();
    let mut embedded_twice = Violations::default();
    let mut first_of: BTreeMap<&str, &str> = BTreeMap::new();
    // Of combined parts, only the parts know their batches.
    let of_batches = embeddings.iter();
    let of_batches = of_batches.filter(|file| !file.provenance.options.contains_key(COMBINED));
    for EmbeddedFile {
        name: file,
        provenance,
        ..
    } in of_batches
    {
        for batches in &provenance.inputs {
            if !shards.is_empty() && !known.contains(batches) {
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
    let known: BTreeSet<&str> = embeddings
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
    let (embeddings, shards) = (embeddings.len() as u64, shards.len() as u64);
    let summary = format!(
        "{}, {}: {} of other work than the first, {} batches of other shards, {} batches embedded twice, \
         {} rejects of other embeddings, {} unlike known datasets",
        plural(embeddings, "embeddings file"),
        plural(shards, "shard"),
        different.count,
        other_batches.count,
        embedded_twice.count,
        other_rejects.count,
        unlike_known.count
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
            ("unlike_known", unlike_known),
        ],
    )
}

/// Whether batches of this digest have no rows: all such have the same.
fn is_empty(batches: &str) -> bool {
    batches
        .parse()
        .is_ok_and(|digest: RowDigest| digest.rows() == 0)
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{EmbeddingLayout, Labels, StoreDtype};

    use super::*;
    use crate::CheckOutcome;

    fn check(embeddings: &[EmbeddedFile], shards: &[ShardFile], lists: &RejectsFiles) -> Check {
        super::check(embeddings, shards, lists, Violations::default())
    }

    fn work(model: &str, batches: &str) -> Provenance {
        Provenance::new("gpu-embed", vec![batches.to_owned()]).with("model", model)
    }

    fn embedded(name: &str, provenance: Provenance) -> EmbeddedFile {
        EmbeddedFile {
            name: name.to_owned(),
            provenance,
            layout: EmbeddingLayout {
                columns: Vec::new(),
                dim: 1,
                dtype: StoreDtype::F32,
                stitched: false,
                labels: Labels::default(),
            },
        }
    }

    fn shard(name: &str, max_residues: u32, input: &str) -> ShardFile {
        let made_by = Provenance::new("fasta-shard", vec![input.to_owned()]);
        ShardFile {
            name: name.to_owned(),
            provenance: made_by.with("max_residues", max_residues),
            rows: RowDigest::default(),
            batches: RowDigest::default(),
        }
    }

    #[test]
    fn embeddings_of_two_models_are_no_set() {
        let files = [("a", "m"), ("b", "m"), ("c", "n")];
        let mut files = files
            .map(|(file, model)| embedded(file, work(model, file)))
            .to_vec();
        files.push(embedded(
            "d",
            Provenance::new("another", vec![]).with("model", "m"),
        ));
        let check = check(&files, &[], &Vec::new());
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
        let files = [("a", "s", "x"), ("b", "t", "y"), ("c", "s", "x")];
        let files = files
            .map(|(file, source, batches)| embedded(file, work("m", batches).with(SOURCE, source)));
        let lines = check(&files, &[], &Vec::new()).violations;
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
        let shards = [
            ("a", 1022, "x"),
            ("b", 1022, "x"),
            ("c", 1022, "y"),
            ("d", 500, "x"),
        ];
        let shards = shards.map(|(name, max_residues, input)| shard(name, max_residues, input));
        let check = check(&[], &shards, &Vec::new());
        assert_eq!((check.counts["shards"], check.counts["different"]), (4, 2));
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "d: expected max_residues 1022 as in a, found 500",
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
            let shards = vec![shard("s", 1022, "x"); shards];
            let check = check(&[embedded("e", work("m", input))], &shards, &Vec::new());
            assert_eq!(check.outcome, outcome, "{input} {}", shards.len());
        }
    }

    #[test]
    fn a_list_of_rejects_is_known_by_an_embeddings_file() {
        let files =
            ["x", "y"].map(|list| embedded(list, work("m", list).with_rejects(list.to_owned())));
        let given = ["x", "z"].map(|list| (list.to_owned(), list.to_owned()));
        let check = check(&files, &[], &given.to_vec());
        assert_eq!(check.counts["other_rejects"], 1);
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["z: not the list of any of the embeddings, or altered"]
        );
    }
}
