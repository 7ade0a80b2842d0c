//! The terminal: set up for drawing, drawn on, and restored.

use std::io::{self, IsTerminal};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use plmkit_cli::{Exit, Fault, die_of, end_at_once};
use plmkit_contract::io_text;
use plmkit_telemetry::command::wait_for_end;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tracing::subscriber::{NoSubscriber, with_default};

use super::history::History;
use super::keys::Keys;
use super::view;
use crate::End;
use crate::args::TopArgs;
use crate::monitor::Snapshot;

/// The longest reaction time to a key, a signal or a snapshot.
const TICK: Duration = Duration::from_millis(50);

/// A snapshot that is older than two intervals and this is marked: the driver or a file system hangs.
const STALE_AFTER: Duration = Duration::from_secs(3);

/// How long the view, and then the terminal, may take to end.
const GRACE: Duration = Duration::from_millis(300);

/// How often the terminal is checked for existence.
const TERMINAL_CHECK: Duration = Duration::from_millis(500);

/// The signal of a process whose terminal goes away.
const SIGHUP: i32 = 1;

/// Shows snapshots until a key or a signal ends the view.
pub(super) fn show(args: &TopArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    let failed = |error: io::Error| {
        let reason = io_text(&error);
        Fault::new(Exit::Io, format!("the terminal cannot be used: {reason}"))
    };
    let signal = watch_signals().map_err(failed)?;
    watch_terminal().map_err(failed)?;
    let snapshots = take_snapshots(args).map_err(failed)?;
    let mut screen = Screen::enter().map_err(failed)?;
    let shown = screen.run(&snapshots, &signal, 2 * args.interval + STALE_AFTER);
    let mut signal = signal.load(Ordering::Relaxed);
    if io::stdout().is_terminal() {
        drop(screen);
    } else {
        // A lost terminal cannot be restored. ratatui panics if it cannot report that on standard error either.
        mem::forget(screen);
        signal = if signal == 0 { SIGHUP } else { signal };
    }
    if signal != 0 {
        *end = Some(End::Signal(signal));
        // Drawing on a lost terminal fails, which is no error of its own.
        return Ok(Exit::Done);
    }
    shown.map(|()| Exit::Done).map_err(failed)
}

/// The terminal in drawing mode. A drop, also by an error or a panic, restores it.
struct Screen(DefaultTerminal);

impl Screen {
    fn enter() -> io::Result<Self> {
        // Undoes a partial set-up.
        ratatui::try_init().map(Self).inspect_err(|_| leave())
    }

    fn run(
        &mut self,
        snapshots: &Receiver<Snapshot>,
        signal: &AtomicI32,
        stale_after: Duration,
    ) -> io::Result<()> {
        let (mut history, mut keys) = (History::default(), Keys::default());
        let (mut changed, mut taken) = (true, Instant::now());
        while signal.load(Ordering::Relaxed) == 0 {
            for mut snapshot in snapshots.try_iter() {
                let note = mem::take(&mut snapshot.notes).pop();
                keys.note = note.or(keys.note.take());
                history.add(snapshot);
                (changed, taken) = (true, Instant::now());
            }
            let age = Duration::from_secs(taken.elapsed().as_secs());
            let stale = Some(age).filter(|&age| age > stale_after);
            changed |= stale != history.stale;
            history.stale = stale;
            if changed {
                self.0.draw(|frame| view::draw(frame, &history, &keys))?;
                changed = false;
            }
            if event::poll(TICK)? {
                match event::read()? {
                    Event::Key(key) if is_quit(key) && !keys.is_asking() => break,
                    Event::Key(key) if key.kind == KeyEventKind::Press => {
                        let processes = history.last.as_ref().map(|last| &last.processes[..]);
                        keys.press(key.code, processes.unwrap_or_default());
                        changed = true;
                    }
                    Event::Resize(..) => changed = true,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn leave() {
    // A lost terminal needs no restoring.
    let _ = ratatui::try_restore();
}

fn is_quit(key: KeyEvent) -> bool {
    key.kind == KeyEventKind::Press
        && match key.code {
            KeyCode::Char('q') | KeyCode::Esc => true,
            KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
            _ => false,
        }
}

/// Starts a thread that stores the first ending signal, and returns the signal's variable; 0 before.
fn watch_signals() -> io::Result<Arc<AtomicI32>> {
    let signal = Arc::new(AtomicI32::new(0));
    let received = Arc::clone(&signal);
    spawn("signals", move || {
        if let Ok(signal) = wait_for_end() {
            received.store(signal, Ordering::Relaxed);
            end_without_view(signal);
        }
    })?;
    Ok(signal)
}

/// Starts a thread that ends the process when the terminal is lost, which may happen without a signal.
fn watch_terminal() -> io::Result<()> {
    spawn("terminal", || {
        while io::stdout().is_terminal() {
            thread::sleep(TERMINAL_CHECK);
        }
        end_without_view(SIGHUP);
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map(drop)
}

/// Ends the process by `signal`, unless the view ends before. On a lost terminal the view never ends: crossterm's `poll`
/// reads the end of the file forever (crossterm #793). A write to a stopped terminal may hang as well.
fn end_without_view(signal: i32) {
    thread::sleep(GRACE);
    let (done, left) = mpsc::channel();
    let leaving = thread::Builder::new().spawn(move || {
        leave();
        let _ = done.send(());
    });
    if leaving.is_ok() {
        let _ = left.recv_timeout(GRACE);
    }
    end_at_once(die_of(signal));
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
                thread::sleep(args.interval);
            }
        });
    })?;
    Ok(snapshots)
}
