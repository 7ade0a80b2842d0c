#!/usr/bin/env bash
# The Snakemake workflow on a real SLURM: GPUs, layout, and a job that is killed by its time limit.
set -euo pipefail
# shellcheck source=tests/workflows/slurm/checks.sh
source "$(dirname "$0")/../slurm/checks.sh"
start_cluster
# Inside a job Snakemake's plugin forgets SLURM_CONF, which a cluster that is not the machine's own needs.
mkdir bin
printf '#!/bin/sh\nexec env SLURM_CONF=%s %s "$@"\n' "$SLURM_CONF" "$(command -v srun)" >bin/srun
chmod +x bin/srun
PATH=$work/bin:$PATH
flow=$root/workflows/snakemake
# Beside the profile: this cluster has no accounting, and answers at once.
run() {
    snakemake --snakefile "$flow/workflow/Snakefile" --workflow-profile "$flow/workflow/profiles/slurm" --configfile config.yaml \
        --slurm-no-account --slurm-status-command squeue --slurm-init-seconds-before-status-checks 2 \
        --seconds-between-status-checks 2 --default-resources slurm_partition=debug "$@"
}
# halt SAMPLE: the gpu-embed of its only shard stands still once it has saved something.
halt() {
    compgen -G "results/$1/embeddings/.shard-00000.parquet.plmkit-run/part-*" && pkill -STOP -f "^gpu-embed $work/results/$1/batches"
}
pid() { pgrep -f "^gpu-embed $work/results/$1/batches"; }

many 5 >many.fasta
printf 'sample,fasta\na,many.fasta\nb,many.fasta\n' >samples.csv
cat >config.yaml <<CONF
samples: samples.csv
outdir: $work/results
model: $model
options:
  fasta_shard: --duplicate-ids suffix
  gpu_embed: --device cpu --save-every 1s
  pack_batches: --max-batch-tokens 4096
CONF
FASTA_SHARD='--duplicate-ids suffix' GPU_EMBED='--device cpu' PACK_BATCHES='--max-batch-tokens 4096' \
    check "the shell chain" "$root/workflows/shell/plmkit.sh" samples.csv chain "$model"

run >run.log 2>&1 &
engine=$!
check "a saves" until_true 120 halt a
check "b saves" until_true 120 halt b
a=$(pid a)
b=$(pid b)
same "each job has one GPU, and not the same" "0 1" \
    "$(for pid in "$a" "$b"; do tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^CUDA_VISIBLE_DEVICES=//p'; done | sort | paste -sd ' ')"
kill -CONT "$b"
# The time limit of the job of a becomes one that is over soon.
job=$(tr '\0' '\n' <"/proc/$a/environ" | sed -n 's/^SLURM_JOB_ID=//p')
check "a gets a shorter time limit" scontrol update JobId="$job" EndTime=now+5
check "a is killed by it" until_true 120 is TIMEOUT "$job"
check "the workflow ends well" wait "$engine"
check "a was tried again" grep -q 'Trying to restart job' run.log
check "a went on from what was saved" test "$(saved results/a/logs/shard-00000.events.jsonl)" -gt 0
check "layout and data are the shell chain's" equal chain results
check "a second run does nothing" grep -q 'Nothing to be done' <(run 2>&1)
squeue --noheader --states=all --format '%b %k' | grep gpu >gpu.txt
same "three jobs asked for a GPU, all of them to embed" "3 3" "$(wc -l <gpu.txt) $(grep -c embed gpu.txt)"
