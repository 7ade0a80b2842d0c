//! Claiming an output that another process may be writing.

use std::thread;
use std::time::Duration;

use plmkit_kit::Stop;
use plmkit_store::StoreError;

/// Time between two attempts to claim an output.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Claims an output by `claim`. If `wait`, waits while another process writes it.
pub(crate) fn claim_output<T>(
    wait: bool,
    stop: &Stop,
    claim: impl Fn() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut warned = false;
    loop {
        match claim() {
            Err(busy @ StoreError::Busy { .. }) if wait => {
                StoreError::check(stop)?;
                if !warned {
                    tracing::warn!("{busy}; waiting for it to end");
                    warned = true;
                }
                thread::sleep(RETRY_INTERVAL);
            }
            result => return result,
        }
    }
}
