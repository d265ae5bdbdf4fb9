#!/bin/bash
# Build Linkreel's images from this tree. Their layers of Debian packages are kept with
# the cluster, so that a new clone builds only our programs.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
ensure jq=jq mmdebstrap=mmdebstrap
LAYERS=$layers exec "$root/images/build.sh"
