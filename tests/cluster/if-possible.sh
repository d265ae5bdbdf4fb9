#!/bin/bash
# The cluster test for the gate. It runs if the cluster's programs exist and this machine can
# run them. Otherwise it prints one line with the reason, and the gate's
# table shows that the cluster was not checked. Building the programs takes half an hour
# and is a separate job.
#
# It builds Linkreel's images from this tree and runs the cases that take up to eight
# minutes. The gate runs the stories without a cluster, and the other cases run nightly.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

skip() { echo "cluster test: skipped: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root"
[ -d /sys/fs/cgroup/memory ] || skip "the cluster needs cgroup v1"
for program in kube coredns traefik metrics-server helm kube-score forward pause; do
	[ -x "$bin/$program" ] || skip "$program is not built in $state (make cluster-build)"
done
! ip link show "$link" >/dev/null 2>&1 || skip "a cluster is already running on this machine"
[ "$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)" -gt 4000000 ] || skip "needs 4 GB of free memory"
command -v apt-get >/dev/null || skip "needs Debian's packages"

NICE=0 "$here/images.sh"
trap '"$here/down.sh"' EXIT
"$here/up.sh"
export ROLLOUTS=${ROLLOUTS:-2} RATE=${RATE:-100} LINKS=${LINKS:-1000}
"$here/test.sh" images dryrun score install helmtest smoke pods policy rollouts upgrade freeze uninstall
