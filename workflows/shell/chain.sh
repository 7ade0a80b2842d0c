# shellcheck shell=bash
# The steps of the chain, for plmkit.sh and for the batch scripts of SLURM; to be sourced.

# shellcheck disable=SC2034
max_shard_tokens=${MAX_SHARD_TOKENS:-20000000}
read -ra fasta_shard <<<"${FASTA_SHARD:-}"
read -ra pack_batches <<<"${PACK_BATCHES:-}"
read -ra gpu_embed <<<"${GPU_EMBED:-}"
read -ra validate_embeddings <<<"${VALIDATE_EMBEDDINGS:-}"

# refuse CODE MESSAGE
refuse() {
    echo "$2" >&2
    exit "$1"
}

# read_samples TABLE: `samples` are the names in their order, `fasta[NAME]` the paths of one, a line each.
samples=()
declare -A fasta=()
read_samples() {
    local LC_ALL=C table=$1 number=0 sample_at='' fasta_at='' line cells i sample path
    [[ -r $table ]] || refuse 66 "$table: no file that can be read"
    while IFS= read -r line || [[ $line ]]; do
        ((++number))
        line=${line%$'\r'}
        ((number > 1)) || line=${line#$'\xef\xbb\xbf'}
        [[ $line ]] || continue
        [[ $line != *'"'* ]] || refuse 65 "$table: line $number: quotes, which are not understood here"
        IFS=, read -ra cells <<<"$line"
        if [[ ! $sample_at ]]; then
            for i in "${!cells[@]}"; do
                case ${cells[i]} in
                sample) sample_at=$i ;;
                fasta) fasta_at=$i ;;
                esac
            done
            [[ $sample_at && $fasta_at ]] || refuse 65 "$table: line $number: expected the columns sample,fasta, found '$line'"
            continue
        fi
        sample=${cells[sample_at]-} path=${cells[fasta_at]-}
        [[ $sample =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]*$ ]] ||
            refuse 65 "$table: line $number: sample name '$sample': expected letters, digits, '_', '-' and '.', the first no '-' or '.'"
        [[ ! $sample =~ ^(multiqc|versions.yml|batch-size.json|packs.tsv|settings.txt)$ ]] ||
            refuse 65 "$table: line $number: sample name '$sample': the results have something else of that name"
        [[ -r $path && ! -d $path ]] || refuse 66 "$table: line $number: no file '$path'"
        [[ $'\n'${fasta[$sample]-} != *$'\n'"$path"$'\n'* ]] ||
            refuse 65 "$table: line $number: '$path' of '$sample' is there twice"
        [[ ${fasta[$sample]-} ]] || samples+=("$sample")
        fasta[$sample]+=$path$'\n'
    done <"$table"
    ((${#samples[@]})) || refuse 65 "$table: no samples"
}

# What decides what the embeddings are, a line each.
settings() {
    printf '%s=%s\n' MODEL "$1" MAX_SHARD_TOKENS "$max_shard_tokens" FASTA_SHARD "${FASTA_SHARD:-}" \
        PACK_BATCHES "${PACK_BATCHES:-}" GPU_EMBED "${GPU_EMBED:-}"
}

# check_settings OUTDIR MODEL: finished shards are not looked at again, so they must be what these settings give.
check_settings() {
    local file=$1/settings.txt
    [[ ! -e $file || $(<"$file") == "$(settings "$2")" ]] ||
        refuse 73 "$1: has embeddings of $(settings "$2" | grep -Fxvf - "$file" | paste -sd ' '): take another folder, or remove settings.txt if yours give the same"
}

# keep_settings OUTDIR MODEL: from the first finished shard on.
keep_settings() {
    local new=$1/.settings.$HOSTNAME.$$
    settings "$2" >"$new"
    mv "$new" "$1/settings.txt"
}

# write_versions OUTDIR
write_versions() {
    local tool version
    mkdir -p "$1"
    echo plmkit: >"$1/versions.yml"
    for tool in fasta-shard pack-batches gpu-embed validate-embeddings monitor-log; do
        version=$("$tool" --version)
        echo "  $tool: ${version##* }" >>"$1/versions.yml"
    done
}

# cut_sample SAMPLE DIR: its shards.
cut_sample() {
    local paths
    mkdir -p "$2"/{batches,embeddings,logs,reports}
    mapfile -t paths <<<"${fasta[$1]%$'\n'}"
    fasta-shard --out-dir "$2/shards" --max-shard-tokens "$max_shard_tokens" "${fasta_shard[@]}" -- "${paths[@]}"
}

# is_complete DIR NAME: whether the shard is embedded and reported on.
is_complete() { [[ -e $1/embeddings/$2.parquet && -e $1/reports/$2.run.json ]]; }

# measure OUTDIR MODEL: how many tokens a batch holds, for the GPU of this machine. Once in each run of the chain, which begins with
# versions.yml: gpu-embed keeps a size of the same model, options, GPU and version, and measures any other again.
measure() {
    local size=$1/batch-size.json
    [[ ! $size -nt $1/versions.yml ]] || return 0
    gpu-embed --probe --out "$size" --model "$2" --wait --force "${gpu_embed[@]}" >/dev/null
    touch "$size"
}

# pack DIR NAME MODEL: with the measured size, unless PACK_BATCHES says another.
pack() {
    local size=() batches=$1/batches/$2.arrow
    if [[ " ${PACK_BATCHES:-}" != *' --max-batch-tokens'* ]]; then
        # A shard keeps its batches, on another GPU too: what gpu-embed has saved of it belongs to them.
        [[ ! -e $batches ]] || return 0
        measure "${1%/*}" "$3"
        size=(--batch-size "${1%/*}/batch-size.json")
    fi
    pack-batches "$1/shards/$2.parquet" --out "$batches" --report "$1/reports/$2.pack.json" "${size[@]}" "${pack_batches[@]}"
}

# record DIR NAME MODEL OPTIONS…: one pack to its embeddings, with a record of the machine beside them. In a process of its own, which
# it becomes.
record() {
    exec monitor-log record --out "$1/logs/$2.samples.csv" -- \
        gpu-embed "$1/batches/$2.arrow" --model "$3" --out "$1/embeddings/$2.parquet" --rejects "$1/embeddings/$2.rejects.csv" \
        --events "$1/logs/$2.events.jsonl" "${gpu_embed[@]}" "${@:4}"
}

# finish DIR SAMPLE NAME: what comes after the embeddings.
finish() {
    monitor-log report --gpu "$1/logs/$3.samples.csv" --events "$1/logs/$3.events.jsonl" \
        --out "$1/reports/$3.run.json" --mqc "$1/reports/${2}_${3}_run_mqc.json"
    rm "$1/batches/$3.arrow"
}

# validate DIR SAMPLE
validate() {
    local rejects
    # An earlier verdict is not this one's.
    rm -f "$1/reports/validation.json"
    shopt -s nullglob
    rejects=("$1/shards/rejects.csv" "$1"/embeddings/*.rejects.csv)
    shopt -u nullglob
    validate-embeddings "$1"/embeddings/*.parquet --shards "$1"/shards/*.parquet --rejects "${rejects[@]}" \
        --manifest "$1/shards/manifest.json" --report "$1/reports/validation.json" \
        --mqc "$1/reports/${2}_validation_mqc.json" "${validate_embeddings[@]}"
}
