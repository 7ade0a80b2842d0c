//! The writer thread: vectors into row groups.

use std::time::Instant;

use crossbeam_channel::Receiver;
use plmkit_contract::{StoreDtype, VectorColumn};
use plmkit_store::EmbeddingsWriter;

use crate::EngineError;
use crate::journal::{Journal, Timing};
use crate::output::rows;
use crate::plan::Job;

/// A pack with its vectors, one (sequences, dim) row-major for each column.
pub(crate) struct Computed<'a> {
    pub(crate) job: Job<'a>,
    pub(crate) vectors: Vec<Vec<f32>>,
    pub(crate) timing: Timing,
}

/// Writes all that comes until the other side hangs up. The file is not finished.
pub(crate) fn write(
    queue: &Receiver<Computed<'_>>,
    file: &mut EmbeddingsWriter,
    columns: &[VectorColumn],
    dtype: StoreDtype,
    journal: &mut Journal,
) -> Result<(), EngineError> {
    while let Ok(Computed {
        job,
        vectors,
        timing,
    }) = queue.recv()
    {
        let started = Instant::now();
        check_finite(&job, columns, &vectors)?;
        let batch = rows(file.schema(), dtype, &job.pack, vectors)?;
        file.write(&batch)?;
        journal.batch(&job, &timing, started.elapsed());
    }
    Ok(())
}

/// A value that is not finite must not reach a file that people average over.
fn check_finite(
    job: &Job<'_>,
    columns: &[VectorColumn],
    vectors: &[Vec<f32>],
) -> Result<(), EngineError> {
    for (&column, values) in columns.iter().zip(vectors) {
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let row = at / (values.len() / job.pack.sequences());
            return Err(EngineError::NotFinite {
                path: job.path.to_owned(),
                ordinal: job.pack.ordinals().value(row),
                id: job.pack.ids().value(row).to_owned(),
                column,
            });
        }
    }
    Ok(())
}
