#!/usr/bin/env bash
# make busy: run the tests of packages many times next to two busy loops, to find tests that depend on
# the speed of the machine.
#
#   busy.sh [PACKAGE]...     ROUNDS (20) times each; by default, the ten packages that wait most for time or for processes
#
# Each round is a separate process, so that no state is carried over. The output of failed rounds is
# stored in .local/busy. LIMIT (20m) is the time limit of a round.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-20} kept=$PWD/.local/busy
packages=("$@")
[ $# -gt 0 ] || packages=(./libs/{queue,cache,boot} ./services/links ./services/links/internal/clicks ./services/events
	./services/transcoding-worker/internal/job ./services/standalone ./tests/{cli,faults})
mkdir -p "$kept"
rm -f "$kept"/*.txt

loops=()
trap '[ ${#loops[@]} -eq 0 ] || kill "${loops[@]}"' EXIT
for _ in 1 2; do
	timeout 12h yes >/dev/null &
	loops+=("$!")
done

failed=0
for package in "${packages[@]}"; do
	name=$(tr -c 'a-z0-9\n' - <<<"${package#./}")
	"${GO:-go}" test -c -o "$kept/$name.test" "$package"
	bad=0 start=$SECONDS
	for ((i = 1; i <= rounds; i++)); do
		log=$kept/$name-$i.txt
		if (cd "$package" && timeout --signal QUIT "${LIMIT:-20m}" "$kept/$name.test" >"$log" 2>&1); then
			rm "$log"
		else
			bad=$((bad + 1))
			grep -E '^ *--- FAIL|^panic|^FAIL' "$log" | head -n 5
		fi
	done
	rm "$kept/$name.test"
	echo "$package: $rounds rounds, $bad failed, $(((SECONDS - start) / rounds)) s each"
	failed=$((failed + bad))
done
echo "busy: $((${#packages[@]} * rounds)) rounds next to two busy loops, $failed failed"
[ $failed -eq 0 ]
