//! The activation between the two dense layers of a feed-forward network, in 8 bits.

use std::ffi::c_void;

use super::Work;
use super::add_layer_norm::{of_rows, warps_of};
use crate::launch::Launch;
use crate::launch_arguments::{check_pointer, count, extent, is_multiple, positive};
use crate::source::Kernel;
use crate::{Dtype, GpuError};

/// `gelu(wide + bias)`, as [`BiasGelu`](super::BiasGelu) computes it, or `silu(gate) · values`, as [`SiluGate`](super::SiluGate) does,
/// written as e4m3 with a factor for each row. Only kernels for fp8 have it.
#[derive(Clone, Copy, Debug)]
pub struct QuantisedActivation {
    /// `(tokens, width)` elements with a bias; otherwise `(tokens, 2·width)`, gates before values.
    pub wide: *const c_void,
    /// `(width)` elements; `None` for a gate.
    pub bias: Option<*const c_void>,
    /// `(tokens, width)` e4m3. The largest magnitude of a row is 448.
    pub out: *mut c_void,
    /// `(tokens)` f32: the factors that `out` lacks; 1 for a row of zeros.
    pub scales: *mut f32,
    /// The number of tokens.
    pub tokens: usize,
    /// The channels of a token in `out`, at most 20,480.
    pub width: usize,
}

impl Work for QuantisedActivation {
    fn launches(&self, element: Dtype) -> Result<Vec<Launch>, GpuError> {
        if self.tokens == 0 {
            return Ok(Vec::new());
        }
        let tokens = count("tokens", self.tokens)?;
        let width = positive("channels", self.width)?;
        let warps = warps_of(self.width)?;
        extent("bytes of activations", tokens, 2 * width, element.bytes())?;
        let bias = self.bias.unwrap_or(std::ptr::null());
        if self.bias.is_some() {
            check_pointer("bias", bias, element.bytes())?;
        }
        let packet = 4 * element.bytes();
        let whole = self.width.is_multiple_of(4)
            && is_multiple(self.wide, packet)
            && is_multiple(bias, packet)
            && is_multiple(self.out, 4);
        let kernel = match (self.bias, whole) {
            (Some(_), true) => Kernel::GeluE4m3Packets,
            (Some(_), false) => Kernel::GeluE4m3Values,
            (None, true) => Kernel::SiluGateE4m3Packets,
            (None, false) => Kernel::SiluGateE4m3Values,
        };
        Ok(vec![
            of_rows(kernel, tokens, warps)
                .pointer("wide", self.wide, element.bytes())?
                .address(bias)
                .pointer("out", self.out, 1)?
                .pointer("scales", self.scales, 4)?
                .count(tokens)
                .count(width)
                .count(warps),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::{Buffer, Draw, Invalid, ORDERS, e4m3, emulator};
    use crate::{BiasGelu, SiluGate};

    /// What the kernels for f32 store.
    fn exact(wide: &[f32], bias: Option<&[f32]>, tokens: usize, width: usize) -> Vec<f32> {
        let (wide, out) = (Buffer::of(wide, 0), Buffer::empty(tokens * width * 4));
        let bias = bias.map(|bias| Buffer::of(bias, 0));
        let launches = match &bias {
            Some(bias) => BiasGelu {
                x: wide.pointer(),
                bias: bias.pointer::<c_void>(),
                tokens,
                width,
            }
            .launches(Dtype::F32),
            None => SiluGate {
                wide: wide.pointer::<c_void>(),
                out: out.pointer(),
                tokens,
                width,
            }
            .launches(Dtype::F32),
        };
        emulator(Dtype::F32).run(launches.unwrap().remove(0), ORDERS[0]);
        if bias.is_some() { &wide } else { &out }.values()
    }

    #[test]
    fn values_in_8_bits_are_those_of_f32_rounded() {
        for (gated, tokens, width, shift) in [
            (false, 2, 256, 0),
            (false, 3, 5_120, 0),
            (false, 1, 10_240, 0),
            (false, 5, 259, 0),
            (false, 9, 64, 2),
            (true, 2, 2_560, 0),
            (true, 3, 3_072, 0),
            (true, 9, 64, 0),
            (true, 5, 7, 0),
            (true, 3, 64, 2),
        ] {
            let mut draw = Draw::new(width as u64);
            let mut values = |count: usize, size: f64| {
                let values: Vec<f64> = (0..count).map(|_| draw.between(-size, size)).collect();
                Buffer::elements(Dtype::Bf16, &values, 0).elements_of(Dtype::Bf16)
            };
            let of_row = width * if gated { 2 } else { 1 };
            let mut wide = values(tokens * of_row, 12.0);
            (wide[0], wide[1]) = (100.0, -120.0);
            let bias = (!gated).then(|| values(width, 2.0));
            // The last row becomes nothing at all.
            wide[(tokens - 1) * of_row..].fill(if gated { 0.0 } else { -1e4 });
            let narrow =
                |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<_>>();
            let exact = exact(
                &narrow(&wide),
                bias.as_deref().map(narrow).as_deref(),
                tokens,
                width,
            );
            let rows = exact.chunks_exact(width).map(e4m3::quantised);
            let (expected, expected_scales): (Vec<_>, Vec<_>) = rows.unzip();
            assert_eq!(expected_scales.last(), Some(&1.0));

            for order in ORDERS {
                let wide = Buffer::elements(Dtype::Bf16, &wide, shift);
                let bias = bias
                    .as_ref()
                    .map(|bias| Buffer::elements(Dtype::Bf16, bias, 0));
                let (out, scales) = (Buffer::empty(tokens * width), Buffer::empty(tokens * 4));
                let work = QuantisedActivation {
                    wide: wide.pointer::<c_void>(),
                    bias: bias
                        .as_ref()
                        .map(|bias| bias.pointer::<c_void>().cast_const()),
                    out: out.pointer(),
                    scales: scales.pointer(),
                    tokens,
                    width,
                };
                let launch = work.launches(Dtype::Bf16).unwrap().remove(0);
                let packets = [Kernel::GeluE4m3Packets, Kernel::SiluGateE4m3Packets];
                let whole = width.is_multiple_of(4) && shift == 0;
                assert_eq!(packets.contains(&launch.kernel), whole);
                emulator(Dtype::Fp8).run(launch, order);
                assert_eq!(out.bytes(), expected.concat(), "{width}");
                assert_eq!(scales.values(), expected_scales, "{width}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_stays_seen_in_its_row() {
        for wrong in [f64::NAN, f64::INFINITY] {
            let mut wide = vec![1.0; 3 * 64];
            wide[64 + 5] = wrong;
            let wide = Buffer::elements(Dtype::Bf16, &wide, 0);
            let bias = Buffer::elements(Dtype::Bf16, &[0.5; 64], 0);
            let (out, scales) = (Buffer::empty(3 * 64), Buffer::empty(3 * 4));
            let work = QuantisedActivation {
                wide: wide.pointer::<c_void>(),
                bias: Some(bias.pointer::<c_void>()),
                out: out.pointer(),
                scales: scales.pointer(),
                tokens: 3,
                width: 64,
            };
            let launch = work.launches(Dtype::Bf16).unwrap().remove(0);
            emulator(Dtype::Fp8).run(launch, ORDERS[0]);
            let (out, scales) = (out.bytes(), scales.values());
            for (row, values) in out.chunks_exact(64).enumerate() {
                let sum: f32 = values
                    .iter()
                    .map(|&bits| e4m3::value(bits) * scales[row])
                    .sum();
                assert_eq!(sum.is_finite(), row != 1, "{wrong}");
            }
        }
    }

    #[test]
    fn sizes_and_pointers_are_checked() {
        let some = std::ptr::without_provenance_mut::<c_void>(0x1000);
        let work = QuantisedActivation {
            wide: some,
            bias: Some(some),
            out: some,
            scales: some.cast(),
            tokens: 10,
            width: 5_120,
        };
        assert!(!work.launches(Dtype::Bf16).unwrap().is_empty());
        let none = QuantisedActivation { tokens: 0, ..work };
        assert!(none.launches(Dtype::Bf16).unwrap().is_empty());
        let cases: [Invalid<QuantisedActivation>; 6] = [
            (
                |work| work.width = 0,
                "channels: expected at least 1, found 0",
            ),
            (
                |work| work.width = 20_481,
                "channels: expected at most 20480, found 20481",
            ),
            (
                |work| work.wide = std::ptr::null(),
                "wide is a null pointer",
            ),
            (
                |work| work.bias = Some(std::ptr::null()),
                "bias is a null pointer",
            ),
            (
                |work| work.out = std::ptr::null_mut(),
                "out is a null pointer",
            ),
            (
                |work| work.scales = std::ptr::null_mut(),
                "scales is a null pointer",
            ),
        ];
        for (change, message) in cases {
            let mut invalid = work;
            change(&mut invalid);
            let error = invalid.launches(Dtype::Bf16).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
