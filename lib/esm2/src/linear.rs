//! The affine map `x·Wᵀ + b`.

use tch::Tensor;

use crate::EsmError;

/// A dense layer with a bias.
#[derive(Debug)]
pub(crate) struct Linear {
    /// `(out, in)`
    pub(crate) weight: Tensor,
    /// `(out)`
    pub(crate) bias: Tensor,
}

impl Linear {
    /// `x·Wᵀ + b`: `(tokens, in)` to `(tokens, out)`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor, EsmError> {
        Ok(x.f_linear(&self.weight, Some(&self.bias))?)
    }

    /// `sum += x·Wᵀ + b` in place: the GEMM adds to the residual stream as it stores, and no `(tokens, out)` is
    /// made in between.
    pub(crate) fn add_to(&self, sum: &mut Tensor, x: &Tensor) -> Result<(), EsmError> {
        let _ = sum.f_addmm_(x, &self.weight.f_tr()?)?;
        let _ = sum.f_add_(&self.bias)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tch::{Kind, Tensor};

    use super::*;

    #[test]
    fn by_hand() {
        let linear = Linear {
            weight: Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).view([3, 2]),
            bias: Tensor::from_slice(&[0.5f32, 0.0, -0.5]),
        };
        let x = Tensor::from_slice(&[1f32, -1.0]).view([1, 2]);
        let expected = Tensor::from_slice(&[-0.5f32, -1.0, -1.5]).view([1, 3]);
        assert_eq!(linear.forward(&x).unwrap(), expected);

        let mut sum = Tensor::ones([1, 3], (Kind::Float, x.device()));
        linear.add_to(&mut sum, &x).unwrap();
        assert_eq!(sum, expected + 1.0);
    }
}
