//! Digests of many sequences at once.
//!
//! BLAKE3 hashes a sequence of up to 1024 residues block after block of 64. A CPU has instructions for up to 16 such chains at a
//! time, so sequences with the same number of blocks go together, all but their last blocks.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, StringArray};
use blake3::IncrementCounter;
use blake3::platform::Platform;

use crate::SequenceDigest;

const BLOCK: usize = 64;
/// The most bytes of one chain.
const CHUNK: usize = 1024;
/// The most chains of a vector instruction.
const LANES: usize = 16;

// BLAKE3, section 2.2.
const IV: [u32; 8] = [
    0x6A09_E667,
    0xBB67_AE85,
    0x3C6E_F372,
    0xA54F_F53A,
    0x510E_527F,
    0x9B05_688C,
    0x1F83_D9AB,
    0x5BE0_CD19,
];
const CHUNK_START: u8 = 1;
const CHUNK_END: u8 = 2;
const ROOT: u8 = 8;

impl SequenceDigest {
    /// Computes the digests of many sequences, faster than one by one.
    ///
    /// ```
    /// use plmkit_contract::SequenceDigest;
    /// let sequences = [&b"MKV"[..], &[b'A'; 70], &[b'L'; 5000]];
    /// let digests = SequenceDigest::of_all(&sequences);
    /// assert_eq!(digests, sequences.map(SequenceDigest::new));
    /// ```
    pub fn of_all(sequences: &[&[u8]]) -> Vec<Self> {
        let platform = Platform::detect();
        let mut digests = vec![Self::default(); sequences.len()];
        // By the number of blocks before the last.
        let mut waiting: [Vec<usize>; CHUNK / BLOCK] = Default::default();
        for (at, sequence) in sequences.iter().enumerate() {
            if sequence.len() <= BLOCK || sequence.len() > CHUNK {
                digests[at] = Self::new(sequence);
                continue;
            }
            let blocks = (sequence.len() - 1) / BLOCK;
            waiting[blocks].push(at);
            if waiting[blocks].len() == LANES {
                finish(platform, sequences, blocks, &waiting[blocks], &mut digests);
                waiting[blocks].clear();
            }
        }
        for (blocks, waiting) in waiting.iter().enumerate() {
            finish(platform, sequences, blocks, waiting, &mut digests);
        }
        digests
    }
}

impl SequenceDigest {
    /// Computes the digests of a column of sequences, as text.
    pub fn column(sequences: &StringArray) -> ArrayRef {
        let sequences = sequences.iter().map(Option::unwrap_or_default);
        let sequences: Vec<&[u8]> = sequences.map(str::as_bytes).collect();
        let mut column = StringBuilder::with_capacity(sequences.len(), 32 * sequences.len());
        for digest in Self::of_all(&sequences) {
            digest.append_to(&mut column);
        }
        Arc::new(column.finish())
    }

    /// Adds the digest to a column.
    pub(crate) fn append_to(self, column: &mut StringBuilder) {
        // Digits are text.
        let digits = self.digits();
        column.append_value(str::from_utf8(&digits).unwrap_or_default());
    }
}

/// Computes the digests of the `chosen` sequences, which have `blocks` blocks before their last.
fn finish(
    platform: Platform,
    sequences: &[&[u8]],
    blocks: usize,
    chosen: &[usize],
    digests: &mut [SequenceDigest],
) {
    let chosen_sequences = chosen.iter().map(|&at| sequences[at]);
    macro_rules! chains {
        ($($count:literal)*) => {
            match blocks {
                $($count => chains::<{ BLOCK * $count }>(platform, chosen_sequences),)*
                _ => return,
            }
        };
    }
    let chains = chains!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    for (&at, chain) in chosen.iter().zip(chains.chunks_exact(4 * IV.len())) {
        let mut chain: [u32; 8] = std::array::from_fn(|word| {
            let word = chain[4 * word..].first_chunk().expect("4 bytes");
            u32::from_le_bytes(*word)
        });
        let last = &sequences[at][BLOCK * blocks..];
        let mut block = [0; BLOCK];
        block[..last.len()].copy_from_slice(last);
        let flags = CHUNK_END | ROOT;
        platform.compress_in_place(&mut chain, &block, last.len() as u8, 0, flags);
        let mut hash = [0; 32];
        for (bytes, word) in hash.chunks_exact_mut(4).zip(chain) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        digests[at] = SequenceDigest::from_hash(hash.into());
    }
}

/// Hashes the first `N` bytes of up to [`LANES`] sequences. Returns the values that continue each chain.
fn chains<'a, const N: usize>(
    platform: Platform,
    sequences: impl Iterator<Item = &'a [u8]>,
) -> [u8; LANES * 32] {
    let starts: Vec<&[u8; N]> = sequences
        .map(|sequence| sequence.first_chunk().expect("it is longer"))
        .collect();
    let mut chains = [0; LANES * 32];
    platform.hash_many(
        &starts,
        &IV,
        0,
        IncrementCounter::No,
        0,
        CHUNK_START,
        0,
        &mut chains[..starts.len() * 32],
    );
    chains
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_the_digests_of_each() {
        let text: Vec<u8> = (0..40_000u32).map(|i| ((i * i) >> 7) as u8).collect();
        let lengths = (0..1100).chain((0..1100).step_by(3)).chain([5000]);
        let sequences: Vec<&[u8]> = lengths.map(|length| &text[length..2 * length]).collect();
        let each: Vec<_> = sequences.iter().copied().map(SequenceDigest::new).collect();
        assert_eq!(SequenceDigest::of_all(&sequences), each);
    }
}
