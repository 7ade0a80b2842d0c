//! Products in f32. Inputs are not copied; weights of bfloat16 are widened panel by panel.

use std::ops::Range;

use super::product::{Finished, Multiplier, Place, Sums};
use super::{VECTORS, bf16};
use crate::Rows;
use crate::simd::Simd;
use crate::tile::{LINE, tile};

/// Panels of weights that are multiplied in f32.
pub(super) enum Source<'a> {
    F32(&'a [f32]),
    /// bfloat16, of which so many are multiplied together, with memory for a widened panel, `(padded inputs, columns)`.
    Bf16(&'a [u16], usize, &'a mut [f32]),
}

/// Multiplies panels by f32 rows.
pub(super) struct InF32<'a> {
    source: Source<'a>,
    /// The loaded rows.
    first: *const f32,
    width: usize,
    /// The loaded panel, `(width, columns)`.
    panel: *const f32,
    /// The next one as it is stored, and the tiles that prefetch it, each a line for every input.
    next: *const f32,
    shares: usize,
}

impl<'a> InF32<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
        let none = std::ptr::null();
        Self {
            source,
            first: none,
            width: 0,
            panel: none,
            next: none,
            shares: 0,
        }
    }
}

impl<S: Simd, const ROWS: usize> Multiplier<S, ROWS> for InF32<'_> {
    const BYTES: usize = size_of::<f32>();

    fn piece(&self, inputs: usize) -> usize {
        // A panel and the rows of a pass stay in the cache. Fewer passes widen weights less often.
        match self.source {
            Source::F32(_) if inputs <= 2560 => inputs,
            _ => inputs.min(1280),
        }
    }

    #[inline(always)]
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
        self.first = x.at(range.start);
        self.width = x.width();
    }

    #[inline(always)]
    unsafe fn load_panel(&mut self, panel: usize, _: usize, inputs: Range<usize>) {
        let columns = VECTORS * S::LANES;
        match &mut self.source {
            Source::F32(panels) => {
                let size = columns * self.width;
                let panel = &panels[panel * size..][..size];
                self.panel = panel[columns * inputs.start..].as_ptr();
                self.next = self.panel.wrapping_add(size);
                self.shares = columns / LINE;
            }
            Source::Bf16(panels, together, room) => {
                let size = columns * bf16::padded(self.width);
                let panel = &panels[panel * size..][..size];
                let panel =
                    &panel[columns * inputs.start..][..columns * bf16::padded(inputs.len())];
                if *together == 4 {
                    for (at, &half) in panel.iter().enumerate() {
                        let (k, column) = (at / 4 / columns * 4 + at % 4, at / 4 % columns);
                        room[k * columns + column] = f32::from_bits(u32::from(half) << 16);
                    }
                } else {
                    let room = &mut room[..panel.len()];
                    for at in (0..panel.len() / 2).step_by(S::LANES) {
                        // Of so many columns, the values of two inputs.
                        let (row, column) = (at / columns * 2, at % columns);
                        unsafe {
                            let [even, odd] = S::widen(panel.as_ptr().add(2 * at));
                            let to = room.as_mut_ptr().add(row * columns + column);
                            S::store(to, even);
                            S::store(to.add(columns), odd);
                        }
                    }
                }
                self.panel = room.as_ptr();
                self.next = panel.as_ptr().wrapping_add(size).cast();
                self.shares = (columns / 2 / LINE).max(1);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile(&self, place: Place, sums: *mut Sums<S, ROWS>, _: &Finished<'_, S>) {
        let sums = unsafe { &mut *sums };
        let Place {
            row, rows, inputs, ..
        } = place;
        let (columns, width, depth) = (VECTORS * S::LANES, self.width, inputs.len());
        let ahead = match row / ROWS {
            share if share < self.shares => self.next.wrapping_add(share * LINE * depth),
            // It is there already.
            _ => self.panel,
        };
        unsafe {
            let a = self.first.add(row * width + inputs.start);
            *sums = [[S::splat(0.0); VECTORS]; ROWS];
            if rows == ROWS {
                tile::<S, ROWS, VECTORS>(sums, depth, a, width, self.panel, columns, ahead);
            } else {
                // One by one, in the same order.
                for (i, sums) in sums.iter_mut().enumerate().take(rows) {
                    let mut one = [*sums];
                    let a = a.add(i * width);
                    tile::<S, 1, VECTORS>(&mut one, depth, a, 0, self.panel, columns, ahead);
                    *sums = one[0];
                }
            }
        }
    }
}
