//! What `--report` writes.

use std::path::Path;

use plmkit_check::{Outcome, Verdict};
use plmkit_contract::{CONTRACT_VERSION, RowDigest};
use serde::Serialize;

use crate::args::Config;

/// The whole of the report: what was checked, then the fields of [`Verdict`].
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    /// The file contract's version.
    contract: &'static str,
    /// The program that wrote it.
    tool: &'static str,
    /// Its version.
    version: &'static str,
    /// `fail` if any check failed, else `pass`.
    outcome: Outcome,
    /// The digest of the model that the first of the embeddings names.
    model: Option<String>,
    /// The embeddings files, in the order given.
    embeddings: &'a [Input],
    /// The shards, in the order given.
    shards: &'a [Input],
    /// The rejects files, in the order given.
    rejects: Vec<String>,
    /// The manifest; null when none was given.
    manifest: Option<String>,
    /// The reference; null when none was given.
    reference: Option<String>,
    /// The smallest cosine with the reference that passes; null when there is no reference.
    min_cosine: Option<f64>,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

/// A data file that was read and verified.
#[derive(Serialize)]
pub(crate) struct Input {
    /// Its path, as given.
    file: String,
    /// Its rows.
    rows: u64,
    /// Its row digest.
    digest: String,
}

impl Input {
    pub(crate) fn new(path: &Path, digest: RowDigest) -> Self {
        Self {
            file: text(path),
            rows: digest.rows(),
            digest: digest.to_string(),
        }
    }
}

impl<'a> Report<'a> {
    pub(crate) fn new(
        config: &Config,
        model: Option<String>,
        embeddings: &'a [Input],
        shards: &'a [Input],
        verdict: &'a Verdict,
    ) -> Self {
        Self {
            contract: CONTRACT_VERSION,
            tool: "validate-embeddings",
            version: env!("CARGO_PKG_VERSION"),
            outcome: if verdict.passed() {
                Outcome::Pass
            } else {
                Outcome::Fail
            },
            model,
            embeddings,
            shards,
            rejects: config.rejects.iter().map(|path| text(path)).collect(),
            manifest: config.manifest.as_deref().map(text),
            reference: config.reference.as_deref().map(text),
            min_cosine: config.reference.is_some().then_some(config.min_cosine),
            verdict,
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
