//! The meaning of plmkit's files: schemas, digests, provenance. It opens no file.
//!
//! Programs exchange files. This crate alone defines their content; `plmkit-store` reads and writes them.

#![warn(missing_docs)]

mod alias;
mod alphabet;
mod batch_size;
mod byte_digest;
mod column;
mod dataset;
mod digest;
mod dtype;
mod embedding_layout;
mod error;
mod fields;
mod labels;
mod manifest;
mod model_files;
mod model_shape;
mod outputs;
mod peptide;
mod pooling;
mod provenance;
mod reject;
mod row_key;
mod row_span;
mod schema;
mod sealed;
mod sequence_digests;
mod sequences;
mod short_ids;

pub use alias::{
    ALIASES_FILE, AliasRow, DATASET, KNOWN_FILE, REPRESENTATIVE, alias_rows, aliases_schema,
    known_schema,
};
pub use alphabet::{
    AMINO_ACIDS, CLS, EOS, FIRST_RESIDUE_TOKEN, MASK, RESIDUES, SPECIAL_TOKENS, UnknownResidue,
    residue_of, tokenize,
};
pub use batch_size::{BatchSize, DEFAULT_BATCH_TOKENS};
pub use byte_digest::ByteDigest;
pub use column::{Column, VOCABULARY, Widths};
pub use dataset::{
    CombinedFrom, DATASET_FILE, EmbeddingWork, ListedColumn, ListedDataset, ListedFile,
    RecordCounts,
};
pub use digest::{RowDigest, SequenceDigest, content_digest};
pub use dtype::{Dtype, StoreDtype};
pub use embedding_layout::EmbeddingLayout;
pub use error::ContentError;
pub use fields::{check_columns, fields_text};
pub use labels::{DESCRIPTION, Labels, SAMPLE, is_sample_name};
pub use manifest::{
    InputSummary, KnownDataset, KnownSummary, LONG_SHARD_PREFIX, LengthBin, LengthSummary,
    MANIFEST_FILE, Manifest, REJECTS_FILE, RENAMED_FILE, SHARD_PREFIX, ShardSummary,
    TranslationSummary, length_bin_edges,
};
pub use model_files::{
    FIRST_RELEASE, MODEL_JSON_BYTES, WEIGHT_FILES, is_weight_index, parse_weight_index,
};
pub use model_shape::ModelShape;
pub use outputs::{Layers, Outputs, Scores, no_such_layer};
pub use peptide::{PEPTIDES_FILE, PeptideRow, peptide_rows, peptides_schema};
pub use pooling::Pooling;
pub use provenance::{
    COMBINED, CONTRACT_VERSION, KERNELS, KNOWN, LOGIT_TOKENS, ModelName, PACKING, Provenance,
    SCORES, SCORES_POSITIONS, SOURCE, WINDOWS, key,
};
pub use reject::{
    REJECTED_ROWS_HEADER, REJECTS_HEADER, RENAMED_HEADER, Reason, Reject, RejectsList, Renamed,
    no_rejected_rows,
};
pub use row_key::{
    Cell, KEY_COLUMNS, KeyColumns, N_WINDOWS, Row, RowKey, RowsBuilder, ShardRow, ordinals,
};
pub use row_span::RowSpan;
pub use schema::{Kind, batches_schema, shard_schema};
pub use sealed::{Sealed, is_sealed, seal};
pub use sequences::check_sequences;
pub use short_ids::{ShortIds, asked_by};
