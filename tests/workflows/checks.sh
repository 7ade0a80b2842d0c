# shellcheck shell=bash
# What the tests of the workflows share; to be sourced. Each check is printed, and one that fails ends the test.
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
export PATH=$root/target/release:$root/.venv/snakemake/bin:$PATH
proteins=$root/test-data/proteins.fasta
# shellcheck disable=SC2034
model=$root/test-data/model-tiny
# A device that is full after 6,000 tokens: five sequences of 1,024 fit, and four fifths of them are 4,096 tokens.
# shellcheck disable=SC2034
small_device='--device cpu --inject out-of-memory-above=6000'
work=$(mktemp -d "${TMPDIR:-/tmp}/plmkit-workflows.XXXXXX")
started=$SECONDS

# check WHAT COMMAND…: the command succeeds.
check() {
    local what=$1
    shift
    if "$@" >"$work/check.log" 2>&1; then
        echo "  ok    $what"
    else
        echo "  FAILED $what: $*" >&2
        tail -n 60 "$work/check.log" >&2
        exit 1
    fi
}

# chain TABLE OUTDIR MODEL [OPTIONS of plmkit]: the whole chain, with the options of the programs in the variables of their names.
chain() {
    # shellcheck disable=SC2086  # a word each
    plmkit "$1" --out "$2" --model "$3" --max-shard-tokens "${MAX_SHARD_TOKENS:-20000000}" ${FASTA_SHARD:-} ${PACK_BATCHES:-} \
        ${GPU_EMBED:-} ${VALIDATE_EMBEDDINGS:-} "${@:4}"
}

# reweigh FOLDER: one value of the model in it becomes another.
reweigh() { printf '\x55' | dd of="$1/model.safetensors" bs=1 seek=600000 conv=notrunc status=none; }

# same WHAT EXPECTED FOUND
same() {
    check "$1" diff <(echo "$2") <(echo "$3")
}

# until_true SECONDS COMMAND…: wait for it.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.05
    done
}

# shared [TESTS OF find]: the files here that all workflows make.
shared() { find . -type f -not -name versions.yml -not -path './multiqc/*' -not -path './pipeline_info/*' "$@"; }

# equal FOLDER FOLDER: the same files but for what engines add, and the same bytes in all that is data.
equal() {
    diff <(cd "$1" && shared | sort) <(cd "$2" && shared | sort) || return
    local file
    while read -r file; do
        cmp "$1/$file" "$2/$file" || return
    done < <(cd "$1" && shared \( -path '*/shards/*' -o -path '*/embeddings/*' -o -path '*/rejects/*' -o -name batch-size.json -o -name dataset.json \))
    for file in "$1"/*/dataset.json; do
        grep -q '^  "outcome": "pass"' "$file" || return
    done
    # Nothing is left behind.
    ! find "$1" "$2" -name '.*' -not -name '.' | grep . && ! find "$1" "$2" -type d -empty | grep .
}

# on_page FOLDER TEXT…: its page has these.
on_page() {
    local text
    for text in "${@:2}"; do grep -qF "$text" "$1/index.html" || return; done
}

# packed_with FOLDER: how many tokens the measured size and the events of all runs say that a batch holds.
packed_with() {
    find "$1" \( -name batch-size.json -o -name '*.events.jsonl' \) -exec grep -hoE '"(max_batch_tokens|token_budget)": *[0-9]+' {} + | grep -o '[0-9]*' | sort -u
}

# saved FILE: batches that a run took over from an interrupted one, as its last run event says.
saved() {
    grep '"type":"run"' "$1" | tail -n 1 | grep -o '"batches_saved":[0-9]*' | cut -d : -f 2
}

# saves SAMPLE SHARD: something of it is saved in results/.
saves() { compgen -G "results/$1/embeddings/.$2.parquet.plmkit-run/part-*"; }

# halt SAMPLE SHARD: the gpu-embed that embeds it into results/ stands still once it has saved something.
halt() {
    saves "$1" "$2" && kill -STOP "$(embedding "$1" "$2")"
}
embedding() { pgrep -f "^([^ ]*/)?gpu-embed $work/results/$1/batches/$2"; }

# hold PID: it stands still until it is sent a SIGUSR1, a SIGTERM or a SIGINT, as if its work took that long.
hold() {
    kill -STOP "$1"
    until_true 120 signalled "$1" || return
    kill -CONT "$1"
}
signalled() { (((0x$(awk '/^ShdPnd/ { print $2 }' "/proc/$1/status") & 0x4202) != 0)); }

# start_cluster: SLURM_CONF is that of a cluster of this test alone, which ends with it.
start_cluster() {
    local code=0
    clean() { "$root/tests/workflows/slurm/cluster.sh" stop "$work/cluster"; }
    "$root/tests/workflows/slurm/cluster.sh" start "$work/cluster" >/dev/null || code=$?
    if ((code == 77)); then exit 0; elif ((code)); then exit "$code"; fi
    export SLURM_CONF=$work/cluster/slurm.conf
}

# state JOB: of a job, or of each task of an array that has ended or runs.
state() {
    squeue --noheader --states=all --array --format %T --job "$1"
}

# is STATE JOB: all of it
is() {
    [[ $(state "$2" | sort -u) == "$1" ]]
}

# many N: N times the test proteins, for runs that last.
many() {
    for ((i = 0; i < $1; i++)); do cat "$proteins"; done
}

# many_in_snakemake OUTDIR SAMPLE…: the configuration of a run that lasts and saves after each batch, and the results of plmkit.
many_in_snakemake() {
    local outdir=$1
    shift
    many 8 >many.fasta
    echo sample,fasta >samples.csv
    printf '%s,many.fasta\n' "$@" >>samples.csv
    cat >config.yaml <<CONF
samples: samples.csv
outdir: $outdir
model: $model
options:
  fasta_shard: --duplicate-ids suffix
  gpu_embed: --device cpu --checkpoint-interval 10ms
  pack_batches: --max-batch-tokens 4096
CONF
    FASTA_SHARD='--duplicate-ids suffix' GPU_EMBED='--device cpu' PACK_BATCHES='--max-batch-tokens 4096' \
        check "plmkit" chain samples.csv uninterrupted "$model"
}

finish() {
    local code=$? pids
    # What is still running of a test that failed.
    pids=$(jobs -p)
    # shellcheck disable=SC2086
    [[ ! $pids ]] || kill $pids 2>/dev/null || true
    [[ $(type -t clean) == function ]] && clean
    if ((code == 0)); then rm -rf "$work"; else echo "left for a look: $work" >&2; fi
    echo "$(basename "$0"): $((SECONDS - started)) s"
}
trap finish EXIT
cd "$work" || exit
