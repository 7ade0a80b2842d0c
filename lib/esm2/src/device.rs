//! The name of a device.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A device on a command line: `auto`, `cpu`, `cuda`, `cuda:N` or `all`.
///
/// ```
/// use plmkit_esm2::Device;
/// assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
/// assert_eq!("cuda:1".parse(), Ok(Device::Cuda(1)));
/// assert!("gpu".parse::<Device>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// The first usable GPU, or the CPU if there is no GPU. A GPU without its libraries or with a broken driver is an error.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A CUDA device, counted from 0 among the visible ones.
    Cuda(usize),
    /// Every visible CUDA device.
    All,
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
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
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
                .ok_or("expected auto, cpu, cuda or cuda:N, or, for a run of plmkit, all; CUDA_VISIBLE_DEVICES lists several"),
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
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }
}
