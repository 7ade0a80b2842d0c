#!/usr/bin/env bash
# binfmt.sh NAME QEMU [FLAGS]: from now on the kernel gives programs for aarch64 to that qemu. binfmt_misc is mounted.
set -euo pipefail
# The first bytes of a program for aarch64; of its kind, 2 or 3.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
echo ":$1:M::$magic:$mask:$2:${3:-}" >/proc/sys/fs/binfmt_misc/register
