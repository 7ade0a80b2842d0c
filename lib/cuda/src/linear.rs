//! The affine map `x·Wᵀ + b`.

use tch::{Kind, Tensor};

use crate::CudaError;

/// A dense layer.
#[derive(Debug)]
pub(crate) struct Linear {
    /// `(out, in)`
    pub(crate) weight: Tensor,
    /// `(out)`, if there is one.
    pub(crate) bias: Option<Tensor>,
}

impl Linear {
    /// Returns `x·Wᵀ + b`: `(tokens, in)` to `(tokens, out)`, computed in `kind`.
    pub(crate) fn forward(&self, x: &Tensor, kind: Kind) -> Result<Tensor, CudaError> {
        let Self { weight, bias } = self.to_kind(kind)?;
        Ok(x.f_to_kind(kind)?.f_linear(&weight, bias.as_ref())?)
    }

    /// Returns the same map with parameters of `kind`, copied if that is another type.
    pub(crate) fn to_kind(&self, kind: Kind) -> Result<Self, CudaError> {
        Ok(Self {
            weight: self.weight.f_to_kind(kind)?,
            bias: (self.bias.as_ref())
                .map(|bias| bias.f_to_kind(kind))
                .transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let linear = Linear {
            weight: Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).view([3, 2]),
            bias: Some(Tensor::from_slice(&[0.5f32, 0.0, -0.5])),
        };
        let x = Tensor::from_slice(&[1f32, -1.0]).view([1, 2]);
        let expected = Tensor::from_slice(&[-0.5f32, -1.0, -1.5]).view([1, 3]);
        assert_eq!(linear.forward(&x, Kind::Float).unwrap(), expected);
    }
}
