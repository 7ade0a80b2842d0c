//! Files: atomic writing, typed Parquet and Arrow IPC readers and writers, verification.
//!
//! This crate publishes complete files only: it writes a file under a temporary name, and renames it once its bytes are on disk.
//! It verifies the files of plmkit that it reads: every byte has a checksum, which must match before a decoder sees the byte.

mod atomic;
mod batches;
mod checksums;
mod column_chunk;
mod csv_lines;
mod embeddings;
mod embeddings_file;
mod error;
mod existing;
mod file_kind;
mod folder;
mod footer_writer;
mod hidden_name;
mod id_values;
mod input;
mod json;
mod list_column;
mod lock;
mod packed_batch;
mod packed_group;
mod parquet;
mod parquet_writer;
mod record_list;
mod rejects;
mod row_group;
mod shard;
mod table;
mod unfinished;
mod unfinished_folder;
mod unverified_parquet;
mod verified;

pub use atomic::{AtomicFile, remove_published, remove_unfinished};
pub use batches::{BatchesFile, BatchesWriter};
pub use csv_lines::{TableRecord, read_columns, read_records};
pub use embeddings::{EmbeddingsReader, EmbeddingsWriter};
pub use embeddings_file::{EmbeddingsFile, GroupSummary};
pub use error::StoreError;
pub use existing::{identify, verify, verify_file};
pub use file_kind::{FileKind, Replaceable, has_as_many, is_line_of, is_report_or_free};
pub use folder::{files_in, sync_folder, visible_in};
pub use hidden_name::{hidden_name, strip_temporary_suffix};
pub use id_values::{IdValue, read_id_values};
pub use input::{Lines, is_absent, open_input, read_byte_digest, read_input, remove_file};
pub use json::{read_sealed, write_json, write_report, write_sealed};
pub use lock::{Lock, lock_open};
pub use packed_batch::PackedBatch;
pub use parquet::{ParquetFile, ParquetReader, check_digest};
pub use record_list::{RecordListReader, RecordListWriter};
pub use rejects::{ListWriter, read_rejects};
pub use row_group::{ROW_GROUP_BYTES, ROW_GROUP_ROWS, RowGroup, RowGroupEncoder};
pub use shard::{
    Shard, ShardReader, ShardRows, ShardWriter, encode_rows, read_shard, row_bytes, shard_encoder,
};
pub use table::{TableFormat, TableWriter};
pub use unfinished::UnfinishedEmbeddings;
pub use unfinished_folder::UnfinishedFolder;
pub use unverified_parquet::ExternalParquet;
