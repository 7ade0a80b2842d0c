"""The pipeline of workflows/modules as it stands there."""

import json

from case import MODEL, PROTEINS, ROOT, check
from failures import batches_saved

def modules(case):
    case.path("main.nf").write_text((ROOT / "workflows/modules/main.nf").read_text())
    # Enough to be killed in, without two of one name.
    proteins = PROTEINS.read_text()
    case.path("proteins.fasta").write_text("".join(proteins.replace(">", f">{copy}_") for copy in range(6)))
    case.path("nextflow.config").write_text("process.cpus = 1\nprocess.publishDir = 'out'\ntrace.fields = 'process,status,attempt,exit'\n")
    # The first try is killed like a job that ran into its time limit, when it has saved something.
    case.wrapper("gpu-embed", f"""
[[ -e $once ]] && exec "$real" "$@"
touch "$once"
"$real" "$@" --checkpoint-interval 10ms &
until compgen -G '{case.folder}/work/saved/*/*/.*.plmkit-run/part-*[0-9].parquet'; do sleep 0.01; done
kill -TERM $!
wait $!
""")
    run = case.run("--fasta", "proteins.fasta", "--model", MODEL, workflow=case.path("main.nf"))
    check("the pipeline of workflows/modules", run.code == 0, run.said)
    verdict = json.loads(case.path("out/validation.json").read_text())
    check("600 proteins, validated", verdict["outcome"] == "pass" and verdict["embeddings"][0]["rows"] == 600, verdict)
    tries = sorted((task["attempt"], task["exit"]) for task in run.of("GPU_EMBED"))
    check("a killed task is tried again", tries == [("1", "143"), ("2", "0")], run.tasks)
    events = case.path("out/shard-00000.events.jsonl")
    check("and goes on where it was", batches_saved(events) > 0, events.read_text())
    check("with a report of the run", case.path("out/shard-00000.run.json").exists())
