//! Bias and GELU between the two dense layers of a feed-forward network.

use std::ffi::c_void;

use super::Work;
use crate::launch::Launch;
use crate::launch_arguments::{count, extent, is_multiple, positive};
use crate::source::Kernel;
use crate::{Dtype, GpuError};

/// Rows of a block. Its threads keep their bias in registers.
const ROWS: u32 = 4;

/// `x = gelu(x + bias)` in place, the exact GELU of the error function (Hendrycks and Gimpel 2016, arXiv:1606.08415).
#[derive(Clone, Copy, Debug)]
pub struct BiasGelu {
    /// `(tokens, width)` elements.
    pub x: *mut c_void,
    /// `(width)` elements.
    pub bias: *const c_void,
    /// The number of tokens.
    pub tokens: usize,
    /// The channels of a token.
    pub width: usize,
}

impl Work for BiasGelu {
    fn launches(&self, element: Dtype) -> Result<Vec<Launch>, GpuError> {
        if self.tokens == 0 {
            return Ok(Vec::new());
        }
        let tokens = count("tokens", self.tokens)?;
        let width = positive("channels", self.width)?;
        extent("bytes of activations", tokens, width, element.bytes())?;
        let packet = 16 / element.bytes();
        let whole = self.width.is_multiple_of(packet)
            && is_multiple(self.x, 16)
            && is_multiple(self.bias, 16);
        let (kernel, pieces) = if whole {
            (Kernel::BiasGeluPackets, width / packet as u32)
        } else {
            (Kernel::BiasGeluValues, width)
        };
        Ok(vec![
            Launch::of_columns(kernel, tokens, pieces, ROWS)?
                .pointer("x", self.x, element.bytes())?
                .pointer("bias", self.bias, element.bytes())?
                .count(tokens)
                .count(width)
                .count(ROWS),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ELEMENTS;
    use crate::emulator::{Buffer, Draw, Invalid, ORDERS, assert_close, emulator};

    /// Runs the kernel on values that are already rounded to the type.
    fn run(element: Dtype, x: &[f64], bias: &[f64], shift: usize) -> Vec<f64> {
        let results = ORDERS.map(|order| {
            let x = Buffer::elements(element, x, shift);
            let held = Buffer::elements(element, bias, 0);
            let work = BiasGelu {
                x: x.pointer(),
                bias: held.pointer::<c_void>().cast_const(),
                tokens: x.bytes().len() / element.bytes() / bias.len(),
                width: bias.len(),
            };
            let launch = work.launches(element).unwrap().remove(0);
            let packets = bias.len().is_multiple_of(16 / element.bytes()) && shift == 0;
            assert_eq!(launch.kernel == Kernel::BiasGeluPackets, packets);
            emulator(element).run(launch, order);
            x.bytes()
        });
        assert!(results.iter().all(|result| *result == results[0]));
        Buffer::from_bytes(&results[0]).elements_of(element)
    }

    fn check(element: Dtype, tokens: usize, width: usize, shift: usize) {
        let mut draw = Draw::new(width as u64);
        let mut values = |n: usize, size: f64| {
            let values: Vec<f64> = (0..n).map(|_| draw.between(-size, size)).collect();
            Buffer::elements(element, &values, 0).elements_of(element)
        };
        let (mut x, bias) = (values(tokens * width, 6.0), values(width, 2.0));
        x[0] = 1_000.0;
        let found = run(element, &x, &bias, shift);
        for (at, (&x, found)) in x.iter().zip(found).enumerate() {
            let x = x + bias[at % width];
            let expected = 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
            let tolerance = if x < 0.0 {
                (2e-3 * expected.abs() + 1e-9).min(1e-7)
            } else {
                3e-7 * x + 1e-7
            };
            assert_close(element, found, expected, tolerance);
        }
    }

    #[test]
    fn every_width_of_esm2_in_every_type() {
        for element in ELEMENTS {
            for width in [256, 1_280, 1_920, 2_560, 5_120, 10_240] {
                check(element, 2, width, 0);
            }
        }
    }

    #[test]
    fn odd_widths_addresses_and_numbers_of_tokens() {
        for element in ELEMENTS {
            for (tokens, width) in [(1, 1), (5, 7), (3, 259), (13, 64)] {
                check(element, tokens, width, 0);
            }
            check(element, 3, 64, element.bytes());
        }
    }

    #[test]
    fn what_is_not_finite_passes_through() {
        for element in ELEMENTS {
            let x = [f64::NAN, f64::INFINITY, 1.0, -60_000.0, 0.0, 1.0, 1.0, 1.0];
            let found = run(element, &x, &[0.0; 8], 0);
            assert!(found[0].is_nan());
            assert_eq!(found[1], f64::INFINITY);
            assert!((found[2] - 0.841_345).abs() < 4e-3);
            assert_eq!((found[3], found[4]), (0.0, 0.0));
        }
    }

    #[test]
    fn sizes_and_pointers_are_checked() {
        let some = std::ptr::without_provenance_mut(0x1000);
        let work = BiasGelu {
            x: some,
            bias: some,
            tokens: 10,
            width: 2_560,
        };
        assert!(!work.launches(Dtype::F16).unwrap().is_empty());
        let none = BiasGelu {
            tokens: 0,
            x: std::ptr::null_mut(),
            ..work
        };
        assert!(none.launches(Dtype::F16).unwrap().is_empty());
        let cases: [Invalid<BiasGelu>; 6] = [
            (
                |work| work.tokens = 1 << 33,
                "tokens: expected at most 2147483647, found 8589934592",
            ),
            (
                |work| work.width = 0,
                "channels: expected at least 1, found 0",
            ),
            (
                |work| work.width = 1 << 30,
                "blocks of channels: expected at most 65535, found 524288",
            ),
            (|work| work.x = std::ptr::null_mut(), "x is a null pointer"),
            (
                |work| work.bias = std::ptr::null(),
                "bias is a null pointer",
            ),
            (
                |work| work.x = std::ptr::without_provenance_mut(0x1001),
                "x: expected an address that is a multiple of 2, found 0x1001",
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
