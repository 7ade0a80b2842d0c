#!/usr/bin/env bash
# FASTA to a validated dataset with nothing but the five programs: what the workflows do, one step after the other.
#
#     plmkit.sh SAMPLES.csv OUTDIR MODEL
#
# SAMPLES.csv has the columns `sample,fasta`, a line for each FASTA; lines of one sample are read in their order. OUTDIR gets the
# layout that ../README.md describes. MODEL is a folder, or an id of the Hugging Face Hub that is in its local cache.
#
# Options of the programs come from the environment: FASTA_SHARD, PACK_BATCHES, GPU_EMBED, VALIDATE_EMBEDDINGS, as in
#     GPU_EMBED="--device cuda --dtype bf16" plmkit.sh samples.csv results facebook/esm2_t33_650M_UR50D
#
# After an interruption the same command goes on where it was.
set -euo pipefail

[[ $# -eq 3 ]] || { sed -n 's/^# \{0,1\}//; 2,13p' "$0" >&2; exit 2; }
samples=$1 outdir=$2 model=$3
read -ra fasta_shard <<<"${FASTA_SHARD:-}"
read -ra pack_batches <<<"${PACK_BATCHES:-}"
read -ra gpu_embed <<<"${GPU_EMBED:-}"
read -ra validate_embeddings <<<"${VALIDATE_EMBEDDINGS:-}"
max_shard_tokens=${MAX_SHARD_TOKENS:-20000000}

[[ $(head -n 1 "$samples") == sample,fasta ]] || { echo "$samples: line 1: expected 'sample,fasta'" >&2; exit 65; }

# embed NAME: one shard's batches to its embeddings, with a record of the machine beside them.
embed() {
    local name=$1 code=0
    pack-batches "$dir/shards/$name.parquet" --out "$dir/batches/$name.arrow" --report "$dir/reports/$name.pack.json" \
        "${pack_batches[@]}"
    monitor-log record --out "$dir/logs/$name.samples.csv" -- \
        gpu-embed "$dir/batches/$name.arrow" --model "$model" --out "$dir/embeddings/$name.parquet" \
        --rejects "$dir/embeddings/$name.rejects.csv" --events "$dir/logs/$name.events.jsonl" "${gpu_embed[@]}" || code=$?
    # 1: some sequences could not be embedded. They are listed, and the validation accounts for them.
    ((code <= 1)) || exit "$code"
    monitor-log report --gpu "$dir/logs/$name.samples.csv" --events "$dir/logs/$name.events.jsonl" \
        --out "$dir/reports/$name.run.json" --mqc "$dir/reports/${sample}_${name}_run_mqc.json"
    rm "$dir/batches/$name.arrow"
}

for sample in $(tail -n +2 "$samples" | cut -d , -f 1 | awk '!seen[$0]++'); do
    dir=$outdir/$sample
    mkdir -p "$dir"/{batches,embeddings,logs,reports}
    mapfile -t fasta < <(awk -F , -v sample="$sample" 'NR > 1 && $1 == sample { print $2 }' "$samples")
    fasta-shard "${fasta[@]}" --out-dir "$dir/shards" --max-shard-tokens "$max_shard_tokens" "${fasta_shard[@]}"
    for shard in "$dir"/shards/*.parquet; do
        name=$(basename "$shard" .parquet)
        [[ -e $dir/embeddings/$name.parquet && -e $dir/reports/$name.run.json ]] || embed "$name"
    done
    shopt -s nullglob
    rejects=("$dir/shards/rejects.csv" "$dir"/embeddings/*.rejects.csv)
    shopt -u nullglob
    validate-embeddings "$dir"/embeddings/*.parquet --shards "$dir"/shards/*.parquet --rejects "${rejects[@]}" \
        --manifest "$dir/shards/manifest.json" --report "$dir/reports/validation.json" \
        --mqc "$dir/reports/${sample}_validation_mqc.json" "${validate_embeddings[@]}"
    rmdir "$dir/batches"
done
