#!/usr/bin/env bash
# Puts Apptainer where the tests look for it: .apptainer/usr/bin at the root of the repository.
#
# It is Debian's, of the suite `sid`, with the glibc of `trixie` beside it, unpacked and not installed. What it calls is installed where
# it is missing, which needs root. Exit code 77: it cannot be had here, which tests say loudly and skip.
set -euo pipefail

target=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")/.apptainer
usr=$target/usr
fresh=$target/fresh

skip() {
    printf '\n%s\n*** SKIPPED: no Apptainer: %s\n%s\n\n' "$(printf '*%.0s' {1..80})" "$1" "$(printf '*%.0s' {1..80})" >&2
    exit 77
}

[[ $(id -u) -eq 0 ]] || skip 'it has to be set up by root'
command -v patchelf mksquashfs squashfuse >/dev/null ||
    "$(dirname "$0")/../install/packages.sh" patchelf squashfs-tools squashfuse || skip 'its helpers cannot be installed'
# Users mount their images by FUSE.
[[ ! -e /dev/fuse ]] || chmod 666 /dev/fuse
if [[ -x $usr/bin/apptainer ]] && "$usr/bin/apptainer" --version >/dev/null 2>&1; then
    exit 0
fi

rm -rf "$fresh"
mkdir -p "$fresh"/{state/lists,cache/archives}/partial
cd "$fresh"
# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Identifier: Packages' 'Label: Debian' |
    awk -v codename="$(. /etc/os-release && echo "$VERSION_CODENAME")" '$1 == codename { print $2; exit }')
[[ $mirror ]] || skip 'apt knows no mirror of Debian'
printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" sid "$mirror" trixie >sources.list
touch state/status
get=(apt-get -qq -o Dir::Etc::sourcelist="$fresh/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State="$fresh/state"
    -o Dir::State::status="$fresh/state/status" -o Dir::Cache="$fresh/cache" -o APT::Sandbox::User=root)
{ "${get[@]}" update && "${get[@]}" download apptainer libc6/trixie; } || skip 'apt could not fetch it'
dpkg-deb -x apptainer_*.deb .
dpkg-deb -x libc6_*.deb glibc

# It finds its files from where it lies, with /etc and /var below /usr, and one of its programs below /usr/lib.
lib=$target/glibc/usr/lib/x86_64-linux-gnu
for program in usr/bin/apptainer usr/lib/x86_64-linux-gnu/apptainer/bin/starter; do
    patchelf --set-interpreter "$lib/ld-linux-x86-64.so.2" --set-rpath "$lib:/usr/lib/x86_64-linux-gnu" "$program"
done
mv etc usr/
mkdir -p usr/var/lib/apptainer/mnt/session
ln -s ../etc ../var usr/lib/
# Root of this machine may lack some.
sed -i 's/^root default capabilities = .*/root default capabilities = no/' usr/etc/apptainer/apptainer.conf
rm -rf "$usr" "$target/glibc"
mv usr glibc "$target"
cd "$target"
rm -rf "$fresh"
"$usr/bin/apptainer" --version >&2 || skip 'it does not run'
