#!/bin/bash
# Run skaffold on the test cluster, which has no Docker: skaffold.sh dev, run,
# delete… with the profile "cluster". Needs build.sh --skaffold.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

[ -x "$bin/skaffold" ] || die "skaffold is not built; run tests/cluster/build.sh --skaffold"
running init || die "the cluster is not running; run make cluster-up"
[ -x "$bin/dockerdoor" ] || (cd "$root" && go build -o "$bin/dockerdoor" ./tests/cluster/cmd/dockerdoor)
running dockerdoor || spawn dockerdoor dockerdoor "$state/run/docker.sock" "$state/run/containerd.sock"
await 10 test -S "$state/run/docker.sock"
export PATH="$bin/helm3:$PATH"
export DOCKER_HOST=unix://$state/run/docker.sock SKAFFOLD_UPDATE_CHECK=false
cd "$root"
command=$1
shift
exec skaffold "$command" --profile cluster --default-repo "" --interactive=false "$@"
