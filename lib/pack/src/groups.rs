//! Which sequences have to stay together.

use std::ops::Range;

/// Runs of adjacent sequences that belong together, as the windows of one protein do: each sequence is in one
/// group, and most are a group of their own.
///
/// One byte for each sequence.
///
/// ```
/// use plmkit_pack::Groups;
///
/// let ordinals = [7_u64, 8, 8, 9];
/// assert_eq!(Groups::runs(ordinals).sequences(), 4); // in three groups
/// ```
#[derive(Clone, Debug)]
pub struct Groups {
    /// Whether each sequence is in the group of the one before it.
    joined: Vec<bool>,
}

impl Groups {
    /// The groups of sequences with these keys, one for each: a group is a run of equal keys.
    pub fn runs<K: PartialEq>(keys: impl IntoIterator<Item = K>) -> Self {
        let mut last = None;
        let joined = keys.into_iter().map(|key| {
            let key = Some(key);
            let joins = key == last;
            last = key;
            joins
        });
        Self {
            joined: joined.collect(),
        }
    }

    /// The number of sequences in all groups.
    pub fn sequences(&self) -> usize {
        self.joined.len()
    }

    /// The group that begins at sequence `first`.
    pub(crate) fn beginning_at(&self, first: u32) -> Range<u32> {
        let others = &self.joined[first as usize + 1..];
        let joined = others.iter().take_while(|&&joined| joined).count();
        first..first + 1 + joined as u32
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
}
