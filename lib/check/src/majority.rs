//! Which of several files are like most of the others.

/// The most frequent of several kinds of files, and each file that is of another kind.
pub(crate) struct Majority<'a, T> {
    /// The first file of the most frequent kind; of kinds that are equally frequent, the first.
    pub(crate) typical: &'a T,
    /// How many are of that kind.
    pub(crate) count: usize,
    /// The others.
    pub(crate) odd: Vec<&'a T>,
}

/// Sorts `files` into kinds by whether they are `same`; `None` where there are no files.
pub(crate) fn majority<T>(files: &[T], same: impl Fn(&T, &T) -> bool) -> Option<Majority<'_, T>> {
    let mut kinds: Vec<(&T, usize)> = Vec::new();
    for file in files {
        match kinds.iter_mut().find(|(first, _)| same(first, file)) {
            Some((_, count)) => *count += 1,
            None => kinds.push((file, 1)),
        }
    }
    let (typical, count) = kinds.into_iter().rev().max_by_key(|&(_, count)| count)?;
    Some(Majority {
        typical,
        count,
        odd: files.iter().filter(|file| !same(typical, file)).collect(),
    })
}

impl<T> Majority<'_, T> {
    /// Where a typical file is: "as in a" or "as in a and 5 more".
    pub(crate) fn place(&self, name: &str) -> String {
        match self.count - 1 {
            0 => format!("as in {name}"),
            more => format!("as in {name} and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_most_files_is_typical_and_of_a_tie_the_first() {
        for (files, typical, count, odd) in [
            ("abb", 'b', 2, "a"),
            ("ab", 'a', 1, "b"),
            ("aabcb", 'a', 2, "bcb"),
        ] {
            let files: Vec<char> = files.chars().collect();
            let found = majority(&files, |a, b| a == b).expect("files");
            assert_eq!((*found.typical, found.count), (typical, count));
            assert_eq!(found.odd.into_iter().collect::<String>(), odd);
        }
        assert!(majority::<char>(&[], |a, b| a == b).is_none());
    }
}
