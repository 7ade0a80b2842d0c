//! Finds weights that are infinite or not a number.

use plmkit_cpu::widen;

use super::CheckpointError;
use super::stored_tensor::StoredTensor;
use crate::Dtype;

impl StoredTensor<'_> {
    /// Checks that the values in `piece`, which begins at the byte `begin`, are finite. `name` is for the error.
    pub(super) fn check_finite(
        &self,
        name: &str,
        begin: usize,
        piece: &[u8],
    ) -> Result<(), CheckpointError> {
        let (stored, width) = (self.stored_type(), self.stored_type().bytes());
        let Some(place) = first_not_finite(stored, piece) else {
            return Ok(());
        };
        let mut found = [0.0];
        widen(stored, &piece[place * width..][..width], &mut found);
        let index = begin / width + place;
        let reason = format!(
            "tensor '{name}': expected finite values, found {} at index {index}",
            found[0]
        );
        Err(CheckpointError::invalid(self.path(), reason))
    }
}

/// Returns the index of the first value that is not finite: all bits of its exponent are set.
fn first_not_finite(stored: Dtype, bytes: &[u8]) -> Option<usize> {
    match stored {
        Dtype::F32 => position(bytes, |value| {
            u32::from_le_bytes(value) & 0x7f80_0000 == 0x7f80_0000
        }),
        Dtype::F16 => position(bytes, |value| u16::from_le_bytes(value) & 0x7c00 == 0x7c00),
        Dtype::Bf16 => position(bytes, |value| u16::from_le_bytes(value) & 0x7f80 == 0x7f80),
        Dtype::Int8 => None,
    }
}

fn position<const WIDTH: usize>(bytes: &[u8], is: impl Fn([u8; WIDTH]) -> bool) -> Option<usize> {
    let (values, _) = bytes.as_chunks();
    // No branch for each value, so that the loop is vectorised.
    let any = values.iter().fold(false, |any, value| any | is(*value));
    let position = || values.iter().position(|value| is(*value));
    any.then(position).flatten()
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn values_that_are_not_finite_are_found_in_every_type() {
        let f32s = |value: f32| value.to_le_bytes().to_vec();
        let f16s = |value: f32| f16::from_f32(value).to_le_bytes().to_vec();
        let bf16s = |value: f32| bf16::from_f32(value).to_le_bytes().to_vec();
        let cases: [(_, &dyn Fn(f32) -> Vec<u8>, _); 3] = [
            (Dtype::F32, &f32s, f32::MAX),
            (Dtype::F16, &f16s, f16::MAX.to_f32()),
            (Dtype::Bf16, &bf16s, bf16::MAX.to_f32()),
        ];
        for (stored, bytes_of, max) in cases {
            for value in [
                f32::NAN,
                -f32::NAN,
                f32::INFINITY,
                f32::NEG_INFINITY,
                max,
                -max,
                0.0,
                -0.0,
            ] {
                let bytes = [vec![bytes_of(1.5); 33], vec![bytes_of(value); 2]]
                    .concat()
                    .concat();
                let expected = (!value.is_finite()).then_some(33);
                assert_eq!(
                    first_not_finite(stored, &bytes),
                    expected,
                    "{stored:?} {value}"
                );
            }
        }
    }
}
