//! Token ids to vectors.

use super::Work;
use crate::launch::{Launch, THREADS, tokens_per_block};
use crate::launch_arguments::{check_pointer, count, extent, is_multiple, positive};
use crate::source::Kernel;
use crate::{Dtype, GpuError};

/// The initial residual stream: the table row of each token, divided by the unmasked share of its sequence.
#[derive(Clone, Copy, Debug)]
pub struct Embed {
    /// `(tokens)` ids. An id without a row in the table becomes NaN in every channel.
    pub ids: *const u8,
    /// `(rows, hidden)`.
    pub table: *const f32,
    /// The number of table rows.
    pub rows: usize,
    /// `(sequences + 1)` offsets of sequences among the tokens, increasing from 0. Not read without `kept`.
    pub cu_seqlens: *const i32,
    /// `(sequences)`: the divisor of each sequence's vectors, if any. With fair-esm's token dropout, it is the share of
    /// unmasked tokens; the factor 0.88 is in the table. Tokens after the last sequence count as part of it.
    pub kept: Option<*const f32>,
    /// The id whose vectors are 0, if any: `<mask>` with token dropout.
    pub masked: Option<u8>,
    /// `(tokens, hidden)`, written.
    pub out: *mut f32,
    /// The number of tokens.
    pub tokens: usize,
    /// The number of sequences.
    pub sequences: usize,
    /// The channels of a token.
    pub hidden: usize,
}

impl Work for Embed {
    fn launches(&self, _: Dtype) -> Result<Vec<Launch>, GpuError> {
        if self.tokens == 0 {
            return Ok(Vec::new());
        }
        let tokens = count("tokens", self.tokens)?;
        let hidden = positive("channels", self.hidden)?;
        let rows = positive("rows of the table", self.rows)?;
        let sequences = positive("sequences", self.sequences)?;
        extent("bytes of the residual stream", tokens, hidden, 4)?;
        // The kernel counts the table's values in 32 bits.
        count("values of the table", self.rows.saturating_mul(self.hidden))?;
        if let Some(kept) = self.kept {
            check_pointer("kept", kept, 4)?;
            check_pointer("cu_seqlens", self.cu_seqlens, 4)?;
        }
        let whole = self.hidden.is_multiple_of(4)
            && is_multiple(self.table, 16)
            && is_multiple(self.out, 16);
        let kernel = if whole {
            Kernel::EmbedPackets
        } else {
            Kernel::EmbedValues
        };
        let per_block = tokens_per_block(hidden.div_ceil(4));
        Ok(vec![
            Launch::new(kernel, (tokens.div_ceil(per_block), 1), THREADS)
                .pointer("ids", self.ids, 1)?
                .pointer("table", self.table, 4)?
                .address(self.cu_seqlens)
                .address(self.kept.unwrap_or(std::ptr::null()))
                .pointer("out", self.out, 4)?
                .count(tokens)
                .count(hidden)
                .count(rows)
                .count(sequences)
                .integer(self.masked.map_or(-1, i32::from))
                .count(per_block),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;
    use crate::emulator::{Buffer, Draw, Invalid, ORDERS, emulator};

    const ROWS: usize = 33;
    const MASK: u8 = 32;

    #[derive(Clone)]
    struct Case {
        ids: Vec<u8>,
        cu_seqlens: Vec<i32>,
        kept: Option<Vec<f32>>,
        masked: Option<u8>,
        hidden: usize,
        shift: usize,
    }

    fn case(lengths: &[usize], hidden: usize) -> Case {
        let mut draw = Draw::new(11);
        let mut cu_seqlens = vec![0];
        for length in lengths {
            cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + *length as i32);
        }
        Case {
            ids: (0..lengths.iter().sum())
                .map(|_| draw.below(ROWS) as u8)
                .collect(),
            cu_seqlens,
            kept: Some(
                (0..lengths.len())
                    .map(|_| draw.between(0.1, 1.0) as f32)
                    .collect(),
            ),
            masked: Some(MASK),
            hidden,
            shift: 0,
        }
    }

    fn run(case: &Case) -> (Vec<f64>, Vec<f32>) {
        let mut draw = Draw::new(5);
        let mut table: Vec<f64> = (0..ROWS * case.hidden)
            .map(|_| draw.between(-4.0, 4.0))
            .collect();
        table[0] = 1_000.0;
        let results = ORDERS.map(|order| {
            let ids = Buffer::of(&case.ids, 0);
            let held = Buffer::elements(Dtype::F32, &table, case.shift * 4);
            let cu_seqlens = Buffer::of(&case.cu_seqlens, 0);
            let kept = case.kept.as_ref().map(|kept| Buffer::of(kept, 0));
            let out = Buffer::empty(case.ids.len() * case.hidden * 4);
            let work = Embed {
                ids: ids.pointer(),
                table: held.pointer(),
                rows: ROWS,
                cu_seqlens: cu_seqlens.pointer(),
                kept: kept.as_ref().map(|kept| kept.pointer::<f32>().cast_const()),
                masked: case.masked,
                out: out.pointer(),
                tokens: case.ids.len(),
                sequences: case.cu_seqlens.len() - 1,
                hidden: case.hidden,
            };
            emulator(Dtype::F32).run(work.launches(Dtype::F32).unwrap().remove(0), order);
            (held.bytes(), out.bytes())
        });
        assert!(results.iter().all(|result| *result == results[0]));
        let [(table, out), ..] = results;
        (
            Buffer::from_bytes(&table).elements_of(Dtype::F32),
            Buffer::from_bytes(&out).values(),
        )
    }

    fn check(case: &Case) {
        let (table, out) = run(case);
        for (token, &id) in case.ids.iter().enumerate() {
            let sequence = case
                .cu_seqlens
                .iter()
                .rposition(|&start| start as usize <= token)
                .unwrap();
            let share = case.kept.as_ref().map_or(1.0, |kept| kept[sequence]);
            for channel in 0..case.hidden {
                let row = table[usize::from(id) * case.hidden + channel] as f32;
                let expected = if Some(id) == case.masked {
                    0.0
                } else {
                    row / share
                };
                assert_eq!(
                    out[token * case.hidden + channel].to_bits(),
                    expected.to_bits()
                );
            }
        }
    }

    #[test]
    fn every_width() {
        for hidden in [64, 320, 5_120] {
            check(&case(&[4, 1, 9], hidden));
        }
    }

    #[test]
    fn many_sequences_and_empty_ones() {
        let mut lengths = vec![3; 500];
        lengths[0] = 1;
        lengths[17] = 0;
        lengths[18] = 0;
        lengths[499] = 200;
        check(&case(&lengths, 4));
    }

    #[test]
    fn odd_widths_and_addresses() {
        check(&case(&[1], 1));
        check(&case(&[5, 2], 67));
        let mut shifted = case(&[5, 2], 64);
        shifted.shift = 1;
        check(&shifted);
    }

    #[test]
    fn without_token_dropout_rows_are_taken_as_they_are() {
        let mut case = case(&[40, 41], 320);
        case.kept = None;
        case.masked = None;
        assert!(case.ids.contains(&MASK));
        check(&case);
    }

    #[test]
    fn an_id_that_is_no_row_is_not_a_number() {
        let mut case = case(&[3], 64);
        case.ids = vec![0, 33, 255];
        let (_, out) = run(&case);
        assert!(out[..64].iter().all(|value| value.is_finite()));
        assert!(out[64..].iter().all(|value| value.is_nan()));
    }

    #[test]
    fn sizes_and_pointers_are_checked() {
        let some = std::ptr::without_provenance_mut::<f32>(0x1000);
        let work = Embed {
            ids: some.cast(),
            table: some,
            rows: ROWS,
            cu_seqlens: some.cast(),
            kept: Some(some),
            masked: Some(MASK),
            out: some,
            tokens: 10,
            sequences: 1,
            hidden: 320,
        };
        assert!(!work.launches(Dtype::F32).unwrap().is_empty());
        let none = Embed {
            tokens: 0,
            ids: std::ptr::null(),
            ..work
        };
        assert!(none.launches(Dtype::F32).unwrap().is_empty());
        let unscaled = Embed {
            kept: None,
            cu_seqlens: std::ptr::null(),
            ..work
        };
        assert!(!unscaled.launches(Dtype::F32).unwrap().is_empty());
        let cases: [Invalid<Embed>; 9] = [
            (
                |work| work.tokens = 1 << 33,
                "tokens: expected at most 2147483647, found 8589934592",
            ),
            (
                |work| work.hidden = 0,
                "channels: expected at least 1, found 0",
            ),
            (
                |work| work.sequences = 0,
                "sequences: expected at least 1, found 0",
            ),
            (
                |work| work.rows = 1 << 30,
                "values of the table: expected at most 2147483647, found 343597383680",
            ),
            (|work| work.ids = std::ptr::null(), "ids is a null pointer"),
            (
                |work| work.table = std::ptr::null(),
                "table is a null pointer",
            ),
            (
                |work| work.cu_seqlens = std::ptr::null(),
                "cu_seqlens is a null pointer",
            ),
            (
                |work| work.kept = Some(std::ptr::null()),
                "kept is a null pointer",
            ),
            (
                |work| work.out = std::ptr::null_mut(),
                "out is a null pointer",
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
