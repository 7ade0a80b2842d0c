//! `monitor-log top`.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use plmkit_cli::{Exit, Fault, print};
use plmkit_telemetry::{GpuSample, Sampler, Sources};

use crate::args::TopArgs;

/// CPU utilisation is the one between two readings: the first moment shown waits for a second reading.
const FIRST_READING: Duration = Duration::from_millis(250);

/// Shows moments until interrupted; one where nobody watches.
pub(crate) fn top(args: &TopArgs) -> Result<Exit, Fault> {
    let once = args.once || !io::stdout().is_terminal();
    let mut sampler = Sampler::open(&Sources {
        nvml: args.driver.nvml.clone(),
        ..Sources::default()
    });
    sampler.sample();
    thread::sleep(FIRST_READING);
    loop {
        let show = if args.json { json } else { line };
        print(sampler.sample().iter().map(show).collect::<String>())?;
        if once {
            return Ok(Exit::Done);
        }
        thread::sleep(args.interval);
    }
}

fn json(sample: &GpuSample) -> String {
    // A flat struct always serialises.
    serde_json::to_string(sample).unwrap_or_default() + "\n"
}

fn line(sample: &GpuSample) -> String {
    let Some(index) = sample.index else {
        return format!(
            "host  cpu {} %  mem {}/{} MiB\n",
            or_dash(sample.host_cpu_util.as_ref()),
            or_dash(sample.host_mem_used_mib.as_ref()),
            or_dash(sample.host_mem_total_mib.as_ref()),
        );
    };
    let processes = sample.processes.as_ref().map(|processes| processes.0.len());
    format!(
        "gpu {index}  {}  util {} %  mem {}/{} MiB  {} C  {}/{} W  {} MHz  throttle {}  processes {}\n",
        or_dash(sample.name.as_ref()),
        or_dash(sample.gpu_util.as_ref()),
        or_dash(sample.mem_used_mib.as_ref()),
        or_dash(sample.mem_total_mib.as_ref()),
        or_dash(sample.temperature_c.as_ref()),
        or_dash(sample.power_w.map(f64::round).as_ref()),
        or_dash(sample.power_limit_w.map(f64::round).as_ref()),
        or_dash(sample.sm_clock_mhz.as_ref()),
        or_dash(sample.throttle.as_ref()),
        or_dash(processes.as_ref()),
    )
}

/// A value that is not known is no 0.
fn or_dash(value: Option<&impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let mut sample = GpuSample::at("2026-01-31T12:00:00Z".parse().unwrap());
        assert_eq!(line(&sample), "host  cpu - %  mem -/- MiB\n");
        sample.index = Some(1);
        sample.gpu_util = Some(0);
        sample.power_w = Some(61.7);
        assert_eq!(
            line(&sample),
            "gpu 1  -  util 0 %  mem -/- MiB  - C  62/- W  - MHz  throttle -  processes -\n"
        );
    }
}
