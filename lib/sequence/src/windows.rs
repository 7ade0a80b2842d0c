//! The windows of long proteins.

use std::ops::Range;

/// Iterates over the windows of a sequence of `length` residues, in order, as 0-based residue ranges.
///
/// A sequence of at most `max` residues is one window. A longer one has windows of `max` residues, each of which shares
/// `overlap` residues with the one before. The last window ends at the end of the sequence and may be shorter.
///
/// # Panics
///
/// Unless `overlap` is less than `max`.
///
/// ```
/// let windows: Vec<_> = plmkit_sequence::windows(10, 4, 1).collect();
/// assert_eq!(windows, [0..4, 3..7, 6..10]);
/// ```
pub fn windows(length: u32, max: u32, overlap: u32) -> impl ExactSizeIterator<Item = Range<u32>> {
    assert!(
        overlap < max,
        "windows of {max} residues cannot overlap by {overlap}"
    );
    let stride = max - overlap;
    let count = 1 + length.saturating_sub(max).div_ceil(stride);
    (0..count).map(move |i| {
        let start = i * stride;
        start..length.min(start.saturating_add(max))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sequence_that_fits_is_one_window() {
        for (length, max, overlap) in [(1022, 1022, 256), (1, 1, 0), (u32::MAX, u32::MAX, 0)] {
            assert_eq!(windows(length, max, overlap).len(), 1);
            assert_eq!(windows(length, max, overlap).next(), Some(0..length));
        }
    }

    #[test]
    fn one_residue_more_is_two_windows() {
        assert_eq!(
            windows(1023, 1022, 256).collect::<Vec<_>>(),
            [0..1022, 766..1023]
        );
    }

    proptest! {
        #[test]
        fn every_residue_is_covered_and_neighbours_share_the_overlap(
            length in 1u32..50_000,
            (max, overlap) in (1u32..3000).prop_flat_map(|max| (Just(max), 0..max)),
        ) {
            let windows: Vec<_> = windows(length, max, overlap).collect();
            prop_assert_eq!(windows[0].start, 0);
            prop_assert_eq!(windows[windows.len() - 1].end, length);
            for window in &windows {
                prop_assert!(window.start < window.end && window.end - window.start <= max);
            }
            for pair in windows.windows(2) {
                prop_assert_eq!(pair[0].end - pair[0].start, max);
                prop_assert_eq!(pair[0].end - pair[1].start, overlap);
                prop_assert!(pair[0].end < pair[1].end);
            }
        }
    }
}
