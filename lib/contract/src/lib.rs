//! What plmkit's files mean: schemas, digests, provenance, exit codes. No I/O.
//!
//! Five programs exchange files; this crate is the one place that says what those files hold. It opens
//! nothing: `plmkit-store` reads and writes, every other crate computes.

mod alphabet;
mod batch_size;
mod byte_digest;
mod column;
mod digest;
mod exit;
mod guard;
mod kind;
mod labels;
mod layout;
mod manifest;
mod packing;
mod provenance;
mod quote;
mod regular;
mod reject;
mod row_key;
mod schema;
mod sealed;
mod shard_row;
mod span;
mod stop;
mod vector;

pub use alphabet::{
    CLS, EOS, FIRST_RESIDUE_TOKEN, RESIDUES, SPECIAL_TOKENS, UnknownResidue, residue_of, tokenize,
};
pub use batch_size::{BatchSize, DEFAULT_BATCH_TOKENS};
pub use byte_digest::ByteDigest;
pub use column::{Column, VOCABULARY};
pub use digest::{DigestError, RowDigest, SequenceDigest, content_digest};
pub use exit::{Exit, Failure, exit_of};
pub use guard::{guarded, is_guarded};
pub use kind::Kind;
pub use labels::{DESCRIPTION, Labels, SAMPLE};
pub use layout::{EmbeddingLayout, N_WINDOWS};
pub use manifest::{
    InputSummary, LONG_SHARD_PREFIX, LengthBin, LengthSummary, Manifest, SHARD_PREFIX,
    ShardSummary, length_bin_edges,
};
pub use packing::PackingDigest;
pub use provenance::{
    CONTRACT_VERSION, KERNELS, MetadataError, ModelName, PACKING, Provenance, SOURCE, WINDOWS, key,
};
pub use quote::{LIST_SHOWN, Quoted, cause, io_text, one_line, path_text, plural};
pub use regular::{check_fetched, check_regular, is_stream};
pub use reject::{Reason, Reject, RejectsList, Renamed};
pub use row_key::{KEY_COLUMNS, KeyColumns, KeyColumnsBuilder, RowKey, ordinals};
pub use schema::{batches_schema, check_columns, fields_text, shard_schema};
pub use sealed::{Sealed, SealedError, is_sealed, seal};
pub use shard_row::ShardRow;
pub use span::Span;
pub use stop::Stop;
pub use vector::{Pooling, StoreDtype, VectorColumn};
