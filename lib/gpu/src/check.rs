//! What a launch asks of sizes and pointers.

use crate::GpuError;

/// The most tokens, channels and the like. Offsets of sequences are i32, and so is the width of a grid.
pub(crate) const MOST: usize = i32::MAX as usize;

/// A count that a kernel can hold.
pub(crate) fn count(quantity: &'static str, found: usize) -> Result<u32, GpuError> {
    at_most(quantity, found, MOST)?;
    Ok(found as u32)
}

/// A count that is not 0 either.
pub(crate) fn positive(quantity: &'static str, found: usize) -> Result<u32, GpuError> {
    if found == 0 {
        return Err(GpuError::Shape {
            quantity,
            expected: "at least 1",
            found,
        });
    }
    count(quantity, found)
}

/// No more than `limit`.
pub(crate) fn at_most(quantity: &'static str, found: usize, limit: usize) -> Result<(), GpuError> {
    if found > limit {
        return Err(GpuError::TooLarge {
            quantity,
            limit,
            found,
        });
    }
    Ok(())
}

/// That `rows` rows of `width` values of `size` bytes can lie in memory.
pub(crate) fn extent(
    quantity: &'static str,
    rows: u32,
    width: u32,
    size: usize,
) -> Result<(), GpuError> {
    // Both are below 2^31, so that the first product cannot overflow.
    let bytes = (rows as usize * width as usize).saturating_mul(size);
    at_most(quantity, bytes, isize::MAX as usize)
}

/// That values of `alignment` bytes can lie at an address.
pub(crate) fn pointer<T>(
    argument: &'static str,
    values: *const T,
    alignment: usize,
) -> Result<(), GpuError> {
    if values.is_null() {
        return Err(GpuError::Null { argument });
    }
    if !is_multiple(values, alignment) {
        return Err(GpuError::Misaligned {
            argument,
            alignment,
            address: values.addr(),
        });
    }
    Ok(())
}

/// Whether an address is a multiple of so many bytes.
pub(crate) fn is_multiple<T>(values: *const T, bytes: usize) -> bool {
    values.addr().is_multiple_of(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_below_2_to_the_31() {
        assert_eq!(count("tokens", MOST).unwrap(), 0x7fff_ffff);
        let error = count("tokens", MOST + 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tokens: expected at most 2147483647, found 2147483648"
        );
        assert_eq!(
            positive("heads", 0).unwrap_err().to_string(),
            "heads: expected at least 1, found 0"
        );
    }

    #[test]
    fn rows_that_no_memory_can_hold_are_refused() {
        extent("x", 34_000, 5_120, 4).unwrap();
        assert!(matches!(
            extent("x", MOST as u32, MOST as u32, 4),
            Err(GpuError::TooLarge { .. })
        ));
    }

    #[test]
    fn pointers_are_not_null_and_aligned() {
        let null = std::ptr::null::<f32>();
        assert_eq!(
            pointer("bias", null, 4).unwrap_err().to_string(),
            "bias is a null pointer"
        );
        let odd = std::ptr::without_provenance::<f32>(0x1002);
        assert_eq!(
            pointer("bias", odd, 4).unwrap_err().to_string(),
            "bias: expected an address that is a multiple of 4, found 0x1002"
        );
        pointer("bias", odd, 2).unwrap();
    }
}
