//! Decoders that may panic.

use std::path::Path;

use plmkit_contract::guarded;

use crate::StoreError;

/// Runs a decoder on the file at `path`; its panic is an error of the file.
pub(crate) fn guard<T>(
    path: &Path,
    decode: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    guarded(decode).unwrap_or_else(|what| {
        Err(StoreError::malformed(
            path,
            format_args!("cannot be decoded: {what}"),
        ))
    })
}
