#!/usr/bin/env bash
# Puts Prometheus and promtool where `make monitoring` looks for them: .monitoring/bin at the root of the repository.
#
# They are those of Debian's package, unpacked and not installed: no root is needed, and nothing else of the machine changes.
set -euo pipefail

target=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)/.monitoring

say() { echo "monitoring: $*" >&2; }
fail() {
    local code=$1
    shift
    say "$*"
    exit "$code"
}

[[ -x $target/bin/prometheus && -x $target/bin/promtool ]] && exit 0
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail 69 "$tool is missing: put prometheus and promtool into $target/bin"
done

fresh=$target/fresh
rm -rf "$fresh"
mkdir -p "$fresh" "$target/bin" || fail 73 "cannot create $target"
cd "$fresh"
# As the user that runs this: apt's own user may not write here, and it would warn.
download() { apt-get "$@" -o APT::Sandbox::User="$(id -un)" -qq download prometheus; }
say "fetching Debian's prometheus (20 MB)"
if ! download 2>/dev/null; then
    # The machine's own lists may be old or absent, and are not this user's to renew.
    mkdir -p apt/lists/partial apt/cache/archives/partial
    own=(-o Dir::State="$fresh/apt" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$fresh/apt/cache")
    apt-get "${own[@]}" -o APT::Sandbox::User="$(id -un)" -qq update && download "${own[@]}" ||
        fail 69 "apt-get could not fetch prometheus: is the network or the package archive out of reach?"
fi
dpkg-deb -x prometheus_*.deb package || fail 65 "the package cannot be unpacked"
mv package/usr/bin/promtool package/usr/bin/prometheus "$target/bin/"
rm -rf "$fresh"
say "ready: $("$target/bin/prometheus" --version 2>&1 | head -n 1)"
