//! Libraries that are opened when they are used.

use crate::GpuError;

/// That a library is there and has every function that is called: cudarc panics where one is missing.
pub(crate) fn require(
    library: &'static str,
    is_there: bool,
    symbols: &[&'static str],
    has: impl Fn(&str) -> bool,
) -> Result<(), GpuError> {
    if !is_there {
        return Err(GpuError::NoLibrary { library });
    }
    match symbols.iter().find(|symbol| !has(symbol)) {
        Some(symbol) => Err(GpuError::NoSymbol { library, symbol }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let found = |is_there| require("lib", is_there, &["one", "two"], |symbol| symbol == "one");
        assert!(matches!(
            found(false),
            Err(GpuError::NoLibrary { library: "lib" })
        ));
        let Err(GpuError::NoSymbol { symbol, .. }) = found(true) else {
            panic!("one is missing");
        };
        assert_eq!(symbol, "two");
        assert!(require("lib", true, &["one"], |_| true).is_ok());
    }
}
