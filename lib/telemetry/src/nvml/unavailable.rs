//! What a driver does not give, said once.

use std::collections::HashSet;

use nvml_wrapper::error::NvmlError;

/// What was already said not to be available, so that it is said once and not each second.
#[derive(Default)]
pub(super) struct Unavailable(HashSet<(u32, &'static str)>);

impl Unavailable {
    /// The value, or `None` and, the first time, a line that says why.
    pub(super) fn value<T>(
        &mut self,
        index: u32,
        what: &'static str,
        value: Result<T, NvmlError>,
    ) -> Option<T> {
        value
            .inspect_err(|error| {
                if !self.0.insert((index, what)) {
                    return;
                }
                match error {
                    NvmlError::GpuLost => tracing::warn!("gpu {index} is lost: {error}"),
                    error => tracing::info!("gpu {index}: {what} is not available: {error}"),
                }
            })
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_available_is_said_once() {
        let mut unavailable = Unavailable::default();
        let unsupported = || Err::<u32, _>(NvmlError::NotSupported);
        assert_eq!(unavailable.value(0, "power_w", unsupported()), None);
        assert_eq!(unavailable.value(0, "power_w", Ok(3)), Some(3));
        assert_eq!(unavailable.value(0, "power_w", unsupported()), None);
        assert_eq!(unavailable.0.len(), 1);
    }
}
