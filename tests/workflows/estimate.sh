#!/usr/bin/env bash
# The estimate that Nextflow and Snakemake share.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/checks.sh"
fasta-shard "$proteins" --out shards --max-shard-tokens 30000 --quiet
estimate() { "$root/workflows/engines/estimate.sh" "$model" "$@"; }
check "what GPUs will need, of the options that decide it" grep -qx '.*: 4 layers of 64, mean_2, max_2 in f16' <(estimate '--device=cuda --pool mean,max --layers 2 --store-dtype f16 --threads 2' 4 shards)
check "and how many files there will be" grep -qx 'files  19' <(estimate '--device cuda' '' shards/manifest.json)
check "the default of a type by its name" grep -q 'of the peak in f16' <(estimate '--device cuda --dtype auto' '' shards)
check "no time in a type that was never measured" grep -q 'shards: unknown, as no GPU was measured in fp8' <(estimate '--device cuda --dtype fp8' '' shards)
same "nothing of CPUs" "" "$(estimate '--device cpu' 1 shards)"
check "no estimate is no failure" estimate '--device cuda' '' none
