//! Layer normalisation (Ba et al. 2016, arXiv:1607.06450).

use tch::Tensor;

use crate::CudaError;

/// Normalises each token's vector to mean 0 and variance 1, then scales and shifts its channels.
#[derive(Debug)]
pub(crate) struct LayerNorm {
    /// `(hidden)`
    pub(crate) weight: Tensor,
    /// `(hidden)`
    pub(crate) bias: Tensor,
    /// Added to the variance.
    pub(crate) eps: f64,
}

impl LayerNorm {
    /// Maps `(tokens, hidden)` to the same shape.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor, CudaError> {
        let channels = self.weight.size1()?;
        Ok(x.f_layer_norm(
            [channels],
            Some(&self.weight),
            Some(&self.bias),
            self.eps,
            false,
        )?)
    }

    /// Returns one whose outputs lack `mean`, `(hidden)`.
    pub(crate) fn without(&self, mean: &Tensor) -> Result<Self, CudaError> {
        Ok(Self {
            weight: self.weight.shallow_clone(),
            bias: self.bias.f_sub(mean)?,
            eps: self.eps,
        })
    }
}
