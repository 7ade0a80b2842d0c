//! Log lines of this library, for the program that opened it: each has a `tracing` of its own.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, PoisonError};

use plmkit_esm2::cuda::Note;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Calls `work` and returns its log lines of this thread, in order.
pub(crate) fn noting<T>(work: impl FnOnce() -> T) -> (T, Vec<Note>) {
    let notes = Notes::default();
    let result = tracing::subscriber::with_default(notes.clone(), work);
    let mut notes = notes.0.lock().unwrap_or_else(PoisonError::into_inner);
    (result, std::mem::take(&mut notes))
}

#[derive(Clone, Debug, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

impl Subscriber for Notes {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        let level = event.metadata().level();
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Note {
                warning: *level <= Level::WARN,
                text: message.0,
            });
    }

    // This library has no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_returned_in_order() {
        let (result, notes) = noting(|| {
            tracing::info!("{} is not used", "a head");
            tracing::warn!("slow");
            7
        });
        assert_eq!(result, 7);
        let found: Vec<_> = notes
            .iter()
            .map(|note| (note.warning, note.text.as_str()))
            .collect();
        assert_eq!(found, [(false, "a head is not used"), (true, "slow")]);
    }
}
