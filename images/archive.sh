#!/usr/bin/env bash
# Write an image archive that docker, podman and containerd load. It takes no
# builder, no daemon and no registry: an image is a tar of tars and two JSON
# files. The same input gives the same bytes: times are SOURCE_DATE_EPOCH (the
# commit's time when called by build.sh), owners are root, names are sorted.
#
#   archive.sh OUT NAME:TAG [OPTION]... SOURCE[=TARGET]...
#
# Each SOURCE becomes the file TARGET of the image (default: /NAME-OF-SOURCE);
# the first one is the entrypoint unless --entrypoint names another.
#   --user UID          who the process runs as (default 65532)
#   --layer FILE        a layer below the files, a tar; may be given again
#   --env NAME=VALUE    may be given again
#   --label NAME=VALUE  may be given again
#   --entrypoint PATH
set -euo pipefail
die() { echo "archive.sh: $*" >&2; exit 1; }

[ $# -ge 2 ] || die "want OUT NAME:TAG"
out=$1 name=$2
shift 2
user=65532 entrypoint="" layers=() env=() labels=() files=()
while [ $# -gt 0 ]; do
	case $1 in
	--user) user=$2; shift 2 ;;
	--layer) layers+=("$2"); shift 2 ;;
	--env) env+=("$2"); shift 2 ;;
	--label) labels+=("$2"); shift 2 ;;
	--entrypoint) entrypoint=$2; shift 2 ;;
	-*) die "unknown option $1" ;;
	*) files+=("$1"); shift ;;
	esac
done

epoch=${SOURCE_DATE_EPOCH:-0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pack FOLDER FILE: a tar that depends on names, modes and contents alone.
pack() {
	tar -C "$1" --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --sort=name -cf "$2" .
}

mkdir -p "$work/root" "$work/image"
for file in "${files[@]}"; do
	source=${file%%=*} target=/$(basename "${file%%=*}")
	[[ $file != *=* ]] || target=${file#*=}
	entrypoint=${entrypoint:-$target}
	mode=0644
	[ ! -x "$source" ] || mode=0755
	install -D -m $mode "$source" "$work/root$target"
done

names=() digests=()
# add FILE: take FILE as the next layer.
add() {
	local digest
	digest=$(sha256sum <"$1" | cut -d' ' -f1)
	ln -s "$(realpath "$1")" "$work/image/$digest.tar"
	names+=("$digest.tar") digests+=("sha256:$digest")
}
for layer in "${layers[@]}"; do add "$layer"; done
if [ ${#files[@]} -gt 0 ]; then
	find "$work/root" -type d -exec chmod 0755 {} +
	pack "$work/root" "$work/files.tar"
	add "$work/files.tar"
fi

# list WORD...: a JSON array of strings, [] for no words.
list() { jq -cn '$ARGS.positional' --args -- "$@"; }
architecture=$(go env GOARCH)
config=$(jq -cn --arg architecture "$architecture" --arg user "$user" --arg entrypoint "$entrypoint" \
	--arg created "$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)" \
	--argjson env "$(list "${env[@]}")" --argjson labels "$(list "${labels[@]}")" \
	--argjson digests "$(list "${digests[@]}")" '{
		architecture: $architecture, os: "linux", created: $created,
		config: {
			User: $user, Env: $env,
			Entrypoint: (if $entrypoint == "" then null else [$entrypoint] end),
			Labels: ($labels | map(capture("^(?<key>[^=]*)=(?<value>.*)$")) | from_entries)},
		rootfs: {type: "layers", diff_ids: $digests}}')
digest=$(sha256sum <<<"$config" | cut -d' ' -f1)
echo "$config" >"$work/image/$digest.json"
jq -cn --arg config "$digest.json" --arg name "$name" --argjson layers "$(list "${names[@]}")" \
	'[{Config: $config, RepoTags: [$name], Layers: $layers}]' >"$work/image/manifest.json"
mkdir -p "$(dirname "$out")"
(cd "$work/image" && tar --dereference --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$epoch" \
	-cf - *.json *.tar) >"$out.new"
mv "$out.new" "$out"
