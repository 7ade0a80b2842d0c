//! What is too large to be a file of plmkit: refused before memory is asked for, because a process that is refused
//! memory aborts.
//!
//! Each limit is above all that the programs write. They follow from those of `fasta-shard`: 1 MiB of header, 16 MiB
//! of sequence.

/// Bytes of an id: a header line, and the suffix that makes a duplicate unique.
pub(crate) const ID_BYTES: usize = 2 << 20;

/// Bytes of a line of text: an id, each byte of which may be a quote and doubled.
pub(crate) const LINE_BYTES: usize = 8 << 20;

/// Bytes of a JSON file. A manifest has some 200 bytes a shard.
pub(crate) const JSON_BYTES: u64 = 256 << 20;

/// Bytes of a Parquet footer, or this part of a larger file. Ours take 130 bytes for each column of a row group.
pub(crate) const FOOTER_BYTES: u64 = 64 << 20;
pub(crate) const FOOTER_PART: u64 = 64;

/// Nodes of a Parquet schema, and how deep they lie. A file with every pooling of 48 layers has 600, 3 deep.
pub(crate) const SCHEMA_NODES: usize = 1 << 14;
pub(crate) const SCHEMA_DEPTH: usize = 16;

/// Bytes of a Parquet page header. One with statistics holds the smallest and the largest value.
pub(crate) const PAGE_HEADER_BYTES: usize = 4 << 20;

/// What a page may claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLimits {
    /// Bytes without compression.
    pub(crate) bytes: usize,
    /// Values, nulls included.
    pub(crate) values: usize,
    /// Or so many times the bytes of the page in the file, and half as many values: a file that claims much is large.
    pub(crate) expansion: usize,
}

/// A page of ours ends with the row that takes it past 1 MiB, or with its 20,000th row. Values of vectors have 2 or 4
/// bytes each. The vectors of all residues of titin are 176 MB in one row, and compress to nine tenths.
pub(crate) const OWN_PAGE: PageLimits = PageLimits {
    bytes: 32 << 20,
    values: 16 << 20,
    expansion: 16,
};

/// Other writers have other habits: one page may hold a whole row group of vectors.
pub(crate) const FOREIGN_PAGE: PageLimits = PageLimits {
    bytes: 512 << 20,
    values: 128 << 20,
    expansion: 0,
};

/// Bytes of rows that are decoded at once, unless one row has more.
pub(crate) const DECODED_BYTES: u64 = 16 << 20;
