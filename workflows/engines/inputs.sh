#!/usr/bin/env bash
# Looks at all that a workflow is given before anything is computed: the table of samples, the first record of each FASTA, the model, and
# how the results that are there were cut. Nextflow and Snakemake read their table by it; plmkit has the same rules.
#
#     inputs.sh TABLE MODEL OUTDIR MAX_SHARD_TOKENS [OPTIONS of gpu-embed]
#
#     inputs.sh revision MODEL
#
# The second form prints the revision of a model of the Hugging Face Hub that is in its local cache, and nothing for others. The first one
# prints what tells these weights from others at the same path (nothing for a model that is still to be fetched), then `sample<TAB>fasta`
# for each line of the table. With TABLE `-` that is standard input, and TABLE_NAME its name in messages. With ONLY_READ=1 neither
# FASTA nor results are looked at. The first thing wrong ends it with one line and its exit code.
set -euo pipefail
export LC_ALL=C

# refuse CODE MESSAGE
refuse() {
    echo "$2" >&2
    exit "$1"
}

# rows NAME <TABLE: line, sample and fasta of each row, separated by tabs. CSV, or TSV where the header has a tab; cells may be quoted.
rows() {
    awk -v name="$1" -v taken='^(multiqc|versions[.]yml|batch-size[.]json|dataset[.]json|pipeline_info|summary[.]tsv)$' '
        function refuse(what) {
            refused = 1
            print name ": line " NR ": " what > "/dev/stderr"
            exit 65
        }
        # The cells of a line in `cells`, and their number.
        function split_line(line,    n, cell, at, closed) {
            n = 0
            for (;;) {
                cell = ""
                sub(/^[ ]+/, "", line)
                if (line ~ /^"/) {
                    closed = 0
                    for (line = substr(line, 2); at = index(line, "\""); line = substr(line, at + 1)) {
                        cell = cell substr(line, 1, at - 1)
                        if (substr(line, at + 1, 1) != "\"") { line = substr(line, at + 1); closed = 1; break }
                        cell = cell "\""
                        at++
                    }
                    if (!closed) refuse("a quote that does not end in this line")
                    sub(/^[ ]+/, "", line)
                    if (line != "" && substr(line, 1, 1) != separator) refuse("expected the end of the cell after its closing quote, found \x27" line "\x27")
                    at = line == "" ? 0 : 1
                } else {
                    at = index(line, separator)
                    cell = at ? substr(line, 1, at - 1) : line
                    sub(/[ ]+$/, "", cell)
                }
                cells[++n] = cell
                if (!at) return n
                line = substr(line, at + 1)
            }
        }
        {
            sub(/\r$/, "")
            if (NR == 1) sub(/^\357\273\277/, "")
            if (!columns) separator = index($0, "\t") ? "\t" : ","
            bare = $0
            gsub("[ " separator "]", "", bare)
            if (bare == "") next
            found = split_line($0)
        }
        !columns {
            columns = found
            for (i = 1; i <= found; i++) {
                if ((cells[i] == "sample" || cells[i] == "fasta") && cells[i] in at_column) refuse("the column " cells[i] " is there twice")
                at_column[cells[i]] = i
            }
            if (!("sample" in at_column && "fasta" in at_column)) refuse("expected the columns sample,fasta, found \x27" $0 "\x27")
            next
        }
        {
            if (found != columns) refuse("expected " columns " columns, found " found)
            sample = cells[at_column["sample"]]
            fasta = cells[at_column["fasta"]]
            if (sample !~ /^[A-Za-z0-9_][A-Za-z0-9_.-]*$/ || length(sample) > 200)
                refuse("sample name \x27" sample "\x27: expected up to 200 letters, digits, \x27_\x27, \x27-\x27 and \x27.\x27, the first no \x27-\x27 or \x27.\x27")
            if (sample ~ taken) refuse("sample name \x27" sample "\x27: the results have something else of that name")
            if (fasta ~ /\t/) refuse("a tab in the path \x27" fasta "\x27")
            path = fasta
            gsub("/([.]?/)+", "/", path)
            sub("^([.]/)+", "", path)
            if (seen[sample, path]++) refuse("\x27" fasta "\x27 of \x27" sample "\x27 is there twice")
            print NR "\t" sample "\t" fasta
            samples++
        }
        END {
            if (!refused && !samples) { print name ": no samples" > "/dev/stderr"; exit 65 }
        }'
}

# unpacked COMMAND PATH: where there is no such command, as in an image of plmkit, fasta-shard will see.
unpacked() { if command -v "$1" >/dev/null; then "$1" -dc -- "$2"; else echo '>'; fi; }

# start PATH: what it begins with, 64 KiB at most, decompressed.
start() {
    local magic=''
    IFS= read -r -d '' -n 4 magic <"$1" || true
    case $magic in
    $'\x1f\x8b'*) unpacked gzip "$1" ;;
    $'\x28\xb5\x2f\xfd') unpacked zstd "$1" ;;
    BZh*) echo bzip2 ;;
    $'\xfd7zX') echo xz ;;
    PK*) echo zip ;;
    *) cat -- "$1" ;;
    esac 2>/dev/null | head -c 65536
}

# look_at FASTA WHERE: that it is a file, and that a first record begins in it. One of a cloud is left to the engine, a pipe to fasta-shard.
look_at() {
    local line=''
    [[ ! $1 =~ ^[a-z0-9]+:// ]] || return 0
    [[ -r $1 && ! -d $1 ]] || refuse 66 "$2: no file '$1' that can be read"
    [[ -f $1 ]] || return 0
    # Most are plain: without a process for each.
    IFS= read -r -d '' -n 1 line <"$1" || true
    [[ $line != '>' ]] || return 0
    line=$(start "$1" | tr -d '\000' | grep -m 1 '[^[:space:]]' | head -c 40 || true)
    line=${line%$'\r'}
    line=${line#$'\xef\xbb\xbf'}
    case $line in
    '>'*) ;;
    '') refuse 65 "$1: no FASTA records: expected at least one, found none" ;;
    bzip2 | xz | zip) refuse 65 "$1: expected plain, gzip, bgzip or zstd, found $line" ;;
    *) refuse 65 "$1: not FASTA: expected '>' at the start of its first line, found '${line//[^[:print:]]/?}'" ;;
    esac
}

# snapshot ID: where the Hub's cache has the model; fails where it does not. As gpu-embed looks it up.
snapshot() {
    local cache=${HF_HUB_CACHE:-} id=${1%%@*} revision=main commit
    [[ $1 != *@* ]] || revision=${1#*@}
    : "${cache:=${HF_HOME:+$HF_HOME/hub}}"
    cache=${cache:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface/hub}/models--${id//\//--}
    commit=$revision
    [[ ! -r $cache/refs/$revision ]] || commit=$(<"$cache/refs/$revision")
    echo "$cache/snapshots/$commit"
    [[ -e $cache/snapshots/$commit/config.json || -d $cache/snapshots/$commit/data/weights ]]
}

# is_id MODEL: of the Hub, and no path.
is_id() { [[ ! -e $1 && $1 =~ ^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+(@[A-Za-z0-9_./-]+)?$ && ! -d ${1%%/*} ]]; }

# look_at_model MODEL OPTIONS: a folder, a file of weights, or an id of the Hub. Prints its files with sizes and times of change.
look_at_model() {
    local model=$1 folder=$1 name weights=() config=()
    if is_id "$1"; then
        if ! folder=$(snapshot "$1"); then
            [[ " $2 " == *' --download '* ]] || refuse 66 "model: '$1' is not in the Hub's cache (no $folder/config.json): fetch it with gpu-embed --download, or give a folder"
            return 0
        fi
    elif [[ -f $1 ]]; then
        folder=$(dirname -- "$1")
        weights=("$1")
    elif [[ ! -d $1 ]]; then
        refuse 66 "model: no folder '$1', and no id of the Hugging Face Hub, such as facebook/esm2_t33_650M_UR50D"
    fi
    for name in "$folder"/{model.safetensors,model.safetensors.index.json,pytorch_model.bin,pytorch_model.bin.index.json,data/weights/*.pth}; do
        [[ ${weights[*]} || ! -e $name ]] || weights=("$name")
    done
    # The shapes of ESMC's first release say what a config.json would.
    if [[ ${weights[0]-} != *.pth ]]; then
        config=("$folder/config.json")
        [[ -r ${config[0]} && -f ${config[0]} ]] || refuse 66 "model: '$model': no ${config[0]} that can be read"
        tr -d '[:space:]' <"${config[0]}" | grep -qE '"model_type":"esmc?"' ||
            refuse 65 "model: ${config[0]}: expected \"model_type\": \"esm\" or \"esmc\", found none"
    fi
    [[ ${weights[*]} ]] || refuse 66 "model: '$model': no weights: expected model.safetensors or pytorch_model.bin, or an index of either"
    [[ ${weights[0]} != *.index.json ]] || weights+=("$folder"/*.safetensors "$folder"/*.bin)
    for name in "${weights[@]}" "${config[@]}"; do
        [[ -r $name || ! -e $name ]] || refuse 66 "model: '$name' cannot be read"
        [[ ! -e $name ]] || stat -L --printf '%s %.9Y ' "$name"
    done
    echo
}

if [[ $# -eq 2 && $1 == revision ]]; then
    ! is_id "$2" || ! folder=$(snapshot "$2") || echo "${folder##*/}"
    exit
fi
[[ $# -eq 4 || $# -eq 5 ]] || refuse 2 "${0##*/}: expected TABLE MODEL OUTDIR MAX_SHARD_TOKENS [OPTIONS]"
if [[ $1 == - ]]; then
    name=${TABLE_NAME:-table}
else
    name=$1
    [[ -r $1 && ! -d $1 ]] || refuse 66 "$1: no file that can be read"
    exec <"$1"
fi
table=$(rows "$name") || exit
if [[ ! ${ONLY_READ:-} ]]; then
    while IFS=$'\t' read -r number sample fasta; do
        look_at "$fasta" "$name: line $number"
        manifest=$3/$sample/shards/manifest.json
        [[ ! -r $manifest ]] || cut=$(sed -n 's/^ *"max_shard_tokens": "*\([0-9+]*\)"*,*$/\1/p' "$manifest")
        [[ ! -r $manifest || ! $cut || $cut == "$4" ]] ||
            refuse 73 "$3/$sample: was cut with a max_shard_tokens of $cut, which is now $4: take another folder of results, or remove this one"
    done < <(echo "$table")
fi
weights=$(look_at_model "$2" "${5:-}")
printf '%s\n' "$weights"
echo "$table" | cut -f 2-
