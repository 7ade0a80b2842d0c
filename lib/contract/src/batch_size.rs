//! `batch-size.json`: the largest batch in tokens, as `gpu-embed --probe` measured it on a device.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{CONTRACT_VERSION, Provenance, Sealed};

/// Default of the most tokens in a batch. Larger batches are not faster on a CPU.
pub const DEFAULT_BATCH_TOKENS: NonZeroU32 = NonZeroU32::new(16384).unwrap();

/// The content of `batch-size.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSize {
    /// The file contract's version.
    pub contract: String,
    /// The program that wrote it.
    pub tool: String,
    /// Its version.
    pub version: String,
    /// The conditions of the measurement: model, outputs, precision, device and its memory.
    pub options: BTreeMap<String, Value>,
    /// The most tokens that were computed at once; null on a CPU, which is not measured.
    pub largest_tokens: Option<u32>,
    /// Most tokens in a batch.
    pub max_batch_tokens: NonZeroU32,
    /// Number of computations tried.
    pub tries: u64,
    /// Number of computations that ran out of memory.
    pub out_of_memory: u64,
}

impl Sealed for BatchSize {
    const WHAT: &str = "batch size of gpu-embed --probe";
    const TOOL: &str = "gpu-embed";
}

impl BatchSize {
    /// Returns the default batch size for a CPU, which is not measured.
    pub fn for_cpu() -> Self {
        Self {
            contract: CONTRACT_VERSION.to_owned(),
            tool: Self::TOOL.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            options: [("device".to_owned(), Value::from("cpu"))].into(),
            largest_tokens: None,
            max_batch_tokens: DEFAULT_BATCH_TOKENS,
            tries: 0,
            out_of_memory: 0,
        }
    }

    /// Describes the first difference in the conditions of the two measurements. The program's version counts: it may change
    /// the memory of a batch.
    ///
    /// ```
    /// use plmkit_contract::BatchSize;
    /// let old = BatchSize::for_cpu();
    /// let mut new = old.clone();
    /// new.options.insert("device".into(), "NVIDIA H100".into());
    /// assert_eq!(old.difference(&new).unwrap(), "device was \"cpu\" and is now \"NVIDIA H100\"");
    /// new = old.clone();
    /// new.version = "9.0.0".into();
    /// assert!(old.difference(&new).unwrap().starts_with("version was "));
    /// assert_eq!(old.difference(&old), None);
    /// ```
    pub fn difference(&self, other: &Self) -> Option<String> {
        let [old, new] = [self, other].map(|size| {
            let mut work = Provenance::new(&size.tool, Vec::new());
            work.options.clone_from(&size.options);
            work.with("version", size.version.as_str())
        });
        old.difference(&new)
    }
}
