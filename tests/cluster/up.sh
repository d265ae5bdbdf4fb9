#!/bin/bash
# Start the cluster, or do nothing if it runs. Returns once the node, DNS, the ingress
# controller and the metrics server are ready.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" = 0 ] || die "needs root"
[ -x "$bin/kube" ] || die "the cluster is not built; run make cluster-build"
ensure containerd=containerd runc=runc /usr/lib/cni/bridge=containernetworking-plugins ip=iproute2 iptables=iptables nft=nftables \
	curl=curl jq=jq openssl=openssl
[ -d /sys/fs/cgroup/memory ] || die "needs cgroup v1"
[ ${#state} -le 80 ] || die "CLUSTER_STATE is too long for the paths of sockets"
mkdir -p "$state"/{log/pods,run,pki,kubelet} /var/lib/kubelet /var/lib/cni

# certify NAME SUBJECT [ADDRESSES]: make a key and a certificate from the cluster's CA for
# a client, and with ADDRESSES also for a server.
certify() {
	local ca=$pki/${CA:-ca}
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" \
		-keyout "$pki/$1.key" -out "$pki/$1.csr" 2>/dev/null
	openssl x509 -req -in "$pki/$1.csr" -CA "$ca.crt" -CAkey "$ca.key" -CAcreateserial \
		-days 3650 -out "$pki/$1.crt" 2>/dev/null -extfile <(
		echo extendedKeyUsage=clientAuth,serverAuth
		[ -z "${3-}" ] || echo "subjectAltName=$3"
	)
}

certificate_authority() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" \
		-days 3650 -keyout "$pki/$1.key" -out "$pki/$1.crt" 2>/dev/null
}

# kubeconfig NAME FILE: write FILE, with which the holder of certificate NAME can use the
# API.
kubeconfig() {
	jq -n --arg ca "$(base64 -w0 "$pki/ca.crt")" --arg crt "$(base64 -w0 "$pki/$1.crt")" \
		--arg key "$(base64 -w0 "$pki/$1.key")" --arg server "https://$node_ip:6443" '{
		apiVersion: "v1", kind: "Config", "current-context": "cluster",
		clusters: [{name: "cluster", cluster: {server: $server, "certificate-authority-data": $ca}}],
		users: [{name: "user", user: {"client-certificate-data": $crt, "client-key-data": $key}}],
		contexts: [{name: "cluster", context: {cluster: "cluster", user: "user"}}]}' >"$2"
}

make_credentials() (
	umask 077
	certificate_authority ca
	certificate_authority front-proxy-ca
	CA=front-proxy-ca certify front-proxy /CN=front-proxy
	name=kubernetes.default
	certify kube-apiserver /O=system:masters/CN=kube-apiserver \
		"DNS:$name,DNS:$name.svc,DNS:$name.svc.cluster.local,IP:$api_ip,IP:$node_ip"
	certify kubelet /O=system:nodes/CN=system:node:node "DNS:node,IP:$node_ip"
	certify admin /O=system:masters/CN=admin
	for name in kube-controller-manager kube-scheduler kube-proxy; do
		certify $name /CN=system:$name
	done
	openssl genrsa -out "$pki/service-accounts.key" 2048 2>/dev/null
	openssl rsa -in "$pki/service-accounts.key" -pubout -out "$pki/service-accounts.pub" 2>/dev/null
	for name in kube-controller-manager kube-scheduler kube-proxy kubelet; do
		kubeconfig $name "$pki/$name.kubeconfig"
	done
	kubeconfig admin "$KUBECONFIG"
)

start_node() {
	local node init controller
	rm -f "$state"/run/*.sock
	for controller in /sys/fs/cgroup/*/; do
		[ "$controller" = /sys/fs/cgroup/unified/ ] || mkdir -p "$controller$cgroup"
	done
	# A new cpuset group has no CPUs, and no process can join it until it has some.
	for controller in cpus mems; do
		cat /sys/fs/cgroup/cpuset/cpuset.$controller >"/sys/fs/cgroup/cpuset/$cgroup/cpuset.$controller"
	done
	# By default a group has the weight of one process. This group has all pods, so without
	# more weight the machine's other processes would starve them.
	echo 8192 >"/sys/fs/cgroup/cpu/$cgroup/cpu.shares"
	spawn node unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc \
		"$here/node.sh"
	read -r node _ <"$state/run/node.pid"
	await 10 grep -q . "/proc/$node/task/$node/children"
	init=$(tr -d ' ' <"/proc/$node/task/$node/children")
	remember init "$init"
	ip link delete "$link" 2>/dev/null || true   # Left by a node that has just died.
	ip link add "$link" type veth peer name eth0 netns "$init"
	ip address add "$host_ip/30" dev "$link"
	ip link set "$link" up
	# The cluster does not need this route. It lets host processes reach pods and services.
	ip route add "$pod_cidr" via "$node_ip"
	ip route add "$service_cidr" via "$node_ip"
}

# volumes: print volumes that are folders of the node, for claims of the default storage
# class.
volumes() {
	local i
	cat <<-'END'
		apiVersion: storage.k8s.io/v1
		kind: StorageClass
		metadata:
		  name: local
		  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
		provisioner: kubernetes.io/no-provisioner
		volumeBindingMode: WaitForFirstConsumer
	END
	for i in {1..8}; do
		mkdir -p "$state/volumes/$i"
		cat <<-END
			---
			apiVersion: v1
			kind: PersistentVolume
			metadata: {name: local-$i}
			spec:
			  accessModes: [ReadWriteOnce]
			  capacity: {storage: 50Gi}
			  local: {path: $state/volumes/$i}
			  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [
			    {key: kubernetes.io/hostname, operator: In, values: [node]}]}]}}
			  storageClassName: local
		END
	done
}

pki=$state/pki
[ -s "$KUBECONFIG" ] || make_credentials
running init || start_node
running forward || spawn forward forward \
	"127.0.0.1:$http_port=$node_ip:80" "127.0.0.1:$https_port=$node_ip:443"

await 60 ctr -a "$state/run/containerd.sock" version
import_binary localhost/pause:1 65535:65535 "$bin/pause"
import_binary localhost/coredns:1 0:0 "$bin/coredns"
import_binary localhost/traefik:1 65532:65532 "$bin/traefik"
import_binary localhost/metrics-server:1 65532:65532 "$bin/metrics-server"
await 120 kubectl get --raw /readyz
kubectl apply --server-side -f "$state/crds" -f "$here/manifests" >/dev/null
volumes | kubectl apply --server-side -f - >/dev/null
await 60 kubectl get node node
kubectl wait --for condition=Ready node/node --timeout 120s >/dev/null
kubectl wait --for condition=Available --namespace kube-system --timeout 180s deployment --all >/dev/null || {
	kubectl get pods --all-namespaces
	die "not all pods became ready; see $state/log"
}
await 60 curl --silent --output /dev/null "http://127.0.0.1:$http_port/"
running forward || die "$(tail -n 1 "$state/log/forward.log")"
echo "Ready: Ingress on http://127.0.0.1:$http_port and https://127.0.0.1:$https_port; for kubectl and helm:"
echo "export PATH=$bin:\$PATH KUBECONFIG=$KUBECONFIG"
