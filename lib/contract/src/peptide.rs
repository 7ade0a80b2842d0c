//! Where peptides of translated contigs lie.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::{Cell, Row};

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

impl Row for PeptideRow<'_> {
    fn cells(&self) -> impl IntoIterator<Item = Cell<'_>> {
        [
            Cell::Long(self.ordinal.cast_signed()),
            Cell::Text(Some(self.contig)),
            Cell::Long(self.start.into()),
            Cell::Long(self.end.into()),
            Cell::Word(self.strand()),
            Cell::Small(self.frame),
        ]
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

/// Iterates over the rows of a batch of a verified [`PEPTIDES_FILE`].
///
/// # Panics
/// If the batch lacks a column of [`peptides_schema`].
pub fn peptide_rows(batch: &RecordBatch) -> impl Iterator<Item = PeptideRow<'_>> {
    let numbers = |name| batch[name].as_primitive::<Int64Type>();
    let [ordinals, starts, ends] = ["ordinal", "start", "end"].map(numbers);
    let contigs = batch["contig"].as_string::<i32>();
    let frames = batch["frame"].as_primitive::<Int8Type>();
    (0..batch.num_rows()).map(move |row| PeptideRow {
        ordinal: ordinals.value(row).cast_unsigned(),
        contig: contigs.value(row),
        start: starts.value(row) as u32,
        end: ends.value(row) as u32,
        frame: frames.value(row),
    })
}
