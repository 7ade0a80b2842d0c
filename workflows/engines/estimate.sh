#!/usr/bin/env bash
# What a run will cost, before its first shard is embedded: GPU-hours, wall time, files and bytes of embeddings, by
# `monitor-log estimate`, on standard output. It ends with 0 in any case: a run without an estimate goes on.
#
#     estimate.sh MODEL OPTIONS GPUS SHARDS…
#
# OPTIONS are those of gpu-embed, SHARDS are folders or their manifests. GPUS is how many compute at a time; if it is empty, nothing is said unless
# OPTIONS ask for GPUs or this machine has one: the speed of CPUs is not known.
set -euo pipefail

read -ra given <<<"${2//=/ }"
device=auto taken=(--model "$1")
[[ -e $1 ]] || taken=(--model "${1%@*}")
[[ ! $3 ]] || taken+=(--gpus "$3")
while ((${#given[@]})); do
    case ${given[0]} in
    --device) device=${given[1]-} ;;
    # What decides about operations and bytes.
    --pool | --layers | --store-dtype) taken+=("${given[@]:0:2}") ;;
    --dtype) [[ ${given[1]-} == auto ]] || taken+=("${given[@]:0:2}") ;;
    --residues | --logits | --contacts) taken+=("${given[0]}") ;;
    --scores) taken+=(--scores); [[ ${given[1]-} != masked ]] || taken+=(masked) ;;
    # How many positions are masked is not known here.
    --scores-positions) exit 0 ;;
    esac
    given=("${given[@]:1}")
done
[[ $device != cpu ]] || exit 0
# As with containers, where the programs are in the images alone.
command -v monitor-log >/dev/null || exit 0
[[ $device != auto || $3 || -e /proc/driver/nvidia/version ]] || exit 0
monitor-log estimate "${taken[@]}" -- "${@:4}" 2>&1 || true
