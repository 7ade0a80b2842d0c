//! What stands on top of the encoder: parts of a checkpoint that it may lack.

mod contact;
mod language_model;

use std::fmt;

use plmkit_contract::Column;

use crate::Names;

pub(crate) use contact::{ContactHead, Contacts};
pub(crate) use language_model::LanguageModelHead;

/// A part of a model that not every output needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Residue vectors to logits over the vocabulary.
    LanguageModel,
    /// Attention maps to contacts.
    Contact,
}

impl Head {
    /// The head that a column is computed with, besides the encoder.
    pub(crate) fn for_column(column: Column) -> Option<Self> {
        match column {
            Column::Pooled(_) | Column::Residues(_) => None,
            Column::Logits => Some(Self::LanguageModel),
            Column::Contacts => Some(Self::Contact),
        }
    }

    /// The name that its tensors begin with in a checkpoint.
    pub fn name(self) -> &'static str {
        match self {
            Self::LanguageModel => "lm_head",
            Self::Contact => "contact_head",
        }
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LanguageModel => "language-model head",
            Self::Contact => "contact head",
        })
    }
}

/// A head as it was found in a checkpoint.
#[derive(Debug)]
pub(crate) struct Found<T> {
    pub(crate) head: T,
    /// BLAKE3, 128 bits in hexadecimal, of its tensors as they are stored.
    pub(crate) digest: String,
}

/// The heads of a model: each, or the tensors that are missing of it.
#[derive(Debug)]
pub(crate) struct Heads {
    pub(crate) language_model: Result<Found<LanguageModelHead>, Names>,
    pub(crate) contact: Result<Found<ContactHead>, Names>,
}

impl Heads {
    /// The digest of a head, or what is missing of it.
    pub(crate) fn digest(&self, head: Head) -> Result<&str, &Names> {
        match head {
            Head::LanguageModel => self
                .language_model
                .as_ref()
                .map(|found| found.digest.as_str()),
            Head::Contact => self.contact.as_ref().map(|found| found.digest.as_str()),
        }
    }
}
