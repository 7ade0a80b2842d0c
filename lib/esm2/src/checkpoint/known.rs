//! What is known of a checkpoint that was hashed before.

use plmkit_contract::is_sealed;
use serde::{Deserialize, Serialize};

use super::weight_file::Stamp;
use crate::model_info::CheckpointInfo;

/// A checkpoint that was hashed. The program's version tells how.
#[derive(Serialize, Deserialize)]
pub(super) struct Known {
    version: String,
    /// Of its weight files and `config.json`.
    stamps: Vec<Stamp>,
    pub(super) checkpoint: CheckpointInfo,
}

impl Known {
    pub(super) fn new(stamps: Vec<Stamp>, checkpoint: CheckpointInfo) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self {
            version,
            stamps,
            checkpoint,
        }
    }

    /// Reads sealed JSON that is about files with these `stamps`. Any other text tells nothing: a changed digest would be that of another
    /// model.
    pub(super) fn read(text: &str, stamps: &[Stamp]) -> Option<Self> {
        let known: Self = serde_json::from_str(text).ok()?;
        let is_of_files = known.stamps == stamps && known.version == env!("CARGO_PKG_VERSION");
        (is_of_files && is_sealed(text.as_bytes())).then_some(known)
    }
}
