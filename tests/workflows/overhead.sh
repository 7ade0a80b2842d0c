#!/usr/bin/env bash
# What the engines cost: the 20,000 proteins of Debian's mmseqs2-examples with model-tiny, in shards of 500,000 tokens, by plmkit, Snakemake
# and Nextflow, one after the other. It says how long each took, and fails only where the datasets differ.
#
#     overhead.sh [FASTA]
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/checks.sh"
export PATH=$root/tests/workflows/nextflow/engine:$PATH NXF_ANSI_LOG=false

fasta=$(realpath -m "${1:-/usr/share/doc/mmseqs2/example-data/DB.fasta.gz}")
if [[ ! -e $fasta ]]; then
    download() { apt-get -o APT::Sandbox::User="$(id -un)" -qq download mmseqs2-examples; }
    check "mmseqs2-examples" eval 'download || { apt-get update -qq && download; }; dpkg-deb -x mmseqs2-examples_*.deb package'
    fasta=$work/package$fasta
fi
cores=$(nproc)
export MAX_SHARD_TOKENS=500000 FASTA_SHARD='--duplicate-ids suffix' GPU_EMBED="--device cpu --threads $cores"
printf 'sample,fasta\ndb,%s\n' "$fasta" >samples.csv
cat >config.yaml <<CONF
samples: samples.csv
model: $model
max_shard_tokens: $MAX_SHARD_TOKENS
options: {fasta_shard: $FASTA_SHARD, gpu_embed: --device cpu}
CONF
# All cores for gpu-embed, as with the others.
printf 'process {\nresourceLimits = [cpus: %s, memory: 8.GB]\nwithName: GPU_EMBED { cpus = %s }\n}\n' "$cores" "$cores" >cores.config
# The engine gets its jars when it is started first.
check "Nextflow" nextflow -version

# took NAME COMMAND…: its wall time, and beside that of plmkit.
took() {
    local from=$EPOCHREALTIME
    check "$1" "${@:2}"
    awk -v name="$1" -v from="$from" -v to="$EPOCHREALTIME" -v chain="${chain:-0}" -v shards="${shards:-1}" 'BEGIN {
        printf "  %-12s %6.1f s", name, to - from
        if (chain) printf ", %+.1f s: %+.1f %%, %+.2f s a shard", to - from - chain, 100 * (to - from - chain) / chain, (to - from - chain) / shards
        print ""
    }' | tee took.txt
}
took "plmkit" chain samples.csv chain "$model"
shards=$(find chain -path '*/shards/*.parquet' | wc -l)
chain=$(awk '{ print $3 }' took.txt)
took "Snakemake" snakemake --snakefile "$root/workflows/snakemake/workflow/Snakefile" --configfile config.yaml --cores "$cores"
took "Nextflow" nextflow -c cores.config run "$root/workflows/nextflow" --input samples.csv --model "$model" --device cpu --outdir nextflow \
    --max_shard_tokens "$MAX_SHARD_TOKENS" --fasta_shard_args "$FASTA_SHARD" -ansi-log false
check "Snakemake's dataset is the chain's" equal chain results
check "Nextflow's dataset is the chain's" equal chain nextflow
