#!/usr/bin/env bash
# The Snakemake workflow on a real SLURM: GPUs, layout, and a job that is killed by its time limit.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/../checks.sh"
start_cluster
# Inside a job Snakemake's plugin forgets SLURM_CONF, which a cluster that is not the machine's own needs.
mkdir bin
printf '#!/bin/sh\nexec env SLURM_CONF=%s %s "$@"\n' "$SLURM_CONF" "$(command -v srun)" >bin/srun
chmod +x bin/srun
PATH=$work/bin:$PATH
flow=$root/workflows/snakemake
# Beside the profile: this cluster has no accounting, and answers at once.
command=(--snakefile "$flow/workflow/Snakefile" --workflow-profile "$flow/workflow/profiles/slurm" --configfile config.yaml
    --slurm-no-account --slurm-status-command squeue --slurm-init-seconds-before-status-checks 2
    --seconds-between-status-checks 2 --default-resources slurm_partition=debug)
run() { snakemake "${command[@]}" "$@"; }
# on_gpus STATES: the jobs that asked for one, each with its rule.
on_gpus() { squeue --noheader --states="$1" --Format tres-per-job:40,comment:200 | grep gres:gpu; }

many_in_snakemake "$work/results" a b
run >run.log 2>&1 &
engine=$!
check "a saves" until_true 120 halt a shard-00000
check "b saves" until_true 120 halt b shard-00000
a=$(embedding a shard-00000)
b=$(embedding b shard-00000)
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
check "layout and data are plmkit's" equal uninterrupted results
check "a second run does nothing" grep -q 'Nothing to be done' <(run 2>&1)
on_gpus all >gpu.txt
same "three jobs asked for a GPU, all of them to embed" "3 3" "$(wc -l <gpu.txt) $(grep -c embed gpu.txt)"

rm -rf results
setsid bash -c 'exec "$@"' - snakemake "${command[@]}" >run.log 2>&1 &
check "a saves" until_true 120 halt a shard-00000
check "b saves" until_true 120 halt b shard-00000
a=$(embedding a shard-00000)
b=$(embedding b shard-00000)
kill -9 -- -$!
check "unlock" run --unlock
run >run.log 2>&1 &
engine=$!
check "Snakemake killed: the next one has jobs, while those before are at work" until_true 60 on_gpus PENDING
kill -CONT "$a" "$b"
check "it ends well" wait "$engine"
check "the same as uninterrupted" equal uninterrupted results
