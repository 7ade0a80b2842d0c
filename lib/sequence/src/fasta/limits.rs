//! What is too large to be FASTA of proteins.

/// Sizes above which an input is refused before it takes the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a header line.
    pub header_bytes: usize,
    /// Bytes of the sequence lines of one record.
    pub sequence_bytes: usize,
    /// Bytes of blank lines before the first record.
    pub blank_bytes: usize,
}

/// 1 MiB of header; 16 MiB of sequence, several hundred times the longest protein known (titin, 35,000 residues).
impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 1 << 20,
            sequence_bytes: 1 << 24,
            blank_bytes: 1 << 24,
        }
    }
}
