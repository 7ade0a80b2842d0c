#!/usr/bin/env bash
# Builds one of the packages into PREFIX: PKG_NAME, which conda-build sets, says which.
set -euo pipefail

# Without a home folder; and not .cargo, where the project's own settings are.
export CARGO_HOME=${CARGO_HOME:-$PWD/.cargo-home}
export CARGO_PROFILE_RELEASE_STRIP=symbols
# conda-forge's Rust sets CARGO_BUILD_TARGET.
built=target/${CARGO_BUILD_TARGET:-}/release

case $PKG_NAME in
plmkit)
    cargo build --release --locked --no-default-features
    scripts/stage.sh "$built" "$PREFIX"
    ;;
plmkit-cuda)
    # Its RPATH has $LIBTORCH/lib, which conda-build makes relative.
    LIBTORCH=$PREFIX cargo build --release --locked --package plmkit-cuda
    install -D -t "$PREFIX/lib/plmkit" "$built/libplmkit_cuda.so"
    ;;
*)
    echo "install.sh: expected PKG_NAME plmkit or plmkit-cuda, found $PKG_NAME" >&2
    exit 2
    ;;
esac
cargo-bundle-licenses --format yaml --output THIRDPARTY.yml
