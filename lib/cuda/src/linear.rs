//! The affine map `x·Wᵀ + b`.

use tch::{Kind, Tensor};

use crate::CudaError;
use crate::fp8::{Fp8, Input};

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

/// A dense layer of the encoder.
#[derive(Debug)]
pub(crate) struct Dense {
    /// In the type of the model. Of a model in fp8, in f16, for what is computed in f32.
    plain: Linear,
    /// The weights of a model in fp8: `(out, in)`, with its bias in bf16.
    fp8: Option<(Fp8, Option<Tensor>)>,
}

impl Dense {
    /// Converts `(out, in)` f32 to `kind`.
    pub(crate) fn plain(linear: &Linear, kind: Kind) -> Result<Self, CudaError> {
        Ok(Self {
            plain: linear.to_kind(kind)?,
            fp8: None,
        })
    }

    /// Rounds `(out, in)` f32 to fp8.
    pub(crate) fn fp8(linear: &Linear) -> Result<Self, CudaError> {
        let bias = linear.to_kind(Kind::BFloat16)?.bias;
        Ok(Self {
            fp8: Some((Fp8::quantise(&linear.weight)?, bias)),
            ..Self::plain(linear, Kind::Half)?
        })
    }

    /// Puts into the bias of fp8 the product of the mean input, `(in)` f32: all of it, of inputs that then lack the mean, or what
    /// rounding takes from it.
    pub(crate) fn compensate(
        &mut self,
        mean: &Tensor,
        inputs_lack_it: bool,
    ) -> Result<(), CudaError> {
        let Some((rounded, fp8_bias)) = &mut self.fp8 else {
            return Ok(());
        };
        let Linear { mut weight, bias } = self.plain.to_kind(Kind::Float)?;
        if !inputs_lack_it {
            weight = weight.f_sub(&rounded.to_f32()?)?;
        }
        let product = weight.f_mv(mean)?; // (out)
        let sum = match &bias {
            Some(bias) => product.f_add(bias)?,
            None => product,
        };
        *fp8_bias = Some(sum.f_to_kind(Kind::BFloat16)?);
        Ok(())
    }

    /// Whether a batch of `kind` is computed in fp8.
    pub(crate) fn is_fp8(&self, kind: Kind) -> bool {
        self.fp8.is_some() && kind == Kind::BFloat16
    }

    /// Returns `x·Wᵀ + b`: `(tokens, in)` to `(tokens, out)` of `kind`.
    pub(crate) fn forward(&self, x: &Input, kind: Kind) -> Result<Tensor, CudaError> {
        self.product(x, kind, true)
    }

    /// The same, without `b` unless `biased`.
    pub(crate) fn product(&self, x: &Input, kind: Kind, biased: bool) -> Result<Tensor, CudaError> {
        let chosen = |bias: &Option<Tensor>| match bias {
            Some(bias) if biased => Some(bias.shallow_clone()),
            _ => None,
        };
        match x {
            Input::Plain(x) => {
                let Linear { weight, bias } = self.plain.to_kind(kind)?;
                Ok(x.f_to_kind(kind)?.f_linear(&weight, chosen(&bias))?)
            }
            Input::Fp8(x) => {
                let (weight, bias) = self.fp8.as_ref().expect("a layer of its input's type");
                x.product(weight, chosen(bias))
            }
        }
    }

    /// Returns `b`, `(out)` of `kind`; zeros if there is none.
    pub(crate) fn bias(&self, kind: Kind) -> Result<Tensor, CudaError> {
        let own = self.fp8.as_ref().filter(|_| kind == Kind::BFloat16);
        let bias = own.map_or(self.plain.bias.as_ref(), |(_, bias)| bias.as_ref());
        if let Some(bias) = bias {
            return Ok(bias.f_to_kind(kind)?);
        }
        let (out, _) = self.plain.weight.size2()?;
        Ok(Tensor::f_zeros([out], (kind, self.plain.weight.device()))?)
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    #[test]
    fn a_mean_product_in_fp8_loses_little() {
        tch::manual_seed(3);
        let normal = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, Device::Cpu));
        let linear = Linear {
            weight: normal(&[96, 640]),
            bias: Some(normal(&[96])),
        };
        let mean = normal(&[640]);
        let x = normal(&[2048, 640]) + &mean;
        let exact = linear.forward(&x, Kind::Float).unwrap();
        let mut dense = Dense::fp8(&linear).unwrap();
        let error = |dense: &Dense, x: &Tensor| {
            let input = Input::Fp8(Fp8::quantise(x).unwrap());
            let found = dense.forward(&input, Kind::BFloat16).unwrap();
            let error = (found.to_kind(Kind::Float) - &exact).mean_dim(0, false, Kind::Float);
            f64::try_from(error.square().mean(Kind::Float)).unwrap()
        };
        let rounded = error(&dense, &x);
        for inputs_lack_it in [false, true] {
            dense.compensate(&mean, inputs_lack_it).unwrap();
            let x = if inputs_lack_it { &x - &mean } else { &x + 0.0 };
            let compensated = error(&dense, &x);
            assert!(compensated < rounded / 50.0, "{compensated} of {rounded}");
        }
    }

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
