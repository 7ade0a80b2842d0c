//! Pools the vectors of each sequence to one vector.

use plmkit_contract::Pooling;

use super::Work;
use crate::launch::{Launch, THREADS};
use crate::launch_arguments::{at_most, check_pointer, count, extent, is_multiple, positive};
use crate::source::Kernel;
use crate::{Dtype, GpuError};

/// The residues that a block reduces. The kernel source has the same number.
const CHUNK: usize = 128;

/// The channels of a block.
const CHANNELS: u32 = 128;

/// The most blocks along y.
const MAX_ACROSS: u32 = 65_535;

/// Pools f32 vectors of residues: the tokens of a sequence without the first and the last. The standard deviation is divided by
/// n, so that it is 0 for one residue. A sequence without residues becomes NaN, except for [`Pooling::Bos`].
///
/// Sums are over chunks of 128 residues from the first of the sequence, along one fixed tree, so that a sequence has the
/// same bits in any batch.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    pub by: Pooling,
    /// `(tokens, width)`
    pub hidden: *const f32,
    /// `(sequences + 1)` offsets of sequences among the tokens, increasing from 0 to their number.
    pub cu_seqlens: *const i32,
    /// `(sequences, width)`, written.
    pub out: *mut f32,
    /// [`Pool::workspace`] values that nothing else uses until the stream has done this work. Not used by
    /// [`Pooling::Bos`].
    pub workspace: *mut f32,
    /// The number of tokens.
    pub tokens: usize,
    /// The number of sequences.
    pub sequences: usize,
    /// The channels of a token.
    pub width: usize,
}

impl Pool {
    /// Returns the size of the workspace in values: one row for each possible chunk.
    ///
    /// # Errors
    /// [`GpuError::Argument`] if no memory can hold it.
    pub fn workspace(tokens: usize, sequences: usize, width: usize) -> Result<usize, GpuError> {
        let rows = parts(tokens, sequences)?;
        let width = count("channels", width)?;
        extent("bytes of the workspace", rows, width, 4)?;
        Ok(rows as usize * width as usize)
    }
}

impl Work for Pool {
    fn launches(&self, _: Dtype) -> Result<Vec<Launch>, GpuError> {
        if self.tokens == 0 || self.sequences == 0 {
            return Ok(Vec::new());
        }
        let tokens = count("tokens", self.tokens)?;
        let sequences = count("sequences", self.sequences)?;
        let width = positive("channels", self.width)?;
        let across = width.div_ceil(CHANNELS);
        at_most("blocks of channels", across as usize, MAX_ACROSS as usize)?;
        let size = Dtype::F32.bytes();
        extent("bytes of vectors", tokens.max(sequences), width, size)?;
        check_pointer("hidden", self.hidden, size)?;
        check_pointer("cu_seqlens", self.cu_seqlens, size)?;
        check_pointer("out", self.out, size)?;
        if self.by != Pooling::Bos {
            Self::workspace(self.tokens, self.sequences, self.width)?;
            check_pointer("workspace", self.workspace, size)?;
        }
        let whole = self.width.is_multiple_of(4)
            && is_multiple(self.hidden, 16)
            && is_multiple(self.out, 16)
            && is_multiple(self.workspace, 16);

        let parts = parts(self.tokens, self.sequences)?;
        // Reduces chunks to rows of the workspace, and those to the result. Kernels of packets, or of values.
        let reduce = |chunks: [Kernel; 2], rows: [Kernel; 2]| {
            [
                Launch::new(chunks[usize::from(!whole)], (parts, across), THREADS)
                    .address(self.hidden)
                    .address(self.cu_seqlens)
                    .address(self.workspace)
                    .address(self.out)
                    .count(sequences)
                    .count(width),
                Launch::new(rows[usize::from(!whole)], (sequences, across), THREADS)
                    .address(self.cu_seqlens)
                    .address(self.workspace)
                    .address(self.out)
                    .count(width),
            ]
        };
        let mean = || {
            reduce(
                [Kernel::PoolChunksMeanPackets, Kernel::PoolChunksMeanValues],
                [
                    Kernel::PoolSequencesMeanPackets,
                    Kernel::PoolSequencesMeanValues,
                ],
            )
        };
        let max = || {
            reduce(
                [Kernel::PoolChunksMaxPackets, Kernel::PoolChunksMaxValues],
                [
                    Kernel::PoolSequencesMaxPackets,
                    Kernel::PoolSequencesMaxValues,
                ],
            )
        };
        let std = || {
            reduce(
                [Kernel::PoolChunksStdPackets, Kernel::PoolChunksStdValues],
                [
                    Kernel::PoolSequencesStdPackets,
                    Kernel::PoolSequencesStdValues,
                ],
            )
        };
        Ok(match self.by {
            Pooling::Mean => mean().into(),
            Pooling::Max => max().into(),
            Pooling::Std => [mean(), std()].concat(),
            Pooling::Bos => vec![
                Launch::new(Kernel::PoolBos, (sequences, 1), THREADS)
                    .address(self.hidden)
                    .address(self.cu_seqlens)
                    .address(self.out)
                    .count(width),
            ],
        })
    }
}

/// Returns the rows of the workspace. The rows of sequence i begin at `cu_seqlens[i] / CHUNK + i`. They end before those of the
/// next sequence, since a / c + ceil(l / c) is at most (a + l) / c + 1.
fn parts(tokens: usize, sequences: usize) -> Result<u32, GpuError> {
    count("chunks", (tokens / CHUNK).saturating_add(sequences))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::{Buffer, Draw, Invalid, ORDERS, emulator};

    const ALL: [Pooling; 4] = [Pooling::Mean, Pooling::Max, Pooling::Std, Pooling::Bos];

    struct Case {
        hidden: Vec<f32>,
        cu_seqlens: Vec<i32>,
        width: usize,
        shift: usize,
    }

    impl Case {
        /// The vectors of residues, by `value`; first and last tokens have some that would show in every pooling.
        fn new(residues: &[usize], width: usize, mut value: impl FnMut(usize) -> f32) -> Self {
            let mut cu_seqlens = vec![0];
            let mut hidden = Vec::new();
            for &residues in residues {
                hidden.extend(vec![9e4; width]);
                hidden.extend((0..residues * width).map(|at| value(at % width)));
                hidden.extend(vec![-9e4; width]);
                cu_seqlens.push((hidden.len() / width) as i32);
            }
            Self {
                hidden,
                cu_seqlens,
                width,
                shift: 0,
            }
        }

        /// A third of the channels near 1000, a third all negative.
        fn drawn(residues: &[usize], width: usize) -> Self {
            let mut draw = Draw::new(3);
            Self::new(residues, width, |channel| {
                draw.between(-1.0, 1.0) as f32 + [0.0, 1_000.0, -2.0][channel % 3]
            })
        }

        fn run(&self, by: Pooling) -> Vec<f32> {
            let (tokens, sequences) = (self.hidden.len() / self.width, self.cu_seqlens.len() - 1);
            let results = ORDERS.map(|order| {
                let hidden = Buffer::of(&self.hidden, 4 * self.shift);
                let cu_seqlens = Buffer::of(&self.cu_seqlens, 0);
                let out = Buffer::empty(4 * sequences * self.width);
                let workspace =
                    Buffer::empty(4 * Pool::workspace(tokens, sequences, self.width).unwrap());
                let work = Pool {
                    by,
                    hidden: hidden.pointer(),
                    cu_seqlens: cu_seqlens.pointer(),
                    out: out.pointer(),
                    workspace: workspace.pointer(),
                    tokens,
                    sequences,
                    width: self.width,
                };
                for launch in work.launches(Dtype::F32).unwrap() {
                    emulator(Dtype::F32).run(launch, order);
                }
                workspace.bytes(); // nothing was written beside it
                out.bytes()
            });
            assert!(results.iter().all(|result| *result == results[0]));
            Buffer::from_bytes(&results[0]).values()
        }

        fn check(&self) {
            for by in ALL {
                let found = self.run(by);
                for (sequence, bounds) in self.cu_seqlens.windows(2).enumerate() {
                    let (start, end) = (bounds[0] as usize, bounds[1] as usize);
                    for channel in 0..self.width {
                        let at =
                            |token: usize| f64::from(self.hidden[token * self.width + channel]);
                        let residues = || (start + 1..end - 1).map(at);
                        let n = (end - start - 2) as f64;
                        let mean = residues().sum::<f64>() / n;
                        let (expected, slack) = match by {
                            Pooling::Mean => {
                                (mean, 3e-7 * residues().map(f64::abs).sum::<f64>() / n)
                            }
                            Pooling::Max => (residues().fold(f64::NEG_INFINITY, f64::max), 0.0),
                            Pooling::Std => {
                                let variance =
                                    residues().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
                                (
                                    variance.sqrt(),
                                    1e-6 * variance.sqrt() + 1.5e-7 * mean.abs(),
                                )
                            }
                            Pooling::Bos => (at(start), 0.0),
                        };
                        let found = f64::from(found[sequence * self.width + channel]);
                        assert!(
                            (found - expected).abs() <= slack || found.is_nan() && n == 0.0,
                            "{by:?} of {n} residues, channel {channel}: expected {expected}, found {found}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn residues_only_of_short_and_long_sequences() {
        Case::drawn(&[1, 2, 7, 8, 9, 127, 128, 129, 300, 1, 1_030], 12).check();
    }

    #[test]
    fn every_width_of_esm2() {
        for width in [64, 320, 480, 640, 1_280, 5_120] {
            Case::drawn(&[5, 130], width).check();
        }
    }

    #[test]
    fn odd_widths_and_addresses() {
        for width in [1, 3, 129] {
            Case::drawn(&[1, 40, 200], width).check();
        }
        let mut case = Case::drawn(&[1, 40, 200], 64);
        let aligned = ALL.map(|by| case.run(by));
        case.shift = 1;
        case.check();
        assert_eq!(aligned, ALL.map(|by| case.run(by)));
    }

    #[test]
    fn many_short_sequences() {
        Case::drawn(&[1; 700], 4).check();
        Case::drawn(&[63; 40], 4).check();
    }

    #[test]
    fn one_long_protein() {
        Case::drawn(&[34_350], 4).check();
    }

    #[test]
    fn a_sequence_has_the_same_bits_in_any_company() {
        let lengths = [50, 1, 300, 127, 1_000];
        let together = Case::drawn(&lengths, 68);
        let all = ALL.map(|by| together.run(by));
        for (sequence, bounds) in together.cu_seqlens.windows(2).enumerate() {
            let alone = Case {
                hidden: together.hidden[bounds[0] as usize * 68..bounds[1] as usize * 68].to_vec(),
                cu_seqlens: vec![0, bounds[1] - bounds[0]],
                width: 68,
                shift: 0,
            };
            for (by, all) in ALL.into_iter().zip(&all) {
                assert_eq!(alone.run(by), all[sequence * 68..][..68], "{by:?}");
            }
        }
    }

    #[test]
    fn the_deviation_of_one_residue_is_0() {
        let case = Case::new(&[1, 1, 1], 4, |channel| [1_000.1, -3.7, 1e-9, 0.0][channel]);
        assert_eq!(case.run(Pooling::Std), [0.0; 12]);
    }

    #[test]
    fn the_mean_of_many_large_values_keeps_their_digits() {
        let case = Case::new(&[40_000], 1, |_| 1_000.1);
        assert!((case.run(Pooling::Mean)[0] - 1_000.1).abs() < 2e-4);
        assert!(case.run(Pooling::Std)[0] < 2e-4);
    }

    #[test]
    fn the_largest_of_negative_numbers_is_negative() {
        assert_eq!(
            Case::new(&[3, 200], 4, |_| -5.0).run(Pooling::Max),
            [-5.0; 8]
        );
        let least = Case::new(&[3], 4, |_| f32::NEG_INFINITY);
        assert_eq!(least.run(Pooling::Max), [f32::NEG_INFINITY; 4]);
    }

    #[test]
    fn what_is_not_finite_shows_in_its_sequence_and_channel_alone() {
        for wrong in [f32::NAN, f32::INFINITY] {
            // The first and the last residue, and one of another chunk.
            for residue in [0, 131, 199] {
                let mut case = Case::drawn(&[20, 200, 30], 8);
                case.hidden[(22 + 1 + residue) * 8 + 3] = wrong;
                for by in [Pooling::Mean, Pooling::Max, Pooling::Std] {
                    for (at, value) in case.run(by).into_iter().enumerate() {
                        let shown = by == Pooling::Std || wrong.is_nan();
                        if at != 8 + 3 {
                            assert!(value.is_finite(), "{by:?} {at} {value}");
                        } else if shown {
                            assert!(value.is_nan(), "{by:?} {value}");
                        } else {
                            assert_eq!(value, f32::INFINITY, "{by:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn without_residues_there_is_only_a_first_token() {
        let case = Case::new(&[0, 5, 0], 4, |_| 1.0);
        for by in [Pooling::Mean, Pooling::Max, Pooling::Std] {
            let found = case.run(by);
            assert!(
                found[..4]
                    .iter()
                    .chain(&found[8..])
                    .all(|value| value.is_nan()),
                "{by:?}"
            );
            assert!(found[4..8].iter().all(|value| value.is_finite()));
        }
        assert_eq!(case.run(Pooling::Bos), [9e4; 12]);
    }

    #[test]
    fn sizes_and_pointers_are_checked() {
        let some = std::ptr::without_provenance_mut::<f32>(0x1000);
        let work = Pool {
            by: Pooling::Mean,
            hidden: some,
            cu_seqlens: some.cast(),
            out: some,
            workspace: some,
            tokens: 1_000,
            sequences: 3,
            width: 320,
        };
        assert_eq!(work.launches(Dtype::F32).unwrap().len(), 2);
        assert_eq!(Pool::workspace(1_000, 3, 320).unwrap(), 10 * 320);
        for none in [
            Pool {
                tokens: 0,
                hidden: std::ptr::null(),
                ..work
            },
            Pool {
                sequences: 0,
                out: std::ptr::null_mut(),
                ..work
            },
        ] {
            assert!(none.launches(Dtype::F32).unwrap().is_empty());
        }
        let bos = Pool {
            by: Pooling::Bos,
            workspace: std::ptr::null_mut(),
            ..work
        };
        assert_eq!(bos.launches(Dtype::F32).unwrap().len(), 1);
        let cases: [Invalid<Pool>; 8] = [
            (
                |work| work.tokens = 1 << 33,
                "tokens: expected at most 2147483647, found 8589934592",
            ),
            (
                |work| work.sequences = 1 << 33,
                "sequences: expected at most 2147483647, found 8589934592",
            ),
            (
                |work| work.width = 0,
                "channels: expected at least 1, found 0",
            ),
            (
                |work| work.width = 1 << 30,
                "blocks of channels: expected at most 65535, found 8388608",
            ),
            (
                |work| work.hidden = std::ptr::null(),
                "hidden is a null pointer",
            ),
            (
                |work| work.cu_seqlens = std::ptr::null(),
                "cu_seqlens is a null pointer",
            ),
            (
                |work| work.out = std::ptr::null_mut(),
                "out is a null pointer",
            ),
            (
                |work| work.workspace = std::ptr::null_mut(),
                "workspace is a null pointer",
            ),
        ];
        for (change, message) in cases {
            let mut invalid = work;
            change(&mut invalid);
            assert_eq!(
                invalid.launches(Dtype::F32).unwrap_err().to_string(),
                message
            );
        }
    }
}
