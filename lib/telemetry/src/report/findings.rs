//! Findings, each with advice.

use plmkit_kit::plural;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use plmkit_logs::thresholds::{MEMORY_CRITICAL_ABOVE, MEMORY_MILD_ABOVE, THROTTLED_OFTEN_ABOVE};
use plmkit_logs::{Throttle, Tier};
use serde::Serialize;

use super::figures::REASON;
use super::{GpuSummary, Report, RunSummary, percent, share};

/// A finding about a run or a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// The share that the verdict names.
    #[serde(skip)]
    share: Option<f64>,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FindingKind {
    // Those that the verdict takes into account come first.
    /// The mean utilisation of a GPU.
    Bottleneck,
    /// How full the batches were.
    Packing,
    /// The time in which the device of a run had no work.
    Idle,
    /// The threads of a run on a CPU did not have the cores for themselves.
    Cpu,
    /// Heat or the power supply held the clocks of a GPU down.
    Throttling,
    /// Uncorrected memory errors occurred.
    MemoryErrors,
    /// A GPU was hot.
    Temperature,
    /// Device memory was nearly full.
    DeviceMemory,
    /// Batches were halved because memory ran out.
    OutOfMemory,
    /// Sequences could not be embedded.
    Rejected,
    /// The driver reported Xid errors.
    XidErrors,
}

impl FindingKind {
    /// Whether the verdict takes findings of this kind into account: those about wasted GPU time and failing hardware. The
    /// other kinds are causes of these, or are handled elsewhere.
    pub fn counts(self) -> bool {
        self <= Self::MemoryErrors
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.tier, self.subject, self.text)
    }
}

/// What a rule finds, how much it costs, and the share that the verdict names, if it names one.
type Found = Option<(Tier, String, Option<f64>)>;

/// A kind of finding, its rule, and advice that follows what was found.
type Rule<T> = (FindingKind, fn(&T) -> Found, &'static str);

#[rustfmt::skip]
const OF_GPU: [Rule<GpuSummary>; 7] = [
    (FindingKind::Bottleneck, utilization, ""),
    (FindingKind::MemoryErrors, memory_errors, ": do not trust what it computed, and reset or replace it"),
    (FindingKind::Throttling, throttling, ": look at cooling and power cables"),
    (FindingKind::Temperature, |gpu| held(gpu, "hot", "it was hot"), ": look at cooling and at its neighbours"),
    (FindingKind::Temperature, |gpu| held(gpu, "hot_memory", "its memory was at its temperature limit"), ": look at cooling and at its neighbours"),
    (FindingKind::DeviceMemory, device_memory, ": pack with a smaller --max-batch-tokens before it runs out"),
    (FindingKind::XidErrors, xid_errors, ": NVIDIA's list of Xid errors says whether the program or the hardware is at fault"),
];

#[rustfmt::skip]
const OF_RUN: [Rule<RunSummary>; 5] = [
    (FindingKind::Packing, packing, ""),
    (FindingKind::Idle, idle, ""),
    (FindingKind::Cpu, cpu, ": look at other work on this machine, at how many cores the run may use, and at --threads"),
    (FindingKind::OutOfMemory, |run| counted(run.total.oom_splits, "halving", "of batches for lack of memory"), ": pack with a smaller --max-batch-tokens"),
    (FindingKind::Rejected, |run| counted(run.total.rejected, "sequence", "rejected"), ": the rejects file of the run says why"),
];

/// Returns all findings, the worst first, and how many runs and GPUs are how bad: `3 runs: 1 critical (idle 48.0 %), 2 ok`.
/// Utilisation, packing and idle time have a finding even if they are good.
pub(super) fn findings(report: &Report) -> (Vec<Finding>, String) {
    let gpus = report.gpus().iter().filter(|gpu| gpu.in_run);
    let gpus = gpus.map(|gpu| apply(&OF_GPU, gpu, &gpu.label()));
    let gpus: Vec<Vec<Finding>> = gpus.collect();
    let runs = report.runs().iter();
    let runs = runs.map(|run| apply(&OF_RUN, run, &format!("run {}", run.name)));
    let runs: Vec<Vec<Finding>> = runs.collect();
    let words = [judged("run", &runs), judged("GPU", &gpus)];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let mut findings = [gpus, runs].concat().concat();
    // Stable: GPUs and runs keep their order.
    findings.sort_by_key(|finding| (Reverse(finding.tier), !finding.in_verdict));
    (findings, words.join("; "))
}

fn apply<T>(rules: &[Rule<T>], of: &T, subject: &str) -> Vec<Finding> {
    let found = rules.iter().filter_map(|(kind, rule, advice)| {
        let (tier, found, share) = rule(of)?;
        Some(Finding {
            tier,
            kind: *kind,
            in_verdict: kind.counts(),
            subject: subject.to_owned(),
            text: found + advice,
            share,
        })
    });
    found.collect()
}

/// Counts runs or GPUs by their worst tier. A kind is told with the share of the first that has it.
fn judged(what: &str, all: &[Vec<Finding>]) -> Option<String> {
    let mut tiers: BTreeMap<Reverse<Tier>, (u64, BTreeMap<FindingKind, &Finding>)> =
        BTreeMap::new();
    for findings in all {
        let counted = || findings.iter().filter(|finding| finding.in_verdict);
        if let Some(worst) = counted().map(|finding| finding.tier).max() {
            let (count, kinds) = tiers.entry(Reverse(worst)).or_default();
            *count += 1;
            for finding in counted().filter(|finding| finding.tier == worst) {
                kinds.entry(finding.kind).or_insert(finding);
            }
        }
    }
    let judged: u64 = tiers.values().map(|(count, _)| count).sum();
    let parts = tiers.iter().map(|(Reverse(tier), (count, kinds))| {
        let kinds = kinds.iter().map(|(kind, finding)| {
            let name = match kind {
                FindingKind::Bottleneck => "busy",
                FindingKind::Cpu => "CPU",
                kind => kind.into(),
            };
            let share = finding.share.map(|share| format!(" {}", percent(share)));
            name.replace('_', " ") + &share.unwrap_or_default()
        });
        match tier {
            Tier::None => format!("{count} {tier}"),
            _ => format!("{count} {tier} ({})", kinds.collect::<Vec<_>>().join(", ")),
        }
    });
    let unjudged = all.len() as u64 - judged;
    let unjudged = (unjudged > 0).then(|| format!("{unjudged} not judged"));
    let parts: Vec<String> = parts.chain(unjudged).collect();
    (judged > 0).then(|| format!("{}: {}", plural(all.len(), what), parts.join(", ")))
}

fn critical_if(critical: bool) -> Tier {
    if critical { Tier::Critical } else { Tier::Mild }
}

fn utilization(gpu: &GpuSummary) -> Found {
    let tier = gpu.bottleneck?;
    let found = match tier {
        Tier::None => "it was kept busy",
        Tier::Mild => "it was idle part of the time: see the idle time of its runs",
        Tier::Critical => {
            "it was idle most of the time: something else is the bottleneck, see the idle time of its runs"
        }
    };
    let mean = gpu.figures.share("gpu_util")?;
    let found = format!("{found} (mean utilization {})", percent(mean));
    Some((tier, found, Some(mean)))
}

fn memory_errors(gpu: &GpuSummary) -> Found {
    let errors = gpu.new_ecc_uncorrected.filter(|&errors| errors > 0)?;
    let errors = plural(errors, "memory error");
    let found = format!("{errors} that could not be corrected came up");
    Some((Tier::Critical, found, None))
}

fn xid_errors(gpu: &GpuSummary) -> Found {
    let errors = gpu.new_xid_errors.filter(|&errors| errors > 0)?;
    let errors = plural(errors, "Xid error");
    let last = gpu
        .last_xid
        .map(|xid| format!(", the last with number {xid}"));
    let found = errors + " occurred" + &last.unwrap_or_default();
    Some((Tier::Mild, found, None))
}

/// A condition that held for a part of the time.
fn held(gpu: &GpuSummary, condition: &str, what: &str) -> Found {
    let share = gpu.figures.mean(condition).filter(|&share| share > 0.0)?;
    let found = format!("{what} in {} of the time", percent(share));
    Some((Tier::Mild, found, None))
}

/// At full load a power limit nearly always holds the clocks down, which costs little; heat should not.
fn throttling(gpu: &GpuSummary) -> Found {
    let share = gpu.figures.mean("severe").filter(|&share| share > 0.0)?;
    let reasons = Throttle::SEVERE.iter().filter_map(|reason| {
        let share = gpu.figures.mean(&format!("{REASON}{reason}"))?;
        Some(format!("{reason} in {} of the time", percent(share)))
    });
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    let found = format!("heat or its supply of power held the clocks down ({reasons})");
    Some((critical_if(share > THROTTLED_OFTEN_ABOVE), found, None))
}

fn device_memory(gpu: &GpuSummary) -> Found {
    let used = share(gpu.figures.max("mem_used_mib"), gpu.mem_total_mib? as f64)?;
    let found = format!("{} of its memory was in use at most", percent(used));
    (used > MEMORY_MILD_ABOVE).then_some((critical_if(used > MEMORY_CRITICAL_ABOVE), found, None))
}

fn packing(run: &RunSummary) -> Found {
    let packing = &run.total.packing;
    let tier = run.packing_tier?;
    let found = match tier {
        Tier::None => "the batches were well filled",
        Tier::Mild => {
            "the batches have room to spare: pack more sequences at once, from fewer shards"
        }
        Tier::Critical => {
            "the batches were poorly filled: pack more sequences at once, or raise --max-batch-tokens"
        }
    };
    let (mean, least) = (run.mean_fill?, percent(packing.min_fill?));
    let (below, batches) = (packing.below_85, packing.batches);
    let figures = format!(
        "mean {}, least {least}; {below} of {batches} below 85 %",
        percent(mean)
    );
    Some((tier, format!("{found} ({figures})"), Some(mean)))
}

fn idle(run: &RunSummary) -> Found {
    let (tier, share) = (run.idle_tier?, run.idle_share?);
    let time = format!("{} of {:.1} s", percent(share), run.elapsed_s?);
    if tier == Tier::None {
        let found = format!("the device nearly always had work: it was idle for {time}");
        return Some((tier, found, Some(share)));
    }
    // Copies and writes may overlap with computing, and those of one batch with the wait for the next.
    let copying = run.stage_share("h2d").zip(run.stage_share("d2h"));
    #[rustfmt::skip]
    let stages = [
        ("waiting for batches", run.stage_share("wait"), "raise --prefetch or read from a faster disk; a short run waits for its first batch: give it larger shards"),
        ("writing", run.stage_share("write"), "writing took longest: a faster disk or fewer outputs"),
        ("copying", copying.map(|(to, from)| to + from), "copying took longest: larger batches or fewer outputs"),
    ];
    let known = stages
        .into_iter()
        .filter_map(|(name, share, advice)| Some((share?, name, advice)));
    let known: Vec<(f64, &str, &str)> = known.collect();
    let longest = known.iter().max_by(|one, other| one.0.total_cmp(&other.0));
    let advice = match longest {
        Some((longest, _, advice)) if *longest >= share / 2.0 => advice,
        _ if known.len() > 1 => {
            "none of these took that long: pack larger batches, and look at other work on this machine"
        }
        _ => "look at copying and writing, whose times are not known",
    };
    let known = known.iter();
    let known = known.map(|(share, name, _)| format!("{name} took {}", percent(*share)));
    let known = Some(known.collect::<Vec<_>>().join(", ")).filter(|known| !known.is_empty());
    let known = known.map_or_else(String::new, |known| format!(" ({known})"));
    let found = format!("the device had no work for {time}{known}: {advice}");
    Some((tier, found, Some(share)))
}

/// A core that a thread does not have is as idle as a GPU. A run that is too short for its idle time is too short for this, too.
fn cpu(run: &RunSummary) -> Found {
    let share = run.idle_tier.and(run.cpu_share)?;
    let (threads, part) = (plural(run.setup.threads?, "thread"), percent(share));
    let found = format!("its {threads} had a core in {part} of the computing time");
    let tier = Tier::of_utilization(share);
    (tier > Tier::None).then_some((tier, found, Some(share)))
}

fn counted(count: u64, what: &str, fate: &str) -> Found {
    let found = format!("{} {fate}", plural(count, what));
    (count > 0).then_some((Tier::Mild, found, None))
}

#[cfg(test)]
mod tests {
    use plmkit_logs::{GpuSample, Throttle};

    use super::super::Runs;
    use super::*;
    use crate::tests::{batch, report, runs, sample};

    type Change<'a> = &'a dyn Fn(u32, &mut GpuSample);

    /// The findings of ten seconds of a GPU. The first row stands for no time.
    fn found(change: Change) -> Vec<Finding> {
        let samples = (0..11).map(|second| {
            sample(second, |sample| {
                sample.temperature_c = Some(80);
                (sample.mem_used_mib, sample.mem_total_mib) = (Some(900), Some(1000));
                sample.throttle = Some(Throttle::default());
                sample.ecc_uncorrected = Some(3);
                sample.xid_errors = Some(7);
                change(second.saturating_sub(1), sample);
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
        use FindingKind::{DeviceMemory, MemoryErrors, Temperature, Throttling, XidErrors};
        use Tier::{Critical, Mild};
        assert_eq!(found(&|_, _| {}), []);
        // A power limit holds the clocks of every busy GPU down.
        assert_eq!(found(&throttled(10, "sw_power_cap")), []);
        let cases: [(Change, Tier, FindingKind, &str); 10] = [
            (&|i, s| s.temperature_c = Some(80 + i / 9), Mild, Temperature, "it was hot in 10.0 % of the time"),
            (&|i, s| (s.temperature_c, s.temperature_limit_c) = (Some(88 + i / 9), Some(93)), Mild, Temperature, "it was hot in 10.0 % of the time"),
            // The driver was loaded again, and counts from 0.
            (&|i, s| s.ecc_uncorrected = Some(if i < 5 { 3 } else { 2 }), Critical, MemoryErrors, "2 memory errors"),
            (&|i, s| s.mem_used_mib = Some(900 + u64::from(i)), Mild, DeviceMemory, "90.9 % of its memory"),
            (&|_, s| s.mem_used_mib = Some(951), Critical, DeviceMemory, "95.1 %"),
            (&|i, s| s.ecc_uncorrected = Some(3 + u64::from(i > 4)), Critical, MemoryErrors, "1 memory error that"),
            (&throttled(1, "hw_thermal_slowdown"), Mild, Throttling, "hw_thermal_slowdown in 10.0 %"),
            (&throttled(2, "hw_thermal_slowdown"), Critical, Throttling, "hw_thermal_slowdown in 20.0 %"),
            (&|i, s| (s.xid_errors, s.last_xid) = (Some(7 + u64::from(i > 4)), Some(31)), Mild, XidErrors, "1 Xid error occurred, the last with number 31: "),
            (&|i, s| (s.mem_temperature_c, s.mem_temperature_limit_c) = (Some(94 + i / 9), Some(95)), Mild, Temperature, "its memory was at its temperature limit in 10.0 %"),
        ];
        for (change, tier, kind, text) in cases {
            let [finding] = &found(change)[..] else { panic!("{kind:?}") };
            assert_eq!((finding.tier, finding.kind), (tier, kind), "{finding}");
            assert_eq!(finding.subject, "gpu 0 (Fake, GPU-0)");
            assert!(finding.text.contains(text), "{finding}");
        }
    }

    #[test]
    fn the_verdict_is_the_worst_finding_that_counts() {
        use FindingKind::{Bottleneck, DeviceMemory, Temperature};
        let report = |gpu_util, temperature_c| {
            let samples = (0..11).map(|second| {
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
        let with_writes = |wait_ms: f64, compute_ms: f64, write_ms: Option<f64>| {
            // Ten batches of 10 s. The first one begins at once.
            let batches = (0..10).map(|number| {
                batch(number, |batch| {
                    batch.wait_ms = Some(if number == 0 { 0.0 } else { wait_ms });
                    batch.compute_ms = Some(if number == 0 { 10_000.0 } else { compute_ms });
                    batch.elapsed_s = Some(10.0 * (number + 1) as f64);
                    batch.write_ms = write_ms;
                })
            });
            let report = report(runs(batches), []);
            assert_eq!(report.verdict, Some(report.findings[0].tier));
            report.findings[0].to_string()
        };
        let found = |wait_ms, compute_ms| with_writes(wait_ms, compute_ms, None);
        let starved = "critical: run r: the device had no work for 89.7 % of 100.0 s (waiting for batches took 89.7 %): raise \
                       --prefetch or read from a faster disk; ";
        assert!(
            found(9968.75, 31.25).starts_with(starved),
            "{}",
            found(9968.75, 31.25)
        );
        let mild = "mild: run r: the device had no work for 9.0 % of 100.0 s (waiting for batches took 0.0 %): look at copying \
                    and writing";
        assert!(
            found(0.0, 9000.0).starts_with(mild),
            "{}",
            found(0.0, 9000.0)
        );
        // 1 % and 8 % of the time, beside gaps of 9 %.
        for (write_ms, advice) in [
            (100.0, "none of these took that long"),
            (800.0, "writing took longest"),
        ] {
            let found = with_writes(0.0, 9000.0, Some(write_ms));
            assert!(found.contains(&format!("): {advice}")), "{found}");
        }
        let busy = "ok: run r: the device nearly always had work: it was idle for 4.5 % of 100.0 s";
        assert_eq!(found(500.0, 9500.0), busy);
    }
}
