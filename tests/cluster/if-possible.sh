#!/bin/bash
# The cluster test for the gate: runs when the cluster's programs and Linkreel's
# images are built already and this machine can run them; else says in one line
# why not, and succeeds. Building them takes minutes and is a job of its own.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

skip() { echo "cluster test: skipped: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root"
[ -d /sys/fs/cgroup/memory ] || skip "the cluster is written for cgroup v1"
for program in containerd runc nft; do
	command -v $program >/dev/null || skip "$program is not installed"
done
for program in kube coredns traefik metrics-server helm forward pause; do
	[ -x "$bin/$program" ] || skip "$program is not built (make cluster-build)"
done
[ -s "$root/dist/images/auth.tar" ] || skip "the images are not built (make images)"

trap '"$here/down.sh"' EXIT
"$here/up.sh"
ROLLOUTS=${ROLLOUTS:-2} "$here/test.sh"
