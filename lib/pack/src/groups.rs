//! Groups of sequences that stay together.

use std::ops::Range;

/// Groups of adjacent sequences that stay together, such as the windows of a protein. Most groups have one sequence.
///
/// Takes one byte of memory per sequence.
///
/// ```
/// use plmkit_pack::Groups;
///
/// let ordinals = [7_u64, 8, 8, 9];
/// assert_eq!(Groups::runs(ordinals).sequences(), 4); // in three groups
/// ```
#[derive(Clone, Debug)]
pub struct Groups {
    /// Whether each sequence is in the group of the sequence before it.
    joined: Vec<bool>,
}

impl Groups {
    /// Groups sequences by their keys: a group is a run of equal keys.
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

    /// Returns the number of sequences in all groups.
    pub fn sequences(&self) -> usize {
        self.joined.len()
    }

    /// Returns the group that starts at sequence `first`.
    pub(crate) fn beginning_at(&self, first: u32) -> Range<u32> {
        let others = &self.joined[first as usize + 1..];
        let joined = others.iter().take_while(|&&joined| joined).count();
        first..first + 1 + joined as u32
    }

    /// Iterates over the groups of `sequences`, whose first starts a group.
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
