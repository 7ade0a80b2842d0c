#!/usr/bin/env bash
# gpu-embed that remembers: the same batches, model and options are computed once. PROGRAM is the real one, REMEMBERED a folder.
# The program that it starts is not a child of the one that started this.
unset PLMKIT_PARENT
set -euo pipefail
options=() batches='' out=''
while (($#)); do
    case $1 in
    --out) out=$2 && shift ;;
    *.arrow) batches=$1 ;;
    *) options+=("$1") ;;
    esac
    shift
done
[[ $batches && $out ]] || exec "$PROGRAM" "${options[@]}" ${batches:+"$batches"} ${out:+--out "$out"}
key=$({ printf '%s\0' "${options[@]}" && cat "$batches"; } | sha256sum)
kept=$REMEMBERED/${key%% *}.parquet
if [[ ! -e $kept ]]; then
    code=0
    "$PROGRAM" "$batches" --out "$out" "${options[@]}" || code=$?
    ((!code)) && cp "$out" "$kept.$$" && mv "$kept.$$" "$kept"
    exit "$code"
fi
cp "$kept" "$out"
