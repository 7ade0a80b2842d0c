//! Adds to the residual stream and normalises it.

use std::ffi::c_void;

use super::Work;
use crate::launch::{Launch, THREADS};
use crate::launch_arguments::{at_most, check_pointer, count, extent, is_multiple, positive};
use crate::source::Kernel;
use crate::{Dtype, GpuError};

/// The channels that a warp holds in its registers.
const WARP_CHANNELS: usize = 640;

/// The most warps of a block.
const MAX_WARPS: usize = 32;

/// `x += scale·y`, then `LayerNorm` of `x` (Ba et al. 2016, arXiv:1607.06450). The variance is the mean of squared deviations, so
/// that residual channels near 1000 do not cost the others their precision.
#[derive(Clone, Copy, Debug)]
pub struct AddLayerNorm {
    /// `(tokens, hidden)` f32, the residual stream. Written if `y` is given.
    pub x: *mut f32,
    /// `(tokens, hidden)` elements to add, if any.
    pub y: Option<*const c_void>,
    /// `(hidden)` f32, the factor of the normalised values.
    pub weight: *const f32,
    /// `(hidden)` f32, added after the factor.
    pub bias: *const f32,
    /// `(tokens, hidden)` elements, the normalised `x`. May be `y`. If `scales` is given, e4m3 and not `y`.
    pub out: *mut c_void,
    /// `(tokens)` f32, if any: the factors that `out` lacks, each so that the largest magnitude of a row in `out` is 448; 1 for a row
    /// of zeros.
    pub scales: Option<*mut f32>,
    /// The number of tokens.
    pub tokens: usize,
    /// The channels of a token, at most 20,480; with `scales` half of that.
    pub hidden: usize,
    /// Added to the variance.
    pub eps: f32,
    /// The factor of `y`.
    pub scale: f32,
}

/// Returns the warps that hold a row of so many channels.
pub(super) fn warps_of(channels: usize) -> Result<u32, GpuError> {
    at_most("channels", channels, MAX_WARPS * WARP_CHANNELS)?;
    Ok(channels.div_ceil(WARP_CHANNELS).next_power_of_two() as u32)
}

/// Returns a launch for `rows` rows of `warps` warps.
pub(super) fn of_rows(kernel: Kernel, rows: u32, warps: u32) -> Launch {
    let threads = THREADS.max(32 * warps);
    let in_block = threads / (32 * warps);
    Launch::new(kernel, (rows.div_ceil(in_block), 1), threads)
}

impl Work for AddLayerNorm {
    fn launches(&self, element: Dtype) -> Result<Vec<Launch>, GpuError> {
        if self.tokens == 0 {
            return Ok(Vec::new());
        }
        let tokens = count("tokens", self.tokens)?;
        let hidden = positive("channels", self.hidden)?;
        let warps = warps_of(self.hidden)?;
        extent("bytes of the residual stream", tokens, hidden, 4)?;
        let y = self.y.unwrap_or(std::ptr::null());
        if self.y.is_some() {
            check_pointer("y", y, element.bytes())?;
        }
        let size = self.scales.map_or(element.bytes(), |_| 1);
        let whole = self.hidden.is_multiple_of(4)
            && is_multiple(self.x, 16)
            && is_multiple(self.weight, 16)
            && is_multiple(self.bias, 16)
            && is_multiple(y, 4 * element.bytes())
            && is_multiple(self.out, 4 * size);
        let kernel = match (self.scales, whole) {
            (None, true) => Kernel::AddLayerNormPackets,
            (None, false) => Kernel::AddLayerNormValues,
            (Some(_), true) => Kernel::AddLayerNormE4m3Packets,
            (Some(_), false) => Kernel::AddLayerNormE4m3Values,
        };
        let scales = self.scales.unwrap_or(std::ptr::null_mut());
        if self.scales.is_some() {
            at_most("channels", self.hidden, MAX_WARPS * WARP_CHANNELS / 2)?;
            check_pointer("scales", scales, 4)?;
        }
        Ok(vec![
            of_rows(kernel, tokens, warps)
                .pointer("x", self.x, 4)?
                .address(y)
                .pointer("weight", self.weight, 4)?
                .pointer("bias", self.bias, 4)?
                .pointer("out", self.out, size)?
                .address(scales)
                .count(tokens)
                .count(hidden)
                .count(warps)
                .float(self.eps)
                .float(self.scale),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ELEMENTS;
    use crate::emulator::{Buffer, Draw, Invalid, ORDERS, assert_close, e4m3, emulator};

    struct Case {
        x: Vec<f32>,
        y: Option<Vec<f64>>,
        weight: Vec<f32>,
        bias: Vec<f32>,
        hidden: usize,
        shift: usize,
        scale: f32,
    }

    const EPS: f32 = 1e-5;

    /// Returns the residual stream and the normalised values.
    fn run(element: Dtype, case: &Case) -> (Vec<f32>, Vec<f64>) {
        let results = ORDERS.map(|order| {
            let x = Buffer::of(&case.x, 4 * case.shift);
            let y = case.y.as_ref().map(|y| Buffer::elements(element, y, 0));
            let weight = Buffer::of(&case.weight, 0);
            let bias = Buffer::of(&case.bias, 0);
            let out = Buffer::empty(case.x.len() * element.bytes());
            let work = AddLayerNorm {
                x: x.pointer(),
                y: y.as_ref().map(|y| y.pointer::<c_void>().cast_const()),
                weight: weight.pointer(),
                bias: bias.pointer(),
                out: out.pointer(),
                scales: None,
                tokens: case.x.len() / case.hidden,
                hidden: case.hidden,
                eps: EPS,
                scale: case.scale,
            };
            let launch = work.launches(element).unwrap().remove(0);
            let packets = case.hidden.is_multiple_of(4) && case.shift == 0;
            assert_eq!(launch.kernel == Kernel::AddLayerNormPackets, packets);
            emulator(element).run(launch, order);
            (x.bytes(), out.bytes())
        });
        assert!(results.iter().all(|result| *result == results[0]));
        let [(x, out), ..] = results;
        (
            Buffer::from_bytes(&x).values(),
            Buffer::from_bytes(&out).elements_of(element),
        )
    }

    /// The kernels for fp8 round what those for f32 store.
    #[test]
    fn values_in_8_bits_are_those_of_f32_rounded() {
        for (tokens, hidden, shift) in [
            (3, 64, 0),
            (9, 480, 0),
            (2, 1_280, 0),
            (3, 5_120, 0),
            (5, 641, 0),
            (2, 10_240, 0),
            (3, 320, 1),
        ] {
            let mut case = case(Dtype::Bf16, tokens, hidden, shift);
            // A row of zeros.
            let row = hidden..2 * hidden;
            case.x[row.clone()].fill(0.25);
            case.y.as_mut().unwrap()[row].fill(1.0);
            case.bias.fill(0.0);
            let (stream, exact) = run(Dtype::F32, &case);
            let results = ORDERS.map(|order| {
                let x = Buffer::of(&case.x, 4 * shift);
                let y = Buffer::elements(Dtype::Bf16, case.y.as_ref().unwrap(), 0);
                let (weight, bias) = (Buffer::of(&case.weight, 0), Buffer::of(&case.bias, 0));
                let (out, scales) = (Buffer::empty(tokens * hidden), Buffer::empty(tokens * 4));
                let work = AddLayerNorm {
                    x: x.pointer(),
                    y: Some(y.pointer::<c_void>().cast_const()),
                    weight: weight.pointer(),
                    bias: bias.pointer(),
                    out: out.pointer(),
                    scales: Some(scales.pointer()),
                    tokens,
                    hidden,
                    eps: EPS,
                    scale: 1.0,
                };
                let launch = work.launches(Dtype::Bf16).unwrap().remove(0);
                let packets = hidden.is_multiple_of(4) && shift == 0;
                assert_eq!(launch.kernel == Kernel::AddLayerNormE4m3Packets, packets);
                emulator(Dtype::Fp8).run(launch, order);
                (x.values(), out.bytes(), scales.values())
            });
            let exact: Vec<f32> = exact.into_iter().map(|value| value as f32).collect();
            let rows = exact.chunks_exact(hidden).map(e4m3::quantised);
            let (values, scales): (Vec<_>, Vec<_>) = rows.unzip();
            assert_eq!(scales[1], 1.0);
            let expected = (stream, values.concat(), scales);
            assert!(results.iter().all(|result| *result == expected), "{hidden}");
        }
    }

    /// One channel near 1000, one near -300 and all others small, as in real checkpoints.
    fn case(element: Dtype, tokens: usize, hidden: usize, shift: usize) -> Case {
        let mut draw = Draw::new(hidden as u64);
        let mut x: Vec<f32> = (0..tokens * hidden)
            .map(|_| draw.between(-0.5, 0.5) as f32)
            .collect();
        for row in x.chunks_exact_mut(hidden) {
            row[hidden / 3] += 1_000.0;
            row[hidden - 1] -= 300.0;
        }
        let y: Vec<f64> = (0..tokens * hidden)
            .map(|_| draw.between(-2.0, 2.0))
            .collect();
        Case {
            x,
            y: Some(Buffer::elements(element, &y, 0).elements_of(element)),
            weight: (0..hidden).map(|_| draw.between(0.2, 2.0) as f32).collect(),
            bias: (0..hidden)
                .map(|_| draw.between(-1.0, 1.0) as f32)
                .collect(),
            hidden,
            shift,
            scale: 1.0,
        }
    }

    fn check(element: Dtype, case: &Case) {
        let (x, out) = run(element, case);
        for (row, stream) in x.chunks_exact(case.hidden).enumerate() {
            let at = row * case.hidden;
            for (channel, &value) in stream.iter().enumerate() {
                let added = case.y.as_ref().map_or(0.0, |y| y[at + channel] as f32);
                let x = case.x[at + channel];
                if case.scale == 1.0 {
                    assert_eq!(value.to_bits(), (x + added).to_bits());
                } else {
                    assert!((value - (x + case.scale * added)).abs() <= 1e-6 * (1.0 + x.abs()));
                }
            }
            let n = case.hidden as f64;
            let mean = stream.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
            let variance = stream
                .iter()
                .map(|&x| (f64::from(x) - mean).powi(2))
                .sum::<f64>()
                / n;
            for (channel, &value) in stream.iter().enumerate() {
                let (weight, bias) = (
                    f64::from(case.weight[channel]),
                    f64::from(case.bias[channel]),
                );
                let normalised = (f64::from(value) - mean) / (variance + f64::from(EPS)).sqrt();
                // The mean's own rounding shows in every channel.
                let spread = (variance + f64::from(EPS)).sqrt();
                let slack =
                    4e-7 * (normalised * weight).abs() + 3e-7 * mean.abs() / spread * weight + 1e-7;
                assert_close(
                    element,
                    out[at + channel],
                    normalised * weight + bias,
                    slack,
                );
            }
        }
    }

    #[test]
    fn every_width_of_esm2_in_every_type() {
        for element in ELEMENTS {
            for hidden in [64, 320, 480, 640, 1_280, 2_560, 5_120] {
                check(element, &case(element, 3, hidden, 0));
            }
        }
    }

    #[test]
    fn what_is_added_has_a_factor() {
        for element in ELEMENTS {
            let mut case = case(element, 3, 960, 0);
            case.scale = 1.095_445_1;
            check(element, &case);
        }
    }

    /// Beside a variance of 1e-6 the 1e-5 that is added to it decides; beside none it is all there is.
    #[test]
    fn eps_keeps_small_variances_from_growing() {
        for element in ELEMENTS {
            let mut case = case(element, 2, 320, 0);
            case.y = None;
            let mut draw = Draw::new(1);
            for (at, x) in case.x.iter_mut().enumerate() {
                *x = 0.25
                    + if at < 320 {
                        draw.between(-1e-3, 1e-3) as f32
                    } else {
                        0.0
                    };
            }
            check(element, &case);
        }
    }

    #[test]
    fn one_token_and_more_rows_than_a_block() {
        for element in ELEMENTS {
            check(element, &case(element, 1, 320, 0));
            check(element, &case(element, 17, 64, 0));
            check(element, &case(element, 9, 1_280, 0));
        }
    }

    #[test]
    fn odd_widths_and_addresses() {
        for element in ELEMENTS {
            for hidden in [1, 3, 63, 641, 1_283] {
                let mut case = case(element, 2, hidden.max(4), 0);
                case.hidden = hidden;
                case.x.truncate(2 * hidden);
                case.y = case.y.map(|y| y[..2 * hidden].to_vec());
                case.weight.truncate(hidden);
                case.bias.truncate(hidden);
                check(element, &case);
            }
            check(element, &case(element, 3, 320, 1));
            check(element, &case(element, 2, 20_480, 0));
        }
    }

    #[test]
    fn alignment_does_not_change_a_bit() {
        for hidden in [320, 1_280, 5_120] {
            let aligned = run(Dtype::F32, &case(Dtype::F32, 2, hidden, 0));
            let shifted = run(Dtype::F32, &case(Dtype::F32, 2, hidden, 1));
            assert_eq!(aligned, shifted);
        }
    }

    #[test]
    fn a_row_has_the_same_bits_in_any_company() {
        let many = case(Dtype::F16, 11, 320, 0);
        let (_, all) = run(Dtype::F16, &many);
        let mut one = case(Dtype::F16, 1, 320, 0);
        one.x = many.x[7 * 320..8 * 320].to_vec();
        one.y = many.y.as_ref().map(|y| y[7 * 320..8 * 320].to_vec());
        one.weight.clone_from(&many.weight);
        one.bias.clone_from(&many.bias);
        let (_, alone) = run(Dtype::F16, &one);
        assert_eq!(alone, all[7 * 320..8 * 320]);
    }

    #[test]
    fn without_y_the_stream_is_only_read() {
        for element in ELEMENTS {
            let mut case = case(element, 5, 480, 0);
            case.y = None;
            check(element, &case);
        }
    }

    #[test]
    fn what_is_normalised_may_lie_where_it_was_added_from() {
        let element = Dtype::Bf16;
        let case = case(element, 9, 320, 0);
        let (_, apart) = run(element, &case);
        let x = Buffer::of(&case.x, 0);
        let y = Buffer::elements(element, case.y.as_ref().unwrap(), 0);
        let (weight, bias) = (Buffer::of(&case.weight, 0), Buffer::of(&case.bias, 0));
        let work = AddLayerNorm {
            x: x.pointer(),
            y: Some(y.pointer::<c_void>().cast_const()),
            weight: weight.pointer(),
            bias: bias.pointer(),
            out: y.pointer(),
            scales: None,
            tokens: 9,
            hidden: 320,
            eps: EPS,
            scale: 1.0,
        };
        emulator(element).run(work.launches(element).unwrap().remove(0), ORDERS[0]);
        assert_eq!(y.elements_of(element), apart);
    }

    #[test]
    fn what_is_not_finite_stays_in_its_row() {
        for (wrong, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (1e36, "1e36")] {
            let mut case = case(Dtype::F16, 3, 320, 0);
            case.x[320 + 17] = wrong;
            let (x, out) = run(Dtype::F16, &case);
            assert_eq!(format!("{:e}", x[320 + 17]), shown);
            assert!(out[320..640].iter().all(|value| value.is_nan()));
            assert!(
                out[..320]
                    .iter()
                    .chain(&out[640..])
                    .all(|value| value.is_finite())
            );
        }
    }

    #[test]
    fn sizes_and_pointers_are_checked() {
        let some = std::ptr::without_provenance_mut::<f32>(0x1000);
        let work = AddLayerNorm {
            x: some,
            y: Some(some.cast()),
            weight: some,
            bias: some,
            out: some.cast(),
            scales: None,
            tokens: 10,
            hidden: 640,
            eps: EPS,
            scale: 1.0,
        };
        assert!(!work.launches(Dtype::F16).unwrap().is_empty());
        let none = AddLayerNorm {
            tokens: 0,
            x: std::ptr::null_mut(),
            ..work
        };
        assert!(none.launches(Dtype::F16).unwrap().is_empty());
        let cases: [Invalid<AddLayerNorm>; 9] = [
            (
                |work| work.tokens = 1 << 33,
                "tokens: expected at most 2147483647, found 8589934592",
            ),
            (
                |work| work.hidden = 0,
                "channels: expected at least 1, found 0",
            ),
            (
                |work| work.hidden = 20_481,
                "channels: expected at most 20480, found 20481",
            ),
            (|work| work.x = std::ptr::null_mut(), "x is a null pointer"),
            (
                |work| work.y = Some(std::ptr::null()),
                "y is a null pointer",
            ),
            (
                |work| work.weight = std::ptr::null(),
                "weight is a null pointer",
            ),
            (
                |work| work.bias = std::ptr::null(),
                "bias is a null pointer",
            ),
            (
                |work| work.out = std::ptr::null_mut(),
                "out is a null pointer",
            ),
            (
                |work| work.scales = Some(std::ptr::null_mut()),
                "scales is a null pointer",
            ),
        ];
        for (change, message) in cases {
            let mut invalid = work;
            change(&mut invalid);
            assert_eq!(
                invalid.launches(Dtype::F16).unwrap_err().to_string(),
                message
            );
        }
    }
}
