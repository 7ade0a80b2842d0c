#!/usr/bin/env bash
# A real SLURM on this machine, for tests: one node with two GPUs that are character devices, partition
# `debug`. The node claims 16 CPUs and 128 GB, so that jobs can ask for what they would on a real one.
#
#     cluster.sh start FOLDER     then: export SLURM_CONF=FOLDER/slurm.conf
#     cluster.sh stop FOLDER      ends jobs and daemons
#
# Daemons, keys, state and logs are under FOLDER, and ports are free ones: clusters do not meet. Needs root, and installs the
# Debian packages where they are missing. Exit code 77: it cannot be installed here, which tests say
# loudly and skip; 1: it is there and does not run.
set -euo pipefail

[[ $# -eq 2 && $1 =~ ^(start|stop)$ ]] || { sed -n 's/^# \{0,1\}//; 2,10p' "$0" >&2; exit 2; }
mkdir -p "$2"
folder=$(realpath "$2")
export SLURM_CONF=$folder/slurm.conf

skip() {
    printf '\n%s\n*** SKIPPED: no SLURM: %s\n%s\n\n' "$(printf '*%.0s' {1..80})" "$1" "$(printf '*%.0s' {1..80})" >&2
    exit 77
}

install() {
    command -v slurmctld slurmd sbatch munged >/dev/null && return
    local get=("$(dirname "$0")/../../install/packages.sh" slurmctld slurmd slurm-client munge)
    command -v apt-get >/dev/null || skip 'slurmctld, slurmd, sbatch or munged is missing, and there is no apt-get'
    "${get[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${get[@]}"; } >/dev/null 2>&1 || skip "'${get[*]}' failed"
}

# free: two TCP ports that nobody listens on.
free() {
    python3 -c 'import socket; s = [socket.socket() for _ in "ab"]; [t.bind(("127.0.0.1", 0)) for t in s]
print(*[t.getsockname()[1] for t in s])'
}

configure() {
    local host ctl node track=proctrack/cgroup task=task/cgroup
    # This SLURM's way with cgroup v2 wants systemd. Without cgroups, memory is not limited; nothing else differs.
    [[ -w /sys/fs/cgroup/memory && -w /sys/fs/cgroup/freezer ]] || { track=proctrack/linuxproc task=task/none; }
    host=$(hostname -s)
    read -r ctl node < <(free)
    mkdir -p "$folder"/{state,spool}
    # A cluster of its own has ids of its own, too: cgroups are named after jobs only.
    # cred_expire: a requeued job waits for that long.
    cat >"$SLURM_CONF" <<CONF
ClusterName=plmkit
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$ctl
SlurmdPort=$node
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=10
CredType=cred/munge
FirstJobId=$((ctl * 100))
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=$track
TaskPlugin=$task
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
JobRequeue=1
KillWait=10
SlurmdParameters=config_overrides
MailProg=/bin/true
ReturnToService=2
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,requeue_setup_env_fail
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 RealMemory=131072 Gres=gpu:2
PartitionName=debug Nodes=$host Default=YES MaxTime=UNLIMITED State=UP OverSubscribe=NO
CONF
    cat >"$folder/cgroup.conf" <<CONF
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace=yes
CONF
    # Character devices that a job can open, as /dev/nvidia0 and 1 would be: jobs get CUDA_VISIBLE_DEVICES of them.
    for gpu in 0 1; do
        [[ -c $folder/nvidia$gpu ]] || mknod "$folder/nvidia$gpu" c 1 3 || skip 'mknod is not permitted'
    done
    echo "Name=gpu File=$folder/nvidia[0-1]" >"$folder/gres.conf"
}

start() {
    [[ $(id -u) -eq 0 ]] || skip 'it has to be started by root'
    install
    configure
    head -c 1024 /dev/urandom >"$folder/munge.key"
    chmod 400 "$folder/munge.key"
    trap 'stop' ERR
    munged --force --key-file "$folder/munge.key" --socket "$folder/munge.socket" --pid-file "$folder/munged.pid" \
        --log-file "$folder/munged.log" --seed-file "$folder/munge.seed"
    slurmctld
    slurmd
    for _ in {1..100}; do
        if [[ $(sinfo --noheader --format %T 2>/dev/null) == idle ]]; then
            echo "export SLURM_CONF=$SLURM_CONF"
            return
        fi
        sleep 0.2
    done
    tail -n 20 "$folder"/{slurmctld,slurmd}.log >&2
    stop
    echo "$folder: the node did not come up; see its logs above" >&2
    exit 1
}

# end NAME: the daemon whose process id is in NAME.pid, if it is still that daemon.
end() {
    local pid
    pid=$(cat "$folder/$1.pid" 2>/dev/null) && [[ $(cat "/proc/$pid/comm" 2>/dev/null) == "$1" ]] || return 0
    kill "$pid" || return 0
    for _ in {1..50}; do
        [[ -e /proc/$pid ]] || return 0
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
}

stop() {
    trap - ERR
    if [[ -e $folder/slurmctld.pid ]]; then
        timeout 10 scancel --full --signal=KILL --user=root 2>/dev/null || true
        timeout 10 scancel --user=root 2>/dev/null || true
        for _ in {1..50}; do
            [[ $(timeout 5 squeue --noheader 2>/dev/null) ]] || break
            sleep 0.2
        done
    fi
    end slurmd
    end slurmctld
    end munged
}

"$1"
