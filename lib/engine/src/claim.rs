//! Claiming an output that another process may be writing.

use std::thread;
use std::time::Duration;

use plmkit_contract::Stop;
use plmkit_store::StoreError;

use crate::RunConfig;

/// Time between two looks at an output that another process is writing.
const BETWEEN_CLAIMS: Duration = Duration::from_millis(200);

/// Claims an output. With `--wait` it waits for another process that writes it.
pub(crate) fn claim_output<T>(
    config: &RunConfig,
    stop: &Stop,
    claim: impl Fn() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut said = false;
    loop {
        match claim() {
            Err(busy @ StoreError::Busy { .. }) if config.wait => {
                if stop.requested() {
                    return Err(StoreError::Stopped);
                }
                if !said {
                    tracing::warn!("{busy}; waiting for it to end");
                    said = true;
                }
                thread::sleep(BETWEEN_CLAIMS);
            }
            result => return result,
        }
    }
}
