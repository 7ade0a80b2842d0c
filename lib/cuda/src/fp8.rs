//! Matrix products in 8-bit floats.

mod compensation;

pub(crate) use compensation::compensate;

use tch::{Device, Kind, Tensor};

use crate::CudaError;

/// The largest value of e4m3.
const LARGEST: f64 = 448.0;

/// A row whose values are all smaller has a scale of 1.
const NOTHING: f64 = 1.0 / (1_u128 << 100) as f64;

/// A matrix whose rows each have a scale, so that their largest magnitude is that of e4m3 (arXiv:2209.05433).
#[derive(Debug)]
pub(crate) struct Fp8 {
    /// `(rows, n)` e4m3
    pub(crate) values: Tensor,
    /// What `values` are multiplied by: `(rows, 1)` f32.
    pub(crate) scales: Tensor,
}

impl Fp8 {
    /// Returns memory for rows of `n` values.
    pub(crate) fn empty([rows, n]: [i64; 2], device: Device) -> Result<Self, CudaError> {
        Ok(Self {
            values: Tensor::f_empty([rows, n], (Kind::Float8e4m3fn, device))?,
            scales: Tensor::f_empty([rows, 1], (Kind::Float, device))?,
        })
    }

    /// Rounds `(rows, n)` f32, with the same arithmetic as plmkit's kernels.
    pub(crate) fn quantise(x: &Tensor) -> Result<Self, CudaError> {
        let largest = x.f_abs()?.f_amax([1].as_slice(), true)?; // (rows, 1)
        let is_nothing = largest.f_lt(NOTHING)?;
        let one_or = |other: Tensor| Tensor::f_ones_like(&other)?.f_where_self(&is_nothing, &other);
        let factors = one_or(largest.f_full_like(LARGEST)?.f_div(&largest)?)?;
        let scales = one_or(largest.f_div_scalar(LARGEST)?)?;
        let values = x.f_mul(&factors)?.f_to_kind(Kind::Float8e4m3fn)?;
        Ok(Self { values, scales })
    }

    /// Returns the rounded values, `(rows, n)` f32.
    pub(crate) fn to_f32(&self) -> Result<Tensor, CudaError> {
        Ok(self.values.f_to_kind(Kind::Float)?.f_mul(&self.scales)?)
    }

    /// Returns `x·Wᵀ + b`, `(rows, n)` by `(m, n)` to `(rows, m)` bf16: on a GPU of compute capability 8.9 or newer if `n` and `m` are
    /// multiples of 16, on a CPU the same in f32.
    pub(crate) fn product(&self, weight: &Self, bias: Option<Tensor>) -> Result<Tensor, CudaError> {
        let weights = weight.values.f_tr()?; // (n, m)
        let scales = weight.scales.f_tr()?; // (1, m)
        if self.values.device().is_cuda() {
            // Faster sums on Hopper keep about 14 bits (arXiv:2412.19437).
            let (kind, is_fast) = (Kind::BFloat16, false);
            return Ok(self.values.f_internal_scaled_mm(
                &weights,
                &self.scales,
                &scales,
                bias,
                None::<Tensor>,
                kind,
                is_fast,
            )?);
        }
        let [x, weights] = [&self.values, &weights].map(|values| values.f_to_kind(Kind::Float));
        let sums = x?
            .f_matmul(&weights?)?
            .f_mul(&self.scales)?
            .f_mul(&scales)?;
        let sums = match bias {
            Some(bias) => sums.f_add(&bias)?,
            None => sums,
        };
        Ok(sums.f_to_kind(Kind::BFloat16)?)
    }
}

/// The input of a dense layer of the encoder.
#[derive(Debug)]
pub(crate) enum Input {
    /// `(rows, n)`
    Plain(Tensor),
    Fp8(Fp8),
}

impl Input {
    /// Returns the values, without scales.
    pub(crate) fn values(&self) -> &Tensor {
        match self {
            Self::Plain(values) | Self::Fp8(Fp8 { values, .. }) => values,
        }
    }

    /// Returns the scales, `(rows, 1)` f32, if there are any.
    pub(crate) fn scales(&self) -> Option<&Tensor> {
        match self {
            Self::Plain(_) => None,
            Self::Fp8(Fp8 { scales, .. }) => Some(scales),
        }
    }
}

#[cfg(test)]
#[path = "../../gpu/tests/emulator/e4m3.rs"]
mod e4m3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the values of e4m3 as bits.
    fn bits(values: &Tensor) -> Vec<u8> {
        let bytes = values.view_dtype(Kind::Uint8).flatten(0, -1);
        Vec::try_from(&bytes).unwrap()
    }

    #[test]
    fn every_f16_becomes_the_nearest_value() {
        let all = Tensor::arange(1 << 16, (Kind::Int, Device::Cpu)).to_kind(Kind::Int16);
        let all = all.view_dtype(Kind::Half).to_kind(Kind::Float);
        let values = Vec::<f32>::try_from(&all).unwrap();
        let found = bits(&all.clamp(-LARGEST, LARGEST).to_kind(Kind::Float8e4m3fn));
        for (value, found) in values.into_iter().zip(found) {
            let expected = e4m3::nearest(value);
            assert!(
                found == expected || value.is_nan() && found & 0x7f == expected,
                "{value:e}"
            );
        }
    }

    #[test]
    fn rows_are_those_of_the_kernels() {
        tch::manual_seed(1);
        let x = Tensor::randn([99, 333], (Kind::Float, Device::Cpu));
        let _ = x.get(3).zero_();
        let _ = x.get(4).fill_(1e-35);
        let _ = x.get(5).g_mul_scalar_(1e12);
        let found = Fp8::quantise(&x).unwrap();
        for row in 0..99 {
            let values = Vec::<f32>::try_from(&x.get(row)).unwrap();
            let expected = e4m3::quantised(&values);
            let scale = f32::try_from(&found.scales.get(row).get(0)).unwrap();
            assert_eq!((bits(&found.values.get(row)), scale), expected, "{row}");
        }
        let _ = x.get(2).get(7).fill_(f64::NAN);
        let sums = Fp8::quantise(&x).unwrap().product(&found, None).unwrap();
        let finite = bits(&sums.isfinite().all_dim(1, false).to_kind(Kind::Uint8));
        for (row, finite) in finite.into_iter().enumerate() {
            assert_eq!(finite == 1, row != 2, "{row}");
        }
    }

    #[test]
    fn a_product_is_close_to_that_in_f32() {
        tch::manual_seed(2);
        let shape = |rows| Tensor::randn([rows, 640], (Kind::Float, Device::Cpu));
        let (x, weight, bias) = (
            shape(40),
            shape(96),
            Tensor::randn([96], (Kind::Float, Device::Cpu)),
        );
        // Channels of any size: each has its scale.
        let sizes = Tensor::logspace(-3.0, 3.0, 96, 10.0, (Kind::Float, Device::Cpu));
        let weight = weight * sizes.view([96, 1]);
        let bias = bias * &sizes;
        let quantised = [&x, &weight].map(|of| Fp8::quantise(of).unwrap());
        let found = quantised[0].product(&quantised[1], Some(bias.to_kind(Kind::BFloat16)));
        let exact = x.linear(&weight, Some(&bias));
        let error = (found.unwrap().to_kind(Kind::Float) - &exact) / sizes;
        let error = f64::try_from(error.square().mean(Kind::Float))
            .unwrap()
            .sqrt();
        // Two roundings to 4 bits, each 2.6 % of a product's value, and 640 products.
        let expected = 0.026 * 2_f64.sqrt() * 640_f64.sqrt();
        assert!(error < 1.2 * expected && error > 0.8 * expected, "{error}");
    }
}
