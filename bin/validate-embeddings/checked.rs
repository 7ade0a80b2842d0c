//! What was found in some files: a verdict on them, and a file that other findings are merged with.

use std::io::Read;
use std::path::Path;

use clap::ValueEnum;
use plmkit_check::{Check, Criteria, Findings, RejectsLists};
use plmkit_cli::{Exit, Fault};
use plmkit_contract::{ByteDigest, LIST_SHOWN, ListedFile, RejectsList, one_line, path_text};
use plmkit_store::{AtomicFile, StoreError, open_input};
use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;
use crate::log::log_verdict;
use crate::outputs::{Judging, Outputs};
use crate::report::{ComparedWith, InputFiles, VerdictReport};

/// The first words of a file of findings; the program's version and the digest of what follows end the line.
const MAGIC: &str = "plmkit findings";

/// Checks of the whole set, which a part cannot pass.
const OF_ALL_FILES: [&str; 3] = ["ordinals", "manifest", "expectations"];

/// What was found in some files.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Checked {
    pub(crate) findings: Findings,
    pub(crate) files: InputFiles,
    /// Name and content of each list of rejects.
    lists: Vec<(String, RejectsList)>,
}

impl Checked {
    /// Adds a list of rejects. One that is there already is not added again.
    pub(crate) fn add_list(&mut self, name: String, list: RejectsList) {
        if self.lists.iter().any(|(_, known)| *known == list) {
            return;
        }
        let lines = list.lines.len() as u64;
        let file = ListedFile::new(&name, lines, &list.digest);
        self.files.rejects.push(file);
        self.lists.push((name, list));
    }

    /// Adds what was found in other files.
    pub(crate) fn merge(&mut self, other: Self) {
        self.findings.merge(other.findings);
        self.files.embeddings.extend(other.files.embeddings);
        self.files.shards.extend(other.files.shards);
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
            return Err(damaged("expected findings of validate-embeddings"));
        }
        if head != header(content).as_bytes() {
            let found = String::from_utf8_lossy(head);
            return Err(match found.split(' ').nth(2) {
                Some(version) if version != env!("CARGO_PKG_VERSION") => damaged(&format!(
                    "expected findings of version {}, found {}: validate again",
                    env!("CARGO_PKG_VERSION"),
                    one_line(version, LIST_SHOWN)
                )),
                _ => damaged("damaged or altered: it does not match its digest"),
            });
        }
        rmp_serde::from_slice(content).map_err(|error| damaged(&error.to_string()))
    }

    /// The verdict on the files. It is written to `outputs`, and where that is a `dataset`, to its folder.
    pub(crate) fn conclude(
        self,
        criteria: &Criteria,
        judging: &Judging,
        compared_with: ComparedWith,
        parts: Check,
        outputs: &Outputs,
        dataset: Option<&Dataset>,
    ) -> Result<Exit, Fault> {
        if let Some(path) = &outputs.findings {
            self.write(path)?;
        }
        let mut rejects = RejectsLists::default();
        for (name, list) in &self.lists {
            rejects.add(name, list);
        }
        let first = self.findings.embeddings().first().cloned();
        let manifest = compared_with.manifest.as_ref();
        let manifest = manifest.map(|(_, manifest)| *manifest);
        let mut verdict = self.findings.verdict(criteria, manifest, &rejects);
        verdict.checks.push(parts);
        let skipped = judging.skip.iter().filter_map(ValueEnum::to_possible_value);
        for check in skipped {
            verdict.skip(check.get_name(), "switched off by --skip");
        }
        if outputs.findings.is_some() {
            for check in OF_ALL_FILES {
                verdict.skip(check, "left to the merge of all findings");
            }
        }
        let min_cosine = compared_with.min_cosine;
        let report = VerdictReport::new(first.as_ref(), &self.files, compared_with, &verdict);
        outputs.write(&report)?;
        // Before the folder is written to: that of an archive may not be writable.
        log_verdict(&verdict, min_cosine.unwrap_or(1.0));
        // Without shards there is less to say than what it says already.
        if let Some(dataset) = dataset.filter(|dataset| dataset.has_shards()) {
            dataset.write(&report)?;
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
