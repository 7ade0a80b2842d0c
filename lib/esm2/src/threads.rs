//! How many CPU threads compute.

use std::num::NonZeroUsize;

/// Sets the threads that compute a batch.
///
/// libtorch has a second pool, for operations that run beside each other; nothing here uses it and it stays
/// unstarted.
pub fn set_threads(threads: NonZeroUsize) {
    tch::set_num_threads(i32::try_from(threads.get()).unwrap_or(i32::MAX));
}

/// The threads that compute a batch.
pub(crate) fn threads() -> NonZeroUsize {
    let threads = usize::try_from(tch::get_num_threads()).ok();
    threads
        .and_then(NonZeroUsize::new)
        .unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtorch_reports_what_was_set() {
        set_threads(NonZeroUsize::new(2).unwrap());
        assert_eq!(tch::get_num_threads(), 2);
        set_threads(NonZeroUsize::MIN);
        assert_eq!(tch::get_num_threads(), 1);
    }
}
