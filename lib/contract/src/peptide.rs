//! Where peptides of translated contigs lie.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// The list of the peptides of contigs, in the folder of the shards.
pub const PEPTIDES_FILE: &str = "peptides.parquet";

/// Where a peptide lies on its contig. The fields are the columns of [`peptides_schema`], `strand` aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeptideRow<'a> {
    /// The peptide's ordinal in the set of shards.
    pub ordinal: u64,
    /// The id of its contig.
    pub contig: &'a str,
    /// The leftmost base of its codons, counted from 1 on the strand of the contig.
    pub start: u32,
    /// The rightmost base, included.
    pub end: u32,
    /// The reading frame: 1, 2, 3, -1, -2 or -3.
    pub frame: i8,
}

impl PeptideRow<'_> {
    /// Returns `+` or `-`.
    pub fn strand(self) -> &'static str {
        if self.frame > 0 { "+" } else { "-" }
    }
}

/// Returns the columns of [`PEPTIDES_FILE`]: one row for each peptide that has an ordinal.
///
/// | column | meaning |
/// |---|---|
/// | `ordinal` | the peptide's ordinal in the set of shards |
/// | `contig` | the id of its contig |
/// | `start` | the leftmost base of its codons, from 1 |
/// | `end` | the rightmost base, included |
/// | `strand` | `+` or `-` |
/// | `frame` | the reading frame: 1, 2, 3, -1, -2 or -3 |
pub fn peptides_schema() -> SchemaRef {
    // Signed, so that a query may subtract.
    let fields = [
        ("ordinal", DataType::Int64),
        ("contig", DataType::Utf8),
        ("start", DataType::Int64),
        ("end", DataType::Int64),
        ("strand", DataType::Utf8),
        ("frame", DataType::Int8),
    ];
    let fields = fields.map(|(name, data_type)| Field::new(name, data_type, false));
    Arc::new(Schema::new(fields.to_vec()))
}

/// The columns of a record batch of [`PEPTIDES_FILE`].
#[derive(Debug)]
pub struct PeptideColumns<'a> {
    ordinals: &'a [i64],
    contigs: &'a StringArray,
    starts: &'a [i64],
    ends: &'a [i64],
    frames: &'a [i8],
}

impl<'a> PeptideColumns<'a> {
    /// Takes the columns of a batch of a verified file.
    ///
    /// # Panics
    /// If the batch lacks a column of [`peptides_schema`].
    pub fn new(batch: &'a RecordBatch) -> Self {
        let numbers = |name| &batch[name].as_primitive::<Int64Type>().values()[..];
        Self {
            ordinals: numbers("ordinal"),
            contigs: batch["contig"].as_string(),
            starts: numbers("start"),
            ends: numbers("end"),
            frames: batch["frame"].as_primitive::<Int8Type>().values(),
        }
    }

    /// Iterates over all rows.
    pub fn rows(&self) -> impl Iterator<Item = PeptideRow<'a>> {
        (0..self.ordinals.len()).map(|row| PeptideRow {
            ordinal: self.ordinals[row].cast_unsigned(),
            contig: self.contigs.value(row),
            start: self.starts[row] as u32,
            end: self.ends[row] as u32,
            frame: self.frames[row],
        })
    }
}
