"""What users see before anything is run: parameters, profiles, messages."""

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path

from jsonschema import Draft202012Validator

from case import HERE, MODEL, PROTEINS, ROOT, WORKFLOW, check

# All of them, few enough to be quick: the start of an engine takes seconds.
PROFILES = ["docker", "singularity", "apptainer", "podman", "test,conda,debug", "slurm,gpu", "gpu,slurm"]


def nextflow(case, *arguments):
    return subprocess.run(["nextflow", *arguments], cwd=case.folder, env=case.env, capture_output=True, text=True)


def lint(case):
    done = nextflow(case, "lint", WORKFLOW)
    check("nextflow lint", done.returncode == 0 and "had no errors" in done.stdout, done.stdout + done.stderr)


def profiles(case):
    """Each is taken by both parsers and leaves the options, results and resources of GPU tasks as they are."""
    for parser, chosen in [("v2", PROFILES), ("v1", ["docker,test", "gpu,slurm"])]:
        case.env["NXF_SYNTAX_PARSER"] = parser
        for profile in chosen:
            done = nextflow(case, "config", "-flat", "-profile", profile, WORKFLOW)
            settings = dict(re.findall(r"^([\w.':]+) = (.*)$", done.stdout.replace("'", ""), re.MULTILINE))
            whole = [settings.get(f"process.withName:GPU_EMBED.{key}") for key in ("ext.args", "publishDir")]
            whole += [settings.get(f"process.withLabel:process_gpu.{key}") for key in ("cpus", "memory", "time")]
            check(f"{parser}: -profile {profile}", done.returncode == 0 and all(whole), done.stdout + done.stderr)
            if "slurm" in profile:
                parallel = settings["process.withName:GPU_EMBED.maxForks"] == "0" and settings["params.device"] == "cuda"
                check(f"{parser}: {profile}: GPU tasks run side by side, on GPUs", parallel, done.stdout)
            if "test" in profile:
                limits = re.search(r"process\.resourceLimits( = \[cpus:|\.cpus = )2", done.stdout)
                check(f"{parser}: {profile} limits its tasks", limits, done.stdout)


def container(case):
    """What a container is given on a GPU, seen by a docker that runs its command here; tests/delivery has real ones, without a GPU."""
    case.wrapper("docker", f"""
echo "$@" >>{case.path('docker.log')}
[[ $1 == run ]] || exit 0
until [[ $1 == ghcr.io/* ]]; do shift; done
exec "${{@:2}}"
""")
    case.env["HOME"] = str(case.folder)
    case.env.pop("HF_HOME", None)
    run = case.run("-profile", "docker,gpu,test", "--device", "cpu")
    check("-profile docker", run.code == 0 and len(run.of("GPU_EMBED")) == 3, run.said)
    cache = case.path(".cache/huggingface")
    started = [line for line in case.path("docker.log").read_text().splitlines() if line.startswith("run ")]
    embed = [line for line in started if "--gpus all" in line]
    # Three shards, and the measurement of the batch size.
    check("its GPU tasks, and no others, get the GPUs", len(embed) == 4, embed)
    images = {(line in embed, *re.findall(r"ghcr[.]io/plmkit/([a-z-]+):[0-9]", line)) for line in started}
    check("and the image for GPUs", images == {(True, "plmkit"), (False, "plmkit-cpu")}, started)
    check("the cache of models, which is there", cache.is_dir() and all(f"-v {cache}:{cache}" in line for line in embed), embed)


def schema(case):
    """It covers exactly the parameters of nextflow.config, with their defaults."""
    groups = json.loads((WORKFLOW / "nextflow_schema.json").read_text())
    table = json.loads((WORKFLOW / groups["$defs"]["input_output"]["properties"]["input"]["schema"]).read_text())
    for described in (groups, table):
        check("a draft 2020-12 schema", described["$schema"] == "https://json-schema.org/draft/2020-12/schema")
        Draft202012Validator.check_schema(described)
    names = Draft202012Validator(table["items"]["properties"]["sample"])
    taken = [name for name in ("a", "_b.2", "a b", "", "-c", "..") if names.is_valid(name)]
    check("names of samples", taken == ["a", "_b.2"], taken)
    references = [entry["$ref"].removeprefix("#/$defs/") for entry in groups["allOf"]]
    check("every group counts", sorted(references) == sorted(groups["$defs"]), references)
    described = {}
    for group in groups["$defs"].values():
        described |= group["properties"]
    done = nextflow(case, "config", "-flat", WORKFLOW)
    params = dict(re.findall(r"^params\.(\w+) = (.*)$", done.stdout, re.MULTILINE))
    check(f"{len(params)} parameters, all described, no other", sorted(params) == sorted(described), (params, sorted(described)))
    for name, rule in described.items():
        default = rule.get("default")
        written = "null" if default is None else f"'{default}'" if isinstance(default, str) else json.dumps(default)
        check(f"the default of {name}", params[name] == written, (params[name], written))


def wrong(case):
    """Each wrong input is refused, with one message; the whole workflow shows it for two, wrong.nf for all."""
    fasta = str(PROTEINS)
    case.path("folder").mkdir()
    case.path("empty").mkdir()
    for name, lines in {
        "column.csv": f"sample,file\na,{fasta}\n",
        "both.csv": f"sample,fasta,sample\na,{fasta},b\n",
        "cells.csv": f"sample,fasta\na,{fasta},b\n",
        "bare.csv": "sample,fasta\na,\n",
        "missing.csv": "sample,fasta\na,none.fasta\n",
        "twice.csv": f"sample,fasta\na,{fasta}\nb,{fasta}\na,{fasta}\n",
        "name.csv": f"sample,fasta\na b,{fasta}\n",
        "reserved.tsv": f"sample\tfasta\nmultiqc\t{fasta}\n",
        "empty.csv": "sample,fasta\n",
        "quote.csv": f'sample,fasta\na,"{fasta}\n',
        "content.csv": f"sample,fasta\na,{fasta}\nb,none.fa\n",
        "none.fa": "protein\n",
        "folder/config.json": '{"model_type": "bert"}\n',
        "multiqc.fa": ">x\nMK\n",
    }.items():
        case.path(name).parent.mkdir(parents=True, exist_ok=True)
        case.path(name).write_text(lines)
    shutil.copy(MODEL / "model.safetensors", case.path("folder"))
    cases = [
        ({"input": "column.csv"}, "column.csv: line 1: expected the columns sample,fasta, found 'sample,file'"),
        ({"input": "both.csv"}, "both.csv: line 1: expected the columns sample,fasta, found 'sample,fasta,sample'"),
        ({"input": "cells.csv"}, "cells.csv: 'a': expected 2 columns, found 3"),
        ({"input": "bare.csv"}, "bare.csv: no file ''"),
        ({"input": "missing.csv"}, "missing.csv: no file 'none.fasta'"),
        ({"input": "twice.csv"}, "of 'a' is there twice"),
        ({"input": "name.csv"}, "name.csv: line 2: sample name 'a b': expected up to 200 letters"),
        ({"input": "reserved.tsv"}, "reserved.tsv: line 2: sample name 'multiqc'"),
        ({"input": "empty.csv"}, "empty.csv: no samples"),
        ({"input": "quote.csv"}, "Missing double-quote termination in CSV value"),
        ({"input": "content.csv"}, "sample 'b': input2/none.fa: not FASTA: expected '>' at the start of line 1, found 'protein'"),
        ({"input": "none.fa"}, "none.fa: not FASTA"),
        ({"input": "none.csv"}, "--input: no file 'none.csv'"),
        ({"input": "*.fasta"}, "--input: no file '*.fasta'"),
        ({"input": f"{fasta},{ROOT}/tests/../test-data/proteins.fasta"}, "are both the sample 'proteins'"),
        ({"input": "multiqc.fa"}, "input1/multiqc.fa: sample name 'multiqc'"),
        ({"input": "folder"}, "input1/folder: cannot"),
        ({"input": fasta, "words": ["b.fasta", "c.fasta"]}, "'b.fasta' belongs to no parameter: put a glob in quotes, --input '*.fasta'"),
        ({"input": fasta, "model": None}, "--model is missing"),
        ({"input": fasta, "model": "folder/esm2"}, "folder/esm2: no such file or folder"),
        ({"input": fasta, "model": "./none"}, "./none: cannot open"),
        ({"input": fasta, "model": "empty"}, "empty: "),
        ({"input": fasta, "model": "folder"}, 'model/config.json: key \'model_type\': expected "esm"'),
        ({"input": fasta, "model": "some/model"}, "some/model: no such file or folder, and not in the Hub's cache"),
        ({"input": fasta, "max_shard_tokens": "many"}, "--max_shard_tokens 'many': expected a whole number"),
        ({"input": fasta, "device": "gpu"}, "--device 'gpu': expected where gpu-embed computes: auto, cpu"),
    ]
    case.env["HF_HUB_CACHE"] = str(case.folder)
    case.path("cases.json").write_text(json.dumps([dict({"model": str(MODEL), "outdir": "out"}, **given) for given, _ in cases]))
    case.path("wrong.config").write_text("process.errorStrategy = 'ignore'\ntrace.fields = 'task_id,workdir'\n")
    options = ("-c", "wrong.config", "-with-trace", "trace.txt", "--cases", "cases.json", "--schema", WORKFLOW / "nextflow_schema.json")
    done = nextflow(case, "run", HERE / "wrong.nf", *options)
    said = {int(number): message for number, message in re.findall(r"^REFUSED (\d+) (.*)$", done.stdout, re.MULTILINE)}
    # By task, in the order of the cases.
    tasks = sorted(csv.DictReader(case.path("trace.txt").open(), delimiter="\t"), key=lambda task: int(task["task_id"]))
    checked = re.search(r"^CHECKED (.*)$", done.stdout, re.MULTILINE).group(1).split()
    for number, task in zip(checked, tasks, strict=True):
        said[int(number)] = Path(task["workdir"], ".command.err").read_text().strip()
    for number, (given, message) in enumerate(cases):
        check(message, message in said.get(number, "") and "\n" not in said[number], (given, said.get(number), done.stdout))
    for given, message in cases[:1] + cases[-1:]:
        options = [part for name, value in given.items() for part in (f"--{name}", value)]
        run = case.run(*options, "--model", MODEL)
        # Nextflow adds where its log is.
        others = ("N E X T", "Launching", "WARN: Unrecognized", " -- Check")
        said = [line for line in run.said.splitlines() if line and not line.startswith(others)]
        check(f"alone, before any task: {message}", run.code != 0 and len(said) == 1 and message in said[0] and not run.tasks, run.said)


def unknown(case):
    """An unknown parameter ends the run before any task, with one line."""
    for given, meant in [("--max_shard_token", " did you mean --max_shard_tokens?"), ("--outDir", " did you mean --outdir?"), ("--colour", "")]:
        run = case.run("-profile", "test", given, "5")
        said = [line for line in run.said.splitlines() if line and not line.startswith(("N E X T", "Launching"))]
        told = f"{given} is no parameter of this workflow:{meant} --help lists all"
        check(told, run.code != 0 and said == [told] and not run.tasks, run.said)


def repository(case):
    """`nextflow run REPOSITORY` from another folder: of a path, and of a repository that Nextflow clones."""
    run = case.run("-profile", "test", "-stub", workflow=ROOT)
    check("the folder of the repository", run.code == 0 and len(run.of("GPU_EMBED")) == 2, run.said)
    source = case.path("plmkit")
    for name in ("workflows", "test-data"):
        shutil.copytree(ROOT / name, source / name)
    shutil.copy(ROOT / "nextflow.config", source)
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a"], ["tag", "v1"]):
        subprocess.run(["git", *command], cwd=source, check=True)
    # For a clone the engine has to be told that it may.
    case.env.update(NXF_OFFLINE="false")
    run = case.run("-profile", "test", "-r", "v1", workflow=source.as_uri())
    cloned = case.path("home/assets/local/plmkit/workflows").is_dir()
    check("a clone of the repository", run.code == 0 and cloned and len(run.of("GPU_EMBED")) == 3, run.said)
    verdict = json.loads(case.path("out/proteins/dataset.json").read_text())
    check("its validation passes", verdict["outcome"] == "pass", verdict)


def told(case):
    """--help and --version end well, before anything else is looked at; a glob that the shell has expanded does not."""
    helped = case.run("--help")
    check("--help", helped.code == 0 and "--allow_empty" in helped.said and "[default: 20000000]" in helped.said and not helped.tasks, helped.said)
    version = case.run("--version")
    check("--version", version.code == 0 and re.search(r"^plmkit [0-9.]+$", version.said, re.MULTILINE), version.said)
    for name in ("a.fasta", "b.fasta"):
        case.path(name).write_bytes(PROTEINS.read_bytes())
    run = case.run("--input", "a.fasta", "b.fasta", "--model", MODEL)
    check("a word without a parameter", run.code != 0 and not run.tasks and "'b.fasta' belongs to no parameter" in run.said, run.said)
    run = case.run("--input", "*.fasta", "--model", MODEL, "--device", "cpu", "-stub")
    check("a glob in quotes is two samples", run.code == 0 and len(run.of("FASTA_SHARD")) == 2, run.said)


def hub(case):
    """A model of the Hub: its revision is told, and the parameters of the run repeat it."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    cache = case.path("hub/models--some--model")
    (cache / "refs").mkdir(parents=True)
    (cache / "refs/main").write_text(commit)
    shutil.copytree(MODEL, cache / "snapshots" / commit)
    case.env["HF_HUB_CACHE"] = str(case.path("hub"))
    run = case.run("--input", PROTEINS, "--model", "some/model", "--device", "cpu", "--gpu_embed_args", '--pool "max"')
    check("a model of the Hub", run.code == 0, run.said)
    versions = case.path("out/versions.yml").read_text()
    check("versions.yml says which revision", f"Model:\n    some/model: {commit}\n" in versions, versions)
    kept = case.path("out/pipeline_info/params.json").rename(case.path("params.json"))
    found = json.loads(kept.read_text())
    check("the parameters of the run, as JSON", (found["model"], found["gpu_embed_args"]) == ("some/model", '--pool "max"'), found)
    run = case.run("-resume", "-params-file", kept)
    check("which repeat it", run.code == 0 and run.tasks and not run.computed(), run.said)


def empty(case):
    """An empty value of a YAML file means none."""
    values = ["max_shard_tokens", "max_batch_tokens", "fasta_shard_args", "pack_batches_args", "gpu_embed_args", "validate_embeddings_args"]
    values += ["publish_mode", "images", "allow_empty", "slurm_options"]
    case.path("params.yaml").write_text("device: cpu\n" + "".join(f"{name}:\n" for name in values))
    run = case.run("-params-file", "params.yaml", "--input", PROTEINS, "--model", MODEL)
    verdict = case.path("out/proteins/dataset.json")
    check("empty values", run.code == 0 and json.loads(verdict.read_text())["rows"] == 100, run.said)
