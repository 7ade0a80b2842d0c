//! Ids from files.

use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, NamedPath, Stop, file};
use plmkit_dataset::AskedIds;
use plmkit_kit::{Quoted, plural};
use plmkit_sequence::Source;

/// Files with ids.
#[derive(Debug, clap::Args)]
pub(crate) struct IdFiles {
    /// File with one id a line; may be compressed. `P12345` or `NAME_HUMAN` is short for `sp|P12345|NAME_HUMAN`
    #[arg(long, value_name = "FILE", value_parser = file())]
    ids: Option<PathBuf>,

    /// FASTA file whose ids are taken; may be compressed
    #[arg(long, value_name = "FILE", value_parser = file())]
    fasta: Option<PathBuf>,
}

/// Ids that choose rows.
#[derive(Debug, clap::Args)]
pub(crate) struct AskedArgs {
    #[command(flatten)]
    pub(crate) files: IdFiles,

    /// An id; may be repeated
    #[arg(long, value_name = "ID")]
    id: Vec<String>,

    /// Leave out ids that the dataset does not have, instead of failing
    #[arg(long)]
    allow_missing: bool,
}

impl AskedArgs {
    pub(crate) fn read(&self, stop: &Stop) -> Result<AskedIds, Fault> {
        let mut ids = self.files.read(&self.id, stop)?;
        ids.allow_missing = self.allow_missing;
        Ok(ids)
    }
}

impl IdFiles {
    /// Reads the ids after those of the command line.
    pub(crate) fn read(&self, line: &[String], stop: &Stop) -> Result<AskedIds, Fault> {
        let mut ids = AskedIds::default();
        for id in line {
            ids.add(id);
        }
        for (path, is_fasta) in [(&self.ids, false), (&self.fasta, true)] {
            if let Some(path) = path {
                read_ids(path, is_fasta, &mut ids, stop)?;
            }
        }
        Ok(ids)
    }

    /// Returns the files.
    pub(crate) fn paths(&self) -> Vec<NamedPath<'_>> {
        let files = [("--ids", &self.ids), ("--fasta", &self.fasta)].into_iter();
        let files = files.filter_map(|(name, path)| Some((name, path.as_deref()?)));
        files.collect()
    }
}

/// Tells that ids have rows of several samples.
pub(crate) fn warn_of_several(ids: &AskedIds) {
    let several = ids.in_several();
    if let Some(first) = several.first() {
        let count = plural(several.len() as u64, "id");
        tracing::warn!(
            "{count} in several samples, with rows of each: the first is {}",
            Quoted(first)
        );
    }
}

/// Adds the ids of a list, or of a FASTA file. A byte-order mark at its beginning is no part of the first.
fn read_ids(path: &Path, is_fasta: bool, ids: &mut AskedIds, stop: &Stop) -> Result<(), Fault> {
    let mut source = Source::open(path, stop)?;
    let bad = |what: String| Fault::of_path(Exit::Data, path, what);
    let (mut line, mut number) = (Vec::new(), 0_u64);
    while source.read_line(&mut line)? {
        number += 1;
        let text = match line.strip_prefix("\u{feff}".as_bytes()) {
            Some(text) if number == 1 => text,
            _ => &line,
        };
        let id = match text.trim_ascii() {
            text if !is_fasta => text,
            text => {
                let header = text.strip_prefix(b">").unwrap_or_default();
                let mut words = header.split(u8::is_ascii_whitespace);
                words.next().unwrap_or_default()
            }
        };
        let id = str::from_utf8(id);
        let id = id.map_err(|_| bad(format!("line {number}: expected an id in UTF-8")))?;
        if !id.is_empty() {
            ids.add(id);
        }
        line.clear();
    }
    if ids.in_order().is_empty() {
        let expected = if is_fasta {
            "FASTA"
        } else {
            "one id on each line"
        };
        return Err(bad(format!("expected {expected}, found no id")));
    }
    Ok(())
}
