//! The most tokens in a shard.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde_json::Value;

/// The least limit: a protein has at least a residue, and two special tokens.
const LEAST: u64 = 3;

/// The most tokens in each of the shards that are filled one after another: a number, or one that grows from shard to shard.
///
/// Growing shards divide small inputs among several GPUs, and do not make a file of every few proteins of large ones: the number of
/// shards grows with the root of the input. Nothing but the index of a shard decides, so that files do not depend on the machine.
///
/// ```
/// use plmkit_sequence::ShardLimit;
/// let fixed: ShardLimit = "20000000".parse().unwrap();
/// assert_eq!([fixed.of(0), fixed.of(9)], [20_000_000; 2]);
/// let growing: ShardLimit = "500000+25000".parse().unwrap();
/// assert_eq!([growing.of(0), growing.of(9)], [500_000, 725_000]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Value")]
pub struct ShardLimit {
    first: u64,
    /// How much more each shard may have than the one before it.
    growth: u64,
}

impl ShardLimit {
    /// Returns the limit of the shard with this index.
    pub fn of(self, index: usize) -> u64 {
        let growth = self.growth.saturating_mul(index as u64);
        self.first.saturating_add(growth)
    }
}

impl FromStr for ShardLimit {
    type Err = Box<dyn Error + Send + Sync>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, growth) = text.split_once('+').unwrap_or((text, "0"));
        let (first, growth) = (first.parse()?, growth.parse()?);
        if first < LEAST {
            return Err(format!("{first} is not in {LEAST}..{}", u64::MAX).into());
        }
        Ok(Self { first, growth })
    }
}

impl fmt::Display for ShardLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { first, growth: 0 } => write!(f, "{first}"),
            Self { first, growth } => write!(f, "{first}+{growth}"),
        }
    }
}

/// The option in the provenance of shards: a number stays one.
impl From<ShardLimit> for Value {
    fn from(limit: ShardLimit) -> Self {
        match limit.growth {
            0 => limit.first.into(),
            _ => limit.to_string().into(),
        }
    }
}
