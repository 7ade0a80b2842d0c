//! Contacts from attention maps (Rao et al. 2021, doi:10.1101/2020.12.15.422761), in the memory of one map.
//!
//! fair-esm stacks the maps of all layers and heads, `(layers·heads, T, T)`, removes `<cls>` and `<eos>`, makes each map
//! symmetric, `S = A + Aᵀ`, applies the average product correction, `S - r·rᵀ/s` with the row sums `r` of `S` and their
//! sum `s`, and takes the logistic regression over maps. Only the last step mixes maps, and it is a weighted sum. So this
//! module sums over maps first:
//!
//! ```text
//! Σ w(S - r·rᵀ/s)  =  (Σ wA) + (Σ wA)ᵀ - Rᵀ·diag(w/s)·R        R: (layers·heads, L), the r of all maps
//! ```
//!
//! A protein of `L` residues needs the memory of one `(T, T)` map and `R`.

use std::ops::Range;

use tch::{Device, Kind, Tensor};

use crate::CudaError;

/// The most values of attention maps in memory at once, unless one map has more.
const MAP_VALUES: i64 = 1 << 22;

/// The logistic regression over attention maps.
#[derive(Debug)]
pub(crate) struct ContactHead {
    /// `(layers·heads)`, layer by layer.
    pub(crate) weight: Tensor,
    /// `(1)`
    pub(crate) bias: Tensor,
}

/// Collects the contacts of a sequence of `T` tokens, `L` of them residues, while the layers are computed: sums over its maps.
#[derive(Debug)]
pub(crate) struct Contacts<'a> {
    head: &'a ContactHead,
    first: i64,
    tokens: i64,
    /// `(1, T·T)`: the weighted sum of the maps.
    maps: Tensor,
    /// `(heads, L)` for each layer: row sums of the symmetric maps.
    rows: Vec<Tensor>,
}

impl<'a> Contacts<'a> {
    pub(crate) fn new(
        head: &'a ContactHead,
        span: &Range<usize>,
        device: Device,
    ) -> Result<Self, CudaError> {
        let tokens = span.len() as i64;
        Ok(Self {
            head,
            first: span.start as i64,
            tokens,
            maps: Tensor::f_zeros([1, tokens * tokens], (Kind::Float, device))?,
            rows: Vec::new(),
        })
    }

    /// Adds the maps of the next layer, whose queries, keys and values are `(total_tokens, 3, heads, head_dim)` with
    /// the first two rotated.
    pub(crate) fn add(&mut self, qkv: &Tensor) -> Result<(), CudaError> {
        let (_, _, heads, head_dim) = qkv.size4()?;
        let tokens = self.tokens;
        let own = qkv
            .f_narrow(0, self.first, tokens)?
            .f_to_kind(Kind::Float)?
            .f_permute([1, 2, 0, 3])?; // (3, heads, T, head_dim)
        let (queries, keys) = (own.f_get(0)?, own.f_get(1)?);
        let queries = queries.f_mul_scalar((head_dim as f64).powf(-0.5))?;
        let weight = (self.head.weight).f_narrow(0, self.rows.len() as i64 * heads, heads)?;
        let rows = Tensor::f_empty([heads, tokens - 2], (Kind::Float, qkv.device()))?;
        let at_once = (MAP_VALUES / (tokens * tokens)).clamp(1, heads);
        for first in (0..heads).step_by(at_once as usize) {
            let count = at_once.min(heads - first);
            let some = |all: &Tensor| all.f_narrow(0, first, count);
            let maps = some(&queries)?
                .f_matmul(&some(&keys)?.f_transpose(1, 2)?)?
                .f_softmax(-1, Kind::Float)?; // (count, T, T)
            let residues = maps
                .f_narrow(1, 1, tokens - 2)?
                .f_narrow(2, 1, tokens - 2)?;
            let sum = |dim: i64| residues.f_sum_dim_intlist([dim].as_slice(), false, Kind::Float);
            some(&rows)?.f_copy_(&sum(1)?.f_add(&sum(2)?)?)?;
            let maps = maps.f_view([count, tokens * tokens])?;
            let _ = self.maps.f_addmm_(&some(&weight)?.f_unsqueeze(0)?, &maps)?;
        }
        self.rows.push(rows);
        Ok(())
    }

    /// Returns the contact probabilities, `(L, L)`.
    pub(crate) fn finish(self) -> Result<Tensor, CudaError> {
        let (tokens, residues) = (self.tokens, self.tokens - 2);
        let maps = self
            .maps
            .f_view([tokens, tokens])?
            .f_narrow(0, 1, residues)?
            .f_narrow(1, 1, residues)?;
        let rows = Tensor::f_cat(&self.rows, 0)?; // (layers·heads, L)
        let sums = rows.f_sum_dim_intlist([1].as_slice(), true, Kind::Float)?; // (layers·heads, 1)
        let scaled = rows.f_mul(&self.head.weight.f_unsqueeze(1)?.f_neg()?.f_div(&sums)?)?;
        let mut logits = maps.f_add(&maps.f_tr()?)?;
        let _ = logits.f_addmm_(&rows.f_tr()?, &scaled)?;
        let probabilities = logits.f_add(&self.head.bias)?.f_sigmoid()?;
        // The mean is symmetric to the bit. Products and libtorch's sigmoid round differently in places.
        Ok(probabilities
            .f_add(&probabilities.f_tr()?)?
            .f_mul_scalar(0.5)?)
    }
}

#[cfg(test)]
mod tests {
    use plmkit_esm2::Varlen;

    use super::*;

    /// fair-esm's head in f64 for the `(layers·heads, T, T)` maps of a sequence.
    fn written_out(maps: &Tensor, head: &ContactHead) -> Tensor {
        let residues = maps.size()[1] - 2;
        let maps = maps.narrow(1, 1, residues).narrow(2, 1, residues);
        let maps = &maps + maps.transpose(1, 2);
        let rows = maps.sum_dim_intlist([2].as_slice(), true, Kind::Double);
        let columns = maps.sum_dim_intlist([1].as_slice(), true, Kind::Double);
        let all = rows.sum_dim_intlist([1].as_slice(), true, Kind::Double);
        let corrected = maps - rows * columns / all;
        let weight = head.weight.to_kind(Kind::Double).view([-1, 1, 1]);
        let logits = (corrected * weight).sum_dim_intlist([0].as_slice(), false, Kind::Double);
        (logits + head.bias.to_kind(Kind::Double)).sigmoid()
    }

    #[test]
    fn summing_over_maps_first_gives_the_same_contacts() {
        tch::manual_seed(3);
        let (layers, heads, head_dim) = (3, 4, 8);
        let head = ContactHead {
            weight: Tensor::randn([layers * heads], (Kind::Float, Device::Cpu)) * 4.0,
            bias: Tensor::from_slice(&[-0.5f32]),
        };
        let mut tokens = vec![5u8; 40 + 3];
        let cu_seqlens = [0, 40, 43];
        for (first, last) in [(0, 39), (40, 42)] {
            tokens[first] = 0;
            tokens[last] = 2;
        }
        let batch = Varlen::new(&tokens, &cu_seqlens).unwrap();
        let spans = batch.spans();
        let contacts = spans.map(|span| Contacts::new(&head, &span, Device::Cpu).unwrap());
        let mut contacts: Vec<_> = contacts.collect();
        let mut maps = [Vec::new(), Vec::new()];
        for _ in 0..layers {
            let qkv = Tensor::randn([43, 3, heads, head_dim], (Kind::Float, Device::Cpu)) * 2.0;
            for own in &mut contacts {
                own.add(&qkv).unwrap();
            }
            for (maps, span) in maps.iter_mut().zip(batch.spans()) {
                let own = qkv.narrow(0, span.start as i64, span.len() as i64);
                let own = own.to_kind(Kind::Double).permute([1, 2, 0, 3]);
                let scores = own.get(0).matmul(&own.get(1).transpose(1, 2));
                maps.push((scores / (head_dim as f64).sqrt()).softmax(-1, Kind::Double));
            }
        }
        let found = contacts.into_iter().map(|own| own.finish().unwrap());
        let found: Vec<_> = found.map(|map| map.flatten(0, -1)).collect();
        let found = Tensor::cat(&found, 0).to_kind(Kind::Double);
        let expected = maps.map(|maps| written_out(&Tensor::cat(&maps, 0), &head).flatten(0, -1));
        let error = (found - Tensor::cat(&expected, 0))
            .abs()
            .max()
            .double_value(&[]);
        assert!(error < 1e-6, "{error}");
    }
}
