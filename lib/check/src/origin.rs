//! Whether files that are taken as one set were made by the same work, and hold vectors of the same shape.

use std::collections::{BTreeMap, BTreeSet};

use plmkit_contract::{
    COMBINED, EmbeddingLayout, EmbeddingWork, Provenance, RowDigest, SOURCE, no_rejected_rows,
};
use plmkit_kit::Quoted;

use crate::check::Tallies;
use crate::checks::{coverage, origin};
use crate::criteria::Criteria;
use crate::files::EmbeddedFile;
use crate::findings::Findings;
use crate::violation::FILE;

/// Describes how a file differs from the first, whose name and provenance come before its own.
type Difference<'a> = &'a dyn Fn(&str, &Provenance, &Provenance) -> Option<String>;

/// Adds the embeddings whose list of rejected rows, which is not empty, was not given.
pub(crate) fn report_missing_rejects_lists(
    findings: &Findings,
    criteria: &Criteria,
    tallies: &mut Tallies,
) {
    let empty = no_rejected_rows();
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
    let mut different = |files: &[(&str, &Provenance)], find: Difference<'_>| {
        for (file, made) in files {
            let (first, expected) = files[0];
            if let Some(problem) = find(first, expected, made) {
                tallies.add(origin::different, FILE, format_args!("{file}: {problem}"));
            }
        }
    };
    for files in [&embedded, &cut] {
        different(files, &|first, expected, made| {
            expected.mismatch(made, &format!(" as in {first}"))
        });
    }
    different(&embedded, &|first, expected, made| {
        let differs = expected.option_differs(made, SOURCE);
        differs.then(|| format!("not of the same set of shards as {first}"))
    });
    different(&cut, &|first, expected, made| {
        let differs = expected.inputs != made.inputs;
        differs.then(|| format!("made from other inputs than {first}"))
    });
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

/// Checks that embeddings were made from the batches of the shards, if there are any, none twice, and under no other shard's name, which
/// decides the order of the files.
fn check_batches(findings: &Findings, tallies: &mut Tallies) {
    let shards = &findings.shards;
    let known: BTreeSet<String> = shards.iter().map(|file| file.batches.to_string()).collect();
    let name_of = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    // Shards of several sets may have one name.
    let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in shards {
        let batches = named.entry(name_of(&file.name)).or_default();
        batches.push(file.batches.to_string());
    }
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
        let is_other = |own: &String| !provenance.inputs.contains(own);
        let own = named.get(&name_of(file));
        if own.is_some_and(|own| own.iter().all(is_other)) {
            let problem = format_args!("{file}: not made of the shard of its name");
            tallies.add(origin::other_name, FILE, problem);
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
