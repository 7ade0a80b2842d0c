//! A model in a child process: a GPU's driver that fails, or a computation that crashes, ends the child alone.
//!
//! The parent writes requests and the child answers, a line of JSON each:
//!
//! ```text
//! parent ──{"Embed":{"batches":…}}──▶ child ──{"Advanced":16384} … {"Ended":{"exit":0,"message":null}}──▶ parent
//! ```
//!
//! Both are of one release, so the lines need no version. The parent is `plmkit`, or a process of Python that holds a `plmkit.Model`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{self, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use plmkit_cli::{Exit, Fault, PARENT_VARIABLE, Program, Stop, parse};
use plmkit_contract::{MANIFEST_FILE, Manifest, ShardSummary};
use plmkit_engine::RunProgress;
use plmkit_esm2::{CUDA_VISIBLE_DEVICES, WorkerGpu};
use plmkit_kit::path_text;
use plmkit_store::read_sealed;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::args::Args;
use super::session::Session;
use crate::fasta_shard;
use crate::pack_batches::{self, pack_shard};

/// How often a waiting parent looks whether it is to stop.
const POLL: Duration = Duration::from_millis(100);
/// Deaths of a child that its parent answers with a new one, if no request was finished between them. A batch that crashes two
/// is rejected by the third.
const RESTARTS: u32 = 3;

/// What a child is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Measure the size of a batch.
    Probe {
        /// The file for the size.
        out: PathBuf,
    },
    /// Embed a shard.
    Embed(Box<ShardFiles>),
    /// Cut, pack and embed FASTA files.
    Fasta {
        /// The command line of `fasta-shard`.
        cut: Vec<String>,
        /// That of `pack-batches`, which gets a shard after the other.
        pack: Vec<String>,
        /// The folder of all that is made. `embeddings.parquet` is in it.
        folder: PathBuf,
    },
}

/// The files of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardFiles {
    pub batches: PathBuf,
    /// Its embeddings.
    pub out: PathBuf,
    /// The list of its sequences that could not be embedded.
    pub rejects: PathBuf,
    /// Run events.
    pub events: PathBuf,
    /// The record of the machine.
    pub samples: PathBuf,
    /// The folder of checkpoints, if it is not that of the embeddings.
    pub checkpoint_dir: Option<PathBuf>,
    /// Whether embeddings of other work are replaced.
    pub force: bool,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// Tokens were embedded.
    Advanced(u64),
    /// The request is done.
    Ended { exit: u8, message: Option<String> },
}

impl Session {
    /// Does what is asked for, and tells the tokens that are embedded.
    ///
    /// # Errors
    /// See [`embed`](Self::embed) and [`probe`](Self::probe).
    pub fn answer(
        &mut self,
        args: &Args,
        request: &Request,
        stop: &Stop,
        advance: &mut dyn FnMut(u64),
    ) -> Result<Exit, Fault> {
        let mut args = args.clone();
        let mut report = |progress| {
            if let RunProgress::Advanced { tokens } = progress {
                advance(tokens);
            }
        };
        match request {
            Request::Probe { out } => {
                // That of another machine or of other options is measured again.
                (args.out, args.probe, args.force) = (Some(out.clone()), true, true);
                // Tasks that start together find what the first of them measures.
                args.options.wait_for_lock = true;
                (args.batches, args.events, args.rejects) = (Vec::new(), None, None);
                self.probe(&args, stop)?;
                Ok(Exit::Done)
            }
            Request::Embed(files) => {
                args.batches = vec![files.batches.clone()];
                args.out = Some(files.out.clone());
                args.rejects = Some(files.rejects.clone());
                args.events = Some(files.events.clone());
                args.options
                    .options
                    .checkpoint_dir
                    .clone_from(&files.checkpoint_dir);
                args.force |= files.force;
                // One that a killed run left behind may still be at work on this shard.
                args.options.wait_for_lock = true;
                self.embed(&args, Some(&files.samples), stop, &mut report)
            }
            Request::Fasta { cut, pack, folder } => {
                let mut cut: fasta_shard::Args = parse(cut)?;
                // Without rows, the table has its columns.
                cut.allow_empty = true;
                let pack: pack_batches::Args = parse(pack)?;
                let (capacity, description) = (pack.batch_tokens()?, pack.options.description);
                args.batches = prepare(cut, capacity, description, stop)?;
                args.out = Some(folder.join("embeddings.parquet"));
                self.embed(&args, None, stop, &mut report)
            }
        }
    }
}

/// Cuts FASTA files and packs their shards into batches of at most `capacity` tokens. Returns the batches files, which are beside the shards.
///
/// # Errors
/// See [`fasta_shard::run`] and [`pack_batches::run`].
pub fn prepare(
    cut: fasta_shard::Args,
    capacity: u32,
    description: bool,
    stop: &Stop,
) -> Result<Vec<PathBuf>, Fault> {
    let folder = cut.out.clone();
    fasta_shard::run(cut, stop)?;
    let manifest: Manifest = read_sealed(&folder.join(MANIFEST_FILE))?;
    let pack = |shard: &ShardSummary| {
        let shard = folder.join(&shard.file);
        let out = shard.with_extension("arrow");
        pack_shard(&shard, &out, capacity, description, false, stop).map(|_| out)
    };
    manifest.shards.iter().map(pack).collect()
}

/// Answers the requests of a parent until it hangs up.
pub(super) fn serve(args: &Args, mut session: Session, stop: &Stop) -> Result<Exit, Fault> {
    let digest = &session.engine().info().checkpoint.digest;
    if args
        .serve_model
        .as_ref()
        .is_some_and(|model| model != digest)
    {
        let model = path_text(&args.model);
        let what = format!("{model}: changed while a run used it");
        return Err(Fault::new(Exit::Data, what));
    }
    let mut requests = stdin().lock().lines();
    let say = |answer: &Answer| {
        let line = serde_json::to_string(answer).unwrap_or_default();
        // A parent that has gone hangs up.
        let _ = writeln!(stdout(), "{line}");
    };
    while !stop.requested()
        && let Some(Ok(line)) = requests.next()
    {
        let request = serde_json::from_str(&line);
        let request = request.map_err(|error| Fault::usage(error.to_string()))?;
        let mut advance = |tokens| say(&Answer::Advanced(tokens));
        let ended = session.answer(args, &request, stop, &mut advance);
        if stop.requested() {
            // Saved, not done: the end of this process says so. What is made for a parent alone goes with it.
            if let Request::Fasta { folder, .. } = &request {
                let _ = fs::remove_dir_all(folder);
            }
            break;
        }
        let (exit, message) = match ended {
            Ok(exit) => (exit, None),
            Err(fault) => (fault.exit(), Some(fault.message().to_owned())),
        };
        let exit = exit.code();
        say(&Answer::Ended { exit, message });
    }
    Ok(Exit::Done)
}

/// A child, as its parent sees it. It is stopped on drop.
pub struct Child {
    words: Vec<OsString>,
    gpu: WorkerGpu,
    running: Option<Running>,
    /// Its deaths since it finished a request.
    deaths: u32,
}

struct Running {
    process: process::Child,
    requests: ChildStdin,
    answers: Receiver<Answer>,
}

impl Child {
    /// A child with these options of `gpu-embed`, which computes on a device. It starts with its first request.
    pub fn new(words: impl IntoIterator<Item = OsString>, gpu: WorkerGpu) -> Self {
        Self {
            words: words.into_iter().collect(),
            gpu,
            running: None,
            deaths: 0,
        }
    }

    /// Has the child do what is asked for, and tells the tokens that are embedded. One that dies is replaced.
    ///
    /// # Errors
    /// That of the child, or its last death.
    pub fn answer(
        &mut self,
        request: &Request,
        stop: &Stop,
        advance: &mut dyn FnMut(u64),
    ) -> Result<Exit, Fault> {
        loop {
            if self.running.is_none() {
                self.running = Some(self.start()?);
            }
            let Some(running) = &mut self.running else {
                continue;
            };
            let line = serde_json::to_string(request).map_err(Fault::internal)?;
            // One that has died says so by its end.
            let _ = writeln!(running.requests, "{line}");
            if let Some((exit, message)) = running.wait(stop, advance) {
                self.deaths = 0;
                let exit = Exit::from_code(exit).unwrap_or(Exit::Internal);
                return message.map_or(Ok(exit), |message| Err(Fault::new(exit, message)));
            }
            let status = running.process.wait();
            self.running = None;
            self.deaths += 1;
            let status = status.map_err(|error| cannot_run(&error))?;
            let ended = describe(status, stop)?;
            if self.deaths >= RESTARTS || stop.requested() {
                return Err(to_resume(&ended));
            }
            tracing::warn!("{}; another takes its place", ended.message());
        }
    }

    fn start(&self) -> Result<Running, Fault> {
        let own = env::current_exe().ok();
        let beside = own.map(|own| own.with_file_name(Args::NAME));
        let program = beside.filter(|path| path.is_file());
        let program = program.unwrap_or_else(|| Args::NAME.into());
        let mut command = Command::new(&program);
        let visible = self.gpu.visible.as_ref();
        command
            .arg(format!("--serve={}", self.gpu.device))
            .args(&self.words)
            // A child that outlived its parent would write to files that a second run writes.
            .env(PARENT_VARIABLE, process::id().to_string())
            .envs(visible.map(|visible| (CUDA_VISIBLE_DEVICES, visible)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A signal of the terminal is for the parent, which passes it on once.
            .process_group(0);
        let mut process = command.spawn().map_err(|error| {
            let what = format!("{}: cannot run it", path_text(&program));
            Fault::of_system(Exit::Unavailable, what, &error)
        })?;
        let (Some(requests), Some(lines)) = (process.stdin.take(), process.stdout.take()) else {
            unreachable!("both are pipes");
        };
        let (answers_in, answers) = channel();
        // It ends with the child.
        let read = move || {
            let lines = BufReader::new(lines).lines().map_while(Result::ok);
            let parsed = lines.map_while(|line| serde_json::from_str(&line).ok());
            let _ = parsed
                .map(|answer| answers_in.send(answer))
                .find(Result::is_err);
        };
        let reader = thread::Builder::new().name("child".to_owned()).spawn(read);
        reader.map_err(|error| cannot_run(&error))?;
        Ok(Running {
            process,
            requests,
            answers,
        })
    }
}

impl Running {
    /// Waits for the end of a request; `None` if the child has died. A stop is passed on, once.
    fn wait(&mut self, stop: &Stop, advance: &mut dyn FnMut(u64)) -> Option<(u8, Option<String>)> {
        let mut is_told = false;
        loop {
            match self.answers.recv_timeout(POLL) {
                Ok(Answer::Advanced(tokens)) => advance(tokens),
                Ok(Answer::Ended { exit, message }) => return Some((exit, message)),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    if stop.requested() && !is_told {
                        is_told = true;
                        self.terminate();
                    }
                }
            }
        }
    }

    fn terminate(&self) {
        // It may have ended just now.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(Running {
            mut process,
            requests,
            ..
        }) = self.running.take()
        {
            drop(requests);
            let _ = process.wait();
        }
    }
}

fn cannot_run(error: &std::io::Error) -> Fault {
    Fault::of_system(Exit::Unavailable, "gpu-embed: cannot run it", error)
}

/// A failure after which saved work is taken up again.
fn to_resume(ended: &Fault) -> Fault {
    let what = format!("{}; run the same command to resume", ended.message());
    Fault::new(ended.exit(), what)
}

/// How a child died. A signal from outside, or the kernel's for lack of memory, may not come again; that of a bug would. A failure that
/// it reported itself is an error at once.
fn describe(status: ExitStatus, stop: &Stop) -> Result<Fault, Fault> {
    let Some(signal) = status.signal() else {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        let exit = code.and_then(Exit::from_code).unwrap_or(Exit::Internal);
        let ended = Fault::new(exit, "gpu-embed: ended, see above");
        // What was refused once is refused again, except memory.
        return if exit == Exit::Transient {
            Ok(ended)
        } else {
            Err(to_resume(&ended))
        };
    };
    if stop.requested() {
        return Err(to_resume(&Fault::new(Exit::Transient, "stopped")));
    }
    let of_bugs = [
        Signal::SEGV,
        Signal::ABORT,
        Signal::ILL,
        Signal::BUS,
        Signal::FPE,
    ];
    let is_bug = of_bugs.map(Signal::as_raw).contains(&signal);
    let exit = if is_bug {
        Exit::Internal
    } else {
        Exit::Transient
    };
    let why = if signal == Signal::KILL.as_raw() {
        ", perhaps for lack of memory"
    } else {
        ""
    };
    let what = format!("gpu-embed: ended by signal {signal}{why}");
    Ok(Fault::new(exit, what))
}
