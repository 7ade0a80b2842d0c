//! The kinds of data file, and the columns of shards and batches. Those of embeddings are in `layout.rs`, of the keys in
//! `row_key.rs`, of the lists of records in `alias.rs` and `peptide.rs`.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::alias::{aliases_schema, known_schema};
use crate::embedding_layout::EmbeddingLayout;
use crate::fields::check_columns;
use crate::labels::{DESCRIPTION, Labels};
use crate::peptide::peptides_schema;
use crate::row_key::key_fields;

/// The kind of a data file: its metadata entry `plmkit.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// Records of a FASTA input: one row for each sequence or window (Parquet).
    Shard,
    /// Packed batches of token ids: one record batch for each batch (Arrow IPC file).
    Batches,
    /// Embeddings: one row for each sequence or window (Parquet).
    Embeddings,
    /// Records whose residues an earlier record has (Parquet).
    Aliases,
    /// Records whose residues an earlier dataset has (Parquet).
    Known,
    /// Places of peptides on contigs (Parquet).
    Peptides,
}

impl Kind {
    /// Returns the columns of shards and of lists of records. Those of batches and embeddings depend on how they were made.
    pub fn schema(self) -> Option<SchemaRef> {
        match self {
            Self::Shard => Some(shard_schema()),
            Self::Aliases => Some(aliases_schema()),
            Self::Known => Some(known_schema()),
            Self::Peptides => Some(peptides_schema()),
            Self::Batches | Self::Embeddings => None,
        }
    }

    /// Checks that a file has the columns of this kind. The error describes what is wrong.
    pub fn check_columns(self, found: &Schema) -> Result<(), String> {
        if self == Self::Embeddings {
            return EmbeddingLayout::from_schema(found).map(drop);
        }
        let batches = || batches_schema(Labels::from_schema(found));
        check_columns(found, &self.schema().unwrap_or_else(batches))
    }
}

/// Returns the columns of a shard: one row for each sequence, or for each window of one.
///
/// | column | meaning |
/// |---|---|
/// | `ordinal` | 0-based position of the record in the whole input, rejected records included; the key is `(ordinal, start)` |
/// | `id` | first word of the FASTA header |
/// | `description` | the rest of the header, or null |
/// | `sequence` | the residues to embed, upper case |
/// | `length` | residues of the whole protein |
/// | `start` | 0-based offset of this row's first residue in the protein |
/// | `truncated` | whether some residues of the protein are in no row |
/// | `sequence_digest` | BLAKE3 of `sequence`, first 16 bytes in hexadecimal |
pub fn shard_schema() -> SchemaRef {
    let [ordinal, id, start, length, truncated, digest] = key_fields();
    let description = Field::new(DESCRIPTION, DataType::Utf8, true);
    let sequence = Field::new("sequence", DataType::Utf8, false);
    Arc::new(Schema::new(vec![
        ordinal,
        id,
        description,
        sequence,
        length,
        start,
        truncated,
        digest,
    ]))
}

/// Returns the columns of a batches file: one record batch for each batch, one row for each sequence.
///
/// The `labels` are between the key and `tokens`. `tokens` holds `<cls> residues <eos>` as token ids. Its offsets buffer is
/// `cu_seqlens`, its values buffer the packed input ids. A variable-length attention kernel takes both as they are.
pub fn batches_schema(labels: Labels) -> SchemaRef {
    let mut fields = Vec::from(key_fields());
    fields.extend(labels.fields());
    let token = Field::new_list_field(DataType::UInt8, false);
    fields.push(Field::new("tokens", DataType::List(Arc::new(token)), false));
    Arc::new(Schema::new(fields))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::fields_text;
    use crate::{Column, StoreDtype};

    /// A change to these schemas must also change the golden file, the contract version and the changelog.
    #[test]
    fn golden_schemas() {
        let columns = [
            "mean_33",
            "bos_0",
            "residues_33",
            "logits",
            "contacts",
            "log_probs",
            "log_likelihood",
        ]
        .map(|name| name.parse::<Column>().expect("a column"));
        let embeddings = EmbeddingLayout {
            columns: columns.to_vec(),
            dim: 1280,
            logits: crate::VOCABULARY,
            dtype: StoreDtype::F32,
            stitched: false,
            labels: Labels::default(),
        };
        let stitched = EmbeddingLayout {
            columns: columns[..1].to_vec(),
            stitched: true,
            labels: Labels {
                sample: true,
                description: true,
            },
            ..embeddings.clone()
        };
        let found = format!(
            "[shard]\n{}\n[batches]\n{}\n[embeddings with a column of each kind]\n{}\n\
             [embeddings of proteins put together from windows, with labels]\n{}\n\
             [aliases]\n{}\n[known]\n{}\n[peptides]\n{}",
            fields_text(&shard_schema()),
            fields_text(&batches_schema(Labels::default())),
            fields_text(&embeddings.schema()),
            fields_text(&stitched.schema()),
            fields_text(&aliases_schema()),
            fields_text(&known_schema()),
            fields_text(&peptides_schema()),
        );
        assert_eq!(found, include_str!("../golden/schemas.txt"));
    }
}
