//! The samples of a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::slice;

use plmkit_cli::{Exit, Fault, Stop};
use plmkit_kit::path_text;
use plmkit_sequence::{Limits, ShardError};
use plmkit_store::read_input;

use crate::fasta;
use crate::table::{TableRow, check_name, is_table, read_table};

/// A sample and its FASTA files, in the order in which they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) fasta: Vec<PathBuf>,
}

/// Finds the samples of the command line, and looks at the first records of each FASTA if `limits` are given. All that is wrong is in
/// `errors`, a fault for each. A FASTA without a record is wrong if all are, unless `allow_empty`.
pub(crate) fn samples(
    inputs: &[PathBuf],
    limits: Option<Limits>,
    allow_empty: bool,
    stop: &Stop,
    errors: &mut Vec<Fault>,
) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    let (mut places, mut empty, mut has_records) = (BTreeMap::new(), Vec::new(), false);
    for row in rows(inputs, errors) {
        match limits.map(|limits| fasta::has_records(&row.fasta, limits, stop)) {
            Some(Ok(false)) => {
                let nothing = ShardError::no_records(slice::from_ref(&row.fasta));
                empty.push(row.name(nothing.into()));
            }
            Some(Err(error)) => errors.push(row.name(error.into())),
            _ => has_records = true,
        }
        let place = *places.entry(row.sample.clone()).or_insert_with(|| {
            samples.push(Sample {
                name: row.sample,
                fasta: Vec::new(),
            });
            samples.len() - 1
        });
        samples[place].fasta.push(row.fasta);
    }
    if allow_empty {
        return samples;
    }
    if has_records {
        for fault in &empty {
            tracing::warn!("{}", fault.message());
        }
    } else {
        errors.extend(empty);
    }
    samples
}

/// The rows of the table, or one for each FASTA.
fn rows(inputs: &[PathBuf], errors: &mut Vec<Fault>) -> Vec<TableRow> {
    let tables: Vec<bool> = inputs.iter().map(|path| is_named_table(path)).collect();
    match inputs {
        [table] if tables[0] => match read_input(table) {
            Ok(text) => {
                let (rows, found) = read_table(&text);
                let found = found.into_iter();
                errors.extend(found.map(|what| Fault::of_path(Exit::Data, table, what)));
                rows
            }
            Err(error) => {
                errors.push(error.into());
                Vec::new()
            }
        },
        _ if tables.contains(&true) => {
            let what = "a table of samples: expected no other input beside it";
            for (table, _) in inputs.iter().zip(tables).filter(|(_, is_table)| *is_table) {
                errors.push(Fault::of_path(Exit::Usage, table, what));
            }
            Vec::new()
        }
        _ => named_by_files(inputs, errors),
    }
}

/// Whether an input is a table: by its content, or else by its name.
fn is_named_table(path: &Path) -> bool {
    if path == "-" {
        return false;
    }
    let head = fasta::head(path);
    let named = path
        .extension()
        .is_some_and(|found| found == "csv" || found == "tsv");
    is_table(&head) || (named && !head.starts_with(b">"))
}

/// A sample for each FASTA, with the name of the file.
fn named_by_files(inputs: &[PathBuf], errors: &mut Vec<Fault>) -> Vec<TableRow> {
    let mut named: BTreeMap<String, &Path> = BTreeMap::new();
    let mut rows = Vec::new();
    for path in inputs {
        let sample = fasta::sample_name(path);
        if let Err(what) = check_name(&sample) {
            errors.push(Fault::of_path(Exit::Usage, path, what));
        } else if let Some(other) = named.insert(sample.clone(), path) {
            let (one, other) = (path_text(path), path_text(other));
            errors.push(Fault::usage(format!(
                "{other} and {one} are both the sample '{sample}'; a table of samples can name them differently"
            )));
        }
        rows.push(TableRow {
            sample,
            fasta: path.clone(),
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn found(inputs: &[&Path]) -> (Vec<Sample>, Vec<(Exit, String)>) {
        let inputs: Vec<PathBuf> = inputs.iter().map(|&path| path.to_owned()).collect();
        let mut errors = Vec::new();
        let samples = samples(
            &inputs,
            Some(Limits::default()),
            false,
            &Stop::default(),
            &mut errors,
        );
        let errors = errors.into_iter();
        let errors = errors.map(|fault| (fault.exit(), fault.message().to_owned()));
        (samples, errors.collect())
    }

    #[test]
    fn files_are_samples_and_a_table_names_them() {
        let folder = tempfile::tempdir().expect("temp folder");
        let at = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("write");
            path
        };
        let yeast = at("yeast.fasta", ">a\nMK\n");
        let soil = at("soil 1.faa", "\n>a\nMK\n");
        let sample = |name: &str, fasta: &[&PathBuf]| Sample {
            name: name.to_owned(),
            fasta: fasta.iter().map(|&path| path.clone()).collect(),
        };
        let (samples, errors) = found(&[&yeast, &soil]);
        assert_eq!(errors, []);
        assert_eq!(
            samples,
            [sample("yeast", &[&yeast]), sample("soil_1", &[&soil])]
        );

        let text = format!(
            "sample,fasta\nb,{0}\na,{0}\nb,{1}\n",
            yeast.display(),
            soil.display()
        );
        let table = at("table", &text);
        let (samples, errors) = found(&[&table]);
        assert_eq!(errors, []);
        assert_eq!(
            samples,
            [sample("b", &[&yeast, &soil]), sample("a", &[&yeast])]
        );
        let (_, errors) = found(&[&table, &yeast]);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].0, Exit::Usage);
    }

    #[test]
    fn all_errors_are_told_at_once() {
        let folder = tempfile::tempdir().expect("temp folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("none.fasta"), "protein\n").expect("write");
        fs::write(at("empty.fasta"), "").expect("write");
        fs::write(at("bzip2.fasta"), "BZh91AY").expect("write");
        let paths = ["none.fasta", "missing.fasta", "empty.fasta", "bzip2.fasta"].map(at);
        let (_, errors) = found(&paths.each_ref().map(PathBuf::as_path));
        let codes: Vec<Exit> = errors.iter().map(|(exit, _)| *exit).collect();
        assert_eq!(codes, [Exit::Data, Exit::NoInput, Exit::Data, Exit::Data]);
        assert!(errors[2].1.ends_with("found bzip2"), "{}", errors[2].1);
        let same = [at("a.fasta"), at("a.faa")];
        let (_, errors) = found(&same.each_ref().map(PathBuf::as_path));
        assert!(errors[0].1.contains("are both the sample 'a'"));
    }
}
