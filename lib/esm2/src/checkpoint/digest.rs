//! The identity of a model.

use std::collections::HashMap;
use std::ptr;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use blake3::{Hash, Hasher};

use super::parameters::{Parameter, head_parameters, parameters};
use super::stored::{Entry, Stored};
use crate::{Config, Head};

/// Bytes that are hashed at once, a power of two: the weights among them are still in the second cache when they are packed.
pub(super) const PIECE: u64 = 1 << 18;

/// What is hashed, from its first byte to its last. BLAKE3 is a tree, so that pieces can be hashed in any order.
pub(super) struct Input<'a> {
    parts: Vec<Part<'a>>,
    /// Where each part begins.
    begins: Vec<u64>,
    /// The same of tensors, by where they are in memory.
    places: HashMap<usize, u64>,
    bytes: u64,
}

enum Part<'a> {
    Text(Vec<u8>),
    Tensor(&'a Entry<'a>),
}

impl<'a> Input<'a> {
    /// That of a model: the configuration, every encoder tensor as it is stored (name, type, shape, bytes, in the order of
    /// computation) and the rotary frequencies in use.
    pub(super) fn of_model(
        config: &Config,
        stored: &'a Stored<'a>,
        frequencies: &[Vec<f32>],
    ) -> Self {
        let mut text = b"plmkit esm2 encoder\0".to_vec();
        for size in [
            config.layers,
            config.hidden,
            config.heads,
            config.intermediate,
        ] {
            number(&mut text, size);
        }
        text.extend(config.layer_norm_eps.to_le_bytes());
        text.push(u8::from(config.token_dropout));
        let end = frequencies.iter().flatten();
        let end = end.flat_map(|frequency| frequency.to_le_bytes()).collect();
        Self::new(text, stored, parameters(config), end)
    }

    /// That of a head: its tensors as they are stored.
    pub(super) fn of_head(config: &Config, stored: &'a Stored<'a>, head: Head) -> Self {
        Self::new(
            Vec::new(),
            stored,
            head_parameters(config, head),
            Vec::new(),
        )
    }

    fn new(
        mut text: Vec<u8>,
        stored: &'a Stored<'a>,
        parameters: Vec<Parameter>,
        end: Vec<u8>,
    ) -> Self {
        let mut parts = Vec::new();
        for Parameter { name, .. } in parameters {
            let entry = stored.entry(&name);
            number(&mut text, name.len());
            text.extend(name.as_bytes());
            let dtype = entry.view.dtype().to_string();
            number(&mut text, dtype.len());
            text.extend(dtype.as_bytes());
            number(&mut text, entry.view.shape().len());
            for &size in entry.view.shape() {
                number(&mut text, size);
            }
            parts.push(Part::Text(std::mem::take(&mut text)));
            parts.push(Part::Tensor(entry));
        }
        parts.push(Part::Text(end));
        Self::of_parts(parts)
    }

    fn of_parts(parts: Vec<Part<'a>>) -> Self {
        let (mut begins, mut places, mut bytes) = (Vec::new(), HashMap::new(), 0);
        for part in &parts {
            begins.push(bytes);
            if let Part::Tensor(entry) = part {
                places.insert(ptr::from_ref(*entry).addr(), bytes);
            }
            bytes += part.len();
        }
        Self {
            parts,
            begins,
            places,
            bytes,
        }
    }

    /// The pieces to be hashed before [`digest`](Self::digest).
    pub(super) fn pieces(&self) -> usize {
        self.bytes.div_ceil(PIECE) as usize
    }

    /// The piece in which byte `at` of a tensor lies, if that is hashed.
    pub(super) fn piece_of(&self, entry: &Entry<'_>, at: usize) -> Option<usize> {
        let begin = self.places.get(&ptr::from_ref(entry).addr())?;
        Some(((begin + at as u64) / PIECE) as usize)
    }

    /// The tensors that lie in a piece.
    pub(super) fn tensors(&self, piece: usize) -> impl Iterator<Item = &'a Entry<'a>> {
        self.parts_of(piece).filter_map(|(_, part)| match part {
            Part::Tensor(entry) => Some(*entry),
            Part::Text(_) => None,
        })
    }

    /// The parts that lie in a piece, with the bytes before each.
    fn parts_of(&self, piece: usize) -> impl Iterator<Item = (u64, &Part<'a>)> {
        let (begin, end) = (piece as u64 * PIECE, (piece as u64 + 1) * PIECE);
        let first = self.begins.partition_point(|&other| other <= begin) - 1;
        let parts = self.begins[first..].iter().copied();
        parts
            .zip(&self.parts[first..])
            .take_while(move |&(other, _)| other < end)
    }

    fn hasher(&self, piece: usize) -> Hasher {
        let begin = piece as u64 * PIECE;
        let mut hasher = Hasher::new();
        hasher.set_input_offset(begin);
        for (first, part) in self.parts_of(piece) {
            let cut = |at: u64| at.saturating_sub(first).min(part.len()) as usize;
            let range = cut(begin)..cut(begin + PIECE);
            match part {
                Part::Text(text) => hasher.update(&text[range]),
                Part::Tensor(entry) => hasher.update(&entry.view.bytes(range)),
            };
        }
        hasher
    }

    /// What [`digest`](Self::digest) has to know of a piece.
    pub(super) fn hash(&self, piece: usize) -> ChainingValue {
        self.hasher(piece).finalize_non_root()
    }

    /// BLAKE3 of it all, 128 bits in hexadecimal, given the hashes of the pieces.
    pub(super) fn digest(&self, pieces: &[ChainingValue]) -> String {
        let hash: Hash = if pieces.len() == 1 {
            self.hasher(0).finalize()
        } else {
            let [left, right] = halves(pieces, self.bytes);
            merge_subtrees_root(&left, &right, Mode::Hash)
        };
        hash.to_hex()[..32].to_owned()
    }
}

impl Part<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Tensor(entry) => entry.view.len() as u64,
        }
    }
}

/// The hashes of both halves of a tree of several pieces that has so many bytes.
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

fn number(text: &mut Vec<u8>, value: usize) {
    text.extend((value as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_hash_of_the_whole() {
        let piece = PIECE as usize;
        for bytes in [1, piece - 1, piece, piece + 1, 2 * piece, 5 * piece + 1025] {
            let text: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            let cuts = [bytes / 3, bytes / 2];
            let parts = [0..cuts[0], cuts[0]..cuts[1], cuts[1]..bytes];
            let parts = parts.map(|range| Part::Text(text[range].to_vec()));
            let input = Input::of_parts(parts.into());
            let pieces: Vec<_> = (0..input.pieces()).map(|i| input.hash(i)).collect();
            let expected = blake3::hash(&text).to_hex();
            assert_eq!(input.digest(&pieces), expected[..32], "{bytes}");
        }
    }
}
