#!/usr/bin/env bash
# make vuln: govulncheck over every module at once. A machine that cannot reach the database says so and passes: the
# gate of CI has a network, and a build must not fail because a third party is away.
set -euo pipefail
cd "$(dirname "$0")/.."
rc=0
out=$("$BIN/govulncheck" $PKGS 2>&1) || rc=$?
if [ $rc -eq 0 ]; then
	echo "vuln: none known"
elif [ $rc -ne 3 ] && # 3 is govulncheck's own code for findings
	grep -qiE 'vuln\.go\.dev|fetching vulnerabilities|no such host|connection refused|timeout|dial tcp|proxyconnect|bad response' <<<"$out"; then
	echo "vuln: skipped, the vulnerability database cannot be reached from here"
else
	echo "$out"
	exit 1
fi
