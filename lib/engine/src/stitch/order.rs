//! Whether the windows of proteins come in an order in which they can be stitched.

use plmkit_contract::{RowSpan, residue_of};
use plmkit_kit::Quoted;
use plmkit_store::PackedBatch;

/// Checks the windows of proteins, batch after batch: starts rise, there is no gap, and at most one protein is unfinished at the
/// end of a batch.
#[derive(Debug, Default)]
pub(crate) struct WindowOrder {
    /// The protein whose last window is in a later batch: its ordinal, its id and its latest window.
    open: Option<(u64, String, RowSpan)>,
}

impl WindowOrder {
    /// Checks the windows of the next batch. The error names the protein, what was expected and what was found.
    pub(crate) fn check_batch(&mut self, packed: &PackedBatch) -> Result<(), String> {
        let mut current: Option<(u64, String, RowSpan)> = None;
        for row in 0..packed.sequences() {
            let (ordinal, span) = (packed.ordinals()[row], packed.span(row));
            if let Some(left) = current.take_if(|(open, ..)| *open != ordinal) {
                self.leave_open(left)?;
            }
            if !span.is_window() {
                continue;
            }
            let open = current
                .take()
                .or_else(|| self.open.take_if(|(open, ..)| *open == ordinal));
            let id = packed.ids().value(row);
            let bad = |what: String| bad_protein(ordinal, id, &what);
            check_next(open.map(|(.., latest)| latest), span).map_err(bad)?;
            let mut tokens = packed.residue_tokens(row).iter();
            if let Some(token) = tokens.find(|&&token| residue_of(token).is_none()) {
                return Err(bad(format!("expected residues, found token {token}")));
            }
            current = (!span.is_last()).then(|| (ordinal, id.to_owned(), span));
        }
        current.map_or(Ok(()), |left| self.leave_open(left))
    }

    /// Whether a protein is unfinished.
    pub(crate) fn unfinished(&self) -> bool {
        self.open.is_some()
    }

    /// Checks that no protein is unfinished after the last batch.
    pub(crate) fn check_end(&self) -> Result<(), String> {
        let Some((ordinal, id, latest)) = &self.open else {
            return Ok(());
        };
        let (length, end) = (latest.length, latest.range().end);
        let what = format!("expected windows to residue {length}, found them to {end}");
        Err(bad_protein(*ordinal, id, &what))
    }

    /// Remembers a protein whose next window is in a later batch.
    fn leave_open(&mut self, left: (u64, String, RowSpan)) -> Result<(), String> {
        if let Some((other, _, latest)) = &self.open {
            let what = format!(
                "expected the rest of ordinal {other} before its windows, found {} of {} residues of it",
                latest.range().end,
                latest.length
            );
            return Err(bad_protein(left.0, &left.1, &what));
        }
        self.open = Some(left);
        Ok(())
    }
}

fn bad_protein(ordinal: u64, id: &str, what: &str) -> String {
    let id = Quoted(id);
    format!("ordinal {ordinal} {id}: {what}; pack-batches --force packs them anew")
}

/// Checks that a window may follow the latest one of its protein, or begin the protein.
fn check_next(latest: Option<RowSpan>, span: RowSpan) -> Result<(), String> {
    let (start, end) = (span.range().start, span.range().end);
    let latest = latest.map(|latest| (latest.range(), latest.length));
    let (first, last) = latest
        .as_ref()
        .map_or((0, 0), |(latest, _)| (latest.start + 1, latest.end));
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
    match latest {
        Some((_, length)) if length != span.length => Err(format!(
            "expected windows of {length} residues in all, found {}",
            span.length
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u32, residues: usize) -> RowSpan {
        RowSpan {
            start,
            residues,
            length: 100,
            truncated: false,
        }
    }

    #[test]
    fn a_window_starts_after_the_one_before_it_and_leaves_no_gap() {
        let before = span(20, 40);
        for (open, start, residues, error) in [
            (None, 0, 40, ""),
            (None, 20, 40, "window from residue 0, found one from 20"),
            (Some(before), 21, 40, ""),
            (Some(before), 60, 40, ""),
            (Some(before), 20, 41, "found one from 20"),
            (Some(before), 61, 39, "residues 21 to 60, found one from 61"),
            (Some(before), 30, 30, "residues 61 to 100, found one to 60"),
            (Some(before), 40, 61, "residues 61 to 100, found one to 101"),
        ] {
            let found = check_next(open, span(start, residues))
                .err()
                .unwrap_or_default();
            assert!(found.ends_with(error), "{start} {residues}: {found}");
            assert_eq!(found.is_empty(), error.is_empty(), "{found}");
        }
    }

    #[test]
    fn a_protein_that_is_left_open_is_named() {
        let mut order = WindowOrder::default();
        assert_eq!(order.check_end(), Ok(()));
        let open = |residues| (7, "P".to_owned(), span(0, residues));
        order.leave_open(open(60)).expect("the first one");
        assert!(order.unfinished());
        let second = order.leave_open(open(30)).expect_err("a second one");
        assert!(second.contains("found 60 of 100"), "{second}");
        let error = order.check_end().expect_err("unfinished");
        let expected = "ordinal 7 'P': expected windows to residue 100, found them to 60; ";
        assert!(error.starts_with(expected), "{error}");
    }
}
