#!/usr/bin/env bash
# make check: the checks to run before a commit. They take less than a minute with a warm build cache.
# Without arguments it checks every module; with packages (PKG=./services/links/...) only those.
set -euo pipefail
cd "$(dirname "$0")/.."
begin=$SECONDS
status=0
packages=("$@") all=("$@")
if [ $# -eq 0 ]; then
	for p in $PKGS; do [ "$p" = ./tests/... ] || packages+=("$p"); done # The stories in tests/ are not unit tests.
	all=($PKGS)
fi
"$GO" vet "${all[@]}" || status=1
"$BIN/golangci-lint" run "${all[@]}" || status=1
"$GO" test -short -timeout 5m "${packages[@]}" | { grep -v 'no test files' || true; } || status=1
echo "check: $((SECONDS - begin)) s, $([ $status = 0 ] && echo passed || echo FAILED)"
exit $status
