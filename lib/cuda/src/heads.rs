//! Heads on top of the encoder, which a checkpoint may lack.

mod contact;
mod language_model;

pub(crate) use contact::{ContactHead, Contacts};
pub(crate) use language_model::LanguageModelHead;
