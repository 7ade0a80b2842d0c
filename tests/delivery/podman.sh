# shellcheck shell=bash
# Podman where there is no systemd, and where containers are made in a container: no limits, no network, and no namespaces for the steps
# of a build. To be sourced after tests/workflows/checks.sh; images are kept in target/images.
kept=$root/target/images
export ENGINE=podman BUILDAH_ISOLATION=chroot CONTAINERS_CONF=$work/containers.conf CONTAINERS_STORAGE_CONF=$work/storage.conf
command -v podman runc >/dev/null || check "podman" "$root/tests/install/packages.sh" podman runc
cat >"$CONTAINERS_CONF" <<CONF
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=8192:8192"]
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
CONF
printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/store"\nrunroot = "%s/run"\n' "$kept" "$work" >"$CONTAINERS_STORAGE_CONF"

# expect CODE WORDS COMMAND…: the command ends with that code, and says these words.
expect() {
    local code=$1 words=$2 status=0
    "${@:3}" 2>said.log || status=$?
    grep -F "$words" said.log && [[ $status == "$code" ]] || { echo "exit $status: $(<said.log)"; return 1; }
}
