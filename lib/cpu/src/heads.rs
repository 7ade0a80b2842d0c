//! Heads on top of the encoder.

mod contact;
mod language_model;

pub use contact::ContactHead;
pub(crate) use contact::Contacts;
pub use language_model::LanguageModelHead;
