#!/usr/bin/env bash
# skaffold's custom builder for machines without Docker: build one image of
# images/list and give it to the test cluster under the name that skaffold wants.
#
#   IMAGE=localhost/linkreel/auth:TAG images/skaffold.sh auth
set -euo pipefail
cd "$(dirname "$0")/.."
NICE=0 REGISTRY=${IMAGE%/*} TAG=${IMAGE##*:} OUT=dist/skaffold images/build.sh "$1"
. tests/cluster/lib.sh
import_archive "dist/skaffold/$1.tar"
