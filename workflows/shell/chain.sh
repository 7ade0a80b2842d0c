# shellcheck shell=bash
# The steps of the chain, for plmkit.sh and for the batch scripts of SLURM; to be sourced.
workflow=$(dirname "${BASH_SOURCE[0]}")

# Where something is replaced the scripts say so themselves: --force in these variables makes no other work.
: "${FASTA_SHARD:=}" "${PACK_BATCHES:=}" "${GPU_EMBED:=}" "${VALIDATE_EMBEDDINGS:=}" "${MAX_SHARD_TOKENS:=20000000}"
read -ra fasta_shard <<<"$FASTA_SHARD"
read -ra pack_batches <<<"${PACK_BATCHES//--force/}"
read -ra gpu_embed <<<"${GPU_EMBED//--force/}"
read -ra validate_embeddings <<<"$VALIDATE_EMBEDDINGS"

# refuse CODE MESSAGE
refuse() {
    echo "$2" >&2
    exit "$1"
}

# begin SCRIPT ARGUMENTS…: --help, which is the head of the script, and --version; or the samples, all that is given looked at first.
# `outdir` and `model` are set, `samples` are the names in their order, `fasta[NAME]` the paths of one, a line each.
samples=()
declare -A fasta=()
begin() {
    local script=$1 looked weights sample path name
    shift
    case ${1-} in
    -h | --help)
        sed -n '2,/^[^#]/ { /^#SBATCH/d; s/^# \{0,1\}//p }' "$script"
        exit
        ;;
    -V | --version)
        looked=$(fasta-shard --version) || exit
        echo "plmkit ${looked##* }"
        exit
        ;;
    esac
    [[ $# -eq 3 ]] || refuse 2 "expected SAMPLES.csv OUTDIR MODEL, found $# arguments; --help says more"
    [[ $2 && $3 ]] || refuse 2 "expected SAMPLES.csv OUTDIR MODEL, found an empty $([[ $2 ]] && echo MODEL || echo OUTDIR)"
    [[ $2 == / ]] && outdir=/. || outdir=${2%/}
    model=$3
    looked=$("$workflow/inputs.sh" "$1" "$model" "$outdir" "$MAX_SHARD_TOKENS" "$GPU_EMBED") || exit
    {
        read -r weights
        while IFS=$'\t' read -r sample path; do
            [[ ${fasta[$sample]-} ]] || samples+=("$sample")
            fasta[$sample]+=$path$'\n'
        done
    } < <(echo "$looked")
    check_params "$weights"
    keep_params "$1" "$weights"
    write_versions
    for name in HUP INT QUIT TERM; do
        # shellcheck disable=SC2064
        trap "forward $name" "$name"
    done
}

# forward SIGNAL: to what runs, which saves what it has; the script ends as it does.
group='' signal=''
forward() {
    signal=$1
    [[ ! $group ]] || kill "-$1" -- "-$group" 2>/dev/null || true
}

# canonical OPTIONS: what decides about embeddings, one way to write it. Not the order, and not what changes no value.
canonical() {
    tr -s '[:space:]' '\n' <<<"$1" | awk '/^--?[A-Za-z]/ { if (NR > 1) print ""; sub(/=/, " ") } { printf "%s ", $0 } END { print "" }' | sort |
        grep -vE '^(--(force|quiet|wait|download|(threads|progress|checkpoint-interval|checkpoint-dir) .*))? *$' | paste -sd ' ' | tr -s ' '
}

# the_model MODEL: its path, however it is written, or its id.
the_model() { if [[ -e $1 ]]; then realpath -- "$1"; else echo "$1"; fi; }

# param NAME: what the folder of results was made with.
param() { sed -n 's/^  "'"$1"'": "\(.*\)",*$/\1/p' "$outdir/pipeline_info/params.json" | sed 's/\\\(["\\]\)/\1/g'; }

# check_params [WEIGHTS]: finished shards are not looked at again, so they must be what these parameters give, and of these weights. How
# shards are cut is in their manifest, which fasta-shard compares.
compare=''
check_params() {
    local name was now other=''
    compgen -G "$outdir/*/embeddings/*.parquet" >/dev/null || return 0
    [[ -e $outdir/pipeline_info/params.json ]] || { compare=true && return; }
    for name in gpu_embed pack_batches; do
        was=$(param $name)
        now=${name^^}
        [[ $(canonical "$was") == "$(canonical "${!now}")" ]] || other="${name^^} '$was', which is now '${!now}'"
    done
    was=$(param model)
    [[ $(the_model "$was") == "$(the_model "$model")" ]] || other="MODEL '$was', which is now '$model'"
    # A model that was still to be fetched had none yet.
    was=$(param weights)
    [[ $other || ! $was || ! ${1-} || $was == "$1" ]] || other='other weights'
    [[ ! $other ]] || refuse 73 "$outdir: has embeddings of $other: take another folder; or remove pipeline_info/params.json, and each shard is compared with what is asked for"
}

# keep_params SAMPLES WEIGHTS: the parameters of the run, as JSON.
keep_params() {
    # Until all is compared the file is hidden: a run that ends before compares again.
    local file=$outdir/pipeline_info/${compare:+.}params.json
    # shellcheck disable=SC2153
    set -- samples "$1" outdir "$outdir" model "$model" max_shard_tokens "$MAX_SHARD_TOKENS" fasta_shard "$FASTA_SHARD" pack_batches "$PACK_BATCHES" \
        gpu_embed "$GPU_EMBED" validate_embeddings "$VALIDATE_EMBEDDINGS" weights "$2" allow_empty "$([[ ${ALLOW_EMPTY:-} =~ ^([Tt]rue|[Yy]es|1)$ ]] && echo true || echo false)"
    mkdir -p "$outdir/pipeline_info"
    printf '%s\n' "${@//[[:cntrl:]]/ }" | sed 's/["\\]/\\&/g' |
        awk 'BEGIN { print "{" } NR % 2 { name = $0; next } { printf "%s  \"%s\": %s", separator, name, /^(true|false|[0-9]+)$/ && name ~ /^(max|allow)/ ? $0 : "\"" $0 "\""; separator = ",\n" } END { print "\n}" }' >"$file.$$"
    mv "$file.$$" "$file"
}

write_versions() {
    local tool version
    echo plmkit: >"$outdir/versions.yml"
    for tool in fasta-shard pack-batches gpu-embed validate-embeddings monitor-log; do
        version=$("$tool" --version)
        echo "  $tool: ${version##* }" >>"$outdir/versions.yml"
    done
    version=$("$workflow/inputs.sh" revision "$model")
    [[ ! $version ]] || printf 'Model:\n  %s: %s\n' "$model" "$version" >>"$outdir/versions.yml"
}

# cut_sample SAMPLE DIR: its shards.
cut_sample() {
    local paths name force=() before=$2/.manifest.before
    if [[ -e $2/shards/manifest.json ]]; then
        [[ -e $before ]] || cp "$2/shards/manifest.json" "$before"
        # One that got lost is cut again.
        for name in $(shards "$2"); do
            [[ -e $2/shards/$name.parquet ]] || force=(--force)
        done
        [[ -e $2/shards/rejects.csv ]] || force=(--force)
        [[ " $FASTA_SHARD " != *' --force '* ]] || force=()
    fi
    mapfile -t paths < <(printf %s "${fasta[$1]}")
    fasta-shard --sample "$1" --out "$2/shards" --max-shard-tokens "$MAX_SHARD_TOKENS" "${fasta_shard[@]}" "${force[@]}" -- "${paths[@]}"
    # What was made of other shards is made again.
    if [[ -e $before ]] && ! cmp -s "$before" "$2/shards/manifest.json"; then
        rm -f "$2"/{batches/shard-*.arrow,embeddings/shard-*.parquet,rejects/shard-*.csv,logs/shard-*}
    fi
    rm -f "$before"
    mkdir -p "$2"/{batches,embeddings,logs,reports}
}

# estimate GPUS SAMPLE…: what it will cost to embed those of which nothing is embedded.
estimate() {
    local sample new=()
    for sample in "${@:2}"; do
        compgen -G "$outdir/$sample/embeddings/*.parquet" >/dev/null || new+=("$outdir/$sample/shards")
    done
    ((!${#new[@]})) || "$workflow/estimate.sh" "$model" "$GPU_EMBED" "$1" "${new[@]}" >&2
}

# shards DIR: the names of its shards, by the manifest.
shards() { sed -n 's/^ *"file": "\(shard-.*\)[.]parquet",*$/\1/p' "$1/shards/manifest.json"; }

# is_complete DIR NAME: whether the shard is embedded. Its list of rejects, if it has one, is written before. With --force each is
# computed again; where no params.json says how they were made, gpu-embed looks at each, and refuses what is other work.
is_complete() { [[ ! $compare && " $GPU_EMBED " != *' --force '* && -e $1/embeddings/$2.parquet ]]; }

# goes_on CODE: after a failure of the sample alone (a verdict, its data, an output of its own), the first of which `failed` keeps for
# the end. Any other ends the script.
failed=0
goes_on() {
    [[ $1 =~ ^(0|1|65|66|73)$ ]] || exit "$1"
    ((failed)) || failed=$1
}

# alone COMMAND…: in a shell of its own, `code` is how it ended. In a process group of its own, too, which gets the signals that the script gets.
alone() {
    local name
    set +e -m
    (
        set -e
        # When the program that runs has ended of it.
        for name in HUP INT QUIT TERM; do
            # shellcheck disable=SC2064
            trap "exit $((128 + $(kill -l "$name")))" "$name"
        done
        "$@"
    ) &
    group=$!
    set +m
    # One that came before `group` was known.
    [[ ! $signal ]] || forward "$signal"
    wait "$group"
    code=$?
    # A signal ends `wait`, too.
    while kill -0 "$group" 2>/dev/null; do
        wait "$group"
        code=$?
    done
    [[ ! $signal ]] || exit $((128 + $(kill -l "$signal")))
    group=''
    set -e
    goes_on "$code"
}

# measure OUTDIR MODEL: how many tokens a batch holds, for the GPU of this machine. Once in each run of the chain, which begins with
# versions.yml: gpu-embed keeps a size of the same model, options, GPU and version, and measures any other again.
measure() {
    local size=$1/batch-size.json
    [[ ! $size -nt $1/versions.yml ]] || return 0
    gpu-embed --probe --out "$size" --model "$2" --wait --force "${gpu_embed[@]}" >/dev/null || return
    touch "$size"
}

# pack DIR NAME MODEL: with the measured size, unless PACK_BATCHES says another.
pack() {
    local size=() quiet=() batches=$1/batches/$2.arrow
    if [[ " $PACK_BATCHES" != *' --max-batch-tokens'* ]]; then
        # A shard keeps its batches, on another GPU too: what gpu-embed has saved of it belongs to them.
        [[ ! -e $batches || " $PACK_BATCHES " == *' --force '* ]] || return 0
        measure "${1%/*}" "$3" || return
        size=(--batch-size "${1%/*}/batch-size.json")
    fi
    [[ " $PACK_BATCHES " == *' --quiet '* ]] || quiet=(--quiet)
    pack-batches "$1/shards/$2.parquet" --out "$batches" --force "${quiet[@]}" "${size[@]}" "${pack_batches[@]}"
}

# record DIR NAME MODEL OPTIONS…: one pack to its embeddings, with a record of the machine beside them. In a process of its own, which
# it becomes. --force: what is left of embeddings that got lost, or of other work, is replaced; the settings have been compared.
record() {
    local progress=() force=(--force)
    [[ ! $compare || ! -e $1/embeddings/$2.parquet || " $GPU_EMBED " == *' --force '* ]] || force=()
    [[ -t 2 || " $GPU_EMBED" == *' --progress'* ]] || progress=(--progress none)
    mkdir -p "$1/rejects"
    exec monitor-log record --quiet --out "$1/logs/$2.samples.csv" -- \
        gpu-embed "$1/batches/$2.arrow" --model "$3" --out "$1/embeddings/$2.parquet" --rejects "$1/rejects/$2.csv" \
        --events "$1/logs/$2.events.jsonl" "${force[@]}" "${progress[@]}" "${gpu_embed[@]}" "${@:4}"
}

# validate DIR SAMPLE MODEL: with a report on the runs of all its shards, and without the folder of rejects if nothing was rejected.
validate() {
    local surplus quiet=() rejected=() code=0
    rmdir "$1/rejects" 2>/dev/null || true
    monitor-log report --quiet --gpu "$1/logs" --events "$1/logs" --out "$1/reports/run.json" --mqc "$1/reports/${2}_run_mqc.json" || code=$?
    [[ " $VALIDATE_EMBEDDINGS " == *' --quiet '* ]] || quiet=(--quiet)
    surplus=$(comm -23 <(find "$1"/{embeddings,rejects} -type f -name '[!.]*' 2>/dev/null | sed -n 's#.*/\(.*\)[.]\(parquet\|csv\)$#\1#p' | sort -u) <(shards "$1" | sort) | paste -sd ' ')
    [[ ! $surplus ]] || echo "$1: embeddings and rejects of no shard of this run, remove them: $surplus" >&2
    [[ ! ${ALLOW_EMPTY:-} =~ ^([Tt]rue|[Yy]es|1)$ ]] || rejected=(--expect max-rejected=100%)
    validate-embeddings --dataset "$1" --mqc "$1/reports/${2}_validation_mqc.json" --model "$3" "${rejected[@]}" "${quiet[@]}" \
        "${validate_embeddings[@]}"
    return "$code"
}

# summary SAMPLE…: what became of those that were asked for.
summary() {
    local sample verdict code=0 info=$outdir/pipeline_info
    for sample in "$@"; do
        echo ">$sample"
        cat "$outdir/$sample/shards/manifest.json" 2>/dev/null || true
        # A verdict of an earlier run is not this one's.
        verdict=$outdir/$sample/dataset.failed.json
        [[ -e $verdict ]] || verdict=$outdir/$sample/dataset.json
        [[ ! $verdict -nt $outdir/versions.yml ]] || cat "$verdict"
    done | "$workflow/summary.sh" "$outdir" "${ALLOW_EMPTY:-}" >"$outdir/.summary.$$" || code=$?
    mv "$outdir/.summary.$$" "$outdir/summary.tsv"
    # A model that was fetched has a revision now.
    write_versions
    ((code)) || [[ ! -e $info/.params.json ]] || mv "$info/.params.json" "$info/params.json"
    return "$code"
}
