#!/usr/bin/env bash
# plmkit: what it takes, what it refuses before any work, and what it does with results that are there.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/checks.sh"
export GPU_EMBED='--device cpu' MAX_SHARD_TOKENS=30000
digests() { if [[ -e $1 ]]; then find "$1" -type f -exec sha256sum {} + | sort; fi; }
# refuses CODE PATTERN TABLE OUTDIR MODEL…: it ends with this code, with one line, and changes nothing.
refuses() {
    local code=0 expected=$1 pattern=$2 before
    shift 2
    before=$(digests "$2")
    chain "$@" 2>refused.log || code=$?
    [[ $code -eq $expected && $(wc -l <refused.log) -eq 1 && $(digests "$2") == "$before" ]] && grep -E -- "$pattern" refused.log
}

differ() { ! cmp "$@"; }

awkward="it's a \$(few) \$HOME *.fasta"
head -n 40 "$proteins" >"$awkward"
gzip <"$awkward" >./-few.fasta.gz
printf '\xef\xbb\xbfnotes,sample,fasta\r\nx,a,%s\r\n,a_b,-few.fasta.gz\r\n,c,-few.fasta.gz' "$awkward" >samples.csv
check "names that a shell would read, columns in any order, a table from a spreadsheet" chain samples.csv "results of a" "$model"
same "three samples" "a a_b c" "$(find "results of a" -name dataset.json -exec grep -l '"outcome": "pass"' {} + | cut -d / -f 2 | sort | paste -sd ' ')"
same "versions of all programs" 5 "$(grep -cE '^  [a-z-]+: [0-9.]+$' "results of a/versions.yml")"

touch before
check "a second run passes" chain samples.csv "results of a" "$model"
same "and embeds nothing" "" "$(find "results of a" -name '*.parquet' -newer before)"
mkdir "results of a/a/batches"
touch "results of a/a/batches/shard-00000.arrow"
check "so does one after a kill at the very end" chain samples.csv "results of a" "$model"
check "which leaves nothing behind" test ! -e "results of a/a/batches"

echo "batch size"
same "the default on a CPU" 16384 "$(packed_with "results of a")"
printf 'sample,fasta\na,%s\n' "$proteins" >all.csv
measures() { GPU_EMBED=$small_device chain all.csv small "$model" 2>measured.log; }
loses() { rm small/a/embeddings/*; }
is_explicit() { diff -r small/a/embeddings explicit/a/embeddings; }
check "a small device" measures
same "batches hold what was measured" 4096 "$(packed_with small)"
same "which was measured once, for two shards" "1 2" "$(grep -c '5120 tokens fit at once' measured.log) $(find small -path '*/embeddings/*' -type f | wc -l)"
PACK_BATCHES='--max-batch-tokens 4096' GPU_EMBED=$small_device check "the same size by hand" chain all.csv explicit "$model"
check "measures nothing" test ! -e explicit/batch-size.json
check "and gives the same embeddings" is_explicit
inode=$(stat -c %i small/batch-size.json)
loses
check "embeddings that were lost come back" measures
same "without another measurement" "$inode 1" "$(stat -c %i small/batch-size.json) $(grep -c 'batch-size.json: already measured' measured.log)"
check "the same" is_explicit
# What another GPU would have measured, and a shard that was packed for it.
check "a size of other outputs" gpu-embed --probe --model "$model" --device cpu --inject out-of-memory-above=3000 --pool max --out small/batch-size.json --force
loses
mkdir small/a/batches
pack-batches small/a/shards/shard-00000.parquet --out small/a/batches/shard-00000.arrow --batch-size small/batch-size.json --quiet
gpu-embed small/a/batches/shard-00000.arrow --model "$model" --device cpu --out kept.parquet --quiet
check "is measured again" measures
check "and said to be of other work" grep -F 'columns was ["max_4"] and is now ["mean_4"]' measured.log
check "a shard that is packed keeps its batches" cmp kept.parquet small/a/embeddings/shard-00000.parquet
check "which are others" differ kept.parquet explicit/a/embeddings/shard-00000.parquet
check "one that is not packed gets those of the new size" cmp {small,explicit}/a/embeddings/shard-00001.parquet

check "another model" refuses 73 "^plmkit: results of a: has embeddings of other settings \(model was .* and is now .*\); expected another folder, or --force, which replaces them$" samples.csv "results of a" "$model-bin"
GPU_EMBED='--device cpu --pool max' check "other options" refuses 73 'has embeddings of other settings \(columns was \["mean_4"\] and is now \["max_4"\]\); exp' samples.csv "results of a" "$model"
GPU_EMBED='--pool mean,max --layers 2 --device cpu' check "options" chain samples.csv "an \"order\"" "$model"
touch before
GPU_EMBED=' --download --layers=2  --threads 1 --device=cpu --pool mean,max' check "the same in another order, and what changes no value" \
    chain samples.csv "an \"order\"" "$(realpath --relative-to . "$model")/"
same "embeds nothing" "" "$(find "an \"order\"" -name '*.parquet' -newer before)"
same "the parameters of the run, as JSON" "an \"order\" 30000 False" "$(python3 -c '
import json, sys
found = json.load(open(sys.argv[1]))
print(found["outdir"], found["max_shard_tokens"], found["allow_empty"])' "an \"order\"/pipeline_info/params.json")"

echo "what is lost, changed or refused"
digest() { sed -n 's/^  "model_digest": "\([0-9a-f]\{32\}\)",$/\1/p' "$1"; }
finds() { grep -E -- "$1" log; }
runs() { chain "$@" 2>log; }
fails_with() {
    local code=0 expected=$1
    chain "${@:2}" 2>log || code=$?
    cat log
    [[ $code -eq $expected ]]
}
check "a run" runs all.csv lost "$model"
cp -r lost whole
check "one report for all shards, and no list where nothing was rejected" test -s lost/a/reports/run.json -a ! -e lost/a/rejects
rm lost/a/embeddings/shard-00000.parquet
check "embeddings that were lost come back" runs all.csv lost "$model"
check "the same" diff -r whole/a/embeddings lost/a/embeddings
GPU_EMBED='--device cpu --inject not-finite=3' check "a sequence that cannot be embedded" runs all.csv rejecting "$model"
same "is listed, and there is no other list" "rejects/shard-00000.csv" "$(cd rejecting/a && find rejects -type f)"
cp -r rejecting/a/rejects listed
rm rejecting/a/rejects/shard-00000.csv
export GPU_EMBED='--device cpu --inject not-finite=3'
check "without its list the validation fails" fails_with 1 all.csv rejecting "$model"
check "and names the sequence" finds "first: ordinal 3 .*: missing$"
rm rejecting/a/embeddings/shard-00000.parquet
check "with the embeddings removed both come back" runs all.csv rejecting "$model"
check "the same" diff -r listed rejecting/a/rejects
export GPU_EMBED='--device cpu'
rm lost/a/shards/{shard-00001.parquet,rejects.csv}
touch before
check "a shard and the list of rejects that were lost are made again" runs all.csv lost "$model"
check "the same" diff -r whole/a/shards lost/a/shards
same "and nothing is embedded again" "" "$(find lost/a/embeddings -newer before)"
printf XXXX | dd of=lost/a/embeddings/shard-00000.parquet bs=1 seek=10000 conv=notrunc status=none
check "embeddings that are damaged fail" fails_with 65 all.csv lost "$model"
GPU_EMBED="$GPU_EMBED --force" check "and are replaced where --force of gpu-embed says so" runs all.csv lost "$model"
check "the same" diff -r whole/a/embeddings lost/a/embeddings
same "two lines for each shard, one for the sample, and totals, verdict, page and table" "9" "$(rm -rf lost && chain all.csv lost "$model" 2>&1 | grep -vc warning:)"
check "the summary" finds '^plmkit: 1 sample: 100 rows, 0 rejected, 8 truncated, in lost$'
same "as a table" "a 100 100 0 0 0 8 pass model-tiny $(digest lost/a/dataset.json)" "$(tail -n +2 lost/summary.tsv | tr '\t' ' ')"
cp -r "$model" weights
check "a model" runs all.csv weighed weights
reweigh weights
check "other weights at its path are refused" fails_with 73 all.csv weighed weights
check "in so many words" finds '^plmkit: weighed: has embeddings of other settings \(model was .* and is now .*\); expected another folder, or --force, which replaces them$'
rm weighed/pipeline_info/params.json
check "without what says how they were made each shard is compared" fails_with 73 all.csv weighed weights
check "and other weights are found" finds '^plmkit: weighed: has embeddings of other settings .model was'
check "by the next run, too" fails_with 73 all.csv weighed weights
cp "$model"/model.safetensors weights/
check "while the same weights are taken" runs all.csv weighed weights
check "and nothing is embedded again" test ! weighed/a/embeddings/shard-00000.parquet -nt weights/model.safetensors
check "from then on as before" test -s weighed/pipeline_info/params.json
reweigh weights
check "a run of other weights" runs all.csv weighed2 weights
cp -r weighed2/a lost/b
check "samples of two models in one folder" fails_with 1 all.csv lost "$model"
check "are found" finds "^plmkit: embedded by different models.*: $(digest lost/a/dataset.json) \(a\) $(digest lost/b/dataset.json) \(b\)$"
head -n 100 "$proteins" >short.fasta
printf 'sample,fasta\nb,short.fasta\n' >short.csv
cp -r whole shorter
mv shorter/a shorter/b
check "a FASTA that became shorter is refused" fails_with 73 short.csv shorter "$model"
check "and taken where --force says so" runs short.csv shorter "$model" --force
same "of which nothing of other shards stays" "" "$(find shorter -name '*shard-00001*')"
touch shorter/b/embeddings/shard-00009.parquet
check "files of no shard fail" fails_with 65 short.csv shorter "$model"
check "and are named" finds '^plmkit: b: files of no shard of this run, remove them: shorter/b/embeddings/shard-00009.parquet$'
rm shorter/b/embeddings/shard-00009.parquet
rm -r lost/b
mkdir -p lost/{old,older}/shards
touch lost/{old,older}/shards/manifest.json
check "samples that are not in the table" runs all.csv lost "$model"
check "are told of" finds '^plmkit: samples of earlier runs, left as they are: old older$'
rm -r lost/old*
MAX_SHARD_TOKENS=20000 check "another size of shards" refuses 73 '^plmkit: lost/a/shards/manifest.json: .*max_shard_tokens was 30000 and is now 20000' all.csv lost "$model"
FASTA_SHARD='--long-policy window' check "other shards are refused" fails_with 73 all.csv lost "$model"
check "with an option" finds '--force replaces it$'
FASTA_SHARD='--long-policy window' check "which is taken" runs all.csv lost "$model" --force
FASTA_SHARD='--long-policy window' check "and gives what a new folder has" runs all.csv windows "$model"
check "the same" diff -r windows/a/embeddings lost/a/embeddings

echo "duplicates and an earlier dataset"
sed 's/^>/>again_/' "$proteins" | cat "$proteins" - >twofold.fasta
printf 'sample,fasta\na,twofold.fasta\n' >twofold.csv
FASTA_SHARD=--dedup check "each sequence once" runs twofold.csv deduplicated "$model"
same "200 records, 100 rows, 100 aliases" "200 100 0 100 0 8 pass" "$(cut -f 2-8 deduplicated/summary.tsv | tail -n 1 | tr '\t' ' ')"
{ cat twofold.fasta && printf '>new\nMKVLAAGGWYTREDSSKLMN\n'; } >threefold.fasta
printf 'sample,fasta\nb,threefold.fasta\n' >threefold.csv
FASTA_SHARD="--dedup --known $work/deduplicated/a" check "and none of an earlier dataset" runs threefold.csv later "$model"
check "and in the totals" finds '^plmkit: 1 sample: 1 row, 0 rejected, 200 known, 0 truncated, in later$'
same "201 records, 1 row" "201 1 0 0 200 0 pass" "$(cut -f 2-8 later/summary.tsv | tail -n 1 | tr '\t' ' ')"
check "all records in one file" query-embeddings combine later/b --known deduplicated/a --out combined
check "which is a dataset" grep -q '"rows": 201,' combined/dataset.json

echo "samples that fail"
printf '>x\nACD\n>x\nACD\n' >twice.fasta
printf '>x\nA-D\n>y\n-\n' >gaps.fasta
printf 'sample,fasta\nbad,twice.fasta\na,%s\n' "$proteins" >cohort.csv
check "a record that is wrong fails the run" fails_with 65 cohort.csv cohort "$model"
check "which says of which sample" finds '^plmkit: not validated, .*: bad$'
same "the other one has its verdict" "bad not validated a pass" "$(tail -n +2 cohort/summary.tsv | cut -f 1,8 | paste -sd '\t' | tr '\t' ' ')"
check "and the same embeddings" diff -r whole/a/embeddings cohort/a/embeddings
printf 'sample,fasta\nempty,gaps.fasta\na,%s\n' "$proteins" >cohort.csv
printf 'sample,fasta\nempty,gaps.fasta\n' >alone.csv
FASTA_SHARD='--invalid reject' check "no record that is taken" fails_with 1 alone.csv alone "$model"
check "is a failure" finds '^plmkit: no record could be embedded.*: empty$'
FASTA_SHARD='--invalid reject' check "unless that is allowed" runs alone.csv alone "$model" --allow-empty
FASTA_SHARD='--invalid reject' check "or another sample has some" runs cohort.csv empty "$model"
check "a warning" finds '^plmkit: warning: no record could be embedded.*: empty$'
same "and in the table" "empty 2 0 2 0 0 0 empty" "$(grep ^empty empty/summary.tsv | cut -f 1-8 | tr '\t' ' ')"

echo "what is looked at first"
cp -- "$proteins" 'a, "b".fasta'
for lines in 'sample\tfasta\na\ta, "b".fasta\n' '\xef\xbb\xbf"sample","fasta"\r\n"a","a, ""b"".fasta"\r\n\r\n,\r\n' ' fasta , sample \n"a, ""b"".fasta" , a'; do
    printf %b "$lines" >table.csv
    rm -rf table
    check "a table '${lines//\\/\\\\}'" runs table.csv table "$model"
    check "is read" diff -r whole/a/embeddings table/a/embeddings
done
printf 'protein\n' >none.fasta
printf 'BZh91AY' >packed.fasta
: >empty.fasta
: | gzip >empty.fasta.gz
for wrong in '65|expected the columns sample,fasta|name,fasta\na,-few.fasta.gz\n' "65|line 2: sample name 'a b'|sample,fasta\na b,-few.fasta.gz\n" \
    "66|^plmkit: sample 'b': none: cannot open|sample,fasta\na,-few.fasta.gz\nb,none\n" '65|no samples|sample,fasta\n' \
    '65|line 2: a line break in a cell|sample,fasta\na,"-few.fasta.gz\n' \
    "65|^plmkit: sample 'b': none.fasta: not FASTA: expected '>' .*, found 'protein'|sample,fasta\na,-few.fasta.gz\nb,none.fasta\n" \
    "65|^plmkit: sample 'a': empty.fasta: no FASTA records|sample,fasta\na,empty.fasta\n" "65|^plmkit: sample 'a': empty.fasta.gz: no FASTA records|sample,fasta\na,empty.fasta.gz\n" \
    "65|^plmkit: sample 'a': packed.fasta: expected plain, gzip, bgzip or zstd, found bzip2|sample,fasta\na,packed.fasta\n"; do
    IFS='|' read -r code pattern lines <<<"$wrong"
    printf %b "$lines" >wrong.csv
    check "$pattern" refuses "$code" "$pattern" wrong.csv refused "$model"
    check "without a folder" test ! -e refused
done
check "no table" refuses 66 '^plmkit: none.csv: cannot open' none.csv refused "$model"
printf 'sample,fasta\na b,x\nb,none\nmultiqc,x\nc,empty.fasta\nc,none.fasta\nc,none.fasta\n' >wrong.csv
check "seven errors" fails_with 65 wrong.csv refused ./none
same "are all told, a line each" "8 plmkit: 7 errors, see above; nothing was changed" "$(wc -l <log) $(tail -n 1 log)"
check "and nothing is done" test ! -e refused
GPU_EMBED='--frobnicate' check "an unknown option" refuses 2 "^plmkit: unexpected argument '--frobnicate' found" samples.csv refused "$model"
mkdir bare other
check "no model" refuses 66 "^plmkit: ./none: cannot open" samples.csv refused ./none
cp "$model/config.json" bare
check "a model without weights" refuses 66 "^plmkit: bare: expected model.safetensors, pytorch_model.bin or an index" samples.csv refused bare
cp "$model/model.safetensors" other
echo '{"model_type": "bert"}' >other/config.json
check "another kind of model" refuses 65 '^plmkit: other/config.json: .*"esm"' samples.csv refused other
HF_HUB_CACHE=$work check "a model of the Hub that is not there" refuses 66 "^plmkit: some/model: no such file or folder, and .*; --download fetches it" samples.csv refused some/model
commit=0123456789abcdef0123456789abcdef01234567
mkdir -p hub/models--some--model/{refs,snapshots}
echo $commit >hub/models--some--model/refs/main
cp -r "$model" hub/models--some--model/snapshots/$commit
for revision in '' @main @$commit; do
    HF_HUB_CACHE=$work/hub check "one that is there: some/model$revision" runs all.csv "hub$revision" "some/model$revision"
    check "is the same" diff <(grep '"digest"' whole/a/dataset.json) <(grep '"digest"' "hub$revision/a/dataset.json")
    check "and says what it is" grep -qx "  \"model_revision\": \"$commit\"," "hub$revision/a/dataset.json"
    check "versions.yml says which revision" grep -x "  some/model$revision: $commit" "hub$revision/versions.yml"
done
printf '>x\nACD\n' >one.fasta
printf 'sample,fasta\na,one.fasta\n' >one.csv
check "a protein" runs one.csv one "$model"
check "is one row" finds '^plmkit: 1 sample: 1 row, 0 rejected, 0 truncated, in one$'
check "FASTA files without a table" plmkit one.fasta "a, \"b\".fasta" --out files --model "$model" --device cpu
check "are samples with their names" test -s files/one/dataset.json -a -s files/a___b_/dataset.json
mkdir -p linked/a && ln -s a linked/b
printf 'sample,fasta\na,one.fasta\nb,one.fasta\n' >linked.csv
check "two samples in one folder" refuses 73 "linked/b: the folder of sample 'a', too" linked.csv linked "$model"
check "a file in place of the folder" refuses 73 "one.fasta: expected a folder, found a file" one.csv one.fasta "$model"
check "--help" grep -q -- '--max-shard-tokens' <(plmkit --help)
check "--version" grep -qE '^plmkit [0-9.]+$' <(plmkit --version)

echo "a signal to plmkit alone"
many 8 >many.fasta
printf 'sample,fasta\nlong,many.fasta\nnext,%s\n' "$proteins" >many.csv
export MAX_SHARD_TOKENS=200000 FASTA_SHARD='--duplicate-ids suffix' PACK_BATCHES='--max-batch-tokens 4096' GPU_EMBED='--device cpu --checkpoint-interval 10ms'
check "uninterrupted" runs many.csv uninterrupted "$model"
for signal in TERM INT KILL; do
    # Of a background process without job control, a shell has INT ignored.
    # shellcheck disable=SC2086  # a word each
    python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])' \
        plmkit many.csv --out "$work/results" --model "$model" --max-shard-tokens "$MAX_SHARD_TOKENS" $FASTA_SHARD \
        $PACK_BATCHES $GPU_EMBED >log 2>&1 &
    script=$!
    check "it saves" until_true 60 saves long shard-00000
    kill -$signal $script
    code=0
    wait $script 2>check.log || code=$?
    same "plmkit ends by a SIG$signal" "$((128 + $(kill -l $signal)))" "$code"
    check "and begins no other sample" test ! -e results/next/embeddings/shard-00000.parquet
done
check "the same command" runs many.csv "$work/results" "$model"
check "goes on from what was saved" test "$(saved results/long/logs/shard-00000.events.jsonl)" -gt 0
check "the same as uninterrupted" equal uninterrupted results
