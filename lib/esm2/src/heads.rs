//! Heads on top of the encoder, which a checkpoint may lack.

use plmkit_contract::Column;
use serde::{Deserialize, Serialize};

/// A part of a model that only some outputs need.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display,
)]
pub enum Head {
    /// Residue vectors to logits over the vocabulary.
    #[strum(to_string = "language-model head")]
    LanguageModel,
    /// Attention maps to contacts.
    #[strum(to_string = "contact head")]
    Contact,
}

impl Head {
    /// Returns the head that a column needs.
    pub(crate) fn for_column(column: Column) -> Option<Self> {
        match column {
            Column::Pooled { .. } | Column::Residues(_) => None,
            Column::Logits | Column::LogProbs | Column::LogLikelihood => Some(Self::LanguageModel),
            Column::Contacts => Some(Self::Contact),
        }
    }

    /// Returns the prefix of its tensors in a checkpoint.
    pub fn name(self) -> &'static str {
        match self {
            Self::LanguageModel => "lm_head",
            Self::Contact => "contact_head",
        }
    }
}
