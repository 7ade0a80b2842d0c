//! The names in a folder of results.

use std::path::{Path, PathBuf};

use plmkit_contract::DATASET_FILE;
use plmkit_dataset::SUMMARY_FILE;
use plmkit_sequence::is_shard_name;

/// The manifest of the shards, in the folder of a sample.
pub(crate) const MANIFEST: &str = "shards/manifest.json";

/// A copy of the manifest of which embeddings were made, while the sample is cut again.
pub(crate) const MANIFEST_BEFORE: &str = ".manifest.before";

/// The measured size of a batch.
pub(crate) const BATCH_SIZE_FILE: &str = "batch-size.json";

/// The versions of the programs and the revision of the model.
pub(crate) const VERSIONS_FILE: &str = "versions.yml";

/// The page of the run.
pub(crate) const PAGE: &str = "index.html";

/// The folder of what people want to know about a run.
const INFO: &str = "pipeline_info";

/// Names in a folder of results that no sample can have.
pub(crate) const TAKEN: [&str; 7] = [
    PAGE,
    "multiqc",
    VERSIONS_FILE,
    BATCH_SIZE_FILE,
    DATASET_FILE,
    INFO,
    SUMMARY_FILE,
];

/// Folders of a sample with files of single shards, and the extensions of these files.
pub(crate) const OF_SHARDS: [(&str, &[&str]); 4] = [
    ("batches", &["arrow"]),
    ("embeddings", &["parquet"]),
    ("rejects", &["csv"]),
    ("logs", &["csv", "jsonl"]),
];

/// The parameters of the last run.
pub(crate) fn params_file(out: &Path) -> PathBuf {
    out.join(INFO).join("params.json")
}

/// The digests of models that runs have read.
pub(crate) fn digests_file(out: &Path) -> PathBuf {
    out.join(INFO).join("model-digests.json")
}

/// What the verdict on a sample is about.
pub(crate) fn verdict_file(out: &Path, sample: &str) -> PathBuf {
    out.join(INFO).join(format!("verdicts/{sample}.json"))
}

/// Whether a file has the name of a shard and another extension: not one that a user left beside them.
pub(crate) fn is_shard_file(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split('.').next().unwrap_or_default();
    is_shard_name(&format!("{name}.parquet"))
}
