//! What `--report` writes, and what `dataset.json` is.

use std::collections::BTreeMap;

use plmkit_check::{CheckOutcome, Criteria, Findings, Verdict};
use plmkit_contract::{
    AMINO_ACIDS, COMBINED, CONTRACT_VERSION, Column as Computed, EmbeddingLayout, InputSummary,
    KnownDataset, ListedFile, PACKING, SAMPLE, SOURCE, plural,
};
use serde::Serialize;
use serde_json::Value;

/// The whole of the report: what the embeddings are, what was checked, then the fields of [`Verdict`].
#[derive(Serialize)]
pub(crate) struct VerdictReport<'a> {
    /// The file contract's version.
    contract: &'static str,
    /// The program that wrote it.
    tool: &'static str,
    /// Its version.
    version: &'static str,
    /// `fail` if any check failed, else `pass`.
    pub(crate) outcome: CheckOutcome,
    /// The sample, where it has a name: by the manifest, or by the first of the embeddings, as is what follows.
    pub(crate) sample: Option<&'a str>,
    /// What the model is called.
    pub(crate) model: Option<&'a str>,
    /// Its commit of the Hugging Face Hub, where it is known.
    model_revision: Option<&'a str>,
    /// Its digest.
    model_digest: Option<&'a str>,
    /// The version of gpu-embed.
    embedded_by: Option<String>,
    /// What the vectors depend on beside the model.
    options: BTreeMap<&'a str, &'a Value>,
    /// The vector columns.
    columns: Vec<Column>,
    /// The FASTA inputs; null when no manifest was given.
    inputs: Option<&'a [InputSummary]>,
    /// The earlier datasets whose sequences the shards lack; empty when there are none or no manifest was given.
    known_datasets: &'a [KnownDataset],
    /// How the shards were made from them; null when no manifest was given.
    shard_options: Option<&'a BTreeMap<String, Value>>,
    /// The embeddings files, in the order given.
    embeddings: Vec<ListedFile>,
    /// The shards, in the order given.
    shards: Vec<ListedFile>,
    /// The lists of rejects, in the order given; `rows` are their lines.
    rejects: Vec<ListedFile>,
    /// The manifest; null when none was given.
    manifest: Option<&'a str>,
    /// The reference; null when there is none.
    reference: Option<&'a str>,
    /// The smallest cosine with the reference that passes; null when there is no reference.
    min_cosine: Option<f64>,
    #[serde(flatten)]
    pub(crate) verdict: &'a Verdict,
}

/// A vector column.
#[derive(Serialize)]
struct Column {
    name: String,
    /// What has a vector of its own.
    of: &'static str,
    /// Values in a vector.
    dimension: usize,
    r#type: String,
}

impl<'a> VerdictReport<'a> {
    /// On what was found by these criteria.
    pub(crate) fn new(
        findings: &'a Findings,
        criteria: &'a Criteria,
        verdict: &'a Verdict,
    ) -> Self {
        let manifest = criteria.manifest.as_ref().map(|(_, manifest)| manifest);
        let first = findings.embeddings().first();
        let work = first.map(|file| &file.provenance);
        let model = work.and_then(|work| work.model.as_ref());
        let option = |name| work.and_then(|work| work.text_option(name));
        // These have entries of their own, or are about files and not about vectors.
        let elsewhere = ["columns", "model", COMBINED, PACKING, SAMPLE, SOURCE];
        let options = work.into_iter().flat_map(|work| &work.options);
        let options = options.filter(|(name, _)| !elsewhere.contains(&name.as_str()));
        let embeddings = findings.embeddings().iter();
        let shards = findings.shards().iter();
        let rejects = findings.rejects().iter().map(|(name, list)| {
            let lines = list.lines.len() as u64;
            ListedFile::new(name, lines, &list.digest)
        });
        let reference = criteria.reference.as_ref();
        Self {
            contract: CONTRACT_VERSION,
            tool: "validate-embeddings",
            version: env!("CARGO_PKG_VERSION"),
            outcome: if verdict.passed() {
                CheckOutcome::Pass
            } else {
                CheckOutcome::Fail
            },
            sample: match manifest {
                Some(manifest) => manifest.options.get(SAMPLE).and_then(Value::as_str),
                None => option(SAMPLE),
            },
            model: model.map(|model| model.name.as_str()),
            model_revision: model.and_then(|model| model.revision.as_deref()),
            model_digest: option("model"),
            embedded_by: work.map(|work| format!("{} {}", work.tool, work.version)),
            options: options
                .map(|(name, value)| (name.as_str(), value))
                .collect(),
            columns: first.map(|file| columns(&file.layout)).unwrap_or_default(),
            inputs: manifest.map(|manifest| manifest.inputs.as_slice()),
            known_datasets: manifest
                .and_then(|manifest| manifest.known.as_ref())
                .map_or(&[], |known| &known.datasets),
            shard_options: manifest.map(|manifest| &manifest.options),
            embeddings: embeddings
                .map(|file| ListedFile::from_rows(&file.name, file.rows))
                .collect(),
            shards: shards
                .map(|file| ListedFile::from_rows(&file.name, file.rows))
                .collect(),
            rejects: rejects.collect(),
            manifest: criteria.manifest.as_ref().map(|(name, _)| name.as_str()),
            reference: reference.map(|(reference, _)| &*reference.name),
            min_cosine: reference.map(|(_, min_cosine)| *min_cosine),
            verdict,
        }
    }
}

impl VerdictReport<'_> {
    /// The checks that failed, with what is wrong; empty where none did.
    pub(crate) fn failed(&self) -> String {
        let failed = self.verdict.of(CheckOutcome::Fail);
        let failed = failed.map(|check| format!("{} ({})", check.name, check.summary));
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

    /// What the embeddings are and where they come from: name and value.
    pub(crate) fn origin(&self) -> Vec<(&str, String)> {
        let columns = self.columns.iter().map(|column| {
            let Column {
                name,
                of,
                dimension,
                r#type: dtype,
            } = column;
            format!("{name} ({dimension} values of {dtype} for each {of})")
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        let known = [
            ("sample", self.sample),
            ("model", self.model),
            ("revision of the model", self.model_revision),
            ("digest of the model", self.model_digest),
            ("embedded by", self.embedded_by.as_deref()),
            ("columns", Some(&columns)),
            ("reference", self.reference),
        ];
        let known = known.into_iter();
        known
            .filter_map(|(name, value)| Some((name, value?.to_owned())))
            .collect()
    }
}

fn columns(layout: &EmbeddingLayout) -> Vec<Column> {
    let columns = layout.columns.iter().map(|&column| {
        let (of, dimension) = match column {
            Computed::Pooled { .. } => ("protein", layout.dim),
            Computed::Residues(_) => ("residue", layout.dim),
            Computed::Logits => ("residue", layout.logits),
            Computed::Contacts => ("pair of residues", 1),
            Computed::LogProbs => ("residue", AMINO_ACIDS.len()),
            Computed::LogLikelihood => ("protein", 1),
        };
        Column {
            name: column.to_string(),
            of,
            dimension,
            r#type: layout.dtype.to_string(),
        }
    });
    columns.collect()
}
