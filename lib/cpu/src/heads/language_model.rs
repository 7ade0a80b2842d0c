//! Residue vectors to logits of each token of the vocabulary.

use std::num::NonZeroUsize;

use crate::team::share;
use crate::{Epilogue, Isa, LayerNorm, Rows, RowsMut, Weights};

/// The head that ESM-2 was trained with, in f32.
#[derive(Debug)]
pub struct LanguageModelHead {
    /// `(hidden, hidden)`
    pub dense: Weights,
    /// `(hidden)`
    pub norm: LayerNorm,
    /// `(vocabulary, hidden)`: the stored word embeddings or a stored decoder, with a bias of its own.
    pub decoder: Weights,
}

/// The rows that a thread computes at once.
const BLOCK: usize = 96;

impl LanguageModelHead {
    /// Maps vectors of the last layer, `(tokens, hidden)`, to `out`, `(tokens, vocabulary)`.
    pub(crate) fn apply(&self, isa: Isa, x: Rows<'_>, out: &mut [f32], threads: NonZeroUsize) {
        let (hidden, vocabulary) = (x.width(), self.decoder.outputs());
        let blocks = x.values().chunks(BLOCK * hidden);
        let blocks = blocks.zip(out.chunks_mut(BLOCK * vocabulary)).collect();
        share(threads, blocks, |(x, out): (&[f32], &mut [f32])| {
            let [mut wide, mut normed] = [(); 2].map(|()| vec![0.0; x.len()]);
            let mut wide = RowsMut::new(&mut wide, hidden);
            let mut normed = RowsMut::new(&mut normed, hidden);
            self.dense
                .apply(Rows::new(x, hidden), &mut wide, Epilogue::Gelu, None);
            self.norm.apply(isa, wide.as_rows(), &mut normed);
            let out = &mut RowsMut::new(out, vocabulary);
            self.decoder
                .apply(normed.as_rows(), out, Epilogue::Store, None);
        });
    }
}
