//! Why a GPU has lowered its clocks.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde_with::SerializeDisplay;

/// No reason. An empty value is an unknown one.
const NOTHING: &str = "none";

/// What holds the clocks down, by the driver's names: `sw_power_cap+hw_slowdown`, or `none`.
///
/// An idle GPU clocks down as well; that is no throttling and is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, SerializeDisplay)]
pub struct Throttle(pub Vec<String>);

impl Throttle {
    /// Reasons that protect the hardware from heat or a bad power supply. A configured power limit does not.
    pub const SEVERE: [&str; 4] = [
        "hw_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "sw_thermal_slowdown",
    ];

    /// Whether a reason is [severe](Self::SEVERE).
    pub fn is_severe(&self) -> bool {
        let mut reasons = self.0.iter();
        reasons.any(|reason| Self::SEVERE.contains(&reason.as_str()))
    }

    /// Whether anything holds the clocks down.
    pub fn active(&self) -> bool {
        !self.0.is_empty()
    }
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [] => f.write_str(NOTHING),
            reasons => f.write_str(&reasons.join("+")),
        }
    }
}

impl FromStr for Throttle {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let reasons = text.split('+');
        let reasons = reasons.filter(|reason| !["", NOTHING].contains(reason));
        Ok(Self(reasons.map(str::to_owned).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_read_back_as_they_were_written() {
        for (text, written) in [
            ("none", "none"),
            ("sw_power_cap+sync_boost", "sw_power_cap+sync_boost"),
            ("+++", "none"),
            ("", "none"),
            ("a++b+", "a+b"),
        ] {
            let list: Throttle = text.parse().unwrap();
            assert_eq!(list.to_string(), written);
            assert_eq!(list.active(), written != "none");
        }
    }
}
