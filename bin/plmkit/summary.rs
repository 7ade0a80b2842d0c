//! `summary.tsv`: what became of each sample, and whether that is what was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use plmkit_cli::{Fault, Stop};
use plmkit_contract::{DATASET_FILE, Manifest};
use plmkit_dataset::{SUMMARY_FILE, SampleVerdict, SummaryLine, summary_text};
use plmkit_kit::{path_text, plural};
use plmkit_store::{read_input, read_sealed, visible_in, write_report};

use crate::judged_sample::{JudgedSample, read_report};
use crate::layout::{MANIFEST, PAGE};
use crate::page::write_page;

/// The samples of a run, as they are added.
pub(crate) struct Summary {
    outdir: PathBuf,
    allow_empty: bool,
    samples: Vec<JudgedSample>,
}

impl Summary {
    pub(crate) fn new(outdir: &Path, allow_empty: bool) -> Self {
        Self {
            outdir: outdir.to_owned(),
            allow_empty,
            samples: Vec::new(),
        }
    }

    fn lines(&self) -> impl Iterator<Item = &SummaryLine> {
        self.samples.iter().map(|judged| &judged.line)
    }

    /// Adds a sample: `is_judged` says whether its verdict is of what this run was asked for.
    pub(crate) fn add(&mut self, sample: &str, is_judged: bool) -> Result<(), Fault> {
        let folder = self.outdir.join(sample);
        let mut judged = JudgedSample::new(sample.to_owned());
        if let Ok(manifest) = read_sealed::<Manifest>(&folder.join(MANIFEST)) {
            judged.line.records = manifest.records;
            let truncated = manifest.changed.get("proteins_truncated");
            judged.line.truncated = truncated.copied().unwrap_or_default();
        }
        if is_judged {
            judged.judge(read_report(&folder)?, self.allow_empty);
        }
        self.samples.push(judged);
        Ok(())
    }

    /// Writes the table, and logs the totals and what is wrong. Returns whether nothing is.
    /// The page is made anew where it is not of this table, or older than a verdict.
    pub(crate) fn finish(self, stop: &Stop) -> Result<bool, Fault> {
        let table = summary_text(self.lines());
        let (path, page) = (self.outdir.join(SUMMARY_FILE), self.outdir.join(PAGE));
        let is_same = read_input(&path).is_ok_and(|found| found == table.as_bytes());
        write_report(&path, &table)?;
        let time = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
        let samples = self.lines().map(|line| self.outdir.join(&line.name));
        let newest = samples.filter_map(|sample| time(&sample.join(DATASET_FILE)));
        if !is_same || time(&page) <= newest.max() {
            write_page(&self.outdir, &self.outdir, stop)?;
        }
        tracing::info!("{}", self.totals());
        let named = |of: &dyn Fn(&&SummaryLine) -> bool, name: &dyn Fn(&SummaryLine) -> String| {
            let names = self.lines().filter(of).map(name);
            names.collect::<Vec<_>>().join(" ")
        };
        let sample = |line: &SummaryLine| line.name.clone();
        let verdict =
            |line: &SummaryLine| path_text(&self.outdir.join(&line.name).join(DATASET_FILE));
        let others = self.others();
        if !others.is_empty() {
            let earlier: Vec<&str> = others.iter().map(|other| &*other.line.name).collect();
            let earlier = earlier.join(" ");
            tracing::info!("samples of earlier runs, left as they are: {earlier}");
        }
        let mut errors = Vec::new();
        for (what, names) in [
            (
                "not validated, see the messages above",
                named(&|line| line.verdict == SampleVerdict::NotValidated, &sample),
            ),
            (
                "the validation failed, see",
                named(&|line| line.verdict == SampleVerdict::Fail, &verdict),
            ),
        ] {
            if !names.is_empty() {
                errors.push(format!("{what}: {names}"));
            }
        }
        let empty = named(&|line| line.verdict == SampleVerdict::Empty, &sample);
        if !empty.is_empty() {
            let what =
                "no record could be embedded, see SAMPLE/shards/rejects.csv and SAMPLE/rejects";
            let is_empty = |line: &SummaryLine| line.verdict == SampleVerdict::Empty;
            if self.allow_empty || !self.lines().all(is_empty) {
                tracing::warn!("{what}: {empty}");
            } else {
                errors.push(format!("{what}; --allow-empty accepts it: {empty}"));
            }
        }
        let all: Vec<&JudgedSample> = self.samples.iter().chain(&others).collect();
        errors.extend(different_models(&all).or_else(|| different_work(&all)));
        for what in &errors {
            tracing::error!("{what}");
        }
        self.report();
        Ok(errors.is_empty())
    }

    /// Says the verdict, where the page is, and how the table is opened.
    fn report(&self) {
        let of = |verdict| self.lines().filter(|line| line.verdict == verdict).count();
        let (passed, all) = (of(SampleVerdict::Pass), self.samples.len());
        let line = match &self.samples[..] {
            [only] => {
                let report = only.report.as_ref();
                let spot_check = report.map(|report| &*report.verdict.check("spot-check").summary);
                format!("{}; {}", only.line.verdict, spot_check.unwrap_or_default())
            }
            _ => format!("{passed} of {all} samples passed"),
        };
        tracing::info!("verdict: {}", line.trim_end_matches("; "));
        tracing::info!("page: {}", path_text(&self.outdir.join(PAGE)));
        if passed == all {
            let out = path_text(&self.outdir);
            let sample = self.lines().next().filter(|_| all == 1);
            let sample = sample.map_or("*", |line| &line.name);
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
        let sum = |of: fn(&SummaryLine) -> u64| self.lines().map(of).sum::<u64>();
        let mut elsewhere = String::new();
        if let aliases @ 1.. = sum(|line| line.aliases) {
            let _ = write!(elsewhere, ", {}", plural(aliases, "alias"));
        }
        if let known @ 1.. = sum(|line| line.known) {
            let _ = write!(elsewhere, ", {known} known");
        }
        let is_done = |line: &&SummaryLine| line.verdict != SampleVerdict::NotValidated;
        let of_all = match (self.lines().filter(is_done).count(), self.samples.len()) {
            (done, all) if done < all => format!("{done} of "),
            _ => String::new(),
        };
        format!(
            "{of_all}{}: {}, {} rejected{elsewhere}, {} truncated, in {}",
            plural(self.samples.len() as u64, "sample"),
            plural(sum(|line| line.rows), "row"),
            sum(|line| line.rejected),
            sum(|line| line.truncated),
            path_text(&self.outdir)
        )
    }

    /// Other samples in the folder of results.
    fn others(&self) -> Vec<JudgedSample> {
        let of_this_run: BTreeSet<&str> = self.lines().map(|line| &*line.name).collect();
        let folders = visible_in(&self.outdir).unwrap_or_default();
        let others = folders.into_iter().filter_map(|folder| {
            let sample = path_text(folder.file_name()?.as_ref());
            let report = read_report(&folder).ok();
            let combined = report
                .as_ref()
                .and_then(|report| report.listed.combined.as_ref());
            let is_sample = report.is_some() || folder.join(MANIFEST).exists();
            if combined.is_some() || !is_sample || of_this_run.contains(&*sample) {
                return None;
            }
            let mut other = JudgedSample::new(sample);
            if let Some(report) = report {
                other.judge(report, true);
            }
            Some(other)
        });
        others.collect()
    }
}

/// Names the models, with a sample of each, if there are several.
fn different_models(samples: &[&JudgedSample]) -> Option<String> {
    let samples = samples.iter().rev();
    let models = samples.map(|judged| (&*judged.line.model_digest, &judged.line.name));
    let models: BTreeMap<_, _> = models.filter(|(digest, _)| !digest.is_empty()).collect();
    let names = models
        .iter()
        .map(|(digest, sample)| format!("{digest} ({sample})"));
    let names = names.collect::<Vec<_>>().join(" ");
    (models.len() > 1).then(|| {
        format!("embedded by different models, one sample of each is named: remove those of the wrong one: {names}")
    })
}

/// Names the first sample whose vectors were made with other options than those of the first.
fn different_work(samples: &[&JudgedSample]) -> Option<String> {
    let mut samples = samples
        .iter()
        .filter_map(|judged| Some((&judged.line.name, judged.work()?)));
    let (first, expected) = samples.next()?;
    samples.find_map(|(name, work)| {
        let what = expected.difference(&work)?;
        Some(format!(
            "embedded in different ways, remove the wrong sample: {name}: {what}, as in {first}"
        ))
    })
}
