//! Heads on top of the encoder, which a checkpoint may lack.

use plmkit_contract::Column;
use serde::{Deserialize, Serialize};

/// A part of a model that only some outputs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
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
            Column::Logits => Some(Self::LanguageModel),
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

/// BLAKE3 of the stored tensors of each head, 128 bits in hexadecimal. For a head that cannot be computed, the reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeadDigests {
    /// That of the language-model head.
    pub language_model: Result<String, String>,
    /// That of the contact head.
    pub contact: Result<String, String>,
}

impl HeadDigests {
    /// Returns the digest of a head, or why it cannot be computed.
    pub(crate) fn of(&self, head: Head) -> Result<&str, &String> {
        let digest = match head {
            Head::LanguageModel => self.language_model.as_ref(),
            Head::Contact => self.contact.as_ref(),
        };
        digest.map(String::as_str)
    }
}
