//! Several sequences laid end to end.

use std::ops::Range;

use plmkit_contract::{Column, Pooling, Stop};
use plmkit_esm2::{Dtype, Esm2, Varlen};

/// A batch that owns its tokens.
pub struct Pack {
    tokens: Vec<u8>,
    cu_seqlens: Vec<i32>,
}

impl Pack {
    pub fn of<'a>(sequences: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let (mut tokens, mut cu_seqlens) = (Vec::new(), vec![0]);
        for sequence in sequences {
            tokens.extend_from_slice(sequence);
            cu_seqlens.push(i32::try_from(tokens.len()).unwrap());
        }
        Self { tokens, cu_seqlens }
    }

    pub fn batch(&self) -> Varlen<'_> {
        Varlen::new(&self.tokens, &self.cu_seqlens).unwrap()
    }

    /// Where the values of a sequence lie in a `(total_tokens, channels)` array.
    pub fn values(&self, sequence: usize, channels: usize) -> Range<usize> {
        let at = |i: usize| self.cu_seqlens[i] as usize * channels;
        at(sequence)..at(sequence + 1)
    }

    /// Every layer's output, `(total_tokens, hidden)` each.
    pub fn layers(&self, model: &Esm2) -> Vec<Vec<f32>> {
        let mut layers = Vec::new();
        model
            .hidden_states(self.batch(), model.config().layers, &mut |layer, hidden| {
                assert_eq!(layer, layers.len());
                layers.push(hidden.to_vec());
                Ok(())
            })
            .unwrap();
        layers
    }

    /// One pooling of the last layer, one vector for each sequence.
    pub fn pooled(&self, model: &Esm2, pool: Pooling) -> Vec<Vec<f32>> {
        let layer = u32::try_from(model.config().layers).unwrap();
        let columns = model
            .embed(
                self.batch(),
                &[Column::Pooled { pool, layer }],
                Dtype::F32,
                &Stop::default(),
            )
            .unwrap();
        columns[0]
            .chunks_exact(model.config().hidden)
            .map(<[f32]>::to_vec)
            .collect()
    }
}
