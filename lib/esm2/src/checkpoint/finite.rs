//! Weights that are no numbers.

use plmkit_cpu::Stored;

/// The place of the first value among `bytes` that is infinite or not a number.
pub(super) fn first_not_finite(stored: Stored, bytes: &[u8]) -> Option<usize> {
    // An exponent of ones.
    match stored {
        Stored::F32 => first(bytes, |value| {
            u32::from_le_bytes(value) & 0x7f80_0000 == 0x7f80_0000
        }),
        Stored::F16 => first(bytes, |value| u16::from_le_bytes(value) & 0x7c00 == 0x7c00),
        Stored::Bf16 => first(bytes, |value| u16::from_le_bytes(value) & 0x7f80 == 0x7f80),
    }
}

fn first<const WIDTH: usize>(bytes: &[u8], is: impl Fn([u8; WIDTH]) -> bool) -> Option<usize> {
    let (values, _) = bytes.as_chunks();
    // Without a branch for each value, so that many are looked at at once.
    let any = values.iter().fold(false, |any, value| any | is(*value));
    let place = || values.iter().position(|value| is(*value));
    any.then(place).flatten()
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn what_is_not_finite_is_found_in_every_type() {
        let odd = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        for value in odd.into_iter().chain([f32::MAX, f32::MIN, 0.0, -0.0]) {
            let narrow = if value.is_finite() {
                value.signum()
            } else {
                value
            };
            let expected = odd.iter().any(|odd| odd.to_bits() == value.to_bits());
            let expected = expected.then_some(33);
            let f32s = [[1.5, value].map(f32::to_le_bytes), [[0; 4]; 2]].concat();
            let f32s = [vec![[0; 4]; 32], f32s].concat().concat();
            assert_eq!(first_not_finite(Stored::F32, &f32s), expected);
            for (stored, bytes) in [
                (Stored::F16, f16::from_f32(narrow).to_le_bytes()),
                (Stored::Bf16, bf16::from_f32(narrow).to_le_bytes()),
            ] {
                let bytes = [vec![[0, 1]; 33], vec![bytes; 2]].concat().concat();
                assert_eq!(first_not_finite(stored, &bytes), expected, "{value}");
            }
        }
        let largest = [f16::MAX, f16::MIN].map(f16::to_le_bytes).concat();
        assert_eq!(first_not_finite(Stored::F16, &largest), None);
        let largest = [bf16::MAX, bf16::MIN].map(bf16::to_le_bytes).concat();
        assert_eq!(first_not_finite(Stored::Bf16, &largest), None);
    }
}
