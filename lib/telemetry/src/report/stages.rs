//! Where the time went.

use serde::Serialize;

use plmkit_logs::Mean;
use plmkit_logs::event::BatchDone;

use super::coverage::is_enough;
use super::{percent, share};

/// The stages of a batch. They may overlap, so their shares need not add up to one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stages {
    /// The device waits for the batch.
    pub wait: Option<Stage>,
    /// Copy from host to device.
    pub h2d: Option<Stage>,
    /// Forward pass and pooling.
    pub compute: Option<Stage>,
    /// Copy from device to host.
    pub d2h: Option<Stage>,
    /// Encoding and writing.
    pub write: Option<Stage>,
    /// The share of computing, and of the largest other stage.
    pub advice: Option<String>,
}

/// One stage over all batches with a known time of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// Total time.
    pub total_ms: f64,
    /// Mean time of a batch.
    pub mean_ms: f64,
    /// The longest time.
    pub max_ms: f64,
    /// The share of the batches whose time is known.
    pub coverage: f64,
    /// Share of the run's elapsed time; for stages of workers, the mean of their shares. Of the batches whose time is known, scaled
    /// to all; `None` below half of them.
    pub share: Option<f64>,
}

/// Times of the batches of a run, by stage: wait, h2d, compute, d2h, write.
#[derive(Clone, Debug, Default)]
pub(super) struct StagesCount {
    batches: u64,
    stages: [Mean; 5],
}

impl StagesCount {
    pub(super) fn add(&mut self, batch: &BatchDone) {
        let times_ms = [
            batch.wait_ms,
            batch.h2d_ms,
            batch.compute_ms,
            batch.d2h_ms,
            batch.write_ms,
        ];
        self.batches += 1;
        for (mean, time_ms) in self.stages.iter_mut().zip(times_ms) {
            mean.extend(time_ms);
        }
    }

    /// Computes the stages of a run that took `elapsed_s`. Its workers had `workers_s` together: one had as much as the run, and
    /// each of several a part of this sum.
    pub(super) fn finish(&self, elapsed_s: Option<f64>, workers_s: Option<f64>) -> Stages {
        let stage = |mean: &Mean, available_s: Option<f64>| {
            let coverage = share(mean.count() as f64, self.batches as f64);
            let known = coverage.filter(|_| is_enough(coverage));
            let total_ms = known.map(|part| mean.sum() / part);
            let available_ms = available_s.map(|available_s| available_s * 1000.0);
            let share = share(total_ms, available_ms);
            Some(Stage {
                total_ms: mean.sum(),
                mean_ms: mean.mean()?,
                max_ms: mean.max()?,
                coverage: coverage?,
                // The writes of a killed run may go beyond the last known time.
                share: share.map(|share| share.min(1.0)),
            })
        };
        let [wait, h2d, compute, d2h, write] = &self.stages;
        let mut stages = Stages {
            wait: stage(wait, workers_s),
            h2d: stage(h2d, workers_s),
            compute: stage(compute, workers_s),
            d2h: stage(d2h, workers_s),
            write: stage(write, elapsed_s),
            advice: None,
        };
        stages.advice = stages.advise();
        stages
    }
}

impl Stages {
    /// Returns each stage with its name in metrics.
    pub(crate) fn named(&self) -> [(&'static str, &Option<Stage>); 5] {
        [
            ("wait", &self.wait),
            ("h2d", &self.h2d),
            ("compute", &self.compute),
            ("d2h", &self.d2h),
            ("write", &self.write),
        ]
    }

    /// Returns the share of computing.
    pub(super) fn compute_share(&self) -> Option<f64> {
        self.compute.as_ref()?.share
    }

    /// Returns a note on each stage whose time is known for some batches only.
    pub(super) fn notes(&self) -> Vec<String> {
        let known = self.named().into_iter();
        let known = known.filter_map(|(name, stage)| Some((name, stage.as_ref()?)));
        let partial = known.filter(|(_, stage)| stage.coverage < 1.0);
        let notes = partial.map(|(name, stage)| {
            let (part, effect) = (
                percent(stage.coverage),
                if stage.share.is_some() {
                    "its share is that of these"
                } else {
                    "too few for its share"
                },
            );
            format!("{name}_ms is known for {part} of the batches: {effect}")
        });
        notes.collect()
    }

    fn advise(&self) -> Option<String> {
        let others = [
            ("waiting for input", &self.wait),
            ("copying to the device", &self.h2d),
            ("copying from the device", &self.d2h),
            ("writing", &self.write),
        ];
        let known = others.into_iter();
        let known = known.filter_map(|(name, stage)| Some((name, stage.as_ref()?.share?)));
        let largest = known.max_by(|one, other| one.1.total_cmp(&other.1));
        let other = largest.map_or_else(String::new, |(name, share)| {
            format!("; the largest other part was {name}, {}", percent(share))
        });
        let compute = percent(self.compute_share()?);
        Some(format!("computing took {compute} of the time{other}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(batches: u64, elapsed_s: Option<f64>, workers: f64) -> Stages {
        let mut count = StagesCount::default();
        for _ in 0..batches {
            count.add(&BatchDone {
                compute_ms: Some(400.0),
                write_ms: Some(50.0),
                ..BatchDone::default()
            });
        }
        let workers_s = elapsed_s.map(|elapsed_s| elapsed_s * workers);
        count.finish(elapsed_s, workers_s)
    }

    #[test]
    fn a_stage_without_times_is_unknown_and_not_zero() {
        let stages = stages(2, Some(1.0), 1.0);
        let compute = Stage {
            total_ms: 800.0,
            mean_ms: 400.0,
            max_ms: 400.0,
            coverage: 1.0,
            share: Some(0.8),
        };
        assert_eq!((stages.compute, stages.h2d), (Some(compute), None));
        let advice =
            "computing took 80.0 % of the time; the largest other part was writing, 10.0 %";
        assert_eq!(stages.advice.as_deref(), Some(advice));
    }

    #[test]
    fn shares_are_of_the_time_of_all_workers_and_unknown_without_time() {
        let shares = |elapsed_s, workers| {
            let stages = stages(4, elapsed_s, workers);
            [stages.compute, stages.write].map(|stage| stage.unwrap().share)
        };
        assert_eq!(shares(Some(1.0), 2.0), [Some(0.8), Some(0.2)]);
        for elapsed_s in [None, Some(0.0)] {
            assert_eq!(shares(elapsed_s, 1.0), [None, None]);
            assert_eq!(stages(4, elapsed_s, 1.0).advice, None);
        }
    }
}
