#!/usr/bin/env bash
# Build Linkreel's images as archives in dist/images without Docker: Go programs
# by the Go toolchain, Debian packages by mmdebstrap, images by archive.sh.
#
#   build.sh [NAME]...     the named images of images/list, or all
#
# REGISTRY and TAG name them (localhost/linkreel and dev). OUT is the
# folder of the archives, LAYERS that of what is made of Debian packages (dist/images). The archives are read
# by `docker load`, `podman load`, `skopeo copy docker-archive:…` and
# `ctr images import`. The same commit gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
registry=${REGISTRY:-localhost/linkreel} tag=${TAG:-dev}
out=${OUT:-dist/images} layers=${LAYERS:-dist/images}
mkdir -p "$out/bin" "$layers"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
revision=$(git rev-parse HEAD)
certificates=/etc/ssl/certs/ca-certificates.crt

die() { echo "build.sh: $*" >&2; exit 1; }

# layer NAME PACKAGES: a tar of the smallest Debian that runs PACKAGES, without
# documents and translations. Kept, since it changes with Debian only; remove
# *.layer.tar to take up new packages.
layer() {
	local file=$layers/$1.layer.tar sources
	[ ! -f "$file" ] || return 0
	command -v mmdebstrap >/dev/null || die "needs mmdebstrap (a Debian package)"
	# The machine's own Debian sources, so that no mirror is named here.
	sources=${DEBIAN_SOURCES:-/etc/apt/sources.list.d/debian.sources}
	[ -s "$sources" ] || sources=/etc/apt/sources.list
	mmdebstrap --quiet --variant=essential --mode=root --format=tar --include="$2" \
		--aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
		--customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/* "$1"/var/log/* "$1"/usr/share/icons "$1"/usr/lib/*/dri "$1"/usr/lib/*/libLLVM*' \
		"${DEBIAN_SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}" "$file.new" "$sources"
	mv "$file.new" "$file"
}

# program PACKAGE FILE: a static program. Without a build id, paths and the state
# of the working tree, the same source gives the same bytes.
program() {
	CGO_ENABLED=0 nice -n "${NICE:-10}" go build -trimpath -buildvcs=false -tags=disable_grpc_modules -gcflags=all=-dwarf=false \
		-ldflags "-s -w -buildid= -X github.com/linkreel/linkreel/libs/boot.version=$tag -X main.version=$tag" -o "$2" "$1"
}

make_image() {
	local name=$1 package=$2 base=$3 options=()
	if [ "$base" != - ]; then
		layer "$name" "$base"
		options+=(--layer "$layers/$name.layer.tar")
	fi
	if [ "$package" != - ]; then
		program "$package" "$out/bin/$name"
		options+=("$out/bin/$name=/$name" images/passwd=/etc/passwd)
		[ ! -f $certificates ] || options+=("$certificates=$certificates")
	fi
	images/archive.sh "$out/$name.tar" "$registry/$name:$tag" \
		--env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		--label org.opencontainers.image.title="Linkreel $name" \
		--label org.opencontainers.image.source=https://github.com/linkreel/linkreel \
		--label org.opencontainers.image.licenses=Apache-2.0 \
		--label org.opencontainers.image.version="$tag" \
		--label org.opencontainers.image.revision="$revision" \
		"${options[@]}"
	echo "$registry/$name:$tag  $out/$name.tar  $(($(stat -c %s "$out/$name.tar") / 1000000)) MB"
}

made=0
while read -r name package base; do
	[ -n "$name" ] && [[ $name != \#* ]] || continue
	[ $# -eq 0 ] || [[ " $* " = *" $name "* ]] || continue
	make_image "$name" "$package" "$base"
	made=$((made + 1))
done <images/list
[ $made -gt 0 ] || die "no such image: $*"
