//! The vectors of residues, out of those of all tokens.

use tch::{Device, Kind, Tensor};

use crate::transfer::{Values, upload};
use crate::{EsmError, Varlen};

/// The rows of `(total_tokens, n)` that belong to residues, in f32: `<cls>` and `<eos>` are left out.
pub(crate) fn residues(x: &Tensor, batch: Varlen<'_>) -> Result<Values, EsmError> {
    if x.device() != Device::Cpu {
        let rows = batch
            .spans()
            .flat_map(|span| span.start as i64 + 1..span.end as i64 - 1);
        let rows = upload(
            &Tensor::f_from_slice(&rows.collect::<Vec<_>>())?,
            x.device(),
        )?;
        return Values::of(&x.f_index_select(0, &rows)?);
    }
    let x = x.f_to_kind(Kind::Float)?.f_contiguous()?;
    let width = x.size2()?.1 as usize;
    let mut values = Vec::with_capacity((batch.total_tokens() - 2 * batch.sequences()) * width);
    for span in batch.spans() {
        let own = x.f_narrow(0, span.start as i64 + 1, span.len() as i64 - 2)?;
        values.extend(Vec::<f32>::try_from(own.f_flatten(0, -1)?)?);
    }
    Ok(Values::Here(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_tokens_are_left_out() {
        let x = Tensor::arange(14, (Kind::Float, Device::Cpu)).view([7, 2]);
        let batch = Varlen::new(&[0, 20, 5, 2, 0, 6, 2], &[0, 4, 7]).unwrap();
        let Values::Here(values) = residues(&x, batch).unwrap() else {
            panic!("a CPU copies at once");
        };
        assert_eq!(values, [2.0, 3.0, 4.0, 5.0, 10.0, 11.0]);
    }
}
