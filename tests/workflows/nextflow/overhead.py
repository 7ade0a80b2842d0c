"""The 20,000 proteins of Debian's mmseqs2-examples with the tiny model: wall time of the workflow beside that of the shell chain.

    python3 tests/workflows/nextflow/overhead.py [DB.fasta.gz]
"""

import sys
import tempfile
import time

from case import MODEL, Case, check

DB = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/doc/mmseqs2/example-data/DB.fasta.gz"
OPTIONS = ["--input", "samples.csv", "--model", MODEL, "--device", "cpu", "--fasta_shard_args", "--duplicate-ids suffix"]

with tempfile.TemporaryDirectory() as folder:
    case = Case(folder, "overhead")
    case.path("samples.csv").write_text(f"sample,fasta\nDB,{DB}\n")
    for tokens in ("20000000", "2000000"):
        start = time.monotonic()
        case.shell("samples.csv", {"MAX_SHARD_TOKENS": tokens, "FASTA_SHARD": "--duplicate-ids suffix", "GPU_EMBED": "--device cpu"})
        chain = time.monotonic() - start
        start = time.monotonic()
        run = case.run(*OPTIONS, "--max_shard_tokens", tokens)
        workflow = time.monotonic() - start
        check("the workflow runs", run.code == 0, run.said)
        case.compare("out", "shell")
        shards = len(run.of("GPU_EMBED"))
        print(f"shards of {tokens} tokens, {shards}: chain {chain:.1f} s, Nextflow {workflow:.1f} s, {len(run.tasks)} tasks", flush=True)
        for name in ("shell", "out"):
            case.path(name).rename(case.path(f"{name}-{tokens}"))
