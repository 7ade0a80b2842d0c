//! The terminal: entered, drawn on, and left as it was.

use std::fs;
use std::io::{self, IsTerminal};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use plmkit_cli::{Exit, Fault, die_of, end_at_once};
use plmkit_contract::io_text;
use plmkit_telemetry::command::wait_for_end;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tracing::subscriber::{NoSubscriber, with_default};

use super::history::History;
use super::view;
use crate::End;
use crate::args::TopArgs;
use crate::monitor::{Monitor, Snapshot};

/// How long a key, a signal or a snapshot may wait.
const TICK: Duration = Duration::from_millis(50);

/// How long the view, and then the terminal, have to end when they are asked to.
const GRACE: Duration = Duration::from_millis(300);

/// How often it is looked whether there still is a terminal.
const LOOK_FOR_TERMINAL: Duration = Duration::from_millis(500);

/// What a process dies of whose terminal goes away.
const SIGHUP: i32 = 1;

/// Shows snapshots until a key or a signal asks for the end.
pub(super) fn show(args: &TopArgs, keep: Duration, end: &mut Option<End>) -> Result<Exit, Fault> {
    let failed = |error: io::Error| {
        Fault::new(
            Exit::Io,
            format!("the terminal cannot be used: {}", io_text(&error)),
        )
    };
    let signal = signals().map_err(failed)?;
    mind_the_terminal().map_err(failed)?;
    let snapshots = watch(args, keep).map_err(failed)?;
    let mut screen = Screen::enter().map_err(failed)?;
    let shown = screen.run(&snapshots, &signal);
    let mut signal = signal.load(Ordering::Relaxed);
    if io::stdout().is_terminal() {
        drop(screen);
    } else {
        // A terminal that is gone cannot be restored, and ratatui panics where it cannot say so on standard error either.
        mem::forget(screen);
        signal = if signal == 0 { SIGHUP } else { signal };
    }
    if signal != 0 {
        *end = Some(End::Signal(signal));
        // A terminal that has gone cannot be drawn on either.
        return Ok(Exit::Done);
    }
    shown.map(|()| Exit::Done).map_err(failed)
}

/// The terminal in the mode for drawing. Dropped, also by an error or a panic, it is as it was before.
struct Screen(DefaultTerminal);

impl Screen {
    fn enter() -> io::Result<Self> {
        // Where only a part of it worked, that is taken back.
        ratatui::try_init().map(Self).inspect_err(|_| leave())
    }

    fn run(&mut self, snapshots: &Receiver<Snapshot>, signal: &AtomicI32) -> io::Result<()> {
        let mut history = History::default();
        let mut changed = true;
        while signal.load(Ordering::Relaxed) == 0 {
            for snapshot in snapshots.try_iter() {
                history.add(snapshot, command);
                changed = true;
            }
            if changed {
                self.0.draw(|frame| view::draw(frame, &history))?;
                changed = false;
            }
            if event::poll(TICK)? {
                match event::read()? {
                    Event::Key(key) if asks_for_the_end(key) => break,
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
    // A terminal that has gone needs no restoring.
    let _ = ratatui::try_restore();
}

fn asks_for_the_end(key: KeyEvent) -> bool {
    key.kind == KeyEventKind::Press
        && match key.code {
            KeyCode::Char('q') | KeyCode::Esc => true,
            KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
            _ => false,
        }
}

/// The signal that asks for the end, once there is one; 0 before.
fn signals() -> io::Result<Arc<AtomicI32>> {
    let signal = Arc::new(AtomicI32::new(0));
    let seen = Arc::clone(&signal);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if let Ok(signal) = wait_for_end() {
                seen.store(signal, Ordering::Relaxed);
                end_without_the_view(signal);
            }
        })?;
    Ok(signal)
}

/// Ends, in a thread of its own, when the terminal is gone: not everybody who takes it away sends a signal.
fn mind_the_terminal() -> io::Result<()> {
    thread::Builder::new()
        .name("terminal".to_owned())
        .spawn(|| {
            while io::stdout().is_terminal() {
                thread::sleep(LOOK_FOR_TERMINAL);
            }
            end_without_the_view(SIGHUP);
        })
        .map(drop)
}

/// Dies of `signal`, unless the view has ended by itself until then. On a terminal that is gone it never does: crossterm's
/// `poll` goes on reading the end of the file (crossterm #793). A write to one that stands still may not return either.
fn end_without_the_view(signal: i32) {
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

/// Snapshots, from a thread of their own: neither a slow driver nor a long log holds up a key.
fn watch(args: &TopArgs, keep: Duration) -> io::Result<Receiver<Snapshot>> {
    let (sender, snapshots) = mpsc::channel();
    let (driver, events, interval) = (args.driver.clone(), args.events.clone(), args.interval);
    thread::Builder::new()
        .name("sampler".to_owned())
        .spawn(move || {
            // Messages on standard error would be written across the view.
            with_default(NoSubscriber::default(), || {
                send(Monitor::open(&driver, &events, keep), interval, &sender);
            });
        })?;
    Ok(snapshots)
}

fn send(mut monitor: Monitor, interval: Duration, snapshots: &Sender<Snapshot>) {
    while snapshots.send(monitor.take_snapshot(false)).is_ok() {
        thread::sleep(interval);
    }
}

/// The name of a process, where it can be read.
fn command(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    // A process can give itself any name.
    Some(
        name.trim_end()
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect(),
    )
}
