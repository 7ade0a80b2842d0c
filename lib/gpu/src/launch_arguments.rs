//! Checks sizes and pointers of launches.

use crate::GpuError;

/// The largest count: offsets of sequences and the width of a grid are i32.
pub(crate) const MAX_COUNT: usize = i32::MAX as usize;

pub(crate) fn invalid(quantity: &str, expected: &str, found: usize) -> GpuError {
    GpuError::Argument(format!("{quantity}: expected {expected}, found {found}"))
}

/// Returns a count that a kernel can hold.
pub(crate) fn count(quantity: &str, found: usize) -> Result<u32, GpuError> {
    at_most(quantity, found, MAX_COUNT)?;
    Ok(found as u32)
}

/// Returns a count above 0 that a kernel can hold.
pub(crate) fn positive(quantity: &str, found: usize) -> Result<u32, GpuError> {
    if found == 0 {
        return Err(invalid(quantity, "at least 1", found));
    }
    count(quantity, found)
}

pub(crate) fn at_most(quantity: &str, found: usize, limit: usize) -> Result<(), GpuError> {
    if found > limit {
        return Err(invalid(quantity, &format!("at most {limit}"), found));
    }
    Ok(())
}

/// Checks that `rows` rows of `width` values of `size` bytes can fit in memory.
pub(crate) fn extent(quantity: &str, rows: u32, width: u32, size: usize) -> Result<(), GpuError> {
    // Both are below 2^31, so that the first product cannot overflow.
    let bytes = (rows as usize * width as usize).saturating_mul(size);
    at_most(quantity, bytes, isize::MAX as usize)
}

/// Checks that a pointer is not null and is aligned to `alignment` bytes.
pub(crate) fn check_pointer<T>(
    argument: &str,
    values: *const T,
    alignment: usize,
) -> Result<(), GpuError> {
    if values.is_null() {
        return Err(GpuError::Argument(format!("{argument} is a null pointer")));
    }
    if !is_multiple(values, alignment) {
        return Err(GpuError::Argument(format!(
            "{argument}: expected an address that is a multiple of {alignment}, found {:#x}",
            values.addr()
        )));
    }
    Ok(())
}

/// Whether an address is a multiple of `bytes`.
pub(crate) fn is_multiple<T>(values: *const T, bytes: usize) -> bool {
    values.addr().is_multiple_of(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sizes_that_memory_can_hold_are_accepted() {
        assert_eq!(count("tokens", MAX_COUNT).unwrap(), 0x7fff_ffff);
        extent("x", 34_000, 5_120, 4).unwrap();
        let error = extent("x", MAX_COUNT as u32, MAX_COUNT as u32, 4).unwrap_err();
        assert!(
            error.to_string().starts_with("x: expected at most "),
            "{error}"
        );
    }
}
