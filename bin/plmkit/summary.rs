//! `summary.tsv`: what became of each sample, and whether that is what was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use plmkit_cli::{Fault, Stop};
use plmkit_contract::{DATASET_FILE, EmbeddingWork, ListedDataset, Manifest, path_text, plural};
use plmkit_dataset::{SUMMARY_FILE, SUMMARY_HEADER};
use plmkit_store::{read_input, read_sealed, visible_in, write_report};
use serde_json::Value;

use crate::layout::{MANIFEST, PAGE};
use crate::page::write_page;

/// The samples of a run, as they are added.
pub(crate) struct Summary {
    outdir: PathBuf,
    allow_empty: bool,
    lines: Vec<SummaryLine>,
}

/// What became of a sample.
#[derive(Clone, Debug, Default)]
struct SummaryLine {
    sample: String,
    records: u64,
    rows: u64,
    rejected: u64,
    aliases: u64,
    known: u64,
    truncated: u64,
    verdict: Verdict,
    /// What was computed again.
    spot_check: String,
    model: String,
    model_digest: String,
    /// What made its vectors, if it has some.
    work: Option<EmbeddingWork>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
enum Verdict {
    Pass,
    Fail,
    /// Every record was rejected.
    Empty,
    #[default]
    #[strum(to_string = "not validated")]
    NotValidated,
}

impl Summary {
    pub(crate) fn new(outdir: &Path, allow_empty: bool) -> Self {
        Self {
            outdir: outdir.to_owned(),
            allow_empty,
            lines: Vec::new(),
        }
    }

    /// Adds a sample: `is_judged` says whether its verdict is of what this run was asked for.
    pub(crate) fn add(&mut self, sample: &str, is_judged: bool) -> Result<(), Fault> {
        let folder = self.outdir.join(sample);
        let mut line = SummaryLine {
            sample: sample.to_owned(),
            ..SummaryLine::default()
        };
        if let Ok(manifest) = read_sealed::<Manifest>(&folder.join(MANIFEST)) {
            line.records = manifest.records;
            let truncated = manifest.changed.get("proteins_truncated");
            line.truncated = truncated.copied().unwrap_or_default();
        }
        if is_judged {
            line.read_verdict(&read_sealed(&folder.join(DATASET_FILE))?, self.allow_empty);
        }
        self.lines.push(line);
        Ok(())
    }

    /// Writes the table, and logs the totals and what is wrong. Returns whether nothing is.
    /// The page is made anew where it is not of this table, or older than a verdict.
    pub(crate) fn finish(self, stop: &Stop) -> Result<bool, Fault> {
        let mut table = SUMMARY_HEADER.to_owned();
        for line in &self.lines {
            line.write(&mut table);
        }
        let (path, page) = (self.outdir.join(SUMMARY_FILE), self.outdir.join(PAGE));
        let is_same = read_input(&path).is_ok_and(|found| found == table.as_bytes());
        write_report(&path, &table)?;
        let time = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
        let samples = self.lines.iter().map(|line| self.outdir.join(&line.sample));
        let newest = samples.filter_map(|sample| time(&sample.join(DATASET_FILE)));
        if !is_same || time(&page) <= newest.max() {
            write_page(&self.outdir, &self.outdir, stop)?;
        }
        tracing::info!("{}", self.totals());
        let named = |of: &dyn Fn(&&SummaryLine) -> bool, name: &dyn Fn(&SummaryLine) -> String| {
            let names = self.lines.iter().filter(of).map(name);
            names.collect::<Vec<_>>().join(" ")
        };
        let sample = |line: &SummaryLine| line.sample.clone();
        let verdict =
            |line: &SummaryLine| path_text(&self.outdir.join(&line.sample).join(DATASET_FILE));
        let others = self.others();
        if !others.is_empty() {
            let earlier: Vec<&str> = others.iter().map(|line| &*line.sample).collect();
            let earlier = earlier.join(" ");
            tracing::info!("samples of earlier runs, left as they are: {earlier}");
        }
        let mut errors = Vec::new();
        for (what, names) in [
            (
                "not validated, see the messages above",
                named(&|line| line.verdict == Verdict::NotValidated, &sample),
            ),
            (
                "the validation failed, see",
                named(&|line| line.verdict == Verdict::Fail, &verdict),
            ),
        ] {
            if !names.is_empty() {
                errors.push(format!("{what}: {names}"));
            }
        }
        let empty = named(&|line| line.verdict == Verdict::Empty, &sample);
        if !empty.is_empty() {
            let what =
                "no record could be embedded, see SAMPLE/shards/rejects.csv and SAMPLE/rejects";
            let is_empty = |line: &SummaryLine| line.verdict == Verdict::Empty;
            if self.allow_empty || !self.lines.iter().all(is_empty) {
                tracing::warn!("{what}: {empty}");
            } else {
                errors.push(format!("{what}; --allow-empty accepts it: {empty}"));
            }
        }
        let all: Vec<&SummaryLine> = self.lines.iter().chain(&others).collect();
        errors.extend(different_models(&all).or_else(|| different_work(&all)));
        for what in &errors {
            tracing::error!("{what}");
        }
        self.report();
        Ok(errors.is_empty())
    }

    /// Says the verdict, where the page is, and how the table is opened.
    fn report(&self) {
        let of = |verdict| {
            let lines = self.lines.iter();
            lines.filter(|line| line.verdict == verdict).count()
        };
        let (passed, all) = (of(Verdict::Pass), self.lines.len());
        let line = match &self.lines[..] {
            [only] => format!("{}; {}", only.verdict, only.spot_check),
            _ => format!("{passed} of {all} samples passed"),
        };
        tracing::info!("verdict: {}", line.trim_end_matches("; "));
        tracing::info!("page: {}", path_text(&self.outdir.join(PAGE)));
        if passed == all {
            let out = path_text(&self.outdir);
            let sample = self.lines.first().filter(|_| all == 1);
            let sample = sample.map_or("*", |line| &line.sample);
            let files = format!("{}/{sample}/embeddings/*.parquet", out.replace('\'', "''"));
            // To DuckDB, such a folder is a pattern.
            let duckdb = if out.contains(['*', '?', '[', '\\']) {
                String::new()
            } else {
                format!(", or FROM '{files}' in DuckDB")
            };
            tracing::info!("table: plmkit.read({out:?}) in Python{duckdb}");
        }
    }

    fn totals(&self) -> String {
        let sum = |of: fn(&SummaryLine) -> u64| self.lines.iter().map(of).sum::<u64>();
        let mut elsewhere = String::new();
        if let aliases @ 1.. = sum(|line| line.aliases) {
            let _ = write!(elsewhere, ", {}", plural(aliases, "alias"));
        }
        if let known @ 1.. = sum(|line| line.known) {
            let _ = write!(elsewhere, ", {known} known");
        }
        let done = self.lines.iter();
        let done = done.filter(|line| line.verdict != Verdict::NotValidated);
        let of_all = match (done.count(), self.lines.len()) {
            (done, all) if done < all => format!("{done} of "),
            _ => String::new(),
        };
        format!(
            "{of_all}{}: {}, {} rejected{elsewhere}, {} truncated, in {}",
            plural(self.lines.len() as u64, "sample"),
            plural(sum(|line| line.rows), "row"),
            sum(|line| line.rejected),
            sum(|line| line.truncated),
            path_text(&self.outdir)
        )
    }

    /// Other samples in the folder of results.
    fn others(&self) -> Vec<SummaryLine> {
        let known: BTreeSet<&str> = self.lines.iter().map(|line| &*line.sample).collect();
        let folders = visible_in(&self.outdir).unwrap_or_default();
        let others = folders.into_iter().filter_map(|folder| {
            let sample = path_text(folder.file_name()?.as_ref());
            let listed = read_sealed::<ListedDataset>(&folder.join(DATASET_FILE)).ok();
            let is_combined = listed
                .as_ref()
                .is_some_and(|listed| listed.combined.is_some());
            let is_sample = listed.is_some() || folder.join(MANIFEST).exists();
            if is_combined || !is_sample || known.contains(&*sample) {
                return None;
            }
            let mut line = SummaryLine {
                sample,
                ..SummaryLine::default()
            };
            if let Some(listed) = listed {
                line.read_verdict(&listed, true);
            }
            Some(line)
        });
        others.collect()
    }
}

/// Names the models, with a sample of each, if there are several.
fn different_models(samples: &[&SummaryLine]) -> Option<String> {
    let samples = samples.iter().rev().filter(|line| line.work.is_some());
    let models = samples.map(|line| (&line.model_digest, &line.sample));
    let models: BTreeMap<_, _> = models.collect();
    let names = models
        .iter()
        .map(|(digest, sample)| format!("{digest} ({sample})"));
    let names = names.collect::<Vec<_>>().join(" ");
    (models.len() > 1).then(|| {
        format!("embedded by different models, one sample of each is named: remove those of the wrong one: {names}")
    })
}

/// Names the first sample whose vectors were made with other options than those of the first.
fn different_work(samples: &[&SummaryLine]) -> Option<String> {
    let mut samples = samples
        .iter()
        .filter_map(|line| Some((line, line.work.as_ref()?)));
    let (first, expected) = samples.next()?;
    samples.find_map(|(line, work)| {
        let what = expected.difference(work)?;
        let (one, other) = (&line.sample, &first.sample);
        Some(format!(
            "embedded in different ways, remove the wrong sample: {one}: {what}, as in {other}"
        ))
    })
}

impl SummaryLine {
    fn read_verdict(&mut self, dataset: &ListedDataset, allow_empty: bool) {
        let of = |name: &str| dataset.others.get(name);
        let number = |name| of(name).and_then(Value::as_u64).unwrap_or_default();
        let text = |name| of(name).and_then(Value::as_str).unwrap_or_default();
        let reasons = of("rejected").and_then(Value::as_object);
        let reasons = reasons.into_iter().flat_map(|reasons| reasons.values());
        self.rows = number("rows");
        self.aliases = number("aliases");
        self.known = number("known");
        self.rejected = reasons.filter_map(Value::as_u64).sum();
        text("model").clone_into(&mut self.model);
        let checks = of("checks").and_then(Value::as_array).into_iter().flatten();
        let mut checks = checks.filter(|check| check["name"] == "spot-check");
        let summary = checks.find_map(|check| check["summary"].as_str());
        summary.unwrap_or_default().clone_into(&mut self.spot_check);
        self.model_digest = dataset.model_digest.clone().unwrap_or_default();
        self.work = dataset.model_digest.as_ref().map(|_| dataset.work());
        self.verdict = if dataset.passed() {
            Verdict::Pass
        } else {
            Verdict::Fail
        };
        let is_empty = self.rows == 0 && self.known == 0;
        if is_empty && (dataset.passed() || !allow_empty) {
            self.verdict = Verdict::Empty;
        }
        if self.rows == 0 {
            self.truncated = 0;
        }
    }

    fn write(&self, table: &mut String) {
        let Self {
            sample,
            records,
            rows,
            rejected,
            aliases,
            known,
            truncated,
            verdict,
            spot_check: _,
            model,
            model_digest,
            work: _,
        } = self;
        let _ = writeln!(
            table,
            "{sample}\t{records}\t{rows}\t{rejected}\t{aliases}\t{known}\t{truncated}\t{verdict}\t{model}\t{model_digest}"
        );
    }
}
