//! Events and samples for tests.

use plmkit_logs::GpuSample;
use plmkit_logs::event::{BatchDone, Event, RunDone, RunStarted};

use crate::report::{Report, RunSummary, Runs, Samples};

/// The first event of the run `r`.
pub(crate) fn started(change: impl FnOnce(&mut RunStarted)) -> Event {
    let mut started = RunStarted::default();
    started.run.push('r');
    change(&mut started);
    Event::Run(started)
}

/// A batch of the run `r`.
pub(crate) fn batch(number: u64, change: impl FnOnce(&mut BatchDone)) -> Event {
    let mut batch = BatchDone::default();
    batch.run.push('r');
    batch.batch = number;
    change(&mut batch);
    Event::Batch(batch)
}

/// The last event of the run `r`.
pub(crate) fn done(change: impl FnOnce(&mut RunDone)) -> Event {
    let mut done = RunDone::default();
    done.run.push('r');
    change(&mut done);
    Event::Done(done)
}

/// A sample of the GPU `GPU-0`, some seconds after noon and after the boot `b`.
pub(crate) fn sample(second: u32, change: impl FnOnce(&mut GpuSample)) -> GpuSample {
    let time = format!("2026-01-31T12:00:{second:02}Z");
    let mut sample = GpuSample {
        boot_id: Some("b".to_owned()),
        boot_s: Some(f64::from(second)),
        index: Some(0),
        uuid: Some("GPU-0".to_owned()),
        name: Some("Fake".to_owned()),
        ..GpuSample::at(time.parse().unwrap())
    };
    change(&mut sample);
    sample
}

pub(crate) fn runs(events: impl IntoIterator<Item = Event>) -> Runs {
    let mut runs = Runs::default();
    events.into_iter().for_each(|event| runs.add(&event));
    runs
}

pub(crate) fn summaries(events: impl IntoIterator<Item = Event>) -> Vec<RunSummary> {
    runs(events).finish()
}

/// The report on runs, and on samples if there are any.
pub(crate) fn report(runs: Runs, samples: impl IntoIterator<Item = GpuSample>) -> Report {
    let mut joined = Samples::during(&runs);
    let samples = samples.into_iter().inspect(|sample| joined.add(sample));
    let count = samples.count();
    Report::new(Some(runs), Some(joined).filter(|_| count > 0))
}
