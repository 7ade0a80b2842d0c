#!/usr/bin/env bash
# The chain as a shell script: what it takes, what it refuses before any work, and what it does with results that are there.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/../checks.sh"
export GPU_EMBED='--device cpu' MAX_SHARD_TOKENS=30000
chain() { "$root/workflows/shell/plmkit.sh" "$@"; }
# refuses CODE PATTERN ARGS…: it ends with this code, with one line, and has done nothing.
refuses() {
    local code=0 expected=$1 pattern=$2
    shift 2
    chain "$@" 2>refused.log || code=$?
    [[ $code -eq $expected && $(wc -l <refused.log) -eq 1 ]] && grep -E "$pattern" refused.log && [[ ! -e refused ]]
}

differ() { ! cmp "$@"; }

awkward="it's a \$(few) \$HOME *.fasta"
head -n 40 "$proteins" >"$awkward"
gzip <"$awkward" >./-few.fasta.gz
printf '\xef\xbb\xbfnotes,sample,fasta\r\nx,a,%s\r\n,a_b,-few.fasta.gz\r\n,c,-few.fasta.gz' "$awkward" >samples.csv
check "names that a shell would read, columns in any order, a table from a spreadsheet" chain samples.csv "results of a" "$model"
same "three samples" "a a_b c" "$(find "results of a" -name validation.json -exec grep -l '"outcome": "pass"' {} + | cut -d / -f 2 | sort | paste -sd ' ')"
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
same "which was measured once, for two shards" "1 2" "$(grep -c '5120 tokens fit at once' measured.log) $(find small -name '*.pack.json' | wc -l)"
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

check "another model" refuses 73 "has embeddings of MODEL=$model: take another folder" samples.csv "results of a" "$root/test-data/model-bin"
GPU_EMBED='--device cpu --pool max' check "other options" refuses 73 'has embeddings of GPU_EMBED=--device cpu: take' samples.csv "results of a" "$model"

for wrong in '65|expected the columns sample,fasta|name,fasta\na,-few.fasta.gz\n' "65|line 2: sample name 'a b'|sample,fasta\na b,-few.fasta.gz\n" \
    "65|line 2: sample name ''|sample,fasta\n,-few.fasta.gz\n" "65|line 2: sample name '\.\.'|sample,fasta\n..,-few.fasta.gz\n" \
    "65|line 2: sample name '\*'|sample,fasta\n*,-few.fasta.gz\n" "65|line 2: sample name 'multiqc'|sample,fasta\nmultiqc,-few.fasta.gz\n" \
    "66|line 3: no file 'none'|sample,fasta\na,-few.fasta.gz\nb,none\n" '65|no samples|sample,fasta\n' \
    "65|'-few.fasta.gz' of 'a' is there twice|sample,fasta\na,-few.fasta.gz\na,-few.fasta.gz\n" '65|line 2: quotes|sample,fasta\n"a",-few.fasta.gz\n'; do
    IFS='|' read -r code pattern lines <<<"$wrong"
    printf %b "$lines" >wrong.csv
    check "$pattern" refuses "$code" "$pattern" wrong.csv refused "$model"
done
check "no table" refuses 66 '^none.csv: no file' none.csv refused "$model"
check "usage" grep -q 'MAX_SHARD_TOKENS' <(chain 2>&1 || true)
