//! What is worth knowing, and what to do about it.

use plmkit_contract::plural;
use std::fmt;

use serde::Serialize;

use super::gpus::GpuSummary;
use super::queue::QueueState;
use super::run::RunSummary;
use super::share;
use super::stages::percent;
use super::throttle_count::is_severe;
use super::{RunsSummary, SamplesSummary, Tier};
use plmkit_logs::thresholds::{
    GPU_HOT_ABOVE_C, MEMORY_CRITICAL_ABOVE, MEMORY_MILD_ABOVE, STARVED_CRITICAL_ABOVE,
    THROTTLED_OFTEN_ABOVE,
};

/// Something worth knowing of a run or a GPU.
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
    /// What was found and what to do.
    pub text: String,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The mean utilisation of a GPU.
    Bottleneck,
    /// How full the batches were.
    Packing,
    /// Heat or the supply of power held the clocks of a GPU down.
    Throttling,
    /// Memory errors that were not corrected came up.
    MemoryErrors,
    /// The values of a GPU ended while the recording went on, or never came.
    GpuLost,
    /// A power limit or a setting held the clocks of a GPU down.
    PowerCap,
    /// A GPU was hot.
    Temperature,
    /// Device memory was nearly full.
    DeviceMemory,
    /// Others computed on the GPU of a run.
    ForeignProcesses,
    /// The device waited for batches.
    QueueStarved,
    /// Batches were halved for lack of memory.
    OutOfMemory,
    /// Sequences could not be embedded.
    Rejected,
}

impl FindingKind {
    /// Whether the verdict takes findings of this kind into account: those of wasted GPU time and of failing hardware. The
    /// others are causes of those, or are dealt with elsewhere.
    pub fn counts(self) -> bool {
        matches!(
            self,
            Self::Bottleneck
                | Self::Packing
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

/// All findings, the worst first. Of utilisation and packing there is one where nothing is lost too: it is a result.
pub(super) fn findings(
    events: Option<&RunsSummary>,
    samples: Option<&SamplesSummary>,
) -> Vec<Finding> {
    let mut list = List::default();
    let gpus = samples.iter().flat_map(|samples| &samples.gpus);
    for gpu in gpus.filter(|gpu| gpu.in_run) {
        list.subject = gpu_name(gpu.index, gpu.name.as_deref());
        add_utilization(&mut list, gpu);
        add_failures(&mut list, gpu);
        add_throttling(&mut list, gpu);
        add_limits(&mut list, gpu);
    }
    for run in events.iter().flat_map(|events| &events.runs) {
        list.subject = format!("run {}", run.run);
        add_packing(&mut list, run);
        add_starvation(&mut list, run);
        add_losses(&mut list, run);
    }
    // Stable: GPUs and runs stay in their order.
    list.findings
        .sort_by_key(|finding| (std::cmp::Reverse(finding.tier), !finding.in_verdict));
    list.findings
}

/// What a GPU is called in sentences.
pub(super) fn gpu_name(index: Option<u32>, name: Option<&str>) -> String {
    let index = index.map_or_else(|| "?".to_owned(), |index| index.to_string());
    format!("gpu {index} ({})", name.unwrap_or("unknown"))
}

#[derive(Default)]
struct List {
    subject: String,
    findings: Vec<Finding>,
}

impl List {
    fn add(&mut self, tier: Tier, kind: FindingKind, text: String) {
        self.findings.push(Finding {
            tier,
            kind,
            in_verdict: kind.counts(),
            subject: self.subject.clone(),
            text,
        });
    }
}

fn critical_if(critical: bool) -> Tier {
    if critical { Tier::Critical } else { Tier::Mild }
}

fn add_utilization(list: &mut List, gpu: &GpuSummary) {
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
    list.add(tier, FindingKind::Bottleneck, text);
}

/// Failing hardware.
fn add_failures(list: &mut List, gpu: &GpuSummary) {
    if gpu.lost {
        let text = "its values ended while the recording went on, or never came: look for Xid errors in the kernel's log, and reset or replace it";
        list.add(Tier::Critical, FindingKind::GpuLost, text.to_owned());
    }
    if let Some(errors @ 1..) = gpu.new_ecc_uncorrected {
        let text = format!(
            "{errors} memory errors that could not be corrected came up: do not trust what it computed, and reset or replace it"
        );
        list.add(Tier::Critical, FindingKind::MemoryErrors, text);
    }
}

/// What held the clocks down. At full load a power limit nearly always does, which costs little; heat should not.
fn add_throttling(list: &mut List, gpu: &GpuSummary) {
    let throttling = &gpu.throttling;
    let reasons = |severe: bool| {
        let reasons = throttling.reasons.iter();
        let reasons = reasons.filter(|(reason, _)| is_severe(reason) == severe);
        let named = reasons.map(|(reason, &samples)| {
            format!(
                "{reason} in {}",
                share_of(samples, throttling.samples, "samples")
            )
        });
        named.collect::<Vec<_>>().join(", ")
    };
    let often = |samples: u64| samples as f64 > THROTTLED_OFTEN_ABOVE * throttling.samples as f64;
    if throttling.severe > 0 {
        let text = format!(
            "heat or its supply of power held the clocks down ({}): look at cooling and power cables",
            reasons(true)
        );
        list.add(
            critical_if(often(throttling.severe)),
            FindingKind::Throttling,
            text,
        );
    }
    let capped = reasons(false);
    if !capped.is_empty() && often(throttling.any - throttling.severe) {
        let text = format!(
            "a power limit or a setting held the clocks down ({capped}): a higher limit, if there is one, makes it faster"
        );
        list.add(Tier::Mild, FindingKind::PowerCap, text);
    }
}

/// Heat, full memory, and others on the GPU.
fn add_limits(list: &mut List, gpu: &GpuSummary) {
    if let (Some(hottest), Some(hot @ 1..)) = (gpu.max_temperature_c, gpu.hot_samples) {
        let text = format!(
            "it reached {hottest} °C, and was above {GPU_HOT_ABOVE_C} °C in {}: look at cooling and at its neighbours",
            share_of(hot, gpu.samples, "samples")
        );
        list.add(Tier::Mild, FindingKind::Temperature, text);
    }
    let memory = gpu.peak_mem_used_mib.zip(gpu.mem_total_mib);
    let used = memory.and_then(|(used, total)| share(used as f64, total as f64));
    if let Some(used) = used.filter(|&used| used > MEMORY_MILD_ABOVE) {
        let text = format!(
            "{} of its memory was in use at most: pack with a smaller --max-batch-tokens before it runs out",
            percent(used)
        );
        list.add(
            critical_if(used > MEMORY_CRITICAL_ABOVE),
            FindingKind::DeviceMemory,
            text,
        );
    }
    if let Some(foreign @ 1..) = gpu.foreign_samples {
        let text = format!(
            "others computed on it in {}: figures are of all together, ask for the GPU alone",
            share_of(foreign, gpu.samples, "samples")
        );
        list.add(Tier::Mild, FindingKind::ForeignProcesses, text);
    }
}

fn add_packing(list: &mut List, run: &RunSummary) {
    let packing = &run.packing;
    let (Some(tier), Some(mean), Some(min)) = (
        packing.tier,
        packing.mean_utilization,
        packing.min_utilization,
    ) else {
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
    let text = format!(
        "{advice} (mean {}, least {}; {} of {} below 85 %)",
        percent(mean),
        percent(min),
        packing.below_85,
        packing.batches
    );
    list.add(tier, FindingKind::Packing, text);
}

fn add_starvation(list: &mut List, run: &RunSummary) {
    let queue = &run.queue;
    if queue.state != Some(QueueState::Starved) {
        return;
    }
    let waited = run.stages.wait.as_ref().and_then(|wait| wait.share);
    let depth = queue.mean_depth.map_or_else(String::new, |depth| {
        format!("; {depth:.1} batches lay ready on average")
    });
    let text = format!(
        "the device waited for more than 50 ms for {}{depth}: raise --prefetch or read from a faster disk",
        share_of(queue.starved, queue.batches, "batches")
    );
    let long = waited.is_some_and(|waited| waited > STARVED_CRITICAL_ABOVE);
    list.add(critical_if(long), FindingKind::QueueStarved, text);
}

fn add_losses(list: &mut List, run: &RunSummary) {
    if run.oom_splits > 0 {
        let text = format!(
            "batches were halved for lack of memory, {} in all: pack with a smaller --max-batch-tokens",
            run.oom_splits
        );
        list.add(Tier::Mild, FindingKind::OutOfMemory, text);
    }
    if run.rejected > 0 {
        let text = format!(
            "{} could not be embedded: the rejects file of the run says why",
            plural(run.rejected, "sequence")
        );
        list.add(Tier::Mild, FindingKind::Rejected, text);
    }
}

fn share_of(part: u64, all: u64, what: &str) -> String {
    let share = share(part as f64, all as f64).unwrap_or_default();
    format!("{} of the {what}", percent(share))
}

#[cfg(test)]
mod tests {
    use plmkit_logs::{GpuSample, Throttle};

    use super::super::{Report, Runs};
    use super::*;
    use crate::tests::{batch, report, runs, sample};

    /// The findings of ten samples of a GPU.
    fn found(change: impl Fn(u32, &mut GpuSample)) -> Vec<(Tier, FindingKind, String)> {
        let samples = (0..10).map(|second| {
            sample(second, |sample| {
                sample.temperature_c = Some(80);
                (sample.mem_used_mib, sample.mem_total_mib) = (Some(900), Some(1000));
                sample.throttle = Some(Throttle::default());
                (sample.foreign_processes, sample.ecc_uncorrected) = (Some(0), Some(3));
                change(second, sample);
            })
        });
        let findings = report(Runs::default(), samples).findings;
        assert!(
            findings
                .iter()
                .all(|finding| finding.subject == "gpu 0 (Fake)")
        );
        let found = findings.into_iter();
        found
            .map(|finding| (finding.tier, finding.kind, finding.text))
            .collect()
    }

    fn throttled(most: u32, reason: &'static str) -> impl Fn(u32, &mut GpuSample) {
        move |second, sample| {
            if second < most {
                sample.throttle = Some(Throttle(vec![reason.to_owned()]));
            }
        }
    }

    type Change<'a> = &'a dyn Fn(u32, &mut GpuSample);

    #[test]
    fn a_threshold_itself_is_no_finding() {
        assert_eq!(found(|_, _| {}), []);
        assert_eq!(found(throttled(1, "sw_power_cap")), []);
    }

    #[test]
    fn each_trouble_of_a_gpu_is_a_finding_with_its_tier() {
        use FindingKind::{
            DeviceMemory, ForeignProcesses, GpuLost, MemoryErrors, PowerCap, Temperature,
            Throttling,
        };
        let lost = |second, sample: &mut GpuSample| {
            if second > 5 {
                *sample = GpuSample {
                    index: Some(0),
                    uuid: sample.uuid.take(),
                    ..GpuSample::at(sample.timestamp)
                };
            }
        };
        let cases: [(Change, Tier, FindingKind, &str); 9] = [
            (
                &|i, s| s.temperature_c = Some(80 + i / 9),
                Tier::Mild,
                Temperature,
                "reached 81 °C, and was above 80 °C in 10.0 %",
            ),
            (
                &|i, s| s.mem_used_mib = Some(900 + u64::from(i)),
                Tier::Mild,
                DeviceMemory,
                "90.9 % of its memory",
            ),
            (
                &|_, s| s.mem_used_mib = Some(951),
                Tier::Critical,
                DeviceMemory,
                "95.1 %",
            ),
            (
                &|i, s| s.foreign_processes = Some(i % 2),
                Tier::Mild,
                ForeignProcesses,
                "50.0 % of the samples",
            ),
            (
                &|i, s| s.ecc_uncorrected = Some(3 + u64::from(i > 4)),
                Tier::Critical,
                MemoryErrors,
                "1 memory errors",
            ),
            (
                &throttled(1, "hw_thermal_slowdown"),
                Tier::Mild,
                Throttling,
                "hw_thermal_slowdown in 10.0 %",
            ),
            (
                &throttled(2, "hw_thermal_slowdown"),
                Tier::Critical,
                Throttling,
                "hw_thermal_slowdown in 20.0 %",
            ),
            (
                &throttled(10, "sw_power_cap"),
                Tier::Mild,
                PowerCap,
                "sw_power_cap in 100.0 %",
            ),
            (&lost, Tier::Critical, GpuLost, "its values ended"),
        ];
        for (change, tier, kind, text) in cases {
            let found = found(change);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].0, found[0].1), (tier, kind), "{found:?}");
            assert!(found[0].2.contains(text), "{found:?}");
        }
    }

    #[test]
    fn the_verdict_is_the_worst_of_what_counts() {
        use FindingKind::{Bottleneck, DeviceMemory, Temperature};
        let report = |gpu_util, temperature_c| -> Report {
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
        let verdicts = [
            hot.verdict,
            report(None, Some(95)).verdict,
            report(Some(90), None).verdict,
        ];
        assert_eq!(verdicts, [Some(Tier::Mild), None, Some(Tier::None)]);
    }

    #[test]
    fn a_starved_queue_is_critical_where_it_cost_much_time() {
        let finding = |elapsed_s| {
            let batches = (0..10).map(|number| {
                batch(number, |batch| {
                    batch.wait_ms = Some(if number < 6 { 60.0 } else { 0.0 });
                    (batch.queue_depth, batch.elapsed_s) = (Some(0), Some(elapsed_s));
                })
            });
            let report = report(runs(batches), []);
            assert_eq!(report.verdict, None);
            report.findings[0].clone()
        };
        let lost = finding(1.0);
        assert_eq!(
            (lost.tier, lost.subject.as_str()),
            (Tier::Critical, "run r")
        );
        assert!(
            lost.text
                .contains("60.0 % of the batches; 0.0 batches lay ready"),
            "{}",
            lost.text
        );
        assert_eq!(finding(10.0).tier, Tier::Mild);
    }
}
