//! A batch on the device.

use tch::{Device, Kind, Tensor};

use crate::{EsmError, Varlen};

/// What the forward pass reads of a batch.
#[derive(Debug)]
pub(crate) struct Packed<'a> {
    /// The batch in host memory.
    pub(crate) varlen: Varlen<'a>,
    /// Token ids, `(total_tokens)` i64.
    pub(crate) tokens: Tensor,
    /// The position of each token in its own sequence, `<cls>` being 0: `(total_tokens)` f32, exact below 2^24.
    pub(crate) positions: Tensor,
}

impl<'a> Packed<'a> {
    /// Copies a batch to `device`.
    pub(crate) fn new(varlen: Varlen<'a>, device: Device) -> Result<Self, EsmError> {
        let positions: Vec<f32> = varlen
            .spans()
            .flat_map(|span| (0..span.len()).map(|position| position as f32))
            .collect();
        Ok(Self {
            varlen,
            tokens: Tensor::f_from_slice(varlen.tokens())?
                .f_to_kind(Kind::Int64)?
                .f_to_device(device)?,
            positions: Tensor::f_from_slice(&positions)?.f_to_device(device)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_restart_with_each_sequence() {
        let tokens = [0, 20, 5, 2, 0, 6, 2];
        let batch = Packed::new(Varlen::new(&tokens, &[0, 4, 7]).unwrap(), Device::Cpu).unwrap();
        let positions = Vec::<f32>::try_from(&batch.positions).unwrap();
        assert_eq!(positions, [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0]);
        assert_eq!(
            Vec::<i64>::try_from(&batch.tokens).unwrap(),
            [0, 20, 5, 2, 0, 6, 2]
        );
    }
}
