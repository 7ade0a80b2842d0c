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
