//! Turns panics of decoders into errors.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a decoder that may panic on damaged bytes. The error is the panic's message, on one line.
///
/// ```
/// assert_eq!(plmkit_kit::catch_decoder_panic(|| 1), Ok(1));
/// assert_eq!(plmkit_kit::catch_decoder_panic(|| -> u8 { panic!("no\nway") }), Err("no way".to_owned()));
/// ```
pub fn catch_decoder_panic<T>(decode: impl FnOnce() -> T) -> Result<T, String> {
    let outer = GUARDED.replace(true);
    // After a panic, the decoder's file is refused and its state is not used again.
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    GUARDED.set(outer);
    decoded.map_err(|payload| text(payload.as_ref()).replace('\n', " "))
}

/// Whether this thread is inside [`catch_decoder_panic`]. A panic hook then stays silent: the panic becomes an error.
pub fn is_catching_panic() -> bool {
    GUARDED.get()
}

fn text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_inside_a_guard_leaves_the_outer_one_on() {
        assert!(!is_catching_panic());
        let inside = catch_decoder_panic(|| {
            assert_eq!(
                catch_decoder_panic(|| panic!("{}", 1)),
                Err::<(), _>("1".to_owned())
            );
            is_catching_panic()
        });
        assert_eq!(inside, Ok(true));
        assert!(!is_catching_panic());
    }
}
