"""Tasks that fail, are killed, and engines that are."""

import json
import signal

from case import MODEL, PROTEINS, check, many

FEW = ["-profile", "test", "--max_shard_tokens", "1000000"]
# Seconds of work for each task, saved in small pieces: whoever waits for some of them comes before its end.
LONG = ["--input", "long.fasta", "--model", MODEL, "--device", "cpu", "--max_shard_tokens", "400000", "--max_batch_tokens", "1024"]
LONG += ["--fasta_shard_args", "--duplicate-ids suffix"]
CHAIN = ["--max-shard-tokens", "400000", "--max-batch-tokens=1024", "--device", "cpu"]
CHAIN += ["--duplicate-ids=suffix"]


def saving(case):
    """Options for work that outlives an attempt."""
    return [*LONG, "--gpu_embed_args", f"--checkpoint-interval 10ms --checkpoint-dir {case.path('saved')} --wait-for-lock --force"]


def transient(case):
    case.strict()
    case.wrapper("pack-batches", '[[ $1 == --version || -e $once ]] || { touch "$once"; exit 75; }\nexec "$real" "$@"\n')
    run = case.run(*FEW)
    tries = [(task["exit"], task["attempt"], task["memory"]) for task in run.of("PACK_BATCHES")]
    expected = [("75", "1", "1 GB"), ("0", "2", "2 GB")]
    check("a task that ends with 75 is tried again with more memory", run.code == 0 and sorted(tries, key=lambda t: t[1]) == expected, tries)


def final(case):
    case.wrapper("pack-batches", '[[ $1 == --version ]] && exec "$real" "$@"\nexit 65\n')
    run = case.run(*FEW)
    tries = [(task["exit"], task["attempt"]) for task in run.of("PACK_BATCHES")]
    check("a task that ends with 65 is not", run.code != 0 and tries == [("65", "1")], tries)
    case.wrapper("pack-batches", '[[ $1 == --version ]] && exec "$real" "$@"\nexit 70\n')
    for attempt in range(3):
        run = case.run("-profile", "test", "--outdir", f"out{attempt}")
        reason = "terminated with an error exit status (70)" in run.said and "Interrupt" not in run.said
        check("a bug of a program ends the run, and nothing hides it", run.code != 0 and reason, run.said)


def verdict(case):
    """A row that vanishes between embedding and validation."""
    case.wrapper("validate-embeddings", '[[ $1 == --version ]] || rm embeddings/*shard-00001.parquet\nexec "$real" "$@"\n')
    run = case.run("-profile", "test")
    report = case.path("out/proteins/dataset.json")
    check("a failing verdict fails the run", run.code != 0 and "the validation failed, see SAMPLE/dataset.json: proteins" in run.said, run.said)
    check("its report is published", report.exists() and json.loads(report.read_text())["outcome"] == "fail", run.said)
    page = case.path("out/index.html").read_text()
    check("the page says so, and so does the run, of where the page is", "proteins: the validation failed" in page and "page: out/index.html" in run.said, run.said)
    check("and so are the versions", case.path("out/versions.yml").exists())


def cohort(case):
    """What is wrong with one sample costs no other."""
    case.path("twice.fasta").write_text(">x\nACD\n>x\nACD\n")
    case.path("gaps.fasta").write_text(">x\nA-D\n>y\n-\n")
    case.path("samples.csv").write_text(f'\ufeffsample,"fasta"\r\nbad,twice.fasta\r\n\r\na,"{PROTEINS}"\r\n')
    options = ["--input", "samples.csv", "--model", MODEL, "--device", "cpu"]
    run = case.run(*options)
    named = "not validated, see the messages above: bad" in run.said
    check("a sample that cannot be cut fails the run", run.code != 0 and named, run.said)
    told = run.said.split("in out\n")[1].splitlines()
    why = told[0].startswith("bad: fasta-shard: input1/twice.fasta: record 2 'x': expected a new id")
    names = told[1] == "not validated, see the messages above: bad" and "VERDICT" in told[2] and told[3].startswith("ERROR ~")
    check("the end of the run says why, and before its error nothing else", why and names and run.said.count("WARN") == 0, told)
    check("the other one is done", json.loads(case.path("out/a/dataset.json").read_text())["rows"] == 100, run.said)
    page = case.path("out/index.html").read_text()
    check("the page has both", "<td>a</td>" in page and "<td>bad</td>" in page and "not validated" in page)
    check("and no other error hides the reason", "Exception" not in run.said, run.said)
    case.path("samples.csv").write_text(f"sample\tfasta\nempty\tgaps.fasta\na\t{PROTEINS}\n")
    options += ["--fasta_shard_args", "--invalid reject"]
    run = case.run("-resume", *options)
    check("so does one without a record that is taken", run.code != 0 and "no record could be embedded, see SAMPLE/shards/rejects.csv and SAMPLE/rejects (allow_empty accepts it): empty" in run.said, run.said)
    run = case.run("-resume", *options, "--allow_empty")
    verdicts = {task["process"].split(":")[-1] for task in run.computed()} == {"PLMKIT_CHECK", "VALIDATE_EMBEDDINGS", "SUMMARY", "PLMKIT_REPORT"}
    check("unless that is allowed", run.code == 0 and "warning: no record could be embedded" in run.said and verdicts, run.said)
    table = [line.split("\t")[:8] for line in case.path("out/summary.tsv").read_text().splitlines()[1:]]
    check("it is in the table", table == [["empty", "2", "0", "2", "0", "0", "0", "empty"], ["a", "100", "100", "0", "0", "0", "8", "pass"]], table)


def pageless(case):
    """A page that cannot be made costs nothing else, and one of an earlier run does not stay."""
    case.path("out").mkdir()
    case.path("out/index.html").write_text("earlier")
    for parser, wrong in [("v1", "echo 'plmkit: no space' >&2; exit 74"), ("v2", "kill -KILL $$")]:
        case.env["NXF_SYNTAX_PARSER"] = parser
        case.wrapper("plmkit", f'[[ $1 == report ]] || exec "$real" "$@"\n{wrong}\n')
        run = case.run(*FEW)
        told = run.said.count("no page: ") == 1 and "1 sample: 100 rows" in run.said
        check(f"a run whose page cannot be made is a run: {wrong}", run.code == 0 and told and not case.path("out/index.html").exists(), run.said)


def ignored(case):
    """A configuration that ignores errors loses no sample silently."""
    case.path("ignore.config").write_text("process { withName: '.*' { errorStrategy = 'ignore' } }\n")
    case.wrapper("pack-batches", '[[ $1 == --version ]] && exec "$real" "$@"\nexit 70\n')
    run = case.run(*FEW, "-c", "ignore.config")
    check("a sample without a verdict fails the run", run.code != 0 and "not validated, see the messages above: proteins" in run.said, run.said)


def killed(case, how, keeps):
    """The first attempt of gpu-embed is killed when it has saved some batches, in its own folder or where the next one finds them."""
    case.strict()
    many(case.path("long.fasta"), 20)
    case.wrapper("gpu-embed", f"""
out=$(sed 's/.*--out \\([^ ]*\\).*/\\1/' <<<"$*")
[[ $out == *.parquet ]] && mkdir "$once" || exec "$real" "$@"
"$real" "$@" &
while kill -0 $! && [[ $(find . {case.path('saved')} -path "*$out*" -name 'part-*[0-9].parquet' 2>/dev/null | wc -l) -lt 3 ]]; do sleep 0.05; done
kill -{how} $!
wait $!
""")
    run = case.run(*(saving(case) if keeps else [*LONG, "--gpu_embed_args", "--checkpoint-interval 10ms"]))
    tries = sorted((task["attempt"], task["exit"]) for task in run.of("GPU_EMBED") if task["attempt"] == "2" or task["exit"] != "0")
    code = {"TERM": "143", "KILL": "137"}[how]
    check(f"gpu-embed killed by SIG{how} is tried again", run.code == 0 and tries == [("1", code), ("2", "0")], (tries, run.said))
    second = next(task for task in run.of("GPU_EMBED") if task["attempt"] == "2")
    events = case.path("out/long/logs") / f"{second['tag'].removeprefix('long_')}.events.jsonl"
    saved = batches_saved(events)
    check(f"the second attempt goes on from {saved} saved batches", saved >= 3 if keeps else saved == 0, events.read_text())
    check("nothing stays behind in the folder of what is saved", not keeps or not any(case.path("saved").iterdir()))
    equal(case)


def engine(case):
    many(case.path("long.fasta"), 20)
    case.kill(case.start(*saving(case)), 3)
    run = case.run("-resume", *saving(case))
    check("-resume after kill -9 of engine and tasks", run.code == 0, run.said)
    cached = run.of("PACK_BATCHES", "CACHED")
    saved = [batches_saved(path) for path in case.path("out/long/logs").glob("*.events.jsonl")]
    check(f"{len(cached)} packs and {sum(saved)} batches are those of the run before", cached and sum(saved) >= 3, saved)
    equal(case)


def outlived(case):
    """Tasks that go on when their engine is killed: those of the next one wait for them."""
    many(case.path("long.fasta"), 20)
    case.kill(case.start(*saving(case)), 1, signal.SIGSTOP)
    resumed = case.start("-resume", *saving(case))
    refused = "another process is writing it"
    case.wait(resumed, "a task is refused", lambda: any(refused in log.read_text() for log in case.path("work").glob("*/*/.command.err")))
    case.signal(signal.SIGCONT)
    check("-resume while tasks of the engine before are at work", resumed.wait() == 0, case.path("said.txt").read_text())
    equal(case)


def equal(case):
    case.path("samples.csv").write_text("sample,fasta\nlong,long.fasta\n")
    case.plmkit("samples.csv", CHAIN)
    case.compare("out", "plmkit")


def batches_saved(events):
    started = [json.loads(line) for line in events.read_text().splitlines() if "batches_saved" in line]
    return sum(event["batches_saved"] for event in started)
