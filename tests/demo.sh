#!/usr/bin/env bash
# The whole chain on the test data: FASTA -> shards -> batches -> embeddings -> verdict, all under demo/.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=${PROGRAMS:-$PWD/target/release}:$PATH

# number FILE KEY [FACTOR FORMAT]: the first entry KEY of a report, which has one entry a line.
number() {
    awk -F '[:,]' -v key="\"$2\"" -v factor="${3:-1}" -v format="${4:-%d}" \
        'index($1, key) { printf format, factor * $2; found = 1; exit } END { exit !found }' "$1"
}

rm -rf demo
mkdir demo
fasta-shard test-data/proteins.fasta --out demo/shards --shards 2
for shard in demo/shards/shard-*.parquet; do
    name=$(basename "$shard" .parquet)
    pack-batches "$shard" --out "demo/$name.arrow" --max-batch-tokens 4096 --report "demo/$name.pack.json"
done
monitor-log record --out demo/gpu.csv --interval 100ms -- \
    gpu-embed demo/shard-*.arrow --model test-data/model-tiny --device cpu --out demo/embeddings.parquet --events demo/events.jsonl
validate-embeddings demo/embeddings.parquet --shards demo/shards/shard-*.parquet --rejects demo/shards/rejects.csv \
    --manifest demo/shards/manifest.json --report demo/validation.json
monitor-log report --gpu demo/gpu.csv --events demo/events.jsonl --out demo/run.json

records=$(number demo/shards/manifest.json records)
accepted=$(number demo/shards/manifest.json accepted)
rows=$(number demo/validation.json rows)
batches=$(number demo/run.json batches)
full=$(number demo/run.json mean_fill 100 %.1f)
tokens=$(number demo/run.json tokens)
rate=$(number demo/run.json tokens_per_s)
cat <<SUMMARY

$records records: $accepted accepted, $((records - accepted)) rejected (demo/shards/rejects.csv)
$rows embeddings, every check passed (demo/validation.json)
$batches batches, $full % full but for the last of each shard, no padding (demo/shard-*.pack.json)
$tokens tokens at $rate tokens/s on the CPU (demo/run.json)

The embeddings are in demo/embeddings.parquet:
  pandas   python3 -c "import pandas; print(pandas.read_parquet('demo/embeddings.parquet'))"
  polars   python3 -c "import polars; print(polars.read_parquet('demo/embeddings.parquet'))"
  DuckDB   duckdb -c "SELECT id, length, mean_4 FROM 'demo/embeddings.parquet'"
SUMMARY
