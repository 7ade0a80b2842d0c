//! The activation of a feed-forward network with a gate.

use std::ffi::c_void;

use super::Work;
use crate::launch::Launch;
use crate::launch_arguments::{count, extent, is_multiple, positive};
use crate::source::Kernel;
use crate::{Dtype, GpuError};

/// Rows of a block.
const ROWS: u32 = 4;

/// `out = silu(gate) · values` (Shazeer 2020, arXiv:2002.05202).
#[derive(Clone, Copy, Debug)]
pub struct SiluGate {
    /// `(tokens, 2·width)` elements: gates, then values.
    pub wide: *const c_void,
    /// `(tokens, width)` elements.
    pub out: *mut c_void,
    /// The number of tokens.
    pub tokens: usize,
    /// The gates of a token.
    pub width: usize,
}

impl Work for SiluGate {
    fn launches(&self, element: Dtype) -> Result<Vec<Launch>, GpuError> {
        if self.tokens == 0 {
            return Ok(Vec::new());
        }
        let tokens = count("tokens", self.tokens)?;
        let width = positive("gates", self.width)?;
        let both = count("gates and values", self.width.saturating_mul(2))?;
        extent("bytes of gates and values", tokens, both, element.bytes())?;
        let packet = 16 / element.bytes();
        let whole = self.width.is_multiple_of(packet)
            && is_multiple(self.wide, 16)
            && is_multiple(self.out, 16);
        let (kernel, pieces) = if whole {
            (Kernel::SiluGatePackets, width / packet as u32)
        } else {
            (Kernel::SiluGateValues, width)
        };
        Ok(vec![
            Launch::of_columns(kernel, tokens, pieces, ROWS)?
                .pointer("wide", self.wide, element.bytes())?
                .pointer("out", self.out, element.bytes())?
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
    use crate::emulator::{Buffer, Draw, ORDERS, assert_close, emulator};

    /// Runs the kernel on values that are already rounded to the type.
    fn run(element: Dtype, wide: &[f64], width: usize, shift: usize) -> Vec<f64> {
        let results = ORDERS.map(|order| {
            let wide = Buffer::elements(element, wide, shift);
            let tokens = wide.bytes().len() / element.bytes() / 2 / width;
            let out = Buffer::empty(tokens * width * element.bytes());
            let work = SiluGate {
                wide: wide.pointer::<c_void>().cast_const(),
                out: out.pointer(),
                tokens,
                width,
            };
            let launch = work.launches(element).unwrap().remove(0);
            let packets = width.is_multiple_of(16 / element.bytes()) && shift == 0;
            assert_eq!(launch.kernel == Kernel::SiluGatePackets, packets);
            emulator(element).run(launch, order);
            out.bytes()
        });
        assert!(results.iter().all(|result| *result == results[0]));
        Buffer::from_bytes(&results[0]).elements_of(element)
    }

    #[test]
    fn every_width_of_esmc_and_odd_ones() {
        for element in ELEMENTS {
            for (tokens, width, shift) in [
                (2, 2_560, 0),
                (1, 3_072, 0),
                (5, 6_912, 0),
                (13, 7, 0),
                (3, 64, element.bytes()),
            ] {
                let mut draw = Draw::new(width as u64);
                let mut wide: Vec<f64> = (0..tokens * 2 * width)
                    .map(|_| draw.between(-12.0, 12.0))
                    .collect();
                wide[0] = -120.0;
                let wide = Buffer::elements(element, &wide, 0).elements_of(element);
                for (at, found) in run(element, &wide, width, shift).into_iter().enumerate() {
                    let (row, column) = (at / width, at % width);
                    let [gate, value] =
                        [0, width].map(|part| wide[row * 2 * width + part + column]);
                    let expected = gate / (1.0 + (-gate).exp()) * value;
                    assert_close(element, found, expected, 2e-6 * expected.abs() + 1e-9);
                }
            }
        }
    }

    #[test]
    fn what_is_not_finite_passes_through() {
        for element in ELEMENTS {
            let mut wide = vec![1.0; 16];
            (wide[0], wide[9], wide[2]) = (f64::NAN, f64::INFINITY, f64::INFINITY);
            let found = run(element, &wide, 8, 0);
            assert!(found[0].is_nan() && found[1].is_infinite() && found[2].is_infinite());
            assert!((found[3] - 0.731_058).abs() < 4e-3);
        }
    }

    #[test]
    fn sizes_and_pointers_are_checked() {
        let work = SiluGate {
            wide: std::ptr::without_provenance(0x1000),
            out: std::ptr::without_provenance_mut(0x1000),
            tokens: 10,
            width: 2_560,
        };
        assert!(!work.launches(Dtype::F16).unwrap().is_empty());
        assert!(
            SiluGate { tokens: 0, ..work }
                .launches(Dtype::F16)
                .unwrap()
                .is_empty()
        );
        let wrong = [
            SiluGate { width: 0, ..work },
            SiluGate {
                width: 1 << 31,
                ..work
            },
            SiluGate {
                wide: std::ptr::null(),
                ..work
            },
            SiluGate {
                out: std::ptr::without_provenance_mut(0x1001),
                ..work
            },
        ];
        let said = wrong.map(|work| work.launches(Dtype::F16).unwrap_err().to_string());
        assert_eq!(
            said,
            [
                "gates: expected at least 1, found 0",
                "gates: expected at most 2147483647, found 2147483648",
                "wide is a null pointer",
                "out: expected an address that is a multiple of 2, found 0x1001",
            ]
        );
    }
}
