#!/usr/bin/env bash
# What the engine costs: the 20,000 proteins of Debian's mmseqs2-examples with model-tiny, in CPU-sized shards, by Snakemake and
# by the shell chain. Not in CI: it says how long each took.
#
#     overhead.sh [FASTA]
set -euo pipefail
# shellcheck source=tests/workflows/slurm/checks.sh
source "$(dirname "$0")/../slurm/checks.sh"
fasta=$(realpath "${1:-/usr/share/doc/mmseqs2/example-data/DB.fasta.gz}")
export MAX_SHARD_TOKENS=500000 GPU_EMBED="--device cpu --threads $(nproc)"
printf 'sample,fasta\ndb,%s\n' "$fasta" >samples.csv
cat >config.yaml <<CONF
samples: samples.csv
model: $model
max_shard_tokens: $MAX_SHARD_TOKENS
options: {gpu_embed: --device cpu}
CONF

# took NAME COMMAND…: its wall time
took() {
    local from=$EPOCHREALTIME
    check "$1" "${@:2}"
    awk -v name="$1" -v from="$from" -v to="$EPOCHREALTIME" 'BEGIN { printf "  %-12s %6.1f s\n", name, to - from }'
}
took "shell chain" "$root/workflows/shell/plmkit.sh" samples.csv chain "$model"
took "Snakemake" snakemake --snakefile "$root/workflows/snakemake/workflow/Snakefile" --configfile config.yaml --cores "$(nproc)"
check "the same" equal chain results
