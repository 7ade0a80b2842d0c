//! Sums over the readings of a GPU or a host in some time.

use std::array;
use std::collections::BTreeMap;

use plmkit_logs::thresholds::RUN_MIN_READINGS;

use super::coverage::{coverage, is_enough, is_partial};
use super::energy::{Energy, EnergyCount};
use super::gpu_figures::GpuFigures;
use super::reading::{Conditions, Reading};
use super::value_count::ValueCount;

/// Reasons for throttling that are counted. The driver has ten.
const MAX_REASONS: usize = 32;

/// Sums over readings, weighted by the time that they stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct Count {
    pub(super) readings: u64,
    /// The number of the last reading.
    last: u64,
    /// The time that readings stand for.
    pub(super) us: i64,
    /// The part of it in which several runs were at work on the GPU.
    pub(super) shared_us: i64,
    values: BTreeMap<&'static str, ValueCount>,
    /// The time in which each condition is known, and in which it holds.
    known_us: Conditions<i64>,
    true_us: Conditions<i64>,
    /// The time in which each reason held the clocks down.
    reasons_us: BTreeMap<String, i64>,
    energy: EnergyCount,
}

impl Count {
    /// Adds the part `us` of a reading, in which so many runs were at work on the GPU. All parts of a reading have its number, from
    /// 1 on.
    pub(super) fn add(&mut self, reading: &Reading, number: u64, us: i64, runs: usize) {
        let add = |sum: &mut i64, is_so| *sum = sum.saturating_add(if is_so { us } else { 0 });
        self.readings += u64::from(self.last != number);
        self.last = number;
        add(&mut self.us, true);
        add(&mut self.shared_us, runs > 1);
        for &(column, value) in &reading.values {
            self.values.entry(column).or_default().add(value, us);
        }
        for (place, condition) in reading.conditions.into_iter().enumerate() {
            add(&mut self.known_us[place], condition.is_some());
            add(&mut self.true_us[place], condition == Some(true));
        }
        for reason in reading.throttle.iter().flat_map(|throttle| &throttle.0) {
            if let Some(sum_us) = self.reasons_us.get_mut(reason) {
                add(sum_us, true);
            } else if self.reasons_us.len() < MAX_REASONS {
                self.reasons_us.insert(reason.clone(), us);
            }
        }
        self.energy.add(reading, us, runs);
    }

    /// Returns the figures of a GPU over a time.
    pub(super) fn figures(&self, time_us: i64) -> GpuFigures {
        let shares: Conditions<Option<f64>> = array::from_fn(|place| {
            let known_us = self.known_us[place];
            let enough = known_us > 0 && is_enough(coverage(known_us, time_us));
            enough.then(|| self.true_us[place] as f64 / known_us as f64)
        });
        let [
            hot_share,
            hot_memory_share,
            foreign_share,
            throttled_share,
            severe_share,
            capped_share,
        ] = shares;
        let throttled_us = self.known_us[3];
        let reasons = self.reasons_us.iter();
        let reasons =
            reasons.map(|(reason, &us)| (reason.clone(), us as f64 / throttled_us as f64));
        let values = self.values.iter();
        let values = values.map(|(&column, count)| (column, count.range(time_us)));
        let coverage = coverage(self.us, time_us);
        GpuFigures {
            samples: self.readings,
            coverage,
            partial: is_partial(coverage),
            mean_utilization: self
                .mean("gpu_util", time_us)
                .map(|percent| percent / 100.0),
            peak_mem_used_mib: self.greatest("mem_used_mib").map(|mib| mib as u64),
            max_temperature_c: self.greatest("temperature_c").map(|celsius| celsius as u32),
            hot_share,
            hot_memory_share,
            mean_power_w: self.energy.mean_w(time_us),
            throttled_share,
            throttle_reasons: throttled_share.map(|_| reasons.collect()),
            foreign_share,
            values: values.collect(),
            severe_share,
            capped_share,
        }
    }

    /// Returns the figures of a GPU over the time of runs, which few readings do not tell of.
    pub(super) fn figures_of_runs(&self, time_us: i64) -> GpuFigures {
        let figures = self.figures(time_us);
        if self.is_enough_for_a_run() {
            return figures;
        }
        GpuFigures {
            samples: figures.samples,
            coverage: figures.coverage,
            partial: figures.partial,
            ..GpuFigures::default()
        }
    }

    /// Returns the readings that have a value of a column.
    pub(super) fn readings_of(&self, column: &str) -> u64 {
        self.values.get(column).map_or(0, |count| count.readings)
    }

    /// Returns the mean of a column over a time, if it is known for enough of it.
    pub(super) fn mean(&self, column: &str, time_us: i64) -> Option<f64> {
        self.values.get(column)?.range(time_us).mean
    }

    /// Returns the greatest value of a column, with any coverage.
    pub(super) fn greatest(&self, column: &str) -> Option<f64> {
        Some(self.values.get(column)?.max)
    }

    /// Whether there are enough readings for the figures of a run.
    pub(super) fn is_enough_for_a_run(&self) -> bool {
        self.readings >= RUN_MIN_READINGS
    }

    /// Returns the energy of a run over its time.
    pub(super) fn energy(&self, time_us: i64) -> Energy {
        let energy = self.energy.finish(time_us);
        let total_j = energy.total_j.filter(|_| self.is_enough_for_a_run());
        Energy { total_j, ..energy }
    }
}
