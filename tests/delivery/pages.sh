#!/usr/bin/env bash
# That the man pages of an installation render without a warning and its completions complete, in three shells.
#
#   pages.sh PREFIX
set -euo pipefail
prefix=${1:?} share=$1/share
fail() {
    echo "pages: $*" >&2
    exit 1
}
for package in man-db zsh fish; do
    command -v ${package%-db} >/dev/null || "$(dirname "$0")/../install/packages.sh" $package
done
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT

for program in plmkit fasta-shard pack-batches gpu-embed validate-embeddings query-embeddings monitor-log; do
    said=$(MANROFFSEQ='' MANWIDTH=80 LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z "$share/man/man1/$program.1" 2>&1 >/dev/null)
    [[ -z $said ]] || fail "$program.1: $said"
    # An option that every program has.
    # shellcheck disable=SC2016
    said=$(bash -c 'source "$1"; read -ra of < <(complete -p "$2")
        COMP_WORDS=("$2" --log-f) COMP_CWORD=1; "${of[-2]}" "$2" --log-f "$2"; echo "${COMPREPLY[@]}"' \
        - "$share/bash-completion/completions/$program" "$program")
    [[ $said == --log-format ]] || fail "bash completes $program --log-f with '$said'"
    # fish completes what it could run.
    said=$(PATH=$prefix/bin:$PATH XDG_DATA_DIRS=$share:/usr/share HOME=$home fish -c "complete -C '$program --log-f'" | cut -f 1)
    [[ $said == --log-format ]] || fail "fish completes $program --log-f with '$said'"
    # shellcheck disable=SC2016
    said=$(zsh -fc 'fpath=($1 $fpath); autoload -U compinit; compinit -u -D; autoload +X $_comps[$2] && print $functions[$_comps[$2]]' \
        - "$share/zsh/site-functions" "$program")
    [[ $said == *--log-format* ]] || fail "zsh knows no --log-format of $program"
done
echo "pages: 7 man pages and 21 completions of $prefix"
