//! A batch on the device.

use plmkit_contract::CLS;
use plmkit_esm2::{KernelKind, Varlen};
use tch::{Kind, Tensor};

use crate::CudaError;
use crate::timing::{KernelTimer, Span};
use crate::transfer::{Transfer, Values};

/// The least rows of a matrix product. For fewer, libtorch uses a kernel that rounds differently, which would break batch
/// invariance.
const MIN_ROWS: usize = 16;

/// The input of a forward pass.
#[derive(Debug)]
pub(crate) struct DeviceBatch<'a> {
    /// The batch in host memory.
    pub(crate) varlen: Varlen<'a>,
    /// Token ids, `(rows)` u8: those of the batch, padded with `<cls>` to 16.
    pub(crate) tokens: Tensor,
    /// The position of each token in its sequence, from 0 for `<cls>`: `(rows)` f32, exact below 2^24.
    pub(crate) positions: Tensor,
    /// Where each sequence begins and the last one ends, `(sequences + 1)` i32.
    pub(crate) offsets: Tensor,
    /// The share of unmasked tokens of each sequence, `(sequences)` f32; `None` if no token is masked.
    pub(crate) kept: Option<Tensor>,
    /// The rows that are residues, `(residues)` i64, if they were asked for.
    pub(crate) residues: Option<Tensor>,
    /// The tokens of the longest sequence.
    pub(crate) longest: i64,
    /// The type of matrix products and attention.
    pub(crate) kind: Kind,
    /// Measures the time of each kind of work, if asked for.
    pub(crate) timer: Option<KernelTimer>,
}

impl<'a> DeviceBatch<'a> {
    /// Copies a batch to the device, with the rows of residues if `residues`. Returns the time span of the copy, if the device
    /// measures it.
    pub(crate) fn new(
        varlen: Varlen<'a>,
        kind: Kind,
        transfer: &Transfer,
        residues: bool,
    ) -> Result<(Self, Option<Span>), CudaError> {
        let mut tokens = varlen.tokens().to_vec();
        let mut positions: Vec<f32> = varlen
            .spans()
            .flat_map(|span| (0..span.len()).map(|position| position as f32))
            .collect();
        let rows = tokens.len().max(MIN_ROWS);
        tokens.resize(rows, CLS);
        positions.resize(rows, 0.0);
        let tokens = transfer.stage(&tokens)?;
        let positions = transfer.stage(&positions)?;
        let offsets = transfer.stage(varlen.cu_seqlens())?;
        let kept = varlen.shares_kept();
        let kept = kept.map(|kept| transfer.stage(&kept)).transpose()?;
        let residues = residues.then(|| {
            let rows = varlen.spans();
            let rows = rows.flat_map(|span| span.start as i64 + 1..span.end as i64 - 1);
            transfer.stage(&rows.collect::<Vec<_>>())
        });
        let residues = residues.transpose()?;
        let begin = transfer.begin_upload()?;
        let packed = Self {
            varlen,
            tokens: transfer.copy(&tokens)?,
            positions: transfer.copy(&positions)?,
            offsets: transfer.copy(&offsets)?,
            kept: kept.map(|kept| transfer.copy(&kept)).transpose()?,
            residues: residues.map(|rows| transfer.copy(&rows)).transpose()?,
            longest: varlen.longest() as i64,
            kind,
            timer: transfer.timer(),
        };
        Ok((packed, transfer.end_upload(begin)?))
    }

    /// Measures the work of the device since the last call, which was `work`.
    pub(crate) fn time(&self, work: KernelKind) -> Result<(), CudaError> {
        match &self.timer {
            Some(timer) => timer.record(work),
            None => Ok(()),
        }
    }

    /// Removes padding: `(rows, n)` to `(total_tokens, n)`.
    pub(crate) fn own(&self, x: &Tensor) -> Result<Tensor, CudaError> {
        Ok(x.f_narrow(0, 0, self.varlen.total_tokens() as i64)?)
    }

    /// Downloads the rows of `x`, `(total_tokens, n)`, that are residues, in f32.
    pub(crate) fn residues(&self, x: &Tensor, transfer: &Transfer) -> Result<Values, CudaError> {
        if let Some(rows) = &self.residues {
            // A copy, since the next layer overwrites hidden states.
            return transfer.download([Ok(x.f_index_select(0, rows)?)]);
        }
        let spans = self.varlen.spans();
        transfer.download(
            spans.map(|span| Ok(x.f_narrow(0, span.start as i64 + 1, span.len() as i64 - 2)?)),
        )
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    #[test]
    fn positions_and_residues_are_those_of_each_sequence() {
        let tokens = [0, 20, 5, 2, 0, 32, 2];
        let varlen = Varlen::new(&tokens, &[0, 4, 7]).unwrap();
        let transfer = Transfer::new(Device::Cpu, false).unwrap();
        let (batch, copied) = DeviceBatch::new(varlen, Kind::Float, &transfer, true).unwrap();
        assert!(copied.is_none());
        let positions = Vec::<f32>::try_from(&batch.positions).unwrap();
        assert_eq!(positions[..7], [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0]);
        let ids = Vec::<u8>::try_from(&batch.tokens).unwrap();
        assert_eq!(ids[..7], tokens);
        assert_eq!((positions.len(), ids.len()), (MIN_ROWS, MIN_ROWS));
        assert_eq!(batch.own(&batch.positions).unwrap().size1().unwrap(), 7);
        let list = |tensor: &Option<Tensor>| tensor.as_ref().map(Tensor::shallow_clone).unwrap();
        assert_eq!(
            Vec::<i64>::try_from(list(&batch.residues)).unwrap(),
            [1, 2, 5]
        );
        assert_eq!(
            Vec::<f32>::try_from(list(&batch.kept)).unwrap(),
            [1.0, 1.0 - 1.0 / 3.0]
        );
        let x = Tensor::arange(14, (Kind::Float, Device::Cpu)).view([7, 2]);
        let (plain, _) = DeviceBatch::new(varlen, Kind::Float, &transfer, false).unwrap();
        assert!(plain.residues.is_none());
        for batch in [batch, plain] {
            let values = batch.residues(&x, &transfer).unwrap();
            assert_eq!(values.read(), [2.0, 3.0, 4.0, 5.0, 10.0, 11.0]);
        }
    }
}
