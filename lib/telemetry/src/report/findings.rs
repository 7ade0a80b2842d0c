//! Findings, each with advice.

use plmkit_contract::plural;
use std::cmp::Reverse;
use std::fmt;

use serde::Serialize;

use super::gpus::GpuSummary;
use super::run::RunSummary;
use super::share;
use super::stages::percent;
use super::throttle_count::is_severe;
use super::{RunsSummary, SamplesSummary, Tier};
use plmkit_logs::thresholds::{MEMORY_CRITICAL_ABOVE, MEMORY_MILD_ABOVE, THROTTLED_OFTEN_ABOVE};

/// A finding about a run or a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// How much it costs.
    pub tier: Tier,
    /// What it is about.
    pub kind: FindingKind,
    /// Whether the verdict takes it into account: see [`FindingKind::counts`].
    pub in_verdict: bool,
    /// The run or the GPU.
    pub subject: String,
    /// What was found, and advice.
    pub text: String,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The mean utilisation of a GPU.
    Bottleneck,
    /// Token utilisation of the batches.
    Packing,
    /// The time in which the device of a run had no work.
    Idle,
    /// Heat or the power supply held the clocks of a GPU down.
    Throttling,
    /// Uncorrected memory errors occurred.
    MemoryErrors,
    /// The values of a GPU ended while the recording went on, or never came.
    GpuLost,
    /// A power limit or a setting held the clocks of a GPU down.
    PowerCap,
    /// A GPU was hot.
    Temperature,
    /// Device memory was nearly full.
    DeviceMemory,
    /// Foreign processes computed on the GPU of a run.
    ForeignProcesses,
    /// Batches were halved because memory ran out.
    OutOfMemory,
    /// Sequences could not be embedded.
    Rejected,
}

impl FindingKind {
    /// Whether the verdict takes findings of this kind into account: those about wasted GPU time and failing hardware. The
    /// other kinds are causes of these, or are handled elsewhere.
    pub fn counts(self) -> bool {
        matches!(
            self,
            Self::Bottleneck
                | Self::Packing
                | Self::Idle
                | Self::Throttling
                | Self::MemoryErrors
                | Self::GpuLost
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.tier, self.subject, self.text)
    }
}

/// Returns all findings, the worst first. Utilisation, packing and idle time have a finding even if they are good.
pub(super) fn findings(
    events: Option<&RunsSummary>,
    samples: Option<&SamplesSummary>,
) -> Vec<Finding> {
    let mut list = List::default();
    let gpus = samples.iter().flat_map(|samples| &samples.gpus);
    for gpu in gpus.filter(|gpu| gpu.in_run) {
        list.subject = gpu_name(gpu.index, gpu.name.as_deref());
        list.add_utilization(gpu);
        list.add_failures(gpu);
        list.add_throttling(gpu);
        list.add_limits(gpu);
    }
    for run in events.iter().flat_map(|events| &events.runs) {
        list.subject = format!("run {}", run.run);
        list.add_packing(run);
        list.add_idle(run);
        list.add_losses(run);
    }
    // Stable: GPUs and runs keep their order.
    list.findings
        .sort_by_key(|finding| (Reverse(finding.tier), !finding.in_verdict));
    list.findings
}

/// Returns the name of a GPU in sentences.
pub(crate) fn gpu_name(index: Option<u32>, name: Option<&str>) -> String {
    let index = index.map_or_else(|| "?".to_owned(), |index| index.to_string());
    format!("gpu {index} ({})", name.unwrap_or("unknown"))
}

#[derive(Default)]
struct List {
    subject: String,
    findings: Vec<Finding>,
}

impl List {
    fn add(&mut self, tier: Tier, kind: FindingKind, text: impl Into<String>) {
        self.findings.push(Finding {
            tier,
            kind,
            in_verdict: kind.counts(),
            subject: self.subject.clone(),
            text: text.into(),
        });
    }

    fn add_mild(&mut self, kind: FindingKind, text: impl Into<String>) {
        self.add(Tier::Mild, kind, text);
    }

    fn add_utilization(&mut self, gpu: &GpuSummary) {
        let Some((tier, mean)) = gpu.bottleneck.zip(gpu.mean_utilization) else {
            return;
        };
        let advice = match tier {
            Tier::None => "it was kept busy",
            Tier::Mild => "it was idle part of the time: see waits and writing",
            Tier::Critical => {
                "it was idle most of the time: something else is the bottleneck, see waits and writing"
            }
        };
        let text = format!("{advice} (mean utilization {})", percent(mean));
        self.add(tier, FindingKind::Bottleneck, text);
    }

    /// Adds failing hardware.
    fn add_failures(&mut self, gpu: &GpuSummary) {
        if gpu.lost {
            let text = "its values ended while the recording went on, or never came: look for Xid errors in the kernel's log, and reset or replace it";
            self.add(Tier::Critical, FindingKind::GpuLost, text);
        }
        if let Some(errors @ 1..) = gpu.new_ecc_uncorrected {
            let text = format!(
                "{errors} memory errors that could not be corrected came up: do not trust what it computed, and reset or replace it"
            );
            self.add(Tier::Critical, FindingKind::MemoryErrors, text);
        }
    }

    /// Adds what held the clocks down. At full load a power limit nearly always does, which costs little; heat should not.
    fn add_throttling(&mut self, gpu: &GpuSummary) {
        let throttling = &gpu.throttling;
        let reasons = |severe: bool| {
            let reasons = throttling.reasons.iter();
            let reasons = reasons.filter(|(reason, _)| is_severe(reason) == severe);
            let named = reasons.map(|(reason, &samples)| {
                let share = share_of(samples, throttling.samples, "samples");
                format!("{reason} in {share}")
            });
            named.collect::<Vec<_>>().join(", ")
        };
        let is_often =
            |samples: u64| samples as f64 > THROTTLED_OFTEN_ABOVE * throttling.samples as f64;
        if throttling.severe > 0 {
            let text = format!(
                "heat or its supply of power held the clocks down ({}): look at cooling and power cables",
                reasons(true)
            );
            let tier = critical_if(is_often(throttling.severe));
            self.add(tier, FindingKind::Throttling, text);
        }
        let capped = reasons(false);
        if !capped.is_empty() && is_often(throttling.any - throttling.severe) {
            let text = format!(
                "a power limit or a setting held the clocks down ({capped}): a higher limit, if there is one, makes it faster"
            );
            self.add_mild(FindingKind::PowerCap, text);
        }
    }

    /// Adds heat, full memory, and foreign processes.
    fn add_limits(&mut self, gpu: &GpuSummary) {
        let hottest = gpu.max_temperature_c.zip(gpu.hot_above_c);
        if let (Some((hottest, limit)), Some(hot @ 1..)) = (hottest, gpu.hot_samples) {
            let share = share_of(hot, gpu.samples, "samples");
            let text = format!(
                "it reached {hottest} °C, and was above {limit} °C in {share}: look at cooling and at its neighbours"
            );
            self.add_mild(FindingKind::Temperature, text);
        }
        let memory = gpu.peak_mem_used_mib.zip(gpu.mem_total_mib);
        let used = memory.and_then(|(used, total)| share(used as f64, total as f64));
        if let Some(used) = used.filter(|&used| used > MEMORY_MILD_ABOVE) {
            let text = format!(
                "{} of its memory was in use at most: pack with a smaller --max-batch-tokens before it runs out",
                percent(used)
            );
            let tier = critical_if(used > MEMORY_CRITICAL_ABOVE);
            self.add(tier, FindingKind::DeviceMemory, text);
        }
        if let Some(foreign @ 1..) = gpu.foreign_samples {
            let share = share_of(foreign, gpu.samples, "samples");
            let text = format!(
                "others computed on it in {share}: figures are of all together, ask for the GPU alone"
            );
            self.add_mild(FindingKind::ForeignProcesses, text);
        }
    }

    fn add_packing(&mut self, run: &RunSummary) {
        let packing = &run.packing;
        let utilization = packing.mean_utilization.zip(packing.min_utilization);
        let Some((tier, (mean, min))) = packing.tier.zip(utilization) else {
            return;
        };
        let advice = match tier {
            Tier::None => "the batches were well filled",
            Tier::Mild => {
                "the batches have room to spare: pack more sequences at once, from fewer shards"
            }
            Tier::Critical => {
                "the batches were poorly filled: pack more sequences at once, or raise --max-batch-tokens"
            }
        };
        let (mean, min) = (percent(mean), percent(min));
        let (below, batches) = (packing.below_85, packing.batches);
        let text = format!("{advice} (mean {mean}, least {min}; {below} of {batches} below 85 %)");
        self.add(tier, FindingKind::Packing, text);
    }

    fn add_idle(&mut self, run: &RunSummary) {
        let Some((tier, idle)) = run.idle_tier.zip(run.idle) else {
            return;
        };
        let share = percent(idle.share);
        let time = run
            .elapsed_s
            .map_or_else(String::new, |elapsed_s| format!(" of {elapsed_s:.1} s"));
        let text = if tier == Tier::None {
            format!("the device nearly always had work: it was idle for {share}{time}")
        } else {
            let workers = run
                .by_worker
                .iter()
                .filter_map(|worker| Some((worker.worker, worker.idle?.share)));
            let worst = workers.max_by(|one, other| one.1.total_cmp(&other.1));
            let worst = worst.filter(|_| run.by_worker.len() > 1);
            let worst = worst.map_or_else(String::new, |(worker, share)| {
                format!(", worker {worker} for {}", percent(share))
            });
            format!(
                "the device had no work for {share}{time}{worst} ({}): {}",
                idle.parts(),
                idle.advice()
            )
        };
        self.add(tier, FindingKind::Idle, text);
    }

    fn add_losses(&mut self, run: &RunSummary) {
        if run.oom_splits > 0 {
            let text = format!(
                "batches were halved for lack of memory, {} in all: pack with a smaller --max-batch-tokens",
                run.oom_splits
            );
            self.add_mild(FindingKind::OutOfMemory, text);
        }
        if run.rejected > 0 {
            let rejected = plural(run.rejected, "sequence");
            let text =
                format!("{rejected} could not be embedded: the rejects file of the run says why");
            self.add_mild(FindingKind::Rejected, text);
        }
    }
}

fn critical_if(critical: bool) -> Tier {
    if critical { Tier::Critical } else { Tier::Mild }
}

fn share_of(part: u64, all: u64, what: &str) -> String {
    let share = share(part as f64, all as f64).unwrap_or_default();
    format!("{} of the {what}", percent(share))
}

#[cfg(test)]
mod tests {
    use plmkit_logs::{GpuSample, Throttle};

    use super::super::Runs;
    use super::*;
    use crate::tests::{batch, report, runs, sample};

    type Change<'a> = &'a dyn Fn(u32, &mut GpuSample);

    /// The findings of ten samples of a GPU.
    fn found(change: Change) -> Vec<Finding> {
        let samples = (0..10).map(|second| {
            sample(second, |sample| {
                sample.temperature_c = Some(80);
                (sample.mem_used_mib, sample.mem_total_mib) = (Some(900), Some(1000));
                sample.throttle = Some(Throttle::default());
                (sample.foreign_processes, sample.ecc_uncorrected) = (Some(0), Some(3));
                change(second, sample);
            })
        });
        report(Runs::default(), samples).findings
    }

    fn throttled(seconds: u32, reason: &'static str) -> impl Fn(u32, &mut GpuSample) {
        move |second, sample| {
            if second < seconds {
                sample.throttle = Some(Throttle(vec![reason.to_owned()]));
            }
        }
    }

    #[test]
    #[rustfmt::skip]
    fn each_problem_of_a_gpu_is_a_finding_with_its_tier_and_a_threshold_is_none() {
        use FindingKind::{
            DeviceMemory, ForeignProcesses, GpuLost, MemoryErrors, PowerCap, Temperature, Throttling,
        };
        use Tier::{Critical, Mild};
        assert_eq!(found(&|_, _| {}), []);
        assert_eq!(found(&throttled(1, "sw_power_cap")), []);
        let lost = |second, sample: &mut GpuSample| {
            if second > 5 {
                let uuid = sample.uuid.take();
                *sample = GpuSample { index: Some(0), uuid, ..GpuSample::at(sample.timestamp) };
            }
        };
        let cases: [(Change, Tier, FindingKind, &str); 11] = [
            (&|i, s| s.temperature_c = Some(80 + i / 9), Mild, Temperature, "reached 81 °C, and was above 80 °C in 10.0 %"),
            (&|i, s| (s.temperature_c, s.temperature_limit_c) = (Some(88 + i / 9), Some(93)), Mild, Temperature, "reached 89 °C, and was above 88 °C in 10.0 %"),
            // The driver was loaded again, and counts from 0.
            (&|i, s| s.ecc_uncorrected = Some(if i < 5 { 3 } else { 2 }), Critical, MemoryErrors, "2 memory errors"),
            (&|i, s| s.mem_used_mib = Some(900 + u64::from(i)), Mild, DeviceMemory, "90.9 % of its memory"),
            (&|_, s| s.mem_used_mib = Some(951), Critical, DeviceMemory, "95.1 %"),
            (&|i, s| s.foreign_processes = Some(i % 2), Mild, ForeignProcesses, "50.0 % of the samples"),
            (&|i, s| s.ecc_uncorrected = Some(3 + u64::from(i > 4)), Critical, MemoryErrors, "1 memory errors"),
            (&throttled(1, "hw_thermal_slowdown"), Mild, Throttling, "hw_thermal_slowdown in 10.0 %"),
            (&throttled(2, "hw_thermal_slowdown"), Critical, Throttling, "hw_thermal_slowdown in 20.0 %"),
            (&throttled(10, "sw_power_cap"), Mild, PowerCap, "sw_power_cap in 100.0 %"),
            (&lost, Critical, GpuLost, "its values ended"),
        ];
        for (change, tier, kind, text) in cases {
            let [finding] = &found(change)[..] else { panic!("{kind:?}") };
            assert_eq!((finding.tier, finding.kind), (tier, kind), "{finding}");
            assert_eq!(finding.subject, "gpu 0 (Fake)");
            assert!(finding.text.contains(text), "{finding}");
        }
    }

    #[test]
    fn the_verdict_is_the_worst_finding_that_counts() {
        use FindingKind::{Bottleneck, DeviceMemory, Temperature};
        let report = |gpu_util, temperature_c| {
            let samples = (0..10).map(|second| {
                sample(second, |sample| {
                    (sample.gpu_util, sample.temperature_c) = (gpu_util, temperature_c);
                    (sample.mem_used_mib, sample.mem_total_mib) = (Some(99), Some(100));
                })
            });
            report(Runs::default(), samples)
        };
        let hot = report(Some(70), Some(95));
        let kinds: Vec<_> = hot.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [DeviceMemory, Bottleneck, Temperature]);
        assert_eq!(hot.verdict, Some(Tier::Mild));
        assert_eq!(report(None, Some(95)).verdict, None);
        assert_eq!(report(Some(90), None).verdict, Some(Tier::None));
    }

    #[test]
    fn idle_time_is_judged_by_its_share_and_names_its_largest_part() {
        let found = |wait_ms: f64, compute_ms: f64| {
            // Ten batches of 10 s. The first one begins at once.
            let batches = (0..10).map(|number| {
                batch(number, |batch| {
                    batch.wait_ms = Some(if number == 0 { 0.0 } else { wait_ms });
                    batch.compute_ms = Some(if number == 0 { 10_000.0 } else { compute_ms });
                    batch.elapsed_s = Some(10.0 * (number + 1) as f64);
                })
            });
            let report = report(runs(batches), []);
            assert_eq!(report.verdict, Some(report.findings[0].tier));
            report.findings[0].to_string()
        };
        let starved = "critical: run r: the device had no work for 89.7 % of 100.0 s (waiting for batches 89.7 %, \
                       the start 0.0 %, other gaps 0.0 %): raise --prefetch or read from a faster disk";
        assert_eq!(found(9968.75, 31.25), starved);
        let mild = "mild: run r: the device had no work for 9.0 % of 100.0 s (other gaps 9.0 %, waiting for batches 0.0 %, \
                    the start 0.0 %): look at copying and writing";
        assert!(
            found(0.0, 9000.0).starts_with(mild),
            "{}",
            found(0.0, 9000.0)
        );
        let busy = "ok: run r: the device nearly always had work: it was idle for 4.5 % of 100.0 s";
        assert_eq!(found(500.0, 9500.0), busy);
    }
}
