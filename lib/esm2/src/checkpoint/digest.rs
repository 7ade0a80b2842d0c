//! The digest of a model: BLAKE3 of everything that its vectors depend on.

use std::collections::BTreeMap;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use blake3::{Hash, Hasher};

use super::CheckpointError;
use super::finite::not_finite;
use super::parameters::{Parameter, parameters};
use super::stored_tensor::StoredTensor;
use super::tensors::CheckpointTensors;
use crate::Head;
use crate::config::Architecture;

/// Bytes that a task hashes, a power of two. The weights are still in the second-level cache when the same task packs them.
pub(super) const PIECE: u64 = 1 << 18;

/// The input of a hash, cut into pieces. BLAKE3 is a tree, so that pieces can be hashed in any order.
pub(super) struct DigestInput<'a> {
    parts: Vec<DigestPart<'a>>,
    /// The offset of each part in the input.
    offsets: Vec<u64>,
    /// The offsets of tensors by the address of their bytes in the file.
    by_address: BTreeMap<usize, u64>,
    bytes: u64,
}

enum DigestPart<'a> {
    Text(Vec<u8>),
    Tensor(String, &'a StoredTensor<'a>),
}

/// The hash of a piece.
pub(super) struct PieceHash {
    value: ChainingValue,
    /// An error for the first weight that is not finite.
    not_finite: Option<CheckpointError>,
}

impl<'a> DigestInput<'a> {
    /// The input for a model: the configuration, the name, type, shape and stored bytes of every encoder tensor in the order
    /// of computation, and the rotary frequencies.
    pub(super) fn for_model(tensors: &'a CheckpointTensors<'a>) -> Self {
        let config = tensors.config();
        let mut text = b"plmkit esm2 encoder\0".to_vec();
        if config.architecture != Architecture::ESM2 {
            let architecture = serde_json::to_string(&config.architecture).unwrap_or_default();
            text = format!("plmkit encoder\0{architecture}\0").into_bytes();
        }
        for size in [
            config.layers,
            config.hidden,
            config.heads,
            config.intermediate,
        ] {
            push_number(&mut text, size);
        }
        text.extend(config.layer_norm_eps.to_le_bytes());
        text.push(u8::from(config.token_dropout));
        let end = tensors.frequencies().iter().flatten();
        let end = end.flat_map(|frequency| frequency.to_le_bytes()).collect();
        Self::new(text, tensors, parameters(config), end)
    }

    /// The input for a head: its stored tensors.
    pub(super) fn for_head(tensors: &'a CheckpointTensors<'a>, head: Head) -> Self {
        let parameters = tensors.head_parameters(head);
        Self::new(Vec::new(), tensors, parameters, Vec::new())
    }

    fn new(
        mut text: Vec<u8>,
        tensors: &'a CheckpointTensors<'a>,
        parameters: Vec<Parameter>,
        end: Vec<u8>,
    ) -> Self {
        let mut parts = Vec::new();
        for Parameter { name, .. } in parameters {
            let tensor = tensors.get(&name);
            let (dtype, shape) = (tensor.data.dtype.to_string(), &tensor.data.shape);
            for word in [&name, &dtype] {
                push_number(&mut text, word.len());
                text.extend(word.as_bytes());
            }
            push_number(&mut text, shape.len());
            for &size in shape {
                push_number(&mut text, size);
            }
            parts.push(DigestPart::Text(std::mem::take(&mut text)));
            parts.push(DigestPart::Tensor(name, tensor));
        }
        parts.push(DigestPart::Text(end));
        Self::from_parts(parts)
    }

    fn from_parts(parts: Vec<DigestPart<'a>>) -> Self {
        let (mut offsets, mut by_address, mut bytes) = (Vec::new(), BTreeMap::new(), 0);
        for part in &parts {
            offsets.push(bytes);
            if let DigestPart::Tensor(_, tensor) = part {
                by_address.insert(tensor.data.extent.as_ptr().addr(), bytes);
            }
            bytes += part.bytes().len() as u64;
        }
        Self {
            parts,
            offsets,
            by_address,
            bytes,
        }
    }

    /// Returns the number of pieces.
    pub(super) fn pieces(&self) -> usize {
        self.bytes.div_ceil(PIECE) as usize
    }

    /// Returns the piece that probably contains the byte of a file at an address.
    pub(super) fn piece_near(&self, address: usize) -> usize {
        let before = self.by_address.range(..=address).next_back();
        let offset = before.map_or(0, |(begin, offset)| offset + (address - begin) as u64);
        ((offset / PIECE) as usize).min(self.pieces() - 1)
    }

    /// Returns the tensors of a piece.
    pub(super) fn tensors(&self, piece: usize) -> impl Iterator<Item = &'a StoredTensor<'a>> {
        self.parts_of(piece).filter_map(|(_, part)| match part {
            DigestPart::Tensor(_, tensor) => Some(*tensor),
            DigestPart::Text(_) => None,
        })
    }

    /// Returns the parts of a piece with their offsets.
    fn parts_of(&self, piece: usize) -> impl Iterator<Item = (u64, &DigestPart<'a>)> {
        let (begin, end) = (piece as u64 * PIECE, (piece as u64 + 1) * PIECE);
        let first = self.offsets.partition_point(|&other| other <= begin) - 1;
        let offsets = self.offsets[first..].iter().copied();
        offsets
            .zip(&self.parts[first..])
            .take_while(move |&(offset, _)| offset < end)
    }

    fn hasher(&self, piece: usize) -> (Hasher, Option<CheckpointError>) {
        let begin = piece as u64 * PIECE;
        let mut hasher = Hasher::new();
        hasher.set_input_offset(begin);
        let mut error = None;
        for (offset, part) in self.parts_of(piece) {
            let bytes = part.bytes();
            let cut = |at: u64| (at.saturating_sub(offset) as usize).min(bytes.len());
            let range = cut(begin)..cut(begin + PIECE);
            hasher.update(&bytes[range.clone()]);
            if let DigestPart::Tensor(name, tensor) = part {
                // A piece can begin and end inside a value.
                let width = tensor.stored_type().bytes();
                let first = range.start / width;
                let values = &bytes[first * width..range.end.next_multiple_of(width)];
                error = error.or_else(|| not_finite(name, tensor, first, values));
            }
        }
        (hasher, error)
    }

    /// Hashes a piece and checks that its weights are finite.
    pub(super) fn hash(&self, piece: usize) -> PieceHash {
        let (hasher, not_finite) = self.hasher(piece);
        PieceHash {
            value: hasher.finalize_non_root(),
            not_finite,
        }
    }

    /// Returns BLAKE3 of the input, 128 bits in hexadecimal, from the hashes of all pieces, or an error if a weight is not
    /// finite.
    pub(super) fn digest(&self, pieces: Vec<PieceHash>) -> Result<String, CheckpointError> {
        let pieces = pieces.into_iter().map(|piece| match piece.not_finite {
            Some(error) => Err(error),
            None => Ok(piece.value),
        });
        let pieces = pieces.collect::<Result<Vec<_>, _>>()?;
        let hash: Hash = if pieces.len() == 1 {
            self.hasher(0).0.finalize()
        } else {
            let [left, right] = halves(&pieces, self.bytes);
            merge_subtrees_root(&left, &right, Mode::Hash)
        };
        Ok(hash.to_hex()[..32].to_owned())
    }
}

impl DigestPart<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Tensor(_, tensor) => &tensor.data.bytes,
        }
    }
}

/// Returns the hashes of both halves of a tree. `bytes` is the size of the pieces together.
fn halves(pieces: &[ChainingValue], bytes: u64) -> [ChainingValue; 2] {
    let left = left_subtree_len(bytes);
    let (before, after) = pieces.split_at((left / PIECE) as usize);
    [(before, left), (after, bytes - left)].map(|(pieces, bytes)| match pieces {
        [one] => *one,
        several => {
            let [left, right] = halves(several, bytes);
            merge_subtrees_non_root(&left, &right, Mode::Hash)
        }
    })
}

fn push_number(text: &mut Vec<u8>, value: usize) {
    text.extend((value as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_hash_of_all_bytes() {
        let piece = PIECE as usize;
        for bytes in [1, piece - 1, piece, piece + 1, 2 * piece, 5 * piece + 1025] {
            let text: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            let cuts = [bytes / 3, bytes / 2];
            let parts = [0..cuts[0], cuts[0]..cuts[1], cuts[1]..bytes];
            let parts = parts.map(|range| DigestPart::Text(text[range].to_vec()));
            let input = DigestInput::from_parts(parts.into());
            let pieces: Vec<_> = (0..input.pieces()).map(|i| input.hash(i)).collect();
            let expected = blake3::hash(&text).to_hex();
            assert_eq!(input.digest(pieces).unwrap(), expected[..32], "{bytes}");
        }
    }
}
