//! A batch on the device.

use tch::{Device, Kind, Tensor};

use crate::transfer::upload;
use crate::vocabulary::CLS;
use crate::{EsmError, Varlen};

/// The least rows of a GEMM: libtorch takes another kernel for a few, whose sums round otherwise, and a sequence in
/// another company would get other last bits.
const LEAST_ROWS: usize = 16;

/// What the forward pass reads of a batch.
#[derive(Debug)]
pub(crate) struct Packed<'a> {
    /// The batch in host memory.
    pub(crate) varlen: Varlen<'a>,
    /// Token ids, `(rows)` i64: those of the batch, and `<cls>` up to 16 where it has fewer.
    pub(crate) tokens: Tensor,
    /// The position of each token in its own sequence, `<cls>` being 0: `(rows)` f32, exact below 2^24.
    pub(crate) positions: Tensor,
    /// Where each sequence begins and the last one ends, `(sequences + 1)` i32.
    pub(crate) offsets: Tensor,
    /// The tokens of the longest sequence.
    pub(crate) longest: i64,
    /// The type in which GEMMs and attention compute.
    pub(crate) kind: Kind,
}

impl<'a> Packed<'a> {
    /// Copies a batch to `device`.
    pub(crate) fn new(varlen: Varlen<'a>, kind: Kind, device: Device) -> Result<Self, EsmError> {
        let mut tokens = varlen.tokens().to_vec();
        let mut positions: Vec<f32> = varlen
            .spans()
            .flat_map(|span| (0..span.len()).map(|position| position as f32))
            .collect();
        let rows = tokens.len().max(LEAST_ROWS);
        tokens.resize(rows, CLS);
        positions.resize(rows, 0.0);
        Ok(Self {
            varlen,
            tokens: upload(&Tensor::f_from_slice(&tokens)?, device)?.f_to_kind(Kind::Int64)?,
            positions: upload(&Tensor::f_from_slice(&positions)?, device)?,
            offsets: upload(&Tensor::f_from_slice(varlen.cu_seqlens())?, device)?,
            longest: varlen
                .spans()
                .map(|span| span.len() as i64)
                .max()
                .unwrap_or(0),
            kind,
        })
    }

    /// The rows of `x` that are tokens of the batch: `(rows, n)` to `(total_tokens, n)`.
    pub(crate) fn own(&self, x: &Tensor) -> Result<Tensor, EsmError> {
        Ok(x.f_narrow(0, 0, self.varlen.total_tokens() as i64)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_restart_with_each_sequence() {
        let tokens = [0, 20, 5, 2, 0, 6, 2];
        let batch = Packed::new(
            Varlen::new(&tokens, &[0, 4, 7]).unwrap(),
            Kind::Float,
            Device::Cpu,
        )
        .unwrap();
        let positions = Vec::<f32>::try_from(&batch.positions).unwrap();
        assert_eq!(positions[..7], [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0]);
        let ids = Vec::<i64>::try_from(&batch.tokens).unwrap();
        assert_eq!(ids[..7], [0, 20, 5, 2, 0, 6, 2]);
        assert_eq!((positions.len(), ids.len()), (LEAST_ROWS, LEAST_ROWS));
        assert_eq!(batch.own(&batch.positions).unwrap().size1().unwrap(), 7);
    }
}
