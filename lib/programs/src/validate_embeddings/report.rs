//! What `--report` writes, and what `dataset.json` is.

use plmkit_check::{CheckOutcome, Criteria, Findings, ShardFile, Verdict};
use plmkit_contract::{
    AMINO_ACIDS, COMBINED, CONTRACT_VERSION, Column, EmbeddingLayout, ListedColumn, ListedDataset,
    ListedFile, Manifest, PACKING, SAMPLE, SOURCE, Sealed, StoreDtype,
};
use plmkit_kit::plural;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

/// A verdict, and what it is about.
pub struct Report {
    /// What the embeddings are, with the fields of the verdict. What is not known is null.
    pub listed: ListedDataset,
    pub verdict: Verdict,
}

impl Report {
    /// What `dataset.json` says, read again; `None` if it is that of another program.
    pub fn read(listed: ListedDataset) -> Option<Self> {
        let verdict = Value::Object(listed.others.clone());
        let verdict = serde_json::from_value(verdict).ok()?;
        Some(Self { listed, verdict })
    }

    /// On what was found by these criteria.
    pub(crate) fn new(findings: &Findings, criteria: &Criteria, verdict: Verdict) -> Self {
        let manifest = criteria.manifest.as_ref().map(|(_, manifest)| manifest);
        let known = manifest.and_then(|manifest| manifest.known.as_ref());
        let reference = criteria.reference.as_ref();
        // What all embeddings have is that of the first.
        let first = findings.embeddings.first();
        let work = first.map(|file| &file.provenance);
        let model = work.and_then(|work| work.model.as_ref());
        let model = model.filter(|_| findings.two_models().is_none());
        let option = |name| Some(work?.text_option(name)?.to_owned());
        let named = |manifest: &Manifest| {
            let sample = manifest.options.get(SAMPLE)?.as_str();
            sample.map(str::to_owned)
        };
        // These have entries of their own, or are about files and not about vectors.
        let elsewhere = ["columns", "model", COMBINED, PACKING, SAMPLE, SOURCE];
        let mut options = work.map(|work| work.options.clone()).unwrap_or_default();
        options.retain(|name, _| !elsewhere.contains(&name.as_str()));
        let embeddings = findings.embeddings.iter();
        let rejects = criteria.rejects.iter();
        let shards = findings.shards.iter();
        let shards = shards.map(|ShardFile { name, rows, .. }| ListedFile::from_rows(name, *rows));
        let mut others = object(json!(verdict));
        others.extend(object(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "model": model.map(|model| &model.name),
            "model_revision": model.and_then(|model| model.revision.as_ref()),
            "embedded_by": work.map(|work| format!("{} {}", work.tool, work.version)),
            "inputs": manifest.map(|manifest| &manifest.inputs),
            "known_datasets": known.map_or(&[][..], |known| &known.datasets[..]),
            "shards": shards.collect::<Vec<_>>(),
            "manifest": criteria.manifest.as_ref().map(|(name, _)| name),
            "reference": reference.map(|(reference, _)| &reference.name),
            "min_cosine": reference.map(|(_, min_cosine)| min_cosine),
        })));
        let outcome = if verdict.passed() {
            CheckOutcome::Pass
        } else {
            CheckOutcome::Fail
        };
        let listed = ListedDataset {
            contract: CONTRACT_VERSION.to_owned(),
            tool: ListedDataset::TOOL.to_owned(),
            outcome: outcome.to_string(),
            sample: manifest.map_or_else(|| option(SAMPLE), named),
            model_digest: option("model"),
            options,
            columns: first.map(|file| columns(&file.layout)).unwrap_or_default(),
            shard_options: manifest.map(|manifest| manifest.options.clone()),
            embeddings: embeddings
                .map(|file| ListedFile::from_rows(&file.name, file.rows))
                .collect(),
            rejects: rejects
                .map(|(name, list)| ListedFile::new(name, list.lines.len() as u64, &list.digest))
                .collect(),
            combined: None,
            seal: IgnoredAny,
            others,
        };
        Self { listed, verdict }
    }

    /// The checks that failed, with what is wrong; empty where none did.
    pub(crate) fn failed(&self) -> String {
        let failed = self.verdict.of(CheckOutcome::Fail);
        let failed = failed.map(|check| format!("{} ({})", check.definition.name, check.summary));
        failed.collect::<Vec<_>>().join(", ")
    }

    /// How many checks passed.
    pub(crate) fn passed(&self) -> String {
        let passed = self.verdict.of(CheckOutcome::Pass);
        format!("{} passed", plural(passed.count(), "check"))
    }

    /// Why nothing was computed again, after a semicolon; empty where something was.
    pub(crate) fn not_recomputed(&self) -> String {
        let spot_check = self.verdict.check("spot-check");
        match spot_check.outcome {
            CheckOutcome::Skipped => format!("; {}", spot_check.summary),
            _ => String::new(),
        }
    }

    /// The text of an entry that has one.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.listed.others.get(name)?.as_str()
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(entries) => entries,
        _ => Map::new(),
    }
}

/// The vector columns, each with what has a vector of its own, the values in one, and their type.
fn columns(layout: &EmbeddingLayout) -> Vec<ListedColumn> {
    let columns = layout.columns.iter().map(|&column| {
        let (of, dimension) = match column {
            Column::Pooled { .. } => ("protein", layout.dim),
            Column::Residues(_) => ("residue", layout.dim),
            Column::Logits => ("residue", layout.logits),
            Column::Contacts => ("pair of residues", 1),
            Column::LogProbs => ("residue", AMINO_ACIDS.len()),
            Column::LogLikelihood => ("protein", 1),
        };
        let dtype = match column {
            Column::LogLikelihood => StoreDtype::F32,
            _ => layout.dtype,
        };
        let dtype = dtype.to_string();
        ListedColumn {
            name: column.to_string(),
            others: object(json!({ "of": of, "dimension": dimension, "type": dtype })),
        }
    });
    columns.collect()
}
