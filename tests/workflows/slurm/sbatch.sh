#!/usr/bin/env bash
# The batch scripts on a real SLURM: the array, the time limit of a task, a task that is cancelled and requeued, the validation.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/../checks.sh"
start_cluster
workflow=$root/workflows/slurm

# The symptoms that README.md lists.
[[ -e /etc/slurm/slurm.conf ]] || check "a cluster whose configuration is not in its place" grep 'fetch_config: DNS SRV lookup failed' \
    <(env -u SLURM_CONF sbatch "$workflow/prepare.sbatch" 2>&1)
check "no accounting" grep 'Slurm accounting storage is disabled' <(sacct 2>&1)

many 8 >many.fasta
printf 'sample,fasta\nlong,many.fasta\na,%s\n' "$proteins" >samples.csv
options=(--model "$model" --device cpu --max-shard-tokens 200000 --threads 1 --checkpoint-interval 10ms)
repeated=(--duplicate-ids suffix)
batches=(--max-batch-tokens 4096)
check "plmkit" plmkit samples.csv --out chain "${options[@]}" "${repeated[@]}" "${batches[@]}"
submit() { sbatch --parsable "$workflow/prepare.sbatch" "$@"; }
# Of a job that fails, sbatch --wait fails.
finished() { sbatch --wait --parsable "$workflow/prepare.sbatch" "$@" || true; }

prepare=$(SBATCH_TIMELIMIT=1 SBATCH_SIGNAL=B:USR1@58 submit samples.csv --out "$work/results" "${options[@]}" "${repeated[@]}" "${batches[@]}")
check "shards, an array and a validation" until_true 60 is COMPLETED "$prepare"
report=$(tail -n 1 "plmkit-$prepare.log")
[[ $report =~ ^3\ shards:\ job\ array\ ([0-9]+),\ validation\ ([0-9]+)$ ]]
array=${BASH_REMATCH[1]} validation=${BASH_REMATCH[2]}
task() { pgrep -f "^([^ ]*/)?plmkit .*--stage embed --task $1/3$"; }
halt_task() { saves long "shard-0000$(($1 - 1))" && kill -STOP "$(task "$1")"; }
check "task 1 saves" until_true 60 halt_task 1
check "task 2 saves" until_true 60 halt_task 2
first=$(task 1)
second=$(task 2)
same "each task has one GPU, and not the same" "0 1" \
    "$(for pid in "$first" "$second"; do tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^CUDA_VISIBLE_DEVICES=//p'; done | sort | paste -sd ' ')"

scancel "${array}_2"
kill -CONT "$second"
check "task 2 is cancelled" until_true 60 is CANCELLED "${array}_2"
check "it is requeued" scontrol requeue "${array}_2"
check "task 1 gets its signal before the time limit" hold "$first"
check "and is queued again" until_true 30 grep -q 'queued again' "plmkit-${array}_1.log"
check "all tasks end well" until_true 120 is COMPLETED "$array"
check "the validation passes" until_true 60 is COMPLETED "$validation"
for shard in 0 1; do
    check "shard $shard went on from what was saved" test "$(saved "results/long/logs/shard-0000$shard.events.jsonl")" -gt 0
done
check "layout and data are plmkit's" equal chain results

# The same once more: everything is kept, the validation alone has something to do.
touch before
prepare=$(finished samples.csv --out "$work/results" "${options[@]}" "${repeated[@]}" "${batches[@]}")
report=$(tail -n 1 "plmkit-$prepare.log")
check "a second run passes" until_true 60 is COMPLETED "${report##* }"
same "and embeds nothing" "" "$(find results -name '*.parquet' -newer before)"

# Without a size of batches.
options=(--model "$model" --max-shard-tokens 200000 $small_device --threads 1)
prepare=$(finished samples.csv --out "$work/small" "${options[@]}" "${repeated[@]}")
report=$(tail -n 1 "plmkit-$prepare.log")
check "a run that measures the batch size passes" until_true 120 is COMPLETED "${report##* }"
same "its batches hold what was measured" 4096 "$(packed_with small)"
array=$(grep -o 'array [0-9]*' <<<"$report" | cut -d ' ' -f 2)
same "which was measured by one task, on a GPU" 1 "$(grep -l ' tokens fit$' "plmkit-${array}"_*.log | wc -l)"
for sample in long a; do
    check "the embeddings of $sample are plmkit's" diff -r chain/$sample/embeddings small/$sample/embeddings
done

rm results/long/embeddings/shard-00000.parquet
validation=$(sbatch --wait --parsable --gres=none "$workflow/embed.sbatch" samples.csv --out "$work/results" --model "$model" --device cpu \
    --max-shard-tokens 200000 "${repeated[@]}" "${batches[@]}") || true
check "missing embeddings fail the validation" is FAILED "$validation"
check "its report is there" grep -q '"outcome": "fail"' results/long/dataset.json

printf '>x\nACD\n>x\nACD\n' >twice.fasta
printf 'sample,fasta\nbad,twice.fasta\na,%s\n' "$proteins" >cohort.csv
prepare=$(finished cohort.csv --out "$work/cohort" "${options[@]}" "${batches[@]}")
check "a sample that cannot be cut fails its job" is FAILED "$prepare"
same "which names it" "plmkit: not cut, see above: bad" "$(grep 'not cut' "plmkit-$prepare.log")"
report=$(grep 'job array' "plmkit-$prepare.log")
check "the validation fails, too" until_true 120 is FAILED "${report##* }"
same "a sample without a verdict" "bad not validated a pass" "$(tail -n +2 cohort/summary.tsv | cut -f 1,8 | tr '\t\n' '  ' | sed 's/ $//')"
check "in so many words" grep -x 'plmkit: not validated, see the messages above: bad' "plmkit-${report##* }.log"
check "the other sample is plmkit's" diff <(grep '"digest"' chain/a/dataset.json) <(grep '"digest"' cohort/a/dataset.json)
rm cohort/a/embeddings/shard-00000.parquet
printf 'sample,fasta\na,%s\n' "$proteins" >cohort.csv
prepare=$(finished cohort.csv --out "$work/cohort" "${options[@]}" "${batches[@]}")
report=$(tail -n 1 "plmkit-$prepare.log")
check "embeddings that were lost come back" until_true 120 is COMPLETED "${report##* }"
check "the same" diff <(grep '"digest"' chain/a/dataset.json) <(grep '"digest"' cohort/a/dataset.json)
check "the totals" grep -x 'plmkit: 1 sample: 100 rows, 0 rejected, 8 truncated, in .*/cohort' "plmkit-${report##* }.log"
