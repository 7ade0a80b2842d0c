#!/usr/bin/env bash
# What Nextflow and Snakemake share: a look at the table, the FASTA and the model before a run, and the estimate.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/checks.sh"
inputs() { "$root/workflows/engines/inputs.sh" "$1" "$2" results 30000; }
# refuses CODE PATTERN TABLE MODEL: it ends with this code and one line.
refuses() {
    local code=0
    inputs "${@:3}" 2>refused.log >/dev/null || code=$?
    [[ $code -eq $1 && $(wc -l <refused.log) -eq 1 ]] && grep -E "$2" refused.log
}

gzip <"$proteins" >./-few.fasta.gz
cp -- "$proteins" 'a, "b".fasta'
for lines in 'sample\tfasta\na\ta, "b".fasta\n' '\xef\xbb\xbf"sample","fasta"\r\n"a","a, ""b"".fasta"\r\n\r\n,\r\n' ' fasta , sample \n"a, ""b"".fasta" , a'; do
    printf %b "$lines" >table.csv
    same "a table '${lines//\\/\\\\}'" $'a\ta, "b".fasta' "$(inputs table.csv "$model" | tail -n +2)"
done
printf 'protein\n' >none.fasta
printf 'BZh91AY' >packed.fasta
: >empty.fasta
: | gzip >empty.fasta.gz
for wrong in '65|expected the columns sample,fasta|name,fasta\na,-few.fasta.gz\n' "65|line 2: sample name 'a b'|sample,fasta\na b,-few.fasta.gz\n" \
    "65|line 2: sample name ''|sample,fasta\n,-few.fasta.gz\n" "65|line 2: sample name '\.\.'|sample,fasta\n..,-few.fasta.gz\n" \
    "65|line 2: sample name '\*'|sample,fasta\n*,-few.fasta.gz\n" "65|line 2: sample name 'multiqc'|sample,fasta\nmultiqc,-few.fasta.gz\n" \
    "66|line 3: no file 'none'|sample,fasta\na,-few.fasta.gz\nb,none\n" '65|no samples|sample,fasta\n' \
    "65|'-few.fasta.gz' of 'a' is there twice|sample,fasta\na,-few.fasta.gz\na,-few.fasta.gz\n" \
    "65|is there twice|sample,fasta\na,-few.fasta.gz\na,./-few.fasta.gz\n" \
    '65|line 2: a quote that does not end|sample,fasta\na,"-few.fasta.gz\n' '65|line 2: expected the end of the cell|sample,fasta\n"a"b,-few.fasta.gz\n' \
    '65|line 1: the column sample is there twice|sample,fasta,sample\na,-few.fasta.gz,b\n' \
    '65|line 3: expected 2 columns, found 3|sample,fasta\na,-few.fasta.gz\nb,a,b.fasta\n' \
    "65|^none.fasta: not FASTA: expected '>' .*, found 'protein'|sample,fasta\na,-few.fasta.gz\nb,none.fasta\n" \
    '65|^empty.fasta: no FASTA records|sample,fasta\na,empty.fasta\n' '65|^empty.fasta.gz: no FASTA records|sample,fasta\na,empty.fasta.gz\n' \
    '65|^packed.fasta: expected plain, gzip, bgzip or zstd, found bzip2|sample,fasta\na,packed.fasta\n'; do
    IFS='|' read -r code pattern lines <<<"$wrong"
    printf %b "$lines" >wrong.csv
    check "$pattern" refuses "$code" "$pattern" wrong.csv "$model"
done
check "no table" refuses 66 '^none.csv: no file' none.csv "$model"
printf 'sample,fasta\na,-few.fasta.gz\n' >samples.csv
mkdir bare other
check "no model" refuses 66 "^model: no folder './none'" samples.csv ./none
check "a folder that is none" refuses 66 "^model: 'bare': no bare/config.json" samples.csv bare
cp "$model/config.json" bare
check "a model without weights" refuses 66 "^model: 'bare': no weights" samples.csv bare
echo '{"model_type": "bert"}' >other/config.json
check "another kind of model" refuses 65 '^model: other/config.json: expected "model_type": "esm"' samples.csv other
for relative in model-tiny-esmc model-tiny-1v model-tiny-esmc-pth{,/data/weights/esmc_tiny.pth}; do
    check "a relative of ESM-2: $relative" inputs samples.csv "$root/test-data/$relative"
done
HF_HUB_CACHE=$work check "a model of the Hub that is not there" refuses 66 "^model: 'some/model' is not in the Hub's cache" samples.csv some/model

echo "the price"
fasta-shard "$proteins" --out shards --max-shard-tokens 30000 --quiet
estimate() { "$root/workflows/engines/estimate.sh" "$model" "$@"; }
check "what GPUs will need, of the options that decide it" grep -qx '.*: 4 layers of 64, mean_2, max_2 in f16' <(estimate '--device=cuda --pool mean,max --layers 2 --store-dtype f16 --threads 2' 4 shards)
check "and how many files there will be" grep -qx 'files  20' <(estimate '--device cuda' '' shards/manifest.json)
same "nothing of CPUs" "" "$(estimate '--device cpu' 1 shards)"
check "no estimate is no failure" estimate '--device cuda' '' none

