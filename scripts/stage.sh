#!/usr/bin/env bash
# Lays out an installation without what a GPU needs: programs, man pages, completions, licences and Python scripts.
#
#   stage.sh PROGRAMS PREFIX    PROGRAMS is the folder in which the programs were built; PLMKIT_RUNNER runs those of another machine
set -euo pipefail
programs=${1:?} prefix=${2:?} share=$2/share
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A library of an earlier installation would be opened, and be another one.
rm -rf "$prefix/lib/plmkit"
install -d "$prefix/bin" "$share"/{plmkit,doc/plmkit,man/man1,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
read -ra run <<<"${PLMKIT_RUNNER:-env}"
for program in plmkit fasta-shard pack-batches gpu-embed validate-embeddings query-embeddings monitor-log; do
    install "$programs/$program" "$prefix/bin"
    "${run[@]}" "$programs/$program" --generate man >"$share/man/man1/$program.1"
    "${run[@]}" "$programs/$program" --generate complete-bash >"$share/bash-completion/completions/$program"
    "${run[@]}" "$programs/$program" --generate complete-zsh >"$share/zsh/site-functions/_$program"
    "${run[@]}" "$programs/$program" --generate complete-fish >"$share/fish/vendor_completions.d/$program.fish"
done
install -m 644 LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md "$share/doc/plmkit"
install scripts/{convert-fair-esm,make-golden,reference-to-parquet}.py "$share/plmkit"
