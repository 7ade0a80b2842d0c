#!/usr/bin/env bash
# Installs Debian packages, and waits while another test does so: apt-get would fail. Needs root.
#
#   packages.sh PACKAGE…
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
exec apt-get install -o DPkg::Lock::Timeout=600 -y -qq --no-install-recommends "$@" >/dev/null
