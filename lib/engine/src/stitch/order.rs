//! Whether the windows of proteins come so that they can be put together.

use plmkit_contract::{Span, residue_of};
use plmkit_store::PackedBatch;

/// Follows proteins from window to window: rising, without gaps, and no more than one unfinished at the end of a batched.
#[derive(Debug, Default)]
pub(crate) struct WindowOrder {
    /// The protein that is not finished.
    open: Option<Open>,
}

/// A protein whose last window has not come yet.
#[derive(Debug)]
struct Open {
    ordinal: u64,
    id: String,
    length: u32,
    /// The residues of its latest window.
    start: u64,
    end: u64,
}

/// A protein that cannot be put together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Disorder {
    pub(crate) ordinal: u64,
    pub(crate) id: String,
    /// What was expected and what was found.
    pub(crate) what: String,
}

impl WindowOrder {
    /// Checks the windows of the next batch.
    pub(crate) fn check_batch(&mut self, packed: &PackedBatch) -> Result<(), Disorder> {
        let mut current: Option<Open> = None;
        for row in 0..packed.sequences() {
            let (ordinal, span) = (packed.ordinals()[row], packed.span(row));
            if let Some(left) = current.take_if(|open| open.ordinal != ordinal) {
                self.leave(left)?;
            }
            if !span.is_window() {
                continue;
            }
            let open = current
                .take()
                .or_else(|| self.open.take_if(|open| open.ordinal == ordinal));
            let bad = |what| Disorder {
                ordinal,
                id: packed.ids().value(row).to_owned(),
                what,
            };
            follows(open.as_ref(), span).map_err(bad)?;
            if let Some(token) = packed
                .residue_tokens(row)
                .iter()
                .find(|&&token| residue_of(token).is_none())
            {
                return Err(bad(format!("expected residues, found token {token}")));
            }
            current = (!span.is_last()).then(|| Open {
                ordinal,
                id: packed.ids().value(row).to_owned(),
                length: span.length,
                start: span.range().start,
                end: span.range().end,
            });
        }
        current.map_or(Ok(()), |left| self.leave(left))
    }

    /// Whether a protein is unfinished.
    pub(crate) fn unfinished(&self) -> bool {
        self.open.is_some()
    }

    /// There are no more batches.
    pub(crate) fn check_end(&mut self) -> Result<(), Disorder> {
        match self.open.take() {
            Some(Open {
                ordinal,
                id,
                length,
                end,
                ..
            }) => Err(Disorder {
                ordinal,
                id,
                what: format!("expected windows to residue {length}, found them to {end}"),
            }),
            None => Ok(()),
        }
    }

    /// Other records come before the next window of a protein.
    fn leave(&mut self, left: Open) -> Result<(), Disorder> {
        if let Some(other) = &self.open {
            let what = format!(
                "expected the rest of ordinal {} before its windows, found {} of {} residues of it",
                other.ordinal, other.end, other.length
            );
            return Err(Disorder {
                ordinal: left.ordinal,
                id: left.id,
                what,
            });
        }
        self.open = Some(left);
        Ok(())
    }
}

/// Whether a window may come after the latest one of its protein, or begin it.
fn follows(open: Option<&Open>, span: Span) -> Result<(), String> {
    let (start, end) = (span.range().start, span.range().end);
    let (first, last) = open.map_or((0, 0), |open| (open.start + 1, open.end));
    if start < first || start > last {
        let expected = if first == last {
            format!("residue {first}")
        } else {
            format!("one of the residues {first} to {last}")
        };
        return Err(format!(
            "expected a window from {expected}, found one from {start}"
        ));
    }
    let most = u64::from(span.length);
    if end <= last || end > most {
        return Err(format!(
            "expected a window to one of the residues {} to {most}, found one to {end}",
            last + 1
        ));
    }
    match open {
        Some(open) if open.length != span.length => Err(format!(
            "expected windows of {} residues in all, found {}",
            open.length, span.length
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u32, residues: usize) -> Span {
        Span {
            start,
            residues,
            length: 100,
            truncated: false,
        }
    }

    fn open(start: u64, end: u64) -> Open {
        Open {
            ordinal: 7,
            id: "P".to_owned(),
            length: 100,
            start,
            end,
        }
    }

    #[test]
    fn the_first_window_begins_the_protein() {
        assert_eq!(follows(None, span(0, 40)), Ok(()));
        assert_eq!(
            follows(None, span(20, 40)),
            Err("expected a window from residue 0, found one from 20".to_owned())
        );
    }

    #[test]
    fn a_window_begins_after_the_one_before_it_and_leaves_no_gap() {
        let before = open(20, 60);
        for (start, residues, fits) in [
            (21, 40, true),
            (60, 40, true),
            (20, 41, false),
            (61, 39, false),
            (30, 30, false),
            (40, 61, false),
        ] {
            let found = follows(Some(&before), span(start, residues));
            assert_eq!(found.is_ok(), fits, "{start} {residues}: {found:?}");
        }
        assert_eq!(
            follows(Some(&before), span(61, 39)),
            Err(
                "expected a window from one of the residues 21 to 60, found one from 61".to_owned()
            )
        );
    }

    #[test]
    fn what_is_left_open_is_named() {
        let mut order = WindowOrder::default();
        order.leave(open(0, 60)).expect("the first one");
        assert!(order.unfinished());
        let second = order.leave(open(0, 30)).expect_err("a second one");
        assert!(second.what.contains("found 60 of 100"), "{}", second.what);
        let error = order.check_end().expect_err("unfinished");
        assert_eq!(
            (error.ordinal, error.what.as_str()),
            (7, "expected windows to residue 100, found them to 60")
        );
        assert_eq!(order.check_end(), Ok(()));
    }
}
