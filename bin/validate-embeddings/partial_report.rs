//! What was found in some files: a verdict on them, and a file that is judged with those of other files.

use std::io::Read;
use std::path::Path;

use clap::ValueEnum;
use plmkit_check::{Criteria, DatasetParts, Findings, RejectsLists, WholeSet};
use plmkit_cli::{Exit, Fault};
use plmkit_contract::{ByteDigest, LIST_SHOWN, RejectsList, one_line, path_text};
use plmkit_dataset::DatasetFolder;
use plmkit_store::{AtomicFile, FileKind, StoreError, open_input, read_rejects};
use serde::{Deserialize, Serialize};

use crate::dataset::write_verdict;
use crate::log::log_verdict;
use crate::outputs::{Judging, Outputs};
use crate::report::{ComparedWith, InputFiles, VerdictReport};

/// The first words of a partial report; the program's version and the digest of what follows end the line.
const MAGIC: &str = "plmkit partial-report";

/// Checks of the whole set, which a part cannot pass.
const OF_ALL_FILES: [&str; 3] = ["ordinals", "manifest", "expectations"];

/// What was found in some files.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PartialReport {
    pub(crate) findings: Findings,
    /// Name and content of each list of rejects.
    lists: Vec<(String, RejectsList)>,
}

/// How what was found is judged, and where the verdict goes.
pub(crate) struct Judgement<'a> {
    pub(crate) criteria: &'a Criteria,
    pub(crate) judging: &'a Judging,
    pub(crate) outputs: &'a Outputs,
    pub(crate) compared_with: ComparedWith<'a>,
    /// The dataset that gets the verdict, and what is known of its parts.
    pub(crate) dataset: Option<(&'a DatasetFolder, DatasetParts)>,
}

impl PartialReport {
    /// Reads a list of rejects, which reports call `name`.
    pub(crate) fn read_list(&mut self, path: &Path, name: String) -> Result<(), Fault> {
        let list = read_rejects(path).map_err(|error| error.of_input(FileKind::Rejects))?;
        self.add_list(name, list);
        Ok(())
    }

    /// Adds a list of rejects. One that is there already is not added again.
    fn add_list(&mut self, name: String, list: RejectsList) {
        if self.lists.iter().all(|(_, known)| *known != list) {
            self.lists.push((name, list));
        }
    }

    /// The lists of rejects.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &RejectsList> {
        self.lists.iter().map(|(_, list)| list)
    }

    /// Adds what was found in other files.
    pub(crate) fn merge(&mut self, other: Self) {
        self.findings.merge(other.findings);
        for (name, list) in other.lists {
            self.add_list(name, list);
        }
    }

    /// Writes everything to a file.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Fault> {
        let content = rmp_serde::to_vec(&self);
        let content = content.map_err(|error| Fault::new(Exit::Internal, error.to_string()))?;
        let mut file = AtomicFile::create(path)?;
        file.append(header(&content).as_bytes())?;
        file.append(&content)?;
        Ok(file.finish()?)
    }

    /// Reads what [`Self::write`] wrote.
    pub(crate) fn read(path: &Path) -> Result<Self, Fault> {
        let mut bytes = Vec::new();
        let read = open_input(path)?.read_to_end(&mut bytes);
        read.map_err(StoreError::cannot_read(path))?;
        let damaged = |what: &str| Fault::new(Exit::Data, format!("{}: {what}", path_text(path)));
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let (head, content) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        if !head.starts_with(MAGIC.as_bytes()) {
            return Err(damaged("expected a partial report of validate-embeddings"));
        }
        if head != header(content).as_bytes() {
            let found = String::from_utf8_lossy(head);
            return Err(match found.split(' ').nth(2) {
                Some(version) if version != env!("CARGO_PKG_VERSION") => damaged(&format!(
                    "expected a partial report of version {}, found {}: validate again",
                    env!("CARGO_PKG_VERSION"),
                    one_line(version, LIST_SHOWN)
                )),
                _ => damaged("damaged or altered: it does not match its digest"),
            });
        }
        rmp_serde::from_slice(content).map_err(|error| damaged(&error.to_string()))
    }

    /// The verdict on the files, which is written.
    pub(crate) fn conclude(self, judgement: Judgement<'_>) -> Result<Exit, Fault> {
        let Judgement {
            criteria,
            judging,
            outputs,
            compared_with,
            dataset,
        } = judgement;
        if let Some(path) = &outputs.partial_report {
            self.write(path)?;
        }
        let (dataset, parts) = dataset.unzip();
        let mut rejects = RejectsLists::default();
        for (name, list) in &self.lists {
            rejects.add(name, list);
        }
        let manifest = compared_with.manifest.as_ref();
        let set = WholeSet {
            manifest: manifest.map(|(_, manifest)| *manifest),
            rejects,
            parts,
        };
        let first = self.findings.embeddings().first().cloned();
        let files = InputFiles::of(&self.findings, &self.lists);
        let mut verdict = self.findings.verdict(criteria, &set);
        let skipped = judging.skip.iter().filter_map(ValueEnum::to_possible_value);
        for check in skipped {
            verdict.skip(check.get_name(), "switched off by --skip");
        }
        if outputs.partial_report.is_some() {
            for check in OF_ALL_FILES {
                verdict.skip(check, "left to the judgement of all partial reports");
            }
        }
        let report = VerdictReport::new(first.as_ref(), &files, compared_with, &verdict);
        outputs.write(&report)?;
        // Before the folder is written to: that of an archive may not be writable.
        log_verdict(&report);
        // Without shards there is less to say than what it says already.
        if let Some(dataset) = dataset.filter(|dataset| dataset.has_shards()) {
            write_verdict(dataset, &report)?;
        }
        Ok(if verdict.passed() {
            Exit::Done
        } else {
            Exit::Negative
        })
    }
}

fn header(content: &[u8]) -> String {
    let (version, digest) = (env!("CARGO_PKG_VERSION"), ByteDigest::compute(content));
    format!("{MAGIC} {version} {digest}\n")
}
