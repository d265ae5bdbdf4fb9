# Settings and functions shared by the cluster's scripts; sourced, not run. CLUSTER_STATE
# is the only folder to which the cluster writes. It belongs to the machine, not to the
# working tree: a machine has one cluster, and a new clone should find its programs, which
# take minutes to build.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
state=${CLUSTER_STATE:-/var/lib/linkreel-cluster}
mkdir -p "$state"
state=$(cd "$state" && pwd)
bin=$state/bin
layers=$state/layers   # The other layers of images: Debian packages.
export PATH="$bin:$PATH" KUBECONFIG="$state/admin.kubeconfig"

kubernetes_version=v1.36.3
http_port=${CLUSTER_HTTP_PORT:-8480}   # Ingress, on the host's loopback.
https_port=${CLUSTER_HTTPS_PORT:-8443}
registry_port=5050                     # On the host's side of the link, while a case needs it.
proxy_port=3128                        # Likewise. Also in charts/linkreel/ci/cluster.yaml.

# The node lives in a network namespace, joined to the host by a veth pair.
link=kube0
host_ip=10.213.0.1
node_ip=10.213.0.2
pod_cidr=10.214.0.0/16
service_cidr=10.215.0.0/16
api_ip=10.215.0.1
dns_ip=10.215.0.10       # Also in manifests/coredns.yaml.
cgroup=cluster-$link     # Parent of all pods, in every cgroup v1 hierarchy.

die() { echo "$(basename "$0"): $*" >&2; exit 1; }

# remember NAME PID: record that process PID is NAME. Its start time distinguishes it from
# a later process with the same PID.
remember() { echo "$2 $(start_time "$2")" >"$state/run/$1.pid"; }

# start_time PID: print the start time of a process; empty once the process has ended.
start_time() { sed -n 's/.*) [^ZX] //p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f19; }

running() {
	local pid start
	read -r pid start 2>/dev/null <"$state/run/$1.pid" &&
		[ -n "$start" ] && [ "$start" = "$(start_time "$pid")" ]
}

# spawn NAME COMMAND...: start COMMAND in the background, log to NAME.log.
spawn() {
	local name=$1
	shift
	setsid "$@" </dev/null >>"$state/log/$name.log" 2>&1 &
	remember "$name" $!
}

# stop NAME: kill the process and wait until it is gone.
stop() {
	local pid
	if running "$1"; then
		read -r pid _ <"$state/run/$1.pid"
		kill -KILL "$pid"
		while running "$1"; do sleep 0.1; done
	fi
	rm -f "$state/run/$1.pid"
}

# within SECONDS COMMAND...: run COMMAND every half second until it succeeds; fail after
# SECONDS.
within() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.5
	done
}

# await SECONDS COMMAND...: the same, but end the script if COMMAND does not succeed in
# time.
await() { within "$@" || die "gave up waiting for: ${*:2}"; }

# ensure PROGRAM=PACKAGE...: install the Debian packages of those programs that are
# missing.
ensure() {
	local pair missing=()
	for pair in "$@"; do command -v "${pair%=*}" >/dev/null || missing+=("${pair#*=}"); done
	[ ${#missing[@]} -gt 0 ] || return 0
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "needs the Debian packages ${missing[*]}"
	echo "Installing ${missing[*]} (apt) …"
	apt-get update -q >/dev/null
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}

# import_archive FILE: import the images of an image archive into the node. No registry is
# needed, because the kubelet finds them in containerd's own store.
import_archive() {
	ctr -a "$state/run/containerd.sock" -n k8s.io images import --no-unpack "$1" >/dev/null
}

# import_binary NAME:TAG USER FILE: make an image whose only file is the static binary
# FILE, and import it into the node.
import_binary() {
	"$root/images/archive.sh" "$state/image.tar" "$1" --user "$2" "$3"
	import_archive "$state/image.tar"
	rm -f "$state/image.tar"
}
