//! The terminal: set up for drawing, drawn on, and restored.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use plmkit_cli::{Exit, Fault, die_of, end_at_once};
use plmkit_kit::io_text;
use plmkit_telemetry::command::wait_for_end;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tracing::subscriber::{NoSubscriber, with_default};

use super::super::args::TopArgs;
use super::super::monitor::Snapshot;
use super::super::record::End;
use super::view;

/// The longest reaction time to a key, a signal or a snapshot.
const TICK: Duration = Duration::from_millis(50);

/// How long the view may take to end after a signal.
const GRACE: Duration = Duration::from_millis(300);

/// Shows snapshots until a key or a signal ends the view. A panic restores the terminal as well.
pub(super) fn show(args: &TopArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    let failed = |error: io::Error| {
        let reason = io_text(&error);
        Fault::new(Exit::Io, format!("the terminal cannot be used: {reason}"))
    };
    let signal = watch_signals().map_err(failed)?;
    let snapshots = take_snapshots(args).map_err(failed)?;
    let terminal = ratatui::try_init();
    let shown = terminal.and_then(|mut terminal| {
        let shown = run(&mut terminal, &snapshots, &signal);
        let _ = terminal.show_cursor();
        // On a lost terminal, dropping it panics.
        mem::forget(terminal);
        shown
    });
    // A lost terminal needs no restoring.
    let _ = ratatui::try_restore();
    let signal = signal.load(Ordering::Relaxed);
    if signal != 0 {
        *end = Some(End::Signal(signal));
        // Drawing on a lost terminal fails, which is no error of its own.
        return Ok(Exit::Done);
    }
    shown.map(|()| Exit::Done).map_err(failed)
}

fn run(
    terminal: &mut DefaultTerminal,
    snapshots: &Receiver<Snapshot>,
    signal: &AtomicI32,
) -> io::Result<()> {
    let (mut last, mut note) = (None, None);
    let mut changed = true;
    while signal.load(Ordering::Relaxed) == 0 {
        for mut snapshot in snapshots.try_iter() {
            note = snapshot.notes.pop().or(note);
            last = Some(snapshot);
            changed = true;
        }
        if changed {
            terminal.draw(|frame| view::draw(frame, last.as_ref(), note.as_deref()))?;
            changed = false;
        }
        if event::poll(TICK)? {
            match event::read()? {
                Event::Key(key) if is_quit(key) => break,
                Event::Resize(..) => changed = true,
                _ => {}
            }
        }
    }
    Ok(())
}

fn is_quit(key: KeyEvent) -> bool {
    key.kind == KeyEventKind::Press
        && match key.code {
            KeyCode::Char('q') | KeyCode::Esc => true,
            KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
            _ => false,
        }
}

/// Starts a thread that stores the first ending signal, and returns the signal's variable; 0 before. The process ends soon
/// after: on a lost terminal the view never does, as crossterm's `poll` reads the end of the file forever (crossterm #793).
fn watch_signals() -> io::Result<Arc<AtomicI32>> {
    let signal = Arc::new(AtomicI32::new(0));
    let received = Arc::clone(&signal);
    spawn("signals", move || {
        if let Ok(signal) = wait_for_end() {
            received.store(signal, Ordering::Relaxed);
            thread::sleep(GRACE);
            end_at_once(die_of(signal));
        }
    })?;
    Ok(signal)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map(drop)
}

/// Takes snapshots in a new thread, so that neither a slow driver nor a long log delays a key.
fn take_snapshots(args: &TopArgs) -> io::Result<Receiver<Snapshot>> {
    let (sender, snapshots) = mpsc::channel();
    let args = args.clone();
    spawn("sampler", move || {
        // Messages on standard error would disturb the view.
        with_default(NoSubscriber::default(), || {
            let mut monitor = super::open(&args);
            while sender.send(monitor.take_snapshot()).is_ok() {
                thread::sleep(args.sampling.interval);
            }
        });
    })?;
    Ok(snapshots)
}
