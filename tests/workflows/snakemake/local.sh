#!/usr/bin/env bash
# The Snakemake workflow on this machine: what it makes, what it makes again, and what it does when something goes wrong.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/../checks.sh"
flow=$root/workflows/snakemake
run() { snakemake --snakefile "$flow/workflow/Snakefile" --configfile config.yaml --cores 2 "$@"; }
# jobs: the rules that would run, with how often each.
jobs() {
    run --dry-run >dry.log 2>&1
    awk '/^Job stats:/ { on = 1 } on && !NF { exit } on && $2 ~ /^[0-9]+$/ && $1 != "total" { print $1 ":" $2 }' dry.log | sort | paste -sd ' '
}
# refuses PATTERN ARGS…: it ends before anything is cut, and says why.
refuses() {
    local pattern=$1
    shift
    run "$@" >refused.log 2>&1 && return 1
    grep -E "$pattern" refused.log && ! grep -E 'Traceback|^(checkpoint shard|rule [a-z_]+):' refused.log
}
fails() { ! "$@"; }
records() { awk "/^>/ { n++ } $1" "$proteins"; }

echo "workflow"
check "lint" snakemake --snakefile "$flow/workflow/Snakefile" --lint --directory "$flow"
check "snakefmt" snakefmt --check "$flow/workflow"

# Names that a shell would read, and a column more.
records '1 <= n && n <= 20' >"the first's \$HOME.fasta"
records '81 <= n' | gzip >./-second.fasta.gz
printf 'sample,fasta,notes\na,%s,x\nb,%s,\nb,-second.fasta.gz,y\n' "$proteins" "the first's \$HOME.fasta" >samples.csv
# The fourth protein of each sample cannot be embedded: an exit code 1 that is no failure.
embed='--device cpu --inject not-finite=3'
cat >config.yaml <<CONF
samples: samples.csv
model: $model
max_shard_tokens: 20000
options:
  gpu_embed: $embed
  pack_batches: --max-batch-tokens 4096
CONF
check "dry run" run --dry-run
check "dry run of the example" snakemake --directory "$flow" --snakefile "$flow/workflow/Snakefile" --dry-run
check "dry run of the example of a cohort" snakemake --directory "$flow" --snakefile "$flow/workflow/Snakefile" \
    --configfile "$flow/config/cohort.yaml" --dry-run
MAX_SHARD_TOKENS=20000 GPU_EMBED=$embed PACK_BATCHES='--max-batch-tokens 4096' \
    check "plmkit" chain samples.csv chain "$model"
check "a run" run
check "layout and data are plmkit's" equal chain results
check "the page has both samples on its map" on_page results 'Embeddings in results' '<td>a</td>' '<td>b</td>' 'by the first two principal components of mean_4'
check "what could not be embedded is listed" grep ',not_finite,' results/a/rejects/shard-00000.csv results/b/rejects/shard-00000.csv
same "all programs have a version" 5 "$(grep -cE '^  (fasta-shard|pack-batches|gpu-embed|validate-embeddings|monitor-log): [0-9.]+$' results/versions.yml)"
check "benchmarks" test -s benchmarks/a/shard-00000.embed.tsv -a -s benchmarks/summary.tsv
same "in every rule" "$(grep -chE '^(rule|checkpoint) ' "$flow"/workflow/rules/*.smk | paste -sd +)" "$(grep -ch '^    benchmark:' "$flow"/workflow/rules/*.smk | paste -sd +)"
check "a second run does nothing" grep -q 'Nothing to be done' <(run 2>&1)
check "the report of Snakemake" run --report report.html
for entry in summary.tsv index.html a_validation_mqc.json run.json; do
    check "it has $entry" grep -q "$entry" report.html
done

echo "what is lost comes back"
rm results/a/embeddings/shard-00001.parquet
# As a killed run leaves it; `equal` sees whether it goes.
mkdir -p results/a/batches
touch -d 2020-01-01 results/a/batches/shard-00000.arrow
same "embeddings: only their chain runs" "all:1 embed:1 pack:1 page:1 recompute:3 run_report:1 summary:1 validate:1" "$(jobs)"
check "they come back" run
check "the same" equal chain results
rm results/a/shards/rejects.csv
same "the rejects of the input: only they and the validation" "all:1 page:1 recompute:3 restore:1 summary:1 validate:1" "$(jobs)"
check "they come back" run
check "the same" equal chain results
rm results/a/shards/shard-00001.parquet
same "a shard: only it and its chain run" "all:1 embed:1 pack:1 page:1 recompute:3 restore:1 run_report:1 summary:1 validate:1" "$(jobs)"
touch before
check "it comes back" run
check "the same" equal chain results
same "nothing else was made" "embeddings/shard-00001.parquet shards/shard-00001.parquet" \
    "$(cd results/a && find shards embeddings rejects -type f -newer ../../before | sort | paste -sd ' ')"
check "then nothing is to do" grep -q 'Nothing to be done' <(run 2>&1)

echo "what must not pass"
cp results/a/embeddings/shard-00000.parquet results/a/embeddings/shard-00009.parquet
check "embeddings of no shard fail the workflow" fails run --forcerun results/a/reports/a_validation_mqc.json
check "its report is kept" grep -q '"outcome": "fail"' results/a/dataset.json
check "and on the page" on_page results 'a: the validation failed'
rm results/a/embeddings/shard-00009.parquet
check "without them it passes" run
check "and the page tells of no other run" fails on_page results 'the validation failed'
check "a wrong option" refuses "Additional properties.*max_shard_token'" --config max_shard_token=5
check "a wrong value" refuses "'many' is not of type 'integer'" --config max_shard_tokens=many
for lines in 'name,fasta\na,b.fasta' 'sample,fasta\na/b,b.fasta' 'sample,fasta\na,' 'sample,fasta' 'sample,fasta\nversions.yml,b.fasta' \
    'sample,fasta\na,b.fasta\na,b.fasta'; do
    printf %b "$lines\n" >wrong.csv
    check "samples of '$lines'" refuses '^plmkit: wrong.csv: (line [123]: |no samples)' --config samples=wrong.csv outdir=refused
    grep '^plmkit: wrong.csv' refused.log
done
check "no table" refuses '^ +none.csv$' --config samples=none.csv outdir=refused
check "no model" refuses "^plmkit: ./none: cannot open" --config model=./none outdir=refused
printf 'sample,fasta\nc,nowhere.fasta\n' >wrong.csv
check "a FASTA that is not there" refuses '^plmkit: .*nowhere.fasta: cannot open' --config samples=wrong.csv outdir=refused

echo "what is looked at first"
printf 'protein\n' >none.fasta
printf 'sample,fasta\na,%s\nb,none.fasta\n' "$proteins" >wrong.csv
check "what is no FASTA" refuses "^plmkit: sample 'b': none.fasta: not FASTA: expected '>'" --config samples=wrong.csv outdir=refused
check "another size of shards" refuses '^results/a: was cut with a max_shard_tokens of 20000, which is now 30000' --config max_shard_tokens=30000
mkdir bare
check "a model that is none" refuses "^plmkit: bare: expected " --config model=bare outdir=refused
HF_HUB_CACHE=$work check "a model of the Hub that is not there" refuses "^plmkit: some/model: no such file or folder" --config model=some/model outdir=refused
commit=0123456789abcdef0123456789abcdef01234567
mkdir -p hub/models--some--model/{refs,snapshots}
echo $commit >hub/models--some--model/refs/main
cp -r "$model" hub/models--some--model/snapshots/$commit
HF_HUB_CACHE=$work/hub check "one that is there" run --config model=some/model outdir=hub-results
check "versions.yml says which revision" grep -x "  some/model: $commit" hub-results/versions.yml
same "the parameters of the run, as JSON" "some/model 20000 False" "$(python3 -c '
import json
found = json.load(open("hub-results/pipeline_info/params.json"))
print(found["model"], found["max_shard_tokens"], found["allow_empty"])')"
check "with which it runs again" grep -q 'Nothing to be done' <(HF_HUB_CACHE=$work/hub snakemake --snakefile "$flow/workflow/Snakefile" \
    --configfile hub-results/pipeline_info/params.json --cores 2 2>&1)

echo "samples"
cp -r "$model" weights
cp "$proteins" 'a, "b".fasta'
printf '>x\nACD\n>x\nACD\n' >twice.fasta
printf '>x\nA-D\n>y\n-\n' >gaps.fasta
# Of a spreadsheet, with an empty value for each option that has a default.
printf '\xef\xbb\xbf"fasta","sample"\r\n"a, ""b"".fasta","a"\r\n\r\ntwice.fasta,bad\r\n' >table.csv
printf 'samples: table.csv\noutdir: mixed\nmodel: weights\nmax_shard_tokens: 20000\nallow_empty:\nimages:\noptions:\n  fasta_shard:\n  gpu_embed: --device cpu\n' >mixed.yaml
mixed() { snakemake --snakefile "$flow/workflow/Snakefile" --configfile mixed.yaml --cores 2 "$@" >mixed.log 2>&1; }
said() { grep -E -- "$1" mixed.log; }
check "a sample that cannot be cut fails the workflow" fails mixed
check "which names it" said '^not validated, .*: bad$'
check "the page has both" on_page mixed '<td>a</td>' '<td>bad</td>' 'not validated'
same "in the table, too" "a 100 pass,bad 0 not validated," "$(tail -n +2 mixed/summary.tsv | sort | cut -f 1,3,8 | tr '\t\n' ' ,')"
check "and shows why" said "^fasta-shard: twice.fasta: record 2 'x'"
check "the other one has its verdict" grep -q '"outcome": "pass"' mixed/a/dataset.json
check "and all of its embeddings" test "$(grep -o '"rows": 100' mixed/a/dataset.json | head -n 1)"
printf 'sample\tfasta\na\ta, "b".fasta\nempty\tgaps.fasta\n' >table.csv
sed -i 's/fasta_shard:/fasta_shard: --invalid reject/' mixed.yaml
check "so does one without a record that is taken" fails mixed
check "which is told" said '^no record could be embedded.*: empty$'
check "and once more by the next run" fails mixed
check "unless it is allowed" mixed --config allow_empty=True
check "then it is a warning" said '^warning: no record could be embedded.*: empty$'
check "beside the totals" said '^2 samples: 100 rows, 2 rejected, 8 truncated, in mixed$'
same "and in the table" "empty 2 0 2 0 0 0 empty" "$(grep ^empty mixed/summary.tsv | cut -f 1-8 | tr '\t' ' ')"
# With the time of the old ones: a change that is not newer counts, too.
reweigh weights
touch -d 2020-01-01 weights/model.safetensors
check "other weights at the same path" mixed --config allow_empty=True
same "make all embeddings again" 4 "$(grep -c 'rule embed:' mixed.log)"
check "which are of another model" fails cmp mixed/a/embeddings/shard-00000.parquet results/a/embeddings/shard-00000.parquet
sed -i '2s/^MITN/MKTN/' 'a, "b".fasta'
touch -d 2020-01-01 'a, "b".fasta'
check "another FASTA of an older date" mixed --config allow_empty=True
same "is cut again" 1 "$(grep -c 'checkpoint shard:' mixed.log)"
printf '>x\nMKV>y\n' >>'a, "b".fasta'
check "a FASTA that broke fails" fails mixed --config allow_empty=True
same "which the table tells" "a 0 0 not validated" "$(grep ^a mixed/summary.tsv | cut -f 1-3,8 | tr '\t' ' ')"
check "and the next run does not take it for its own" fails mixed --config allow_empty=True

[[ ${STOP:-} ]] && exit 3
echo "batch size"
rm -rf results
cat >config.yaml <<CONF
samples: samples.csv
model: $model
max_shard_tokens: 20000
options: {gpu_embed: $small_device}
CONF
MAX_SHARD_TOKENS=20000 GPU_EMBED=$small_device check "plmkit" chain samples.csv small "$model"
same "what plmkit measured" 4096 "$(packed_with small)"
check "a run" run
same "it is measured once" 1 "$(grep -l ' tokens fit$' logs/*.log logs/*/*.log | wc -l)"
check "layout and data are plmkit's" equal small results
check "a second run does nothing" grep -q 'Nothing to be done' <(run 2>&1)
rm results/a/embeddings/shard-00001.parquet
same "embeddings that were lost come back without another measurement" "all:1 embed:1 pack:1 page:1 recompute:3 run_report:1 summary:1 validate:1" "$(jobs)"
check "they come back" run
check "the same" equal small results
rm -rf results
check "a size by hand" run --config "options={gpu_embed: $small_device, pack_batches: --max-batch-tokens 2048}"
same "is what batches hold, and none is measured" "2048 none" "$(packed_with results) $(ls results/batch-size.json 2>/dev/null || echo none)"

echo "interruptions"
many_in_snakemake "$work/results" long
rm -rf results
run >run.log 2>&1 &
check "gpu-embed saves" until_true 60 halt long shard-00000
kill -9 "$(embedding long shard-00000)"
check "gpu-embed killed: Snakemake tries again" wait $!
check "and goes on from what was saved" test "$(saved results/long/logs/shard-00000.events.jsonl)" -gt 0
check "the same as uninterrupted" equal uninterrupted results

rm -rf results
setsid bash -c 'exec "$@"' - snakemake --snakefile "$flow/workflow/Snakefile" --configfile config.yaml --cores 2 >run.log 2>&1 &
check "gpu-embed saves" until_true 60 halt long shard-00000
cp -a results/long/embeddings/.shard-00000.parquet.plmkit-run saved
kill -9 -- -$!
sleep 0.5
check "nothing of it goes on" fails embedding long shard-00000
check "the folder is locked" fails run
check "unlock" run --unlock
check "the rest" run
check "it went on from what was saved" test "$(saved results/long/logs/shard-00000.events.jsonl)" -gt 0
check "the same as uninterrupted" equal uninterrupted results
mv saved results/long/embeddings/.shard-00000.parquet.plmkit-run
check "with other options what was saved is replaced" run --config options='{"gpu_embed": "--device cpu --pool max"}'
