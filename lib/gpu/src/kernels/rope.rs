//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864) on a fused projection.

use std::ffi::c_void;

use crate::check::{count, extent, invalid, is_multiple, pointer, positive};
use crate::launch::{Launch, THREADS, tokens_per_block};
use crate::source::Kernel;
use crate::{Element, GpuError};

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
}

impl Rope {
    pub(crate) fn launch(&self, element: Element) -> Result<Option<Launch>, GpuError> {
        if self.tokens == 0 {
            return Ok(None);
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
            element.size(),
        )?;
        pointer("qkv", self.qkv, element.size())?;
        pointer("positions", self.positions, 4)?;
        pointer("turns", self.turns, 8)?;

        let packet = 16 / element.size();
        let (kernel, piece) = if self.head_dim.is_multiple_of(packet) && is_multiple(self.qkv, 16) {
            (Kernel::RopePackets, packet as u32)
        } else {
            (Kernel::RopeValues, 2)
        };
        let per_block = tokens_per_block(width / 3 * 2 / piece);
        Ok(Some(
            Launch::new(kernel, (tokens.div_ceil(per_block), 1), THREADS)
                .pointer(self.qkv)
                .pointer(self.positions)
                .pointer(self.turns)
                .count(tokens)
                .count(heads)
                .count(head_dim)
                .count(per_block),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::{Buffer, Draw, ORDERS, assert_close, emulator};

    struct Shape {
        tokens: usize,
        heads: usize,
        head_dim: usize,
        /// Bytes by which the values miss an address that is a multiple of 16.
        shift: usize,
    }

    fn check(element: Element, shape: &Shape) {
        let &Shape {
            tokens,
            heads,
            head_dim,
            shift,
        } = shape;
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
            };
            let launch = work.launch(element).unwrap().unwrap();
            let packets = shift == 0 && head_dim % (16 / element.size()) == 0;
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
    fn every_head_of_esm2_in_every_type() {
        for element in Element::ALL {
            for (heads, head_dim) in [(20, 16), (20, 24), (20, 32), (5, 64), (3, 128)] {
                check(
                    element,
                    &Shape {
                        tokens: 3,
                        heads,
                        head_dim,
                        shift: 0,
                    },
                );
            }
        }
    }

    #[test]
    fn other_widths_and_addresses_go_pair_by_pair() {
        for element in Element::ALL {
            check(
                element,
                &Shape {
                    tokens: 5,
                    heads: 3,
                    head_dim: 6,
                    shift: 0,
                },
            );
            check(
                element,
                &Shape {
                    tokens: 4,
                    heads: 2,
                    head_dim: 32,
                    shift: element.size(),
                },
            );
        }
    }

    #[test]
    fn one_token_and_more_than_a_block_takes() {
        for element in Element::ALL {
            check(
                element,
                &Shape {
                    tokens: 1,
                    heads: 1,
                    head_dim: 16,
                    shift: 0,
                },
            );
            check(
                element,
                &Shape {
                    tokens: 601,
                    heads: 2,
                    head_dim: 16,
                    shift: 0,
                },
            );
            check(
                element,
                &Shape {
                    tokens: 2,
                    heads: 20,
                    head_dim: 64,
                    shift: 0,
                },
            );
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
        };
        assert!(work.launch(Element::F16).unwrap().is_some());
        let none = Rope {
            tokens: 0,
            qkv: std::ptr::null_mut(),
            ..work
        };
        assert!(none.launch(Element::F16).unwrap().is_none());
        for (wrong, message) in [
            (
                Rope {
                    tokens: 1 << 33,
                    ..work
                },
                "tokens: expected at most 2147483647, found 8589934592",
            ),
            (
                Rope { heads: 0, ..work },
                "heads: expected at least 1, found 0",
            ),
            (
                Rope {
                    head_dim: 33,
                    ..work
                },
                "channels of a head: expected an even number, found 33",
            ),
            (
                Rope {
                    heads: 1 << 30,
                    ..work
                },
                "channels of queries, keys and values: expected at most 2147483647, found 103079215104",
            ),
            (
                Rope {
                    qkv: std::ptr::null_mut(),
                    ..work
                },
                "qkv is a null pointer",
            ),
            (
                Rope {
                    positions: std::ptr::null(),
                    ..work
                },
                "positions is a null pointer",
            ),
            (
                Rope {
                    turns: std::ptr::without_provenance(some + 4),
                    ..work
                },
                "turns: expected an address that is a multiple of 8, found 0x1004",
            ),
        ] {
            assert_eq!(wrong.launch(Element::F16).unwrap_err().to_string(), message);
        }
    }
}
