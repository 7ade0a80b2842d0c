#!/usr/bin/env bash
# FASTA to a validated dataset with nothing but the five programs: what the workflows do, one step after the other.
#
#     plmkit.sh SAMPLES.csv OUTDIR MODEL
#
# SAMPLES.csv has the columns `sample,fasta`, a line for each FASTA; lines of one sample are read in their order. OUTDIR gets the
# layout that ../README.md describes. MODEL is a folder, or an id of the Hugging Face Hub that is in its local cache.
#
# Options of the programs come from the environment: FASTA_SHARD, PACK_BATCHES, GPU_EMBED, VALIDATE_EMBEDDINGS, and the size of a
# shard, MAX_SHARD_TOKENS, as in
#     GPU_EMBED="--device cuda --dtype bf16" plmkit.sh samples.csv results facebook/esm2_t33_650M_UR50D
# With ALLOW_EMPTY=true a sample of which every record is rejected is no failure. VALIDATE_EMBEDDINGS="--sample 0" computes nothing again.
#
# On a GPU, gpu-embed --probe measures how many tokens a batch holds, unless PACK_BATCHES has --max-batch-tokens; OUTDIR/batch-size.json
# keeps it.
#
# After an interruption the same command goes on where it was. A sample that fails stops no other; the summary at the end names it.
set -euo pipefail
# shellcheck source=workflows/shell/chain.sh
source "$(dirname "$(readlink -f "$0")")/chain.sh"
begin "$0" "$@"

# embed_sample SAMPLE
embed_sample() {
    local dir=$outdir/$1 name code
    for name in $(shards "$dir"); do
        is_complete "$dir" "$name" && continue
        pack "$dir" "$name" "$model"
        code=0
        (record "$dir" "$name" "$model") || code=$?
        # 1: some sequences could not be embedded. They are listed, and the validation accounts for them.
        ((code <= 1)) || exit "$code"
        rm "$dir/batches/$name.arrow"
    done
    validate "$dir" "$1" "$model"
    rm -rf "$dir/batches"
}

cut=()
for sample in "${samples[@]}"; do
    alone cut_sample "$sample" "$outdir/$sample"
    ((code)) || cut+=("$sample")
done
estimate '' "${cut[@]}"
for sample in "${cut[@]}"; do
    alone embed_sample "$sample"
done
summary "${samples[@]}" || goes_on 1
exit "$failed"
