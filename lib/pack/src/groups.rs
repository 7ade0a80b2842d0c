//! Which sequences have to stay together.

use std::ops::Range;

/// Runs of adjacent sequences that belong together, as the windows of one protein do: each sequence is in one
/// group, and most are a group of their own.
///
/// One bit for each sequence, so that a hundred million of them cost 12 MB and not a list each.
///
/// ```
/// use plmkit_pack::Groups;
///
/// let ordinals = [7_u64, 8, 8, 9];
/// assert_eq!(Groups::runs(ordinals).sequences(), 4); // in three groups
/// ```
#[derive(Clone, Debug)]
pub struct Groups {
    sequences: usize,
    /// Whether a sequence is in the group of the one before it, 64 to a word.
    joined: Vec<u64>,
}

impl Groups {
    /// The groups of sequences with these keys, one for each: a group is a run of equal keys.
    pub fn runs<K: PartialEq>(keys: impl IntoIterator<Item = K>) -> Self {
        let mut groups = Self {
            sequences: 0,
            joined: Vec::new(),
        };
        let mut last = None;
        for key in keys {
            let bit = groups.sequences % 64;
            if bit == 0 {
                groups.joined.push(0);
            }
            let key = Some(key);
            groups.joined[groups.sequences / 64] |= u64::from(key == last) << bit;
            groups.sequences += 1;
            last = key;
        }
        groups
    }

    /// The number of sequences in all groups.
    pub fn sequences(&self) -> usize {
        self.sequences
    }

    /// The group that begins at sequence `first`.
    pub(crate) fn beginning_at(&self, first: u32) -> Range<u32> {
        let mut end = first as usize + 1;
        while end < self.sequences && self.joined[end / 64] >> (end % 64) & 1 == 1 {
            end += 1;
        }
        first..end as u32
    }

    /// The groups of some sequences, in order; one begins with the first of them.
    pub(crate) fn between(
        &self,
        sequences: Range<u32>,
    ) -> impl Iterator<Item = Range<u32>> + Clone {
        let mut next = sequences.start;
        std::iter::from_fn(move || {
            let group = (next < sequences.end).then(|| self.beginning_at(next))?;
            next = group.end;
            Some(group)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn are_the_runs_of_equal_keys(keys in prop::collection::vec(0_u8..3, 0..300)) {
            let expected: Vec<usize> = keys.chunk_by(|a, b| a == b).map(<[u8]>::len).collect();
            let groups = Groups::runs(&keys);
            let found: Vec<usize> = groups.between(0..groups.sequences() as u32).map(|group| group.len()).collect();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(found.iter().sum::<usize>(), groups.sequences());
        }
    }

    #[test]
    fn a_run_may_end_at_any_bit() {
        for count in [1_u32, 63, 64, 65, 128, 129] {
            let groups = Groups::runs((0..count).map(|_| 'a').chain(['b', 'c']));
            let found: Vec<_> = groups.between(0..count + 2).collect();
            assert_eq!(found, [0..count, count..count + 1, count + 1..count + 2]);
        }
    }
}
