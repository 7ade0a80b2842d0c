//! Where the time went.

use serde::Serialize;

use plmkit_logs::Mean;
use plmkit_logs::event::BatchDone;

use super::share;

/// The stages of a batch. They may overlap, so their shares need not add up to one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// What to look at.
    pub advice: Option<String>,
}

/// One stage over all batches that say how long it took.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stage {
    /// Time spent.
    pub total_ms: f64,
    /// Mean of a batch.
    pub mean_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Share of the run's elapsed time; of what workers do, the mean of theirs.
    pub share: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct StagesCount {
    wait: Mean,
    h2d: Mean,
    compute: Mean,
    d2h: Mean,
    write: Mean,
}

impl StagesCount {
    pub(super) fn add(&mut self, batch: &BatchDone) {
        for (mean, value) in [
            (&mut self.wait, batch.wait_ms),
            (&mut self.h2d, batch.h2d_ms),
            (&mut self.compute, batch.compute_ms),
            (&mut self.d2h, batch.d2h_ms),
            (&mut self.write, batch.write_ms),
        ] {
            if let Some(value) = value {
                mean.add(value);
            }
        }
    }

    /// Of a run that took `elapsed_s`, with so many `workers`: what they do at the same time is a share of the time of all.
    pub(super) fn finish(&self, elapsed_s: Option<f64>, workers: u64) -> Stages {
        let stage = |mean: &Mean, workers: u64| {
            Some(Stage {
                total_ms: mean.sum(),
                mean_ms: mean.mean()?,
                max_ms: mean.max()?,
                // Of a killed run the writing may reach beyond the last time that is known.
                share: elapsed_s
                    .and_then(|elapsed_s| share(mean.sum(), elapsed_s * 1000.0 * workers as f64))
                    .map(|share| share.min(1.0)),
            })
        };
        let mut stages = Stages {
            wait: stage(&self.wait, workers),
            h2d: stage(&self.h2d, workers),
            compute: stage(&self.compute, workers),
            d2h: stage(&self.d2h, workers),
            write: stage(&self.write, 1),
            advice: None,
        };
        stages.advice = stages.advise();
        stages
    }
}

impl Stages {
    fn advise(&self) -> Option<String> {
        let share = |stage: &Option<Stage>| stage.as_ref().and_then(|stage| stage.share);
        let compute = share(&self.compute)?;
        let others = [
            ("waiting for input", share(&self.wait)),
            ("copying to the device", share(&self.h2d)),
            ("copying from the device", share(&self.d2h)),
            ("writing", share(&self.write)),
        ];
        let next = others
            .into_iter()
            .filter_map(|(name, share)| Some((name, share?)))
            .max_by(|one, other| one.1.total_cmp(&other.1));
        let other = next.map_or_else(String::new, |(name, share)| {
            format!("; the largest other part was {name}, {}", percent(share))
        });
        Some(format!(
            "computing took {} of the time{other}",
            percent(compute)
        ))
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(batches: u64, compute_ms: f64, elapsed_s: Option<f64>, workers: u64) -> Stages {
        let mut count = StagesCount::default();
        for _ in 0..batches {
            count.add(&BatchDone {
                compute_ms: Some(compute_ms),
                write_ms: Some(50.0),
                ..BatchDone::default()
            });
        }
        count.finish(elapsed_s, workers)
    }

    #[test]
    fn a_stage_that_no_batch_tells_of_is_unknown_and_not_zero() {
        let stages = stages(2, 400.0, Some(1.0), 1);
        let compute = stages.compute.unwrap();
        assert_eq!(
            (compute.total_ms, compute.mean_ms, compute.max_ms),
            (800.0, 400.0, 400.0)
        );
        assert_eq!((compute.share, stages.h2d), (Some(0.8), None));
        let advice =
            "computing took 80.0 % of the time; the largest other part was writing, 10.0 %";
        assert_eq!(stages.advice.as_deref(), Some(advice));
    }

    #[test]
    fn what_several_workers_do_at_once_is_a_share_of_the_time_of_all() {
        let stages = stages(4, 400.0, Some(1.0), 2);
        let shares = [stages.compute, stages.write].map(|stage| stage.unwrap().share);
        assert_eq!(shares, [Some(0.8), Some(0.2)]);
    }

    #[test]
    fn without_elapsed_time_there_are_no_shares_and_no_advice() {
        for elapsed_s in [None, Some(0.0)] {
            let stages = stages(1, 1.0, elapsed_s, 1);
            assert_eq!((stages.compute.unwrap().share, stages.advice), (None, None));
        }
    }
}
