//! The names of shards.

use plmkit_contract::{LONG_SHARD_PREFIX, SHARD_PREFIX};

/// A shard of a set. Shards of long proteins come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShardKey {
    pub(crate) long: bool,
    pub(crate) index: usize,
}

impl ShardKey {
    pub(crate) fn file_name(self) -> String {
        let prefix = if self.long {
            LONG_SHARD_PREFIX
        } else {
            SHARD_PREFIX
        };
        format!("{prefix}{:05}.parquet", self.index)
    }
}

/// Whether `name` is the name of a shard.
pub fn is_shard_name(name: &str) -> bool {
    let digits = name
        .strip_prefix(LONG_SHARD_PREFIX)
        .or_else(|| name.strip_prefix(SHARD_PREFIX))
        .and_then(|rest| rest.strip_suffix(".parquet"));
    digits.is_some_and(|digits| {
        digits.len() >= 5 && digits.bytes().all(|digit| digit.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_like_shards_and_are_recognised() {
        let keys = [
            (false, 0),
            (false, 12),
            (false, 99_999),
            (true, 0),
            (true, 3),
        ]
        .map(|(long, index)| ShardKey { long, index });
        let names = keys.map(ShardKey::file_name);
        assert_eq!(names[1], "shard-00012.parquet");
        assert_eq!(names[4], "shard-long-00003.parquet");
        assert!(keys.is_sorted() && names.is_sorted());
        assert!(names.iter().all(|name| is_shard_name(name)));
        let (long, index) = (false, 100_000);
        assert!(is_shard_name(&ShardKey { long, index }.file_name()));
        for name in [
            "shard-0001.parquet",
            "shard-0000a.parquet",
            "shard-00001.parquet.bak",
            "rejects.csv",
        ] {
            assert!(!is_shard_name(name), "{name}");
        }
    }
}
