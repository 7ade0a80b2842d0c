//! How bytes reach disk: atomic files, typed Parquet and Arrow IPC readers and writers, verification.
//!
//! A file that this crate publishes is complete: it is written under a temporary name and renamed once its bytes
//! are on disk. A file of plmkit that this crate reads is verified: every byte has a
//! checksum, which must match before a decoder sees it.

mod atomic;
mod batches;
mod checksums;
mod digested;
mod embeddings;
mod error;
mod existing;
mod file_kind;
mod footer_writer;
mod foreign;
mod hidden_name;
mod json;
mod levels;
mod lines;
mod list_column;
mod lock;
mod open;
mod packed_batch;
mod parquet;
mod rejects;
mod row_group;
mod shard;
mod sink;
mod summed;
mod unfinished;
mod verified;

pub use atomic::{AtomicFile, remove_unfinished};
pub use batches::{BatchesFile, BatchesWriter};
pub use embeddings::{EmbeddingsReader, EmbeddingsWriter};
pub use error::StoreError;
pub use existing::{Existing, existing_batches, existing_embeddings};
pub use file_kind::FileKind;
pub use foreign::ForeignParquet;
pub use hidden_name::{hidden_name, under_construction};
pub use json::{read_sealed, write_json, write_report, write_sealed};
pub use lines::Lines;
pub use lock::{Lock, lock_open};
pub use open::{open_input, remove_file};
pub use packed_batch::PackedBatch;
pub use rejects::{FinishedList, ListWriter, read_byte_digest, read_rejects};
pub use row_group::{PlacedRowGroup, ROW_GROUP_BYTES, RowGroup, RowGroupEncoder};
pub use shard::{FinishedShard, Shard, ShardRows, ShardWriter, read_shard};
pub use sink::Sink;
pub use unfinished::UnfinishedEmbeddings;

use plmkit_contract::RowDigest;

/// What a finished data file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// The digest of its rows, with their number.
    pub digest: RowDigest,
    /// The file's size in bytes.
    pub bytes: u64,
}
