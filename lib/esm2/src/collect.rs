//! The vectors of residues, out of those of all tokens.

use std::ops::Range;

use tch::{Kind, Tensor};

use crate::EsmError;
use crate::device_batch::DeviceBatch;
use crate::transfer::{Transfer, Values};

/// The rows of `(total_tokens, n)` that belong to residues, in f32: `<cls>` and `<eos>` are left out. The batch was copied with
/// the rows of residues.
pub(crate) fn residues(
    x: &Tensor,
    batch: &DeviceBatch,
    transfer: &Transfer,
) -> Result<Values, EsmError> {
    if let Some(rows) = &batch.residues {
        // A copy, since the next layer overwrites hidden states.
        return transfer.download([Ok(x.f_index_select(0, rows)?)]);
    }
    let batch = batch.varlen;
    let x = x.f_to_kind(Kind::Float)?.f_contiguous()?;
    let width = x.size2()?.1 as usize;
    let residues = batch.total_tokens() - 2 * batch.sequences();
    let own = |span: Range<usize>| x.f_narrow(0, span.start as i64 + 1, span.len() as i64 - 2);
    let own = batch.spans().map(|span| Ok(own(span)?));
    Ok(Values::Here(transfer.gather(residues * width, own)?))
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::Varlen;

    #[test]
    fn special_tokens_are_left_out_one_way_and_the_other() {
        let x = Tensor::arange(14, (Kind::Float, Device::Cpu)).view([7, 2]);
        let varlen = Varlen::new(&[0, 20, 5, 2, 0, 6, 2], &[0, 4, 7]).unwrap();
        let transfer = Transfer::new(Device::Cpu, false).unwrap();
        for rows in [false, true] {
            let (batch, _) = DeviceBatch::new(varlen, Kind::Float, &transfer, rows).unwrap();
            let Values::Here(values) = residues(&x, &batch, &transfer).unwrap() else {
                panic!("a CPU copies at once");
            };
            assert_eq!(values[..], [2.0, 3.0, 4.0, 5.0, 10.0, 11.0]);
        }
    }
}
