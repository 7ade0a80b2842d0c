//! Batches in the form in which plmkit writes them, read without a general parser: a long log is hardly anything else.

use std::str;

use chrono::NaiveDate;

use super::BatchDone;
use crate::Timestamp;

/// How such a line begins.
const BEGIN: &[u8] = b"{\"type\":\"batch\"";

/// Digits that a `u64` always holds.
const DIGITS: usize = 18;

/// The batch of a line. `None` for all that is not exactly in that form, whether it is well-formed or not: white space,
/// escapes, exponents, fields that are not known or there twice. What this reads, `serde_json` reads to the same bit.
pub(super) fn batch(line: &[u8]) -> Option<BatchDone> {
    let mut rest = Rest(line.strip_prefix(BEGIN)?);
    let mut batch = BatchDone::default();
    let mut seen = 0_u32;
    while rest.take(b',').is_some() {
        let key = rest.string()?;
        rest.take(b':')?;
        let field = match key {
            b"run" => {
                str::from_utf8(rest.string()?)
                    .ok()?
                    .clone_into(&mut batch.run);
                Field::RUN
            }
            b"batch" => {
                batch.batch = rest.integer()?;
                Field::BATCH
            }
            b"sequences" => {
                batch.sequences = rest.integer()?;
                Field::SEQUENCES
            }
            b"tokens" => {
                batch.tokens = rest.integer()?;
                Field::TOKENS
            }
            b"residues" => {
                batch.residues = rest.integer()?;
                Field::RESIDUES
            }
            key => optional(key, &mut rest, &mut batch)?,
        };
        if seen & field.0 != 0 {
            return None;
        }
        seen |= field.0;
    }
    rest.take(b'}')?;
    (rest.0.is_empty() && seen & Field::REQUIRED == Field::REQUIRED).then_some(batch)
}

/// Reads a field that a batch need not have.
fn optional(key: &[u8], rest: &mut Rest, batch: &mut BatchDone) -> Option<Field> {
    let count = match key {
        b"queue_depth" => Some((&mut batch.queue_depth, 5)),
        b"worker" => Some((&mut batch.worker, 6)),
        b"pairs" => Some((&mut batch.pairs, 7)),
        b"token_budget" => Some((&mut batch.token_budget, 8)),
        _ => None,
    };
    if let Some((count, field)) = count {
        *count = Some(rest.integer()?);
        return Some(Field(1 << field));
    }
    let number = match key {
        b"elapsed_s" => Some((&mut batch.elapsed_s, 9)),
        b"wait_ms" => Some((&mut batch.wait_ms, 10)),
        b"h2d_ms" => Some((&mut batch.h2d_ms, 11)),
        b"compute_ms" => Some((&mut batch.compute_ms, 12)),
        b"d2h_ms" => Some((&mut batch.d2h_ms, 13)),
        b"write_ms" => Some((&mut batch.write_ms, 14)),
        b"utilization" => Some((&mut batch.utilization, 15)),
        _ => None,
    };
    if let Some((number, field)) = number {
        *number = Some(rest.decimal()?);
        return Some(Field(1 << field));
    }
    let field = match key {
        b"oom_splits" => {
            batch.oom_splits = rest.integer()?;
            16
        }
        b"rejected" => {
            batch.rejected = rest.integer()?;
            17
        }
        b"time" => {
            batch.time = Some(time(rest.string()?)?);
            18
        }
        b"tail" => {
            batch.tail = rest.boolean()?;
            19
        }
        _ => return None,
    };
    Some(Field(1 << field))
}

/// A bit for each field, so that one that is there twice is seen.
#[derive(Clone, Copy)]
struct Field(u32);

impl Field {
    const RUN: Self = Self(1);
    const BATCH: Self = Self(1 << 1);
    const SEQUENCES: Self = Self(1 << 2);
    const TOKENS: Self = Self(1 << 3);
    const RESIDUES: Self = Self(1 << 4);
    /// What a batch must have.
    const REQUIRED: u32 = (1 << 5) - 1;
}

/// What is left of a line.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, byte: u8) -> Option<()> {
        let (&first, rest) = self.0.split_first()?;
        (first == byte).then(|| self.0 = rest)
    }

    /// A string without escapes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let end = self
            .0
            .iter()
            .position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        let (string, rest) = self.0.split_at(end);
        self.0 = rest;
        self.take(b'"')?;
        Some(string)
    }

    /// Digits, joined to those of before; how many there were.
    fn digits(&mut self, number: &mut u64) -> usize {
        let count = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        for digit in digits {
            // Of too many digits the caller makes nothing.
            *number = number
                .wrapping_mul(10)
                .wrapping_add(u64::from(digit - b'0'));
        }
        count
    }

    /// A number without sign, point and exponent.
    fn integer(&mut self) -> Option<u64> {
        let leading_zero = self.0.first() == Some(&b'0');
        let mut number = 0;
        let count = self.digits(&mut number);
        let one = count == 1;
        let ends = matches!(self.0.first(), Some(b',' | b'}'));
        (ends && (1..=DIGITS).contains(&count) && (one || !leading_zero)).then_some(number)
    }

    /// A number without sign and exponent.
    fn decimal(&mut self) -> Option<f64> {
        let leading_zero = self.0.first() == Some(&b'0');
        let mut digits = 0;
        let whole = self.digits(&mut digits);
        if whole == 0 || (leading_zero && whole > 1) {
            return None;
        }
        let mut fraction = 0;
        if self.take(b'.').is_some() {
            fraction = self.digits(&mut digits);
            if fraction == 0 {
                return None;
            }
        }
        let ends = matches!(self.0.first(), Some(b',' | b'}'));
        // Two steps, each rounded: for up to 15 digits exact, for more what serde_json makes of them.
        (ends && whole + fraction <= DIGITS).then(|| digits as f64 / POWERS[fraction])
    }

    fn boolean(&mut self) -> Option<bool> {
        for (text, value) in [(&b"true"[..], true), (b"false", false)] {
            if let Some(rest) = self.0.strip_prefix(text) {
                self.0 = rest;
                return Some(value);
            }
        }
        None
    }
}

/// Powers of ten, all of them exact.
const POWERS: [f64; DIGITS + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18,
];

/// `2026-01-31T12:00:00.000Z`
fn time(text: &[u8]) -> Option<Timestamp> {
    let marks = [
        (4, b'-'),
        (7, b'-'),
        (10, b'T'),
        (13, b':'),
        (16, b':'),
        (19, b'.'),
        (23, b'Z'),
    ];
    if text.len() != 24 || marks.iter().any(|&(place, mark)| text[place] != mark) {
        return None;
    }
    let number = |from: usize, to: usize| {
        let digits = text[from..to].iter();
        let value = digits.map(|byte| byte.is_ascii_digit().then(|| u32::from(byte - b'0')));
        value
            .reduce(|sum, digit| Some(sum? * 10 + digit?))
            .flatten()
    };
    let year = i32::try_from(number(0, 4)?).ok()?;
    let date = NaiveDate::from_ymd_opt(year, number(5, 7)?, number(8, 10)?)?;
    let time = date.and_hms_milli_opt(
        number(11, 13)?,
        number(14, 16)?,
        number(17, 19)?,
        number(20, 23)?,
    )?;
    Some(time.and_utc().into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::Event;

    const LINE: &str = concat!(
        r#"{"type":"batch","run":"é r-1","batch":7,"time":"2026-01-31T12:34:56.789Z","elapsed_s":12.000345,"#,
        r#""wait_ms":0.25,"h2d_ms":1,"compute_ms":17.482,"d2h_ms":0.1,"write_ms":2.5,"queue_depth":7,"worker":3,"#,
        r#""sequences":37,"tokens":16082,"residues":16008,"pairs":5628700,"token_budget":16384,"#,
        r#""utilization":0.9815673828125,"tail":true,"oom_splits":1,"rejected":2}"#,
    );

    fn by_serde(line: &[u8]) -> Option<BatchDone> {
        match serde_json::from_slice(line) {
            Ok(Event::Batch(batch)) => Some(batch),
            _ => None,
        }
    }

    #[test]
    fn a_line_of_plmkit_is_read_and_says_what_serde_says() {
        let found = batch(LINE.as_bytes());
        assert!(found.is_some());
        assert_eq!(found, by_serde(LINE.as_bytes()));
    }

    #[test]
    fn what_is_written_otherwise_is_left_to_serde() {
        for (from, to) in [
            ("\"batch\":7", "\"batch\": 7"),
            ("\"batch\":7", "\"batch\":07"),
            ("\"batch\":7", "\"batch\":7,\"batch\":7"),
            ("\"batch\":7,", ""),
            ("\"batch\":7", "\"batch\":7.0"),
            ("\"batch\":7", "\"batch\":1234567890123456789"),
            ("\"batch\":7", "\"batch\":-7"),
            ("\"wait_ms\":0.25", "\"wait_ms\":25e-2"),
            ("\"wait_ms\":0.25", "\"wait_ms\":null"),
            ("\"wait_ms\":0.25", "\"wait_ms\":.25"),
            ("\"wait_ms\":0.25", "\"wait_ms\":0."),
            ("\"wait_ms\":0.25", "\"wait_ms\":00.25"),
            ("é r-1", "\\u00e9"),
            ("é r-1", "a\tb"),
            ("56.789Z", "60.789Z"),
            ("56.789Z", "56.789+01:00"),
            ("2026-01-31", "2026-02-31"),
            ("\"tail\":true", "\"tail\":truth"),
            ("\"tail\":true", "\"later\":true"),
            ("\"rejected\":2}", "\"rejected\":2}}"),
            ("\"rejected\":2}", "\"rejected\":2"),
            ("\"type\":\"batch\"", "\"type\":\"batches\""),
        ] {
            let line = LINE.replace(from, to);
            assert_ne!(line, LINE, "{from}");
            assert_eq!(batch(line.as_bytes()), None, "{line}");
        }
        let not_utf8 = LINE.replace('é', "\u{ff}").into_bytes();
        let not_utf8: Vec<u8> = not_utf8.into_iter().filter(|&byte| byte != 0xbf).collect();
        assert_eq!(batch(&not_utf8), None);
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_serde_to_the_bit(text in "(0|[1-9][0-9]{0,9})(\\.[0-9]{1,10})?") {
            let line = LINE.replace("\"elapsed_s\":12.000345", &format!("\"elapsed_s\":{text}"));
            let expected = by_serde(line.as_bytes()).expect("a batch");
            if let Some(found) = batch(line.as_bytes()) {
                prop_assert_eq!(found.elapsed_s.map(f64::to_bits), expected.elapsed_s.map(f64::to_bits));
            } else {
                prop_assert!(text.len() > DIGITS, "{}", text);
            }
        }

        #[test]
        fn a_damaged_line_is_never_read_as_something_else(place in 0..LINE.len(), byte in any::<u8>(), cut in any::<bool>()) {
            let mut line = LINE.as_bytes().to_vec();
            line[place] = byte;
            line.truncate(if cut { place } else { line.len() });
            if let Some(found) = batch(&line) {
                prop_assert_eq!(Some(found), by_serde(&line));
            }
        }
    }
}
