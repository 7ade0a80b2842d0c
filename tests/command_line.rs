//! What every program says of itself.

mod common;

use std::process::Output;

const PROGRAMS: [&str; 5] = [
    "fasta-shard",
    "pack-batches",
    "gpu-embed",
    "monitor-log",
    "validate-embeddings",
];

fn run(program: &str, argument: &str) -> Output {
    common::bin(program).arg(argument).output().expect("run")
}

#[test]
fn help_version_man_page_and_completions_need_no_other_argument() {
    for program in PROGRAMS {
        let version = env!("CARGO_PKG_VERSION");
        for (argument, what) in [
            ("--help", format!("Usage: {program}")),
            ("--version", format!("{program} {version}\n")),
            ("--generate=man", format!(".TH {program} 1")),
            (
                "--generate=complete-bash",
                format!("-o default {program}\n"),
            ),
            ("--generate=complete-zsh", format!("#compdef {program}")),
            ("--generate=complete-fish", format!("complete -c {program}")),
        ] {
            let output = run(program, argument);
            assert_eq!(output.status.code(), Some(0), "{program} {argument}");
            assert!(output.stderr.is_empty(), "{program} {argument}");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains(&what), "{program} {argument}: {text}");
        }
    }
}

#[test]
fn an_unknown_option_is_a_usage_error() {
    for program in PROGRAMS {
        let output = run(program, "--no-such-option");
        assert_eq!(output.status.code(), Some(2), "{program}");
        assert!(output.stdout.is_empty(), "{program}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("--no-such-option"), "{program}: {text}");
    }
}

#[test]
fn the_man_page_has_the_options_of_the_subcommands_and_refers_to_no_page_that_is_not_there() {
    let text = run("monitor-log", "--generate=man").stdout;
    let text = String::from_utf8_lossy(&text).replace("\\-", "-");
    for part in [
        ".SH \"MONITOR-LOG RECORD\"",
        "--memory-warning",
        "--peak-tflops",
        "--textfile",
        "--once",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("(1)"), "{text}");
    assert_eq!(text.matches("--log-format\\fR \\fI").count(), 1, "{text}");
    assert_eq!(text.matches(" .ds Aq ").count(), 2, "{text}");
}
