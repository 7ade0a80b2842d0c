//! The identity of a model.

use std::collections::{BTreeMap, HashMap};
use std::ptr;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use blake3::{Hash, Hasher};

use super::CheckpointError;
use super::finite::first_not_finite;
use super::parameters::{Parameter, head_parameters, parameters};
use super::stored::{Entry, Stored};
use crate::{Head, ModelConfig};

/// Bytes that are hashed at once, a power of two: the weights among them are still in the second cache when they are packed.
pub(super) const PIECE: u64 = 1 << 18;

/// What is hashed, from its first byte to its last. BLAKE3 is a tree, so that pieces can be hashed in any order.
pub(super) struct DigestInput<'a> {
    parts: Vec<Part<'a>>,
    /// Where each part begins.
    begins: Vec<u64>,
    /// The same of tensors, by where they are in memory.
    places: HashMap<usize, u64>,
    /// The same by where their bytes are.
    addresses: BTreeMap<usize, u64>,
    bytes: u64,
}

enum Part<'a> {
    Text(Vec<u8>),
    Tensor(String, &'a Entry<'a>),
}

/// A piece that was hashed.
pub(super) struct Hashed {
    value: ChainingValue,
    /// The first weight in it that is not finite.
    wrong: Option<CheckpointError>,
}

impl<'a> DigestInput<'a> {
    /// That of a model: the configuration, every encoder tensor as it is stored (name, type, shape, bytes, in the order of
    /// computation) and the rotary frequencies in use.
    pub(super) fn for_model(
        config: &ModelConfig,
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
    pub(super) fn for_head(config: &ModelConfig, stored: &'a Stored<'a>, head: Head) -> Self {
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
            parts.push(Part::Tensor(name, entry));
        }
        parts.push(Part::Text(end));
        Self::new_from_parts(parts)
    }

    fn new_from_parts(parts: Vec<Part<'a>>) -> Self {
        let (mut begins, mut places, mut bytes) = (Vec::new(), HashMap::new(), 0);
        let mut addresses = BTreeMap::new();
        for part in &parts {
            begins.push(bytes);
            if let Part::Tensor(_, entry) = part {
                places.insert(ptr::from_ref(*entry).addr(), bytes);
                addresses.insert(entry.view.extent().as_ptr().addr(), bytes);
            }
            bytes += part.len();
        }
        Self {
            parts,
            begins,
            places,
            addresses,
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

    /// The piece in which, as a rule, the byte of a file at an address is hashed.
    pub(super) fn piece_near(&self, address: usize) -> usize {
        let before = self.addresses.range(..=address).next_back();
        let place = before.map_or(0, |(begin, place)| place + (address - begin) as u64);
        ((place / PIECE) as usize).min(self.pieces() - 1)
    }

    /// The tensors that lie in a piece.
    pub(super) fn tensors(&self, piece: usize) -> impl Iterator<Item = &'a Entry<'a>> {
        self.parts_of(piece).filter_map(|(_, part)| match part {
            Part::Tensor(_, entry) => Some(*entry),
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

    fn hasher(&self, piece: usize) -> (Hasher, Option<CheckpointError>) {
        let begin = piece as u64 * PIECE;
        let mut hasher = Hasher::new();
        hasher.set_input_offset(begin);
        let mut wrong = None;
        for (first, part) in self.parts_of(piece) {
            let cut = |at: u64| at.saturating_sub(first).min(part.len()) as usize;
            let range = cut(begin)..cut(begin + PIECE);
            match part {
                Part::Text(text) => {
                    hasher.update(&text[range]);
                }
                Part::Tensor(name, entry) => {
                    // A piece may begin and end inside of a value.
                    let width = entry.stored().bytes();
                    let first = range.start / width;
                    let values = first * width..range.end.next_multiple_of(width);
                    let bytes = entry.view.bytes(values.clone());
                    hasher.update(&bytes[range.start - values.start..range.end - values.start]);
                    wrong = wrong.or_else(|| not_finite(name, entry, first, &bytes));
                }
            }
        }
        (hasher, wrong)
    }

    /// What [`digest`](Self::digest) has to know of a piece.
    pub(super) fn hash(&self, piece: usize) -> Hashed {
        let (hasher, wrong) = self.hasher(piece);
        Hashed {
            value: hasher.finalize_non_root(),
            wrong,
        }
    }

    /// BLAKE3 of it all, 128 bits in hexadecimal, given the hashes of the pieces, if all weights are finite.
    pub(super) fn digest(&self, pieces: Vec<Hashed>) -> Result<String, CheckpointError> {
        let pieces = pieces.into_iter().map(|piece| match piece.wrong {
            Some(wrong) => Err(wrong),
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

impl Part<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Tensor(_, entry) => entry.view.len() as u64,
        }
    }
}

/// What is wrong with the values of a tensor in `bytes`, which begin with the value `first`.
pub(super) fn not_finite(
    name: &str,
    entry: &Entry<'_>,
    first: usize,
    bytes: &[u8],
) -> Option<CheckpointError> {
    let (stored, mut found) = (entry.stored(), [0.0]);
    let place = first_not_finite(stored, bytes)?;
    let value = place * stored.bytes()..(place + 1) * stored.bytes();
    stored.widen(&bytes[value], &mut found);
    Some(CheckpointError::NotFinite {
        path: entry.path().to_owned(),
        tensor: name.to_owned(),
        index: first + place,
        found: found[0],
    })
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
            let input = DigestInput::new_from_parts(parts.into());
            let pieces: Vec<_> = (0..input.pieces()).map(|i| input.hash(i)).collect();
            let expected = blake3::hash(&text).to_hex();
            assert_eq!(input.digest(pieces).unwrap(), expected[..32], "{bytes}");
        }
    }
}
