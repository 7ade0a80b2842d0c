//! What `--report` writes, and what `dataset.json` is.

use std::borrow::Cow;
use std::collections::BTreeMap;

use plmkit_check::{CheckOutcome, EmbeddedFile, Findings, Verdict};
use plmkit_contract::{
    COMBINED, CONTRACT_VERSION, Column as Computed, EmbeddingLayout, InputSummary, KnownDataset,
    ListedFile, Manifest, PACKING, RejectsList, SAMPLE, SOURCE,
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
    embeddings: &'a [ListedFile],
    /// The shards, in the order given.
    shards: &'a [ListedFile],
    /// The lists of rejects, in the order given; `rows` are their lines.
    rejects: &'a [ListedFile],
    /// The manifest; null when none was given.
    manifest: Option<String>,
    /// The reference, or the first of its files; null when none was given.
    reference: Option<Cow<'a, str>>,
    /// All files of the reference, in the order given.
    references: Vec<Cow<'a, str>>,
    /// The smallest cosine with the reference that passes; null when there is no reference.
    pub(crate) min_cosine: Option<f64>,
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

/// The files that were read, in the order given.
pub(crate) struct InputFiles {
    embeddings: Vec<ListedFile>,
    shards: Vec<ListedFile>,
    rejects: Vec<ListedFile>,
}

impl InputFiles {
    pub(crate) fn of(findings: &Findings, lists: &[(String, RejectsList)]) -> Self {
        let embeddings = findings.embeddings().iter();
        let shards = findings.shards().iter();
        let rejects = lists.iter().map(|(name, list)| {
            let lines = list.lines.len() as u64;
            ListedFile::new(name, lines, &list.digest)
        });
        Self {
            embeddings: embeddings
                .map(|file| ListedFile::from_rows(&file.name, file.rows))
                .collect(),
            shards: shards
                .map(|file| ListedFile::from_rows(&file.name, file.rows))
                .collect(),
            rejects: rejects.collect(),
        }
    }
}

/// What the files are compared with: the name of each, if it was given.
#[derive(Default)]
pub(crate) struct ComparedWith<'a> {
    pub(crate) manifest: Option<(String, &'a Manifest)>,
    pub(crate) references: Vec<Cow<'a, str>>,
    /// The smallest cosine with the reference that passes.
    pub(crate) min_cosine: Option<f64>,
}

impl<'a> VerdictReport<'a> {
    /// `first` is the first of the embeddings.
    pub(crate) fn new(
        first: Option<&'a EmbeddedFile>,
        inputs: &'a InputFiles,
        compared_with: ComparedWith<'a>,
        verdict: &'a Verdict,
    ) -> Self {
        let manifest = compared_with
            .manifest
            .as_ref()
            .map(|(_, manifest)| *manifest);
        let work = first.map(|file| &file.provenance);
        let model = work.and_then(|work| work.model.as_ref());
        let option = |name| work.and_then(|work| work.text_option(name));
        // These have entries of their own, or are about files and not about vectors.
        let elsewhere = ["columns", "model", COMBINED, PACKING, SAMPLE, SOURCE];
        let options = work.into_iter().flat_map(|work| &work.options);
        let options = options.filter(|(name, _)| !elsewhere.contains(&name.as_str()));
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
            embeddings: &inputs.embeddings,
            shards: &inputs.shards,
            rejects: &inputs.rejects,
            manifest: compared_with.manifest.map(|(name, _)| name),
            reference: compared_with.references.first().cloned(),
            references: compared_with.references,
            min_cosine: compared_with.min_cosine,
            verdict,
        }
    }
}

impl VerdictReport<'_> {
    /// What the embeddings are and where they come from: name and value.
    pub(crate) fn origin(&self) -> Vec<(&str, String)> {
        let text = |value: Option<&str>| value.unwrap_or("unknown").to_owned();
        let columns = self.columns.iter().map(|column| {
            let Column {
                name,
                of,
                dimension,
                r#type: dtype,
            } = column;
            format!("{name} ({dimension} values of {dtype} for each {of})")
        });
        let mut origin = vec![
            ("sample", text(self.sample)),
            ("model", text(self.model)),
            ("revision of the model", text(self.model_revision)),
            ("digest of the model", text(self.model_digest)),
            ("embedded by", text(self.embedded_by.as_deref())),
            ("columns", columns.collect::<Vec<_>>().join(", ")),
        ];
        let options = self.options.iter();
        origin.extend(options.map(|(name, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            (*name, text)
        }));
        origin.push(("embeddings files", self.embeddings.len().to_string()));
        origin.push(("shards", self.shards.len().to_string()));
        let given = |name: Option<&str>| name.unwrap_or("none").to_owned();
        origin.push(("manifest", given(self.manifest.as_deref())));
        origin.push(("reference", given(self.reference.as_deref())));
        if self.references.len() > 1 {
            origin.push(("reference files", self.references.len().to_string()));
        }
        origin.push(("validated by", format!("{} {}", self.tool, self.version)));
        origin
    }
}

fn columns(layout: &EmbeddingLayout) -> Vec<Column> {
    let columns = layout.columns.iter().map(|&column| {
        let (of, dimension) = match column {
            Computed::Pooled { .. } => ("protein", layout.dim),
            Computed::Residues(_) => ("residue", layout.dim),
            Computed::Logits => ("residue", layout.logits),
            Computed::Contacts => ("pair of residues", 1),
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
