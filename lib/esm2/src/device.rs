//! Where the model runs.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use plmkit_contract::{Exit, Failure};
use serde::{Deserialize, Serialize};

/// A device as it is asked for on a command line: `auto`, `cpu`, `cuda`, `cuda:N` or `all`.
///
/// ```
/// use plmkit_esm2::Device;
/// assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
/// assert_eq!("cuda:1".parse(), Ok(Device::Cuda(1)));
/// assert!("gpu".parse::<Device>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// The best one that can be used.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// One CUDA device, counted from 0 among those that are visible.
    Cuda(usize),
    /// Every visible CUDA device.
    All,
}

/// A text that names no device.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, cpu, cuda, cuda:N or all")]
pub struct ParseDeviceError;

/// Why a device cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The machine has no GPU driver.
    #[error(
        "device '{0}' needs an NVIDIA driver, and this machine has none ({DRIVER} does not exist)"
    )]
    NoDriver(Device),
    /// The machine has a GPU driver that this build makes no use of.
    #[error("device '{0}' needs a build with a CUDA engine, and this one computes on the CPU only")]
    NoEngine(Device),
}

/// Where the NVIDIA kernel driver says that it is loaded.
const DRIVER: &str = "/proc/driver/nvidia/version";

impl Device {
    /// The libtorch device, once it is known to be usable.
    pub(crate) fn open(self) -> Result<tch::Device, DeviceError> {
        self.open_with(Path::new(DRIVER).exists())
    }

    fn open_with(self, driver: bool) -> Result<tch::Device, DeviceError> {
        match self {
            Self::Auto | Self::Cpu => Ok(tch::Device::Cpu),
            Self::Cuda(_) | Self::All if driver => Err(DeviceError::NoEngine(self)),
            Self::Cuda(_) | Self::All => Err(DeviceError::NoDriver(self)),
        }
    }
}

impl Failure for DeviceError {
    fn exit(&self) -> Exit {
        Exit::Unavailable
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::All => f.write_str("all"),
        }
    }
}

impl FromStr for Device {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, ParseDeviceError> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            "all" => Ok(Self::All),
            _ => text
                .strip_prefix("cuda:")
                .filter(|index| index.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|index| index.parse().ok())
                .map(Self::Cuda)
                .ok_or(ParseDeviceError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_reads_back_from_its_name() {
        for device in [
            Device::Auto,
            Device::Cpu,
            Device::Cuda(0),
            Device::Cuda(11),
            Device::All,
        ] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        for text in [
            "",
            "CPU",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:1,2",
            "cuda:99999999999999999999",
        ] {
            assert_eq!(text.parse::<Device>(), Err(ParseDeviceError), "{text}");
        }
    }

    #[test]
    fn only_the_cpu_opens_and_the_error_says_what_is_missing() {
        assert_eq!(Device::Auto.open_with(true), Ok(tch::Device::Cpu));
        assert_eq!(Device::Cpu.open_with(false), Ok(tch::Device::Cpu));
        let error = Device::Cuda(1).open_with(false).unwrap_err();
        assert_eq!(error.exit(), Exit::Unavailable);
        assert!(
            error
                .to_string()
                .contains("'cuda:1' needs an NVIDIA driver")
        );
        assert_eq!(
            Device::All.open_with(true),
            Err(DeviceError::NoEngine(Device::All))
        );
    }
}
