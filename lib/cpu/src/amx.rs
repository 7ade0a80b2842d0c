//! Products of tiles by AMX: 32 rows by 32 columns at once.
//!
//! A tile has 16 rows of 64 bytes. Of the left matrix they are rows; of the right one a tile row has 16 columns, each with the 2 (bfloat16)
//! or 4 (8-bit integers) values that are multiplied together, which is the order of the panels of weights. Source: Intel, Architecture
//! Instruction Set Extensions Programming Reference, chapter 3.

use crate::simd::Simd;

#[cfg(test)]
mod emulator;

#[cfg(test)]
pub(crate) use emulator::Emulator;

/// Rows and columns of a block of sums: two tiles by two.
pub(crate) const SIDE: usize = 32;
/// Bytes of a row in a tile: what a step multiplies.
pub(crate) const STEP: usize = 64;
/// The values of bfloat16 in a step.
pub(crate) const HALVES: usize = STEP / size_of::<u16>();

/// The sums of a block, row by row.
#[repr(C, align(64))]
pub(crate) struct Block<T>(pub(crate) [[T; SIDE]; SIDE]);

/// What is multiplied to a block of sums.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    /// `(steps, 32, 64 bytes)`, steps of `left_step` bytes.
    pub(crate) left: *const u8,
    pub(crate) left_step: usize,
    /// `(steps, 16, 2 · 64 bytes)`, rows `right_row` bytes apart.
    pub(crate) right: *const u8,
    pub(crate) right_row: usize,
    pub(crate) steps: usize,
    /// Each step prefetches half a kibibyte from here.
    pub(crate) ahead: *const u8,
    /// Whether the left side is used again, not the right one: the first-level cache is kept for it.
    pub(crate) reuses_left: bool,
}

/// A vector of a unit.
type V<U> = <<U as TileUnit>::F as Simd>::V;

/// What multiplies tiles.
pub(crate) trait TileUnit {
    /// Vectors of 16 values for what is done with sums.
    type F: Simd;

    /// Prepares the thread for products, until the result is dropped.
    fn start() -> Self;

    /// Begins a block with these sums, or with zeros.
    ///
    /// # Safety
    /// The CPU has the unit; the sums exist.
    unsafe fn begin(&self, sums: Option<*const f32>);

    /// Adds products of bfloat16 to the block.
    ///
    /// # Safety
    /// The CPU has the unit; a block was begun; the operands exist.
    unsafe fn bf16(&self, operands: Operands);

    /// Adds products of signed 8-bit integers to a block that began with zeros.
    ///
    /// # Safety
    /// As for [`bf16`](Self::bf16).
    unsafe fn int8(&self, operands: Operands);

    /// Stores the sums of the block, which are f32 or i32.
    ///
    /// # Safety
    /// As for [`begin`](Self::begin).
    unsafe fn end(&self, sums: *mut f32);

    /// Stores integers from -127 to 127. Other values give arbitrary ones.
    ///
    /// # Safety
    /// As for [`Simd`].
    unsafe fn store_int8(to: *mut u8, values: V<Self>);

    /// Returns the largest magnitude of a row of bfloat16 in some tiles beside each other. It is not finite if a value is not.
    ///
    /// # Safety
    /// The CPU has the unit; the values exist.
    unsafe fn largest(from: *const u16, tiles: usize) -> f32;

    /// Stores the values of the same, times a factor, as integers in half as many tiles, the last filled with zeros. Values that are not from
    /// -127 to 127 give arbitrary ones.
    ///
    /// # Safety
    /// As for [`largest`](Self::largest).
    unsafe fn quantize(from: *const u16, tiles: usize, factor: f32, to: *mut u8);

    /// Loads sums of integers.
    ///
    /// # Safety
    /// As for [`Simd`].
    unsafe fn load_sums(from: *const i32) -> V<Self>;
}

#[cfg(target_arch = "x86_64")]
mod unit {
    use std::arch::asm;
    use std::arch::x86_64::*;
    use std::sync::OnceLock;

    use super::{Operands, SIDE, STEP, TileUnit};
    use crate::simd::{Avx512, Simd};

    /// Whether this CPU multiplies tiles of bfloat16 and 8-bit integers, and the system lets this process do so: it asks the system once.
    pub(crate) fn is_available() -> bool {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| is_supported() && is_permitted())
    }

    /// Whether CPU and system know tiles.
    pub(crate) fn is_supported() -> bool {
        /// Leaf 7, edx: bfloat16, tiles, 8-bit integers.
        const AMX: u32 = 1 << 22 | 1 << 24 | 1 << 25;
        /// Leaf 1, ecx.
        const OSXSAVE: u32 = 1 << 27;
        /// XCR0: the system keeps the configuration and the data of tiles.
        const STATE: u64 = 1 << 17 | 1 << 18;
        #[target_feature(enable = "xsave")]
        fn enabled() -> u64 {
            // SAFETY: the caller has seen that the system enabled the instruction.
            unsafe { _xgetbv(0) }
        }
        let has_leaf = __cpuid(0).eax >= 7 && __cpuid(1).ecx & OSXSAVE != 0;
        // SAFETY: OSXSAVE is set.
        has_leaf && __cpuid_count(7, 0).edx & AMX == AMX && unsafe { enabled() } & STATE == STATE
    }

    /// Asks Linux for the state of tiles (`arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)`), which every thread gets at its first use.
    #[cfg(target_os = "linux")]
    fn is_permitted() -> bool {
        const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
        const XTILEDATA: i64 = 18;
        // SAFETY: the call changes nothing but the permission.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 }
    }

    #[cfg(not(target_os = "linux"))]
    fn is_permitted() -> bool {
        false
    }

    /// The unit of this CPU, configured for eight tiles of 16 rows of 64 bytes. Dropping it releases the tiles.
    pub(crate) struct Amx(());

    #[repr(C, align(64))]
    struct Configuration([u8; 64]);

    static CONFIGURATION: Configuration = {
        let mut all = [0; 64];
        all[0] = 1; // The palette.
        let mut tile = 0;
        while tile < 8 {
            all[16 + 2 * tile] = STEP as u8;
            all[48 + tile] = 16;
            tile += 1;
        }
        Configuration(all)
    };

    impl Drop for Amx {
        fn drop(&mut self) {
            // SAFETY: only a thread with tiles has a value of this type.
            unsafe { asm!("tilerelease", options(nostack)) }
        }
    }

    // Not `nomem` or `readonly`: tiles are loaded from memory and stored to it. The sums of a block stay in tiles 0 to 3 from one `asm!` to
    // the next one: Rust knows of tiles only that they are lost, and uses none itself. `t1` loads past the first-level
    // cache, in which what is used again stays.
    macro_rules! block {
        ($instruction:literal, $left:literal, $right:literal, $operands:expr) => {{
            let Operands { left, left_step, right, right_row, steps, ahead, .. } = $operands;
            asm!(
                "2:",
                concat!($left, " tmm4, [{left} + {row}]"),
                concat!($right, " tmm6, [{right} + {right_row}]"),
                concat!($instruction, " tmm0, tmm4, tmm6"),
                "prefetcht1 [{ahead}]", "prefetcht1 [{ahead} + 64]",
                "prefetcht1 [{ahead} + 128]", "prefetcht1 [{ahead} + 192]",
                concat!($right, " tmm7, [{right} + {right_row} + 64]"),
                concat!($instruction, " tmm1, tmm4, tmm7"),
                concat!($left, " tmm5, [{left} + {row} + 1024]"),
                concat!($instruction, " tmm2, tmm5, tmm6"),
                "prefetcht1 [{ahead} + 256]", "prefetcht1 [{ahead} + 320]",
                "prefetcht1 [{ahead} + 384]", "prefetcht1 [{ahead} + 448]",
                concat!($instruction, " tmm3, tmm5, tmm7"),
                "add {left}, {left_step}", "add {right}, {right_step}", "add {ahead}, 512",
                "dec {steps}", "jnz 2b",
                row = in(reg) STEP, left = inout(reg) left => _, left_step = in(reg) left_step,
                right = inout(reg) right => _, right_row = in(reg) right_row, right_step = in(reg) 16 * right_row,
                ahead = inout(reg) ahead => _, steps = inout(reg) steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _, options(nostack)
            );
        }};
    }

    impl TileUnit for Amx {
        type F = Avx512;

        #[inline(always)]
        fn start() -> Self {
            debug_assert!(is_available());
            // SAFETY: the instruction set is only chosen where the CPU has tiles and the system permits them.
            unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack)) }
            Self(())
        }

        #[inline(always)]
        unsafe fn begin(&self, sums: Option<*const f32>) {
            unsafe {
                if let Some(sums) = sums {
                    asm!(
                        "tileloadd tmm0, [{sums} + {side}]", "tileloadd tmm1, [{sums} + {side} + 64]",
                        "tileloadd tmm2, [{sums} + {side} + 2048]", "tileloadd tmm3, [{sums} + {side} + 2112]",
                        sums = in(reg) sums, side = in(reg) SIDE * size_of::<f32>(),
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, options(nostack)
                    );
                } else {
                    asm!(
                        "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, options(nostack)
                    );
                }
            }
        }

        #[inline(always)]
        unsafe fn bf16(&self, operands: Operands) {
            unsafe {
                if operands.reuses_left {
                    block!("tdpbf16ps", "tileloadd", "tileloaddt1", operands);
                } else {
                    block!("tdpbf16ps", "tileloaddt1", "tileloadd", operands);
                }
            }
        }

        #[inline(always)]
        unsafe fn int8(&self, operands: Operands) {
            unsafe { block!("tdpbssd", "tileloaddt1", "tileloadd", operands) }
        }

        #[inline(always)]
        unsafe fn end(&self, sums: *mut f32) {
            unsafe {
                asm!(
                    "tilestored [{sums} + {side}], tmm0", "tilestored [{sums} + {side} + 64], tmm1",
                    "tilestored [{sums} + {side} + 2048], tmm2", "tilestored [{sums} + {side} + 2112], tmm3",
                    sums = in(reg) sums, side = in(reg) SIDE * size_of::<f32>(), options(nostack)
                );
            }
        }

        #[inline(always)]
        unsafe fn store_int8(to: *mut u8, values: __m512) {
            unsafe {
                _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(values)));
            }
        }

        #[inline(always)]
        unsafe fn largest(from: *const u16, tiles: usize) -> f32 {
            unsafe {
                let mut most = _mm512_setzero_si512();
                for tile in 0..tiles {
                    let values = _mm512_loadu_si512(from.add(tile * SIDE * SIDE).cast());
                    // Magnitudes have the order of their bits.
                    let magnitudes = _mm512_and_si512(values, _mm512_set1_epi16(i16::MAX));
                    most = _mm512_max_epu16(most, magnitudes);
                }
                let half = _mm512_extracti64x4_epi64::<1>(most);
                let most = _mm256_max_epu16(_mm512_castsi512_si256(most), half);
                let half = _mm256_extracti128_si256::<1>(most);
                let most = _mm_max_epu16(_mm256_castsi256_si128(most), half);
                // The least of eight complements.
                let least = _mm_minpos_epu16(_mm_xor_si128(most, _mm_set1_epi32(-1)));
                f32::from_bits(u32::from(!(_mm_cvtsi128_si32(least) as u16)) << 16)
            }
        }

        #[inline(always)]
        unsafe fn quantize(from: *const u16, tiles: usize, factor: f32, to: *mut u8) {
            unsafe {
                for tile in 0..tiles {
                    let values = Avx512::widen(from.add(tile * SIDE * SIDE));
                    let [even, odd] = values.map(|values| {
                        _mm512_cvtps_epi32(_mm512_mul_ps(values, _mm512_set1_ps(factor)))
                    });
                    let odd = _mm512_slli_epi32::<8>(odd);
                    // Bits of the even one where the mask is set, else those of the odd one.
                    let mask = _mm512_set1_epi32(0xFF);
                    let both =
                        _mm512_cvtepi32_epi16(_mm512_ternarylogic_epi32::<0xCA>(mask, even, odd));
                    let to = to.add(tile / 2 * SIDE * STEP + tile % 2 * SIDE);
                    _mm256_storeu_si256(to.cast(), both);
                }
                if tiles % 2 == 1 {
                    let rest = to.add(tiles / 2 * SIDE * STEP + SIDE);
                    _mm256_storeu_si256(rest.cast(), _mm256_setzero_si256());
                }
            }
        }

        #[inline(always)]
        unsafe fn load_sums(from: *const i32) -> __m512 {
            unsafe { _mm512_cvtepi32_ps(_mm512_loadu_si512(from.cast())) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use unit::{Amx, is_available, is_supported};
