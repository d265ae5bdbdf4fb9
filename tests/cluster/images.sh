#!/bin/bash
# Build Linkreel's images from this tree. What they hold of Debian is kept with the
# cluster, so that a new clone builds our programs only.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
ensure jq=jq mmdebstrap=mmdebstrap
LAYERS=$layers exec "$root/images/build.sh"
