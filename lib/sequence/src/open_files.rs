//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files beside those of the shards: inputs, standard streams, the folder.
const OTHERS: u64 = 64;

/// Raises the limit of open files, often 1024, so that `shards` files can be open, as far as the system lets it.
/// Where that is not far enough, opening a shard fails and says so.
pub(crate) fn allow_open_files(shards: usize) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = shards as u64 + OTHERS;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |maximum| wanted.min(maximum)));
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}
