#!/usr/bin/env bash
# make check: what is worth knowing before a commit, in under a minute once the build cache is warm. Without arguments
# it looks at every module; with packages (PKG=./services/links/...) at those alone.
set -euo pipefail
cd "$(dirname "$0")/.."
begin=$SECONDS
status=0
root=$PWD
if [ $# -eq 0 ]; then
	modules=$MODULES
	packages=()
	for m in $modules; do [ "$m" = tests ] || packages+=("./$m/..."); done # The stories of tests/ are no unit tests.
	vet=("${packages[@]}" ./tests/...)
else
	modules=
	packages=("$@") vet=("$@")
	for p in "$@"; do # The module of each package is the nearest folder above it with a go.mod.
		d=${p%/...}
		while [ ! -f "$d/go.mod" ]; do d=$(dirname "$d"); done
		modules+=" ${d#./}"
	done
	modules=$(printf '%s\n' $modules | sort -u)
fi
"$GO" vet "${vet[@]}" || status=1
for m in $modules; do
	what=()
	if [ $# -gt 0 ]; then
		for p in "$@"; do case ${p#./}/ in "$m"/*) what+=("./${p#./$m}") ;; esac; done
		what=("${what[@]//\.\/\//./}")
	fi
	[ ${#what[@]} -gt 0 ] || what=(./...)
	(cd "$m" && "$BIN/golangci-lint" run --config "$root/.golangci.yml" "${what[@]}") || status=1
done
"$GO" test -short -timeout 5m "${packages[@]}" | { grep -v 'no test files' || true; } || status=1
echo "check: $((SECONDS - begin)) s, $([ $status = 0 ] && echo passed || echo FAILED)"
exit $status
