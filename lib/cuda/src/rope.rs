//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864).
//!
//! fair-esm rotates channel `i` of a head together with channel `i + head_dim/2`. Here the two are neighbours:
//! [`pair_channels`] reorders the rows of the query and key projections at load. So a pair is a complex number, and the
//! rotation is a complex product in place. Both projections have the same order, so that scalar products do not change.

use tch::{Device, Kind, Tensor};

use crate::CudaError;

/// Reorders the rows of a query or key projection, `(heads·head_dim)` or `(heads·head_dim, in)`, so that in each head
/// channel `i + head_dim/2` follows channel `i`.
pub(crate) fn pair_channels(rows: &Tensor, heads: usize) -> Result<Tensor, CudaError> {
    let width = rows.size().get(1).copied().unwrap_or(1);
    let rows_by_half = rows.f_reshape([heads as i64, 2, -1, width])?; // (heads, 2, head_dim/2, in or 1)
    Ok(rows_by_half.f_transpose(1, 2)?.f_reshape(rows.size())?)
}

/// The rotary frequencies of a layer, `(head_dim/2)`, always f32.
#[derive(Debug)]
pub(crate) struct Frequencies {
    pub(crate) values: Vec<f32>,
    /// The same in f64 on the device. Copying them for each batch would wait for the batch before.
    tensor: Tensor,
    /// The length of a rotation's complex number, on the device.
    one: Tensor,
}

impl Frequencies {
    pub(crate) fn new(values: Vec<f32>, device: Device) -> Result<Self, CudaError> {
        let on_device = |values: &[f32]| -> Result<Tensor, CudaError> {
            let tensor = Tensor::f_from_slice(values)?.f_to_device(device)?;
            Ok(tensor.f_to_kind(Kind::Double)?)
        };
        Ok(Self {
            tensor: on_device(&values)?,
            one: on_device(&[1.0])?,
            values,
        })
    }
}

/// Returns `cos + i·sin` of each position times each frequency: `(positions, head_dim/2)` complex. Angles are exact, as on the
/// CPU.
pub(crate) fn turns(positions: &Tensor, inv_freq: &Frequencies) -> Result<Tensor, CudaError> {
    let angles = positions.f_outer(&inv_freq.tensor)?; // f64
    let turns = Tensor::f_polar(&inv_freq.one, &angles)?;
    Ok(turns.f_to_kind(Kind::ComplexFloat)?)
}

/// Rotates queries and keys in place, `(total_tokens, heads of both, head_dim)` of contiguous heads, by [`turns`] of
/// their positions.
pub(crate) fn rotate(queries_and_keys: &Tensor, turns: &Tensor) -> Result<(), CudaError> {
    let (tokens, heads, head_dim) = queries_and_keys.size3()?;
    let _ = queries_and_keys
        .f_view([tokens, heads, head_dim / 2, 2])?
        .f_view_as_complex()? // (total_tokens, heads, head_dim/2)
        .f_mul_(&turns.f_unsqueeze(1)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_of_each_head_are_interleaved() {
        let rows = Tensor::arange(8, (Kind::Float, Device::Cpu));
        let paired = Vec::<f32>::try_from(pair_channels(&rows, 2).unwrap()).unwrap();
        assert_eq!(paired, [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
        let matrix = Tensor::stack(&[&rows, &(&rows * 10.0)], 1); // (8, 2)
        let paired = pair_channels(&matrix, 2).unwrap();
        assert_eq!(Vec::<f32>::try_from(paired.select(1, 0)).unwrap()[1], 2.0);
        assert_eq!(Vec::<f32>::try_from(paired.select(1, 1)).unwrap()[1], 20.0);
    }

    /// Compares the rotation of paired channels with fair-esm's rotation of halves by `[-x2, x1]`.
    #[test]
    fn the_rotation_is_that_of_two_halves() {
        let (head_dim, inv_freq) = (4, [1.0f32, 0.25]);
        let position = 3.0f32;
        let halves = [0.5f32, -1.0, 2.0, 0.25]; // x1, x2: channels 0, 1 and 2, 3
        let expected: Vec<f32> = (0..head_dim)
            .map(|i| {
                let angle = position * inv_freq[i % 2];
                let partner = if i < 2 { -halves[i + 2] } else { halves[i - 2] };
                halves[i] * angle.cos() + partner * angle.sin()
            })
            .collect();

        let frequencies = Frequencies::new(inv_freq.to_vec(), Device::Cpu).unwrap();
        let turns = turns(&Tensor::from_slice(&[position]), &frequencies).unwrap();
        let vector = pair_channels(&Tensor::from_slice(&halves), 1)
            .unwrap()
            .view([1, 1, 4]);
        rotate(&vector, &turns).unwrap();
        let found = Vec::<f32>::try_from(vector.view([-1])).unwrap();
        for (pair, (first, second)) in [(0, 2), (1, 3)].into_iter().enumerate() {
            assert!((found[2 * pair] - expected[first]).abs() < 1e-6);
            assert!((found[2 * pair + 1] - expected[second]).abs() < 1e-6);
        }
    }
}
