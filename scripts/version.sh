#!/usr/bin/env bash
# The version of plmkit, which Cargo.toml has, and the names that are made of it.
#
#   version.sh            prints it
#   version.sh write      writes it into the names of images and packages in workflows, containers, README.md and CITATION.cff
#   version.sh check      fails where one of these has another version
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(sed -n '/^\[workspace[.]package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
number='[0-9]+[.][0-9]+[.][0-9]+[0-9A-Za-z.-]*'
edits=(
    -e "s#(ghcr[.]io/plmkit/plmkit[a-z-]*:)$number#\1$version#g"
    -e "s#(\bplmkit(-cuda)? *=+ *)$number#\1$version#g"
    -e "s#(\btag=\"v)$number#\1$version#g"
    -e "s#(-r v)$number#\1$version#g"
    -e "s#(\bplmkit-)$number(-x86_64-linux)#\1$version\2#g"
    # Of nextflow.config, a Conda recipe and CITATION.cff, at the top or one level down.
    -e "/^(manifest|context|package|version)\b/,/^\}/s#^( *version *[=:] *['\"]?)$number#\1$version#"
)

case ${1-} in
'') echo "$version" ;;
write | check)
    status=0
    while read -r file; do
        if [[ $1 == write ]]; then
            sed -E -i "${edits[@]}" "$file"
        else
            sed -E "${edits[@]}" "$file" | diff -u --label "$file" --label "$version" "$file" - >&2 || status=1
        fi
    done < <(git ls-files workflows containers scripts/wheel README.md CITATION.cff)
    [[ $status == 0 ]] || echo "version: expected $version in these files: scripts/version.sh write mends them" >&2
    exit $status
    ;;
*)
    echo "version: expected write or check, found $1" >&2
    exit 2
    ;;
esac
