//! Whether files that are taken as one set were made by the same work, and hold vectors of the same shape.

use std::collections::{BTreeMap, BTreeSet};

use plmkit_contract::{
    ByteDigest, COMBINED, EmbeddingLayout, EmbeddingWork, Provenance, Quoted, RowDigest, SOURCE,
};

use crate::check::Tallies;
use crate::checks::{coverage, origin};
use crate::files::EmbeddedFile;
use crate::violation::FILE;
use crate::{Criteria, Findings};

/// A list of rows without rows.
const EMPTY_LIST: &[u8] = b"ordinal,id,length,reason,start\n";

/// How the work of a file differs from that of the `first`, which has this name.
fn different_work(name: &str, first: &Provenance, file: &Provenance) -> Option<String> {
    let (what, expected, found) = first.changed_work(file)?;
    let [expected, found] = [(first, expected), (file, found)].map(|(work, value)| {
        let model = work.model.as_ref().filter(|_| what == "model");
        model.map_or(value.clone(), |model| {
            format!("{value} ({})", Quoted(&model.name))
        })
    });
    Some(format!(
        "expected {what} {expected} as in {name}, found {found}"
    ))
}

/// Adds the embeddings whose list of rejected rows, which is not empty, was not given.
pub(crate) fn list_without_list(findings: &Findings, criteria: &Criteria, tallies: &mut Tallies) {
    let empty = ByteDigest::compute(EMPTY_LIST).to_string();
    for file in &findings.embeddings {
        let list = file.provenance.rejects.as_ref();
        let list = list.filter(|list| **list != empty);
        let is_given = |list: &String| criteria.lists(true).any(|(_, given)| given.digest == *list);
        if list.is_some_and(|list| !is_given(list)) {
            let problem = format_args!(
                "{}: rows may be missing because they were rejected, and their list is not among --rejects",
                file.name
            );
            tallies.add(coverage::without_list, FILE, problem);
        }
    }
}

/// The check `origin`, also of the lists of rejected rows. Of known datasets, the shards lack the sequences.
pub(crate) fn check(findings: &Findings, criteria: &Criteria, tallies: &mut Tallies) {
    let (embeddings, shards) = (&findings.embeddings, &findings.shards);
    let manifest = criteria.manifest.as_ref();
    let known = manifest.and_then(|(_, manifest)| manifest.known.as_ref());
    tallies.count(origin::embeddings, embeddings.len() as u64);
    tallies.count(origin::shards, shards.len() as u64);
    let embedded = embeddings
        .iter()
        .map(|file| (&*file.name, &file.provenance));
    let cut = shards.iter().map(|file| (&*file.name, &file.provenance));
    let [embedded, cut]: [Vec<_>; 2] = [embedded.collect(), cut.collect()];
    let source = |made: &Provenance| made.options.get(SOURCE).cloned();
    let other_source = |name: &str, first: &Provenance, file: &Provenance| {
        let differs = source(first) != source(file);
        differs.then(|| format!("not of the same set of shards as {name}"))
    };
    let other_inputs = |name: &str, first: &Provenance, file: &Provenance| {
        let differs = first.inputs != file.inputs;
        differs.then(|| format!("made from other inputs than {name}"))
    };
    let mut add =
        |files: &[(&str, &Provenance)],
         difference: &dyn Fn(&str, &Provenance, &Provenance) -> Option<String>| {
            for (file, made) in files {
                let (first, expected) = files[0];
                if let Some(problem) = difference(first, expected, made) {
                    tallies.add(origin::different, FILE, format_args!("{file}: {problem}"));
                }
            }
        };
    add(&embedded, &different_work);
    add(&cut, &different_work);
    add(&embedded, &other_source);
    add(&cut, &other_inputs);
    check_batches(findings, tallies);
    check_columns(embeddings, tallies);
    for (file, list) in criteria.lists(true) {
        let is_of =
            |embedded: &EmbeddedFile| embedded.provenance.rejects.as_ref() == Some(&list.digest);
        if !embeddings.iter().any(is_of) {
            let problem = format_args!("{file}: not the list of any of the embeddings, or altered");
            tallies.add(origin::other_rejects, FILE, problem);
        }
    }
    for file in embeddings {
        let work = EmbeddingWork::new(&file.provenance.options);
        if let Some(difference) = known.and_then(|known| known.work.difference(&work)) {
            let file = &file.name;
            let problem = format_args!("{file}: not made as the known datasets: {difference}");
            tallies.add(origin::unlike_known, FILE, problem);
        }
    }
}

/// Checks that embeddings were made from the batches of the shards, if there are any, and none twice.
fn check_batches(findings: &Findings, tallies: &mut Tallies) {
    let shards = &findings.shards;
    let known: BTreeSet<String> = shards.iter().map(|file| file.batches.to_string()).collect();
    let mut first_of: BTreeMap<&str, &str> = BTreeMap::new();
    for EmbeddedFile {
        name: file,
        provenance,
        ..
    } in &findings.embeddings
    {
        // Of combined parts, only the parts know their batches.
        if provenance.options.contains_key(COMBINED) {
            continue;
        }
        for batches in &provenance.inputs {
            if !shards.is_empty() && !known.contains(batches) {
                let batches = Quoted(batches);
                let problem = format_args!(
                    "{file}: made from batches {batches}, which are not those of a shard"
                );
                tallies.add(origin::other_batches, FILE, problem);
            }
            // All batches without rows have the same digest.
            let first = (!is_empty(batches)).then(|| first_of.insert(batches, file));
            if let Some(first) = first.flatten() {
                let problem = if first == file {
                    format!("{file}: given twice")
                } else {
                    format!("{file}: made from the same batches as {first}")
                };
                tallies.add(origin::embedded_twice, FILE, problem);
            }
        }
    }
}

/// Checks that all files have the same columns.
fn check_columns(embeddings: &[EmbeddedFile], tallies: &mut Tallies) {
    for EmbeddedFile { name, layout, .. } in embeddings {
        let EmbeddedFile {
            name: first,
            layout: expected,
            ..
        } = &embeddings[0];
        let [expected, found] = [expected, layout].map(shape);
        if found != expected {
            let problem = format_args!("{name}: expected {expected} as in {first}, found {found}");
            tallies.add(origin::other_columns, FILE, problem);
        }
    }
}

/// The columns after the key in words.
fn shape(layout: &EmbeddingLayout) -> String {
    let columns = layout.columns.iter();
    let columns = columns.map(|column| column.with_shape(layout.widths()));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let stitched = if layout.stitched {
        ", stitched from windows"
    } else {
        ""
    };
    format!("{columns} in {}{stitched}", layout.dtype)
}

/// Whether batches of this digest have no rows: all such have the same.
fn is_empty(batches: &str) -> bool {
    batches
        .parse()
        .is_ok_and(|digest: RowDigest| digest.rows() == 0)
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{RejectsList, StoreDtype};

    use super::*;
    use crate::{Check, CheckOutcome, ShardFile};

    fn check(embeddings: &[EmbeddedFile], shards: &[ShardFile], lists: &[&str]) -> Check {
        let findings = Findings {
            embeddings: embeddings.to_vec(),
            shards: shards.to_vec(),
            ..Findings::default()
        };
        let mut criteria = Criteria::default();
        for list in lists {
            let content = RejectsList {
                lines: Vec::new(),
                of_rows: true,
                digest: (*list).to_owned(),
            };
            criteria.add_rejects((*list).to_owned(), content);
        }
        let mut tallies = Tallies::default();
        super::check(&findings, &criteria, &mut tallies);
        tallies.result("origin")
    }

    fn work(model: &str, batches: &str) -> Provenance {
        Provenance::new("gpu-embed", vec![batches.to_owned()]).with("model", model)
    }

    fn embedded(name: &str, provenance: Provenance) -> EmbeddedFile {
        EmbeddedFile::of(name, provenance, &[])
    }

    fn shard(name: &str, max_residues: u32, input: &str) -> ShardFile {
        let made_by = Provenance::new("fasta-shard", vec![input.to_owned()]);
        ShardFile {
            name: name.to_owned(),
            position: 0,
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
        let check = check(&files, &[], &[]);
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
        let lines = check(&files, &[], &[]).violations;
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
        let check = check(&[], &shards, &[]);
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
            let check = check(&[embedded("e", work("m", input))], &shards, &[]);
            assert_eq!(check.outcome, outcome, "{input} {}", shards.len());
        }
    }

    #[test]
    fn a_list_of_rejects_is_known_by_an_embeddings_file() {
        let files =
            ["x", "y"].map(|list| embedded(list, work("m", list).with_rejects(list.to_owned())));
        let check = check(&files, &[], &["x", "z"]);
        assert_eq!(check.counts["other_rejects"], 1);
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["z: not the list of any of the embeddings, or altered"]
        );
    }

    #[test]
    fn columns_dimension_and_type_must_agree() {
        let file = |name, columns: &[&str]| {
            let mut file =
                EmbeddedFile::of(name, Provenance::new("gpu-embed", Vec::new()), columns);
            file.layout.dim = 320;
            file
        };
        let mut files = ["a", "b", "c", "d"]
            .map(|name| file(name, &["mean_6"]))
            .to_vec();
        files[2].layout.dim = 640;
        files[3].layout.dtype = StoreDtype::F16;
        files.push(file("e", &["mean_6", "max_6"]));
        files.push(file("f", &["mean_6"]));
        files[5].layout.stitched = true;
        let check = check(&files, &[], &[]);
        assert_eq!(check.counts["other_columns"], 4);
        assert_eq!(
            check.violations[0].to_string(),
            "c: expected mean_6 (320) in f32 as in a, found mean_6 (640) in f32"
        );
        assert_eq!(
            check.violations[3].to_string(),
            "f: expected mean_6 (320) in f32 as in a, found mean_6 (320) in f32, stitched from windows"
        );
    }
}
