#!/usr/bin/env bash
# Builds one of the packages into PREFIX: PKG_NAME, which conda-build sets, says which.
set -euo pipefail

# Without a home folder; and not .cargo, where the project's own settings are.
export CARGO_HOME=${CARGO_HOME:-$PWD/.cargo-home}
export CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=symbols

share=$PREFIX/share
case $PKG_NAME in
plmkit-tools)
    programs=(fasta-shard pack-batches validate-embeddings monitor-log)
    options=(--no-default-features)
    install -D -t "$share/plmkit" scripts/{make-golden,reference-to-parquet}.py
    ;;
plmkit)
    programs=(gpu-embed)
    options=(--bin gpu-embed --no-default-features --features torch)
    export LIBTORCH=$PREFIX
    install -D -t "$share/plmkit" scripts/convert-fair-esm.py
    ;;
*)
    echo "install.sh: expected PKG_NAME plmkit or plmkit-tools, found $PKG_NAME" >&2
    exit 2
    ;;
esac

cargo install --locked --no-track --root "$PREFIX" --path . "${options[@]}"
cargo-bundle-licenses --format yaml --output THIRDPARTY.yml

mkdir -p "$share"/{man/man1,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
for program in "${programs[@]}"; do
    "$PREFIX/bin/$program" --generate man >"$share/man/man1/$program.1"
    "$PREFIX/bin/$program" --generate complete-bash >"$share/bash-completion/completions/$program"
    "$PREFIX/bin/$program" --generate complete-zsh >"$share/zsh/site-functions/_$program"
    "$PREFIX/bin/$program" --generate complete-fish >"$share/fish/vendor_completions.d/$program.fish"
done
