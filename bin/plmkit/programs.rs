//! Runs the other programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use plmkit_cli::{Exit, Fault, LogFormat, PARENT_VARIABLE, Stop};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::options::ProgramOptions;

/// The programs, in the order of `versions.yml`.
pub(crate) const PROGRAMS: [&str; 5] = [
    "fasta-shard",
    "pack-batches",
    "gpu-embed",
    "validate-embeddings",
    "monitor-log",
];

/// How often a running program is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// Arguments of a program, from text, paths and options; and the folder of its temporary files, if it is not that of the system.
#[derive(Default)]
pub(crate) struct Arguments(Vec<OsString>, pub(crate) Option<PathBuf>);

impl Arguments {
    pub(crate) fn add(&mut self, word: impl Into<OsString>) {
        self.0.push(word.into());
    }

    pub(crate) fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.add(name);
        }
    }

    pub(crate) fn value(&mut self, name: &str, value: impl Into<OsString>) {
        // A value may begin as options do.
        let words: [OsString; 2] = [name.into(), value.into()];
        self.add(words.join("=".as_ref()));
    }

    pub(crate) fn options(&mut self, options: &ProgramOptions) {
        self.0.extend(options.words.iter().map(OsString::from));
    }

    /// Whether an option is there, before the command of `monitor-log record`.
    fn has(&self, option: &str) -> bool {
        let mut own = self.0.iter().take_while(|word| *word != "--");
        own.any(|word| word.to_string_lossy().split('=').next() == Some(option))
    }
}

/// Starts programs, and passes on what was said to this one: the format of messages, and signals.
pub(crate) struct Programs {
    /// The folder of this executable, if the others are in it; otherwise they are on the PATH.
    folder: Option<PathBuf>,
    log_format: LogFormat,
    quiet: bool,
    stop: Stop,
}

impl Programs {
    pub(crate) fn new(log_format: LogFormat, quiet: bool, stop: &Stop) -> Self {
        let own = env::current_exe().ok();
        let folder = own.and_then(|own| Some(own.parent()?.to_owned()));
        Self {
            folder: folder.filter(|folder| folder.join(PROGRAMS[0]).is_file()),
            log_format,
            quiet,
            stop: stop.clone(),
        }
    }

    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The path of a program, or its name if it is on the PATH.
    pub(crate) fn path(&self, program: &str) -> OsString {
        let folder = self.folder.as_ref();
        folder.map_or_else(|| program.into(), |folder| folder.join(program).into())
    }

    /// Runs a program to its end. Its messages go where those of this program go.
    ///
    /// A signal to this program is passed on as SIGTERM, once; the program saves its work and ends. Without this the program would get
    /// two signals of a terminal, and end without saving.
    pub(crate) fn run(&self, program: &str, arguments: Arguments) -> Result<Exit, Fault> {
        let mut command = self.command(program);
        // `monitor-log record` ends as its command does.
        let is_record = arguments.0.first().is_some_and(|word| word == "record");
        let ends = if is_record { "gpu-embed" } else { program };
        if self.quiet && !arguments.has("--quiet") {
            command.arg("--quiet");
        }
        if self.log_format == LogFormat::Json && !arguments.has("--log-format") {
            command.arg("--log-format=json");
        }
        command
            .args(arguments.0)
            .envs(arguments.1.map(|folder| ("TMPDIR", folder)))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command.process_group(0).spawn();
        let mut child = child.map_err(|error| cannot_run(program, &error))?;
        let status = self.wait(&mut child, is_record).map_err(|error| {
            let what = format_args!("{program}: cannot wait for its end");
            Fault::of_system(Exit::Internal, what, &error)
        })?;
        self.go_on()?;
        exit_of(ends, status)
    }

    /// Whether no stop was requested.
    pub(crate) fn go_on(&self) -> Result<(), Fault> {
        if self.stop.requested() {
            let what = "stopped; run the same command to resume";
            return Err(Fault::new(Exit::Transient, what));
        }
        Ok(())
    }

    /// Runs a program, and returns what it prints. Its messages are returned if it fails.
    pub(crate) fn output<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, Fault> {
        let mut command = Command::new(self.path(program));
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| cannot_run(program, &error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout)
                .trim_end()
                .to_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr)
            .trim_end()
            .to_owned();
        Err(Fault::new(exit_of(program, output.status)?, said))
    }

    /// Returns the program that has an option, of those whose options can be passed on. The sample of `fasta-shard` has a name
    /// already.
    pub(crate) fn with_option(&self, option: &str) -> Option<&'static str> {
        let programs = if option == "--sample" { 1..4 } else { 0..4 };
        PROGRAMS[programs].iter().copied().find(|program| {
            let help = self.output(program, ["--help"]).unwrap_or_default();
            let mut words = help.split([' ', ',', '\n', '[', '=']);
            words.any(|word| word == option)
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path(program));
        // A program that outlived this one would write to files that a second run writes. `monitor-log record` passes the signal on.
        command.env(PARENT_VARIABLE, std::process::id().to_string());
        command
    }

    /// Waits for a program. One that `forwards` signals gets them alone: its command would get each twice, and end without saving.
    fn wait(&self, child: &mut Child, forwards: bool) -> std::io::Result<ExitStatus> {
        let mut signalled = false;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.stop.requested() && !signalled {
                signalled = true;
                if let Some(id) = Pid::from_raw(child.id().cast_signed()) {
                    let kill = if forwards {
                        kill_process
                    } else {
                        kill_process_group
                    };
                    // It may have ended just now.
                    let _ = kill(id, Signal::TERM);
                }
            }
            thread::sleep(POLL);
        }
    }
}

fn cannot_run(program: &str, error: &std::io::Error) -> Fault {
    Fault::of_system(
        Exit::Unavailable,
        format_args!("{program}: cannot run it"),
        error,
    )
}

/// How a program ended. A signal from outside, or the kernel's for lack of memory, may not come again; that of a bug would.
fn exit_of(program: &str, status: ExitStatus) -> Result<Exit, Fault> {
    if let Some(signal) = status.signal() {
        let of_bugs = [
            Signal::SEGV,
            Signal::ABORT,
            Signal::ILL,
            Signal::BUS,
            Signal::FPE,
        ];
        if of_bugs.map(Signal::as_raw).contains(&signal) {
            let what = format!("{program}: ended by signal {signal}: a bug");
            return Err(Fault::new(Exit::Internal, what));
        }
        let what = format!(
            "{program}: ended by signal {signal}{}; run the same command to resume",
            if signal == Signal::KILL.as_raw() {
                ", perhaps for lack of memory"
            } else {
                ""
            }
        );
        return Err(Fault::new(Exit::Transient, what));
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.and_then(Exit::from_code)
        .ok_or_else(|| Fault::new(Exit::Internal, format!("{program}: {status}")))
}
