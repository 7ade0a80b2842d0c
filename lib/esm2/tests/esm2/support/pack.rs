//! Several sequences laid end to end.

use std::ops::Range;

use plmkit_contract::{Column, Pooling};
use plmkit_esm2::{Dtype, Esm2, Varlen};
use plmkit_kit::Stop;

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

    /// Where the values of a sequence lie in one of [`layers`](Self::layers), whose rows have so many channels.
    pub fn values(&self, sequence: usize, channels: usize) -> Range<usize> {
        let at = |i: usize| (self.cu_seqlens[i] as usize - i) * channels;
        at(sequence)..at(sequence + 1)
    }

    /// Every layer's output for all tokens but `<eos>`, which no output has.
    pub fn layers(&self, model: &Esm2) -> Vec<Vec<f32>> {
        let config = model.info().config();
        let layers = 0..=u32::try_from(config.layers).unwrap();
        let columns = layers.flat_map(|layer| {
            let pool = Pooling::Bos;
            [Column::Pooled { pool, layer }, Column::Residues(layer)]
        });
        let columns: Vec<Column> = columns.collect();
        let dtype = model.info().dtype;
        let values = model.embed(self.batch(), &columns, dtype, &Stop::default());
        let values = values.unwrap();
        let joined = values.chunks(2).map(|values| {
            let (bos, residues) = (&values[0], &values[1]);
            let mut joined = Vec::new();
            for (i, bos) in bos.chunks(config.hidden).enumerate() {
                let start = joined.len() - i * config.hidden;
                let count = self.values(i, config.hidden).len() - config.hidden;
                joined.extend_from_slice(bos);
                joined.extend_from_slice(&residues[start..start + count]);
            }
            joined
        });
        joined.collect()
    }

    /// One pooling of the last layer, one vector for each sequence.
    pub fn pooled(&self, model: &Esm2, pool: Pooling) -> Vec<Vec<f32>> {
        let layer = u32::try_from(model.info().config().layers).unwrap();
        let columns = model
            .embed(
                self.batch(),
                &[Column::Pooled { pool, layer }],
                Dtype::F32,
                &Stop::default(),
            )
            .unwrap();
        columns[0]
            .chunks_exact(model.info().config().hidden)
            .map(<[f32]>::to_vec)
            .collect()
    }
}
