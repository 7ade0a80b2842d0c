//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864) on a fused projection.

use std::ffi::c_void;

use super::Work;
use super::add_layer_norm::{of_rows, warps_of};
use crate::launch::{Launch, THREADS, tokens_per_block};
use crate::launch_arguments::{count, extent, invalid, is_multiple, positive};
use crate::source::Kernel;
use crate::{Dtype, GpuError};

/// Rotates queries and keys in place.
///
/// Channels `2i` and `2i + 1` of a head are a complex number, which is multiplied by `cos + i·sin` of the position times
/// frequency `i`. With reordered query and key projections, this is fair-esm's rotation of halves.
#[derive(Clone, Copy, Debug)]
pub struct Rope {
    /// `(tokens, 3, heads, head_dim)` elements: queries, keys and values of each token. Values do not change.
    pub qkv: *mut c_void,
    /// `(tokens)`: the row of `turns` of each token.
    pub positions: *const i32,
    /// `(rows, head_dim / 2, 2)`: cosine and sine.
    pub turns: *const f32,
    /// The number of tokens.
    pub tokens: usize,
    /// The number of heads.
    pub heads: usize,
    /// The channels of a head, an even number.
    pub head_dim: usize,
    /// A `LayerNorm` of queries and of keys before their rotation, over all heads of a token together.
    pub norm: Option<RopeNorm>,
}

/// The parameters of a `LayerNorm` of queries and of one of keys.
#[derive(Clone, Copy, Debug)]
pub struct RopeNorm {
    /// `(2, heads·head_dim)` f32, the factors of the normalised queries and keys.
    pub weight: *const f32,
    /// `(2, heads·head_dim)` f32, added after the factors.
    pub bias: *const f32,
    /// Added to the variance.
    pub eps: f32,
}

impl Work for Rope {
    fn launches(&self, element: Dtype) -> Result<Vec<Launch>, GpuError> {
        if self.tokens == 0 {
            return Ok(Vec::new());
        }
        let tokens = count("tokens", self.tokens)?;
        let heads = positive("heads", self.heads)?;
        let head_dim = positive("channels of a head", self.head_dim)?;
        if !self.head_dim.is_multiple_of(2) {
            return Err(invalid(
                "channels of a head",
                "an even number",
                self.head_dim,
            ));
        }
        let width = count(
            "channels of queries, keys and values",
            3usize.saturating_mul(self.heads.saturating_mul(self.head_dim)),
        )?;
        extent(
            "bytes of queries, keys and values",
            tokens,
            width,
            element.bytes(),
        )?;
        if let Some(norm) = self.norm {
            return Ok(vec![self.launch_normalised(element, norm, tokens)?]);
        }
        let packet = 16 / element.bytes();
        let (kernel, piece) = if self.head_dim.is_multiple_of(packet) && is_multiple(self.qkv, 16) {
            (Kernel::RopePackets, packet as u32)
        } else {
            (Kernel::RopeValues, 2)
        };
        let per_block = tokens_per_block(width / 3 * 2 / piece);
        Ok(vec![
            Launch::new(kernel, (tokens.div_ceil(per_block), 1), THREADS)
                .pointer("qkv", self.qkv, element.bytes())?
                .pointer("positions", self.positions, 4)?
                .pointer("turns", self.turns, 8)?
                .count(tokens)
                .count(heads)
                .count(head_dim)
                .count(per_block),
        ])
    }
}

impl Rope {
    fn launch_normalised(
        &self,
        element: Dtype,
        norm: RopeNorm,
        tokens: u32,
    ) -> Result<Launch, GpuError> {
        let width = self.heads * self.head_dim;
        let warps = warps_of(width)?;
        let whole = width.is_multiple_of(4)
            && is_multiple(self.qkv, 4 * element.bytes())
            && is_multiple(norm.weight, 16)
            && is_multiple(norm.bias, 16);
        let kernel = if whole {
            Kernel::NormRopePackets
        } else {
            Kernel::NormRopeValues
        };
        let rows = count("queries and keys", 2 * tokens as usize)?;
        Ok(of_rows(kernel, rows, warps)
            .pointer("qkv", self.qkv, element.bytes())?
            .pointer("weight", norm.weight, 4)?
            .pointer("bias", norm.bias, 4)?
            .pointer("positions", self.positions, 4)?
            .pointer("turns", self.turns, 8)?
            .count(tokens)
            .count(width as u32)
            .count(self.head_dim as u32)
            .count(warps)
            .float(norm.eps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ELEMENTS;
    use crate::emulator::{Buffer, Draw, Invalid, ORDERS, assert_close, emulator};

    /// `shift` is the offset of the values from a multiple of 16 bytes.
    fn check(element: Dtype, tokens: usize, heads: usize, head_dim: usize, shift: usize) {
        let mut draw = Draw::new(7);
        let rows = 50;
        let turns: Vec<f32> = (0..rows * head_dim / 2)
            .flat_map(|_| {
                let angle = draw.between(-3.0, 3.0);
                [angle.cos() as f32, angle.sin() as f32]
            })
            .collect();
        let positions: Vec<i32> = (0..tokens).map(|_| draw.below(rows) as i32).collect();
        let mut values: Vec<f64> = (0..tokens * 3 * heads * head_dim)
            .map(|_| draw.between(-8.0, 8.0))
            .collect();
        values[0] = 1_000.0;
        values[3 * heads * head_dim - 1] = f64::NAN; // a value of the first token: it goes nowhere
        let before = Buffer::elements(element, &values, shift).elements_of(element);

        let results = ORDERS.map(|order| {
            let qkv = Buffer::elements(element, &values, shift);
            let positions = Buffer::of(&positions, 0);
            let turns = Buffer::of(&turns, 0);
            let work = Rope {
                qkv: qkv.pointer(),
                positions: positions.pointer(),
                turns: turns.pointer(),
                tokens,
                heads,
                head_dim,
                norm: None,
            };
            let launch = work.launches(element).unwrap().remove(0);
            let packets = shift == 0 && head_dim.is_multiple_of(16 / element.bytes());
            assert_eq!(launch.kernel == Kernel::RopePackets, packets);
            emulator(element).run(launch, order);
            qkv.bytes()
        });
        assert!(results.iter().all(|result| *result == results[0]));
        let found = Buffer::from_bytes(&results[0]).elements_of(element);

        for (token, &position) in positions.iter().enumerate() {
            for channel in 0..3 * heads * head_dim {
                let at = token * 3 * heads * head_dim + channel;
                if channel >= 2 * heads * head_dim {
                    assert_eq!(before[at].to_bits(), found[at].to_bits());
                    continue;
                }
                let turn = position as usize * head_dim + channel % head_dim / 2 * 2;
                let (cos, sin) = (f64::from(turns[turn]), f64::from(turns[turn + 1]));
                let expected = if channel % 2 == 0 {
                    before[at] * cos - before[at + 1] * sin
                } else {
                    before[at - 1] * sin + before[at] * cos
                };
                let size = before[at & !1].hypot(before[at | 1]);
                assert_close(element, found[at], expected, 2e-7 * size);
            }
        }
    }

    #[test]
    fn every_head_of_esm2_and_odd_widths_addresses_and_lengths() {
        for element in ELEMENTS {
            for (tokens, heads, head_dim, shift) in [
                (3, 20, 16, 0),
                (3, 20, 24, 0),
                (3, 20, 32, 0),
                (3, 5, 64, 0),
                (3, 3, 128, 0),
                // Pair by pair.
                (5, 3, 6, 0),
                (4, 2, 32, element.bytes()),
                // One token, and more than a block takes.
                (1, 1, 16, 0),
                (601, 2, 16, 0),
                (2, 20, 64, 0),
            ] {
                check(element, tokens, heads, head_dim, shift);
            }
        }
    }

    /// Against the two operations in f64, in every company of tokens.
    #[test]
    fn normalised_queries_and_keys_of_esmc_and_odd_widths() {
        for element in ELEMENTS {
            for (tokens, heads, head_dim, shift) in [
                (3, 15, 64, 0),
                (9, 18, 64, 0),
                (2, 40, 64, 0),
                (5, 3, 6, 0),
                (17, 1, 2, 0),
                (4, 2, 32, element.bytes()),
            ] {
                check_normalised(element, tokens, heads, head_dim, shift);
            }
        }
    }

    fn check_normalised(
        element: Dtype,
        tokens: usize,
        heads: usize,
        head_dim: usize,
        shift: usize,
    ) {
        let (width, eps) = (heads * head_dim, 1e-5);
        let mut draw = Draw::new(width as u64);
        let mut values = |n: usize, low: f64, high: f64| -> Vec<f64> {
            (0..n).map(|_| draw.between(low, high)).collect()
        };
        let angles = values(50 * head_dim / 2, -3.0, 3.0);
        let f32s = |values: Vec<f64>| -> Vec<f32> { values.iter().map(|&x| x as f32).collect() };
        let (weight, bias) = (
            f32s(values(2 * width, 0.5, 2.0)),
            f32s(values(2 * width, -1.0, 1.0)),
        );
        let mut before = values(tokens * 3 * width, -8.0, 8.0);
        before[0] = 100.0;
        let positions: Vec<i32> = (0..tokens).map(|token| (token * 7 % 50) as i32).collect();
        let before = Buffer::elements(element, &before, shift).elements_of(element);
        let turns: Vec<f32> = (angles.iter())
            .flat_map(|angle| [angle.cos() as f32, angle.sin() as f32])
            .collect();

        let results = ORDERS.map(|order| {
            let qkv = Buffer::elements(element, &before, shift);
            let [weight, bias, turns] =
                [&weight, &bias, &turns].map(|values| Buffer::of(values, 0));
            let positions = Buffer::of(&positions, 0);
            let work = Rope {
                qkv: qkv.pointer(),
                positions: positions.pointer(),
                turns: turns.pointer(),
                tokens,
                heads,
                head_dim,
                norm: Some(RopeNorm {
                    weight: weight.pointer(),
                    bias: bias.pointer(),
                    eps,
                }),
            };
            let launch = work.launches(element).unwrap().remove(0);
            let packets = width.is_multiple_of(4) && shift == 0;
            assert_eq!(launch.kernel == Kernel::NormRopePackets, packets);
            emulator(element).run(launch, order);
            qkv.bytes()
        });
        assert!(results.iter().all(|result| *result == results[0]));
        let found = Buffer::from_bytes(&results[0]).elements_of(element);

        for (row, (before, found)) in before.chunks(width).zip(found.chunks(width)).enumerate() {
            let (token, part) = (row / 3, row % 3);
            if part == 2 {
                assert_eq!(before, found);
                continue;
            }
            let n = width as f64;
            let mean = before.iter().sum::<f64>() / n;
            let variance = before.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            let normalised = |channel: usize| {
                let [weight, bias] =
                    [&weight, &bias].map(|of| f64::from(of[part * width + channel]));
                (before[channel] - mean) / (variance + f64::from(eps)).sqrt() * weight + bias
            };
            for channel in (0..width).step_by(2) {
                let angle =
                    angles[positions[token] as usize * head_dim / 2 + channel % head_dim / 2];
                let (real, imaginary) = (normalised(channel), normalised(channel + 1));
                let slack = 2e-6 * (1.0 + real.abs() + imaginary.abs());
                let (cos, sin) = (angle.cos(), angle.sin());
                assert_close(element, found[channel], real * cos - imaginary * sin, slack);
                assert_close(
                    element,
                    found[channel + 1],
                    real * sin + imaginary * cos,
                    slack,
                );
            }
        }
    }

    #[test]
    fn sizes_and_pointers_are_checked() {
        let some = 0x1000;
        let work = Rope {
            qkv: std::ptr::without_provenance_mut(some),
            positions: std::ptr::without_provenance(some),
            turns: std::ptr::without_provenance(some),
            tokens: 10,
            heads: 20,
            head_dim: 32,
            norm: None,
        };
        assert!(!work.launches(Dtype::F16).unwrap().is_empty());
        let none = Rope {
            tokens: 0,
            qkv: std::ptr::null_mut(),
            ..work
        };
        assert!(none.launches(Dtype::F16).unwrap().is_empty());
        let cases: [Invalid<Rope>; 7] = [
            (
                |work| work.tokens = 1 << 33,
                "tokens: expected at most 2147483647, found 8589934592",
            ),
            (|work| work.heads = 0, "heads: expected at least 1, found 0"),
            (
                |work| work.head_dim = 33,
                "channels of a head: expected an even number, found 33",
            ),
            (
                |work| work.heads = 1 << 30,
                "channels of queries, keys and values: expected at most 2147483647, found 103079215104",
            ),
            (
                |work| work.qkv = std::ptr::null_mut(),
                "qkv is a null pointer",
            ),
            (
                |work| work.positions = std::ptr::null(),
                "positions is a null pointer",
            ),
            (
                |work| work.turns = std::ptr::without_provenance(0x1004),
                "turns: expected an address that is a multiple of 8, found 0x1004",
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
