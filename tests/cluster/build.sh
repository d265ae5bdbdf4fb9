#!/bin/bash
# Build all programs of the cluster from Go modules into CLUSTER_STATE/bin, and collect
# the custom resource definitions of the ingress controller and of Gateway API. With Go's
# cache a second run is quick. "build.sh --skaffold" builds skaffold as well, which only
# `skaffold dev` needs.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Each component is a separate module outside the workspace, because its dependencies must
# not change ours.
export GOWORK=off CGO_ENABLED=0 GOBIN=$bin GOFLAGS="-trimpath -buildvcs=false"
mkdir -p "$bin" "$state/crds"
ensure jq=jq

report() { echo "$1: $2 s, $(($(stat -c %s "$bin/$1") / 1000000)) MB"; }

# build NAME FOLDER PACKAGE [LDFLAGS]
build() {
	local start=$SECONDS
	(cd "$here/$2" && nice -n "${NICE:-19}" go build -ldflags "-s -w ${4-}" -o "$bin/$1" "$3")
	report "$1" $((SECONDS - start))
}

# install_tool NAME PACKAGE VERSION
install_tool() {
	local start=$SECONDS
	nice -n "${NICE:-19}" go install -ldflags "-s -w" "$2@$3"
	report "$1" $((SECONDS - start))
}

if [ "${1-}" = --skaffold ]; then
	build skaffold skaffold github.com/GoogleContainerTools/skaffold/v2/cmd/skaffold \
		"-X github.com/GoogleContainerTools/skaffold/v2/pkg/skaffold/version.version=v2.16.1"
	# skaffold 2 speaks to Helm 3 only (post-renderers, `version --client`).
	GOBIN=$bin/helm3 nice -n "${NICE:-19}" go install -ldflags "-s -w" helm.sh/helm/v3/cmd/helm@v3.22.0
fi
install_tool helm helm.sh/helm/v4/cmd/helm v4.3.1
version=k8s.io/component-base/version
minor=${kubernetes_version#v1.}
build kube kubernetes . "-X $version.gitVersion=$kubernetes_version \
	-X $version.gitMajor=1 -X $version.gitMinor=${minor%.*} -X $version.gitTreeState=clean"
for component in etcd kube-apiserver kube-controller-manager kube-netpol kube-proxy kube-scheduler kubectl kubelet; do
	ln -sf kube "$bin/$component"
done
build coredns coredns .
build traefik traefik github.com/traefik/traefik/v3/cmd/traefik
build forward forward main.go
build registry registry .
build authority authority .
build pause pause main.go
install_tool metrics-server sigs.k8s.io/metrics-server/cmd/metrics-server v0.9.0
install_tool kube-score github.com/zegl/kube-score/cmd/kube-score v1.20.0

# Definitions of the optional kinds that the chart can render, so that the API server can
# validate them. Their controllers do not run here.
source_of() { GOFLAGS=-mod=mod go mod download -json "$1" | jq -r .Dir; }
mkdir -p "$state/crds-optional"
install -m 0644 -t "$state/crds-optional" \
	"$(source_of github.com/kedacore/keda/v2@v2.17.2)"/config/crd/bases/keda.sh_{scaledobjects,triggerauthentications}.yaml \
	"$(source_of github.com/prometheus-operator/prometheus-operator@v0.82.2)"/example/prometheus-operator-crd/monitoring.coreos.com_{probes,servicemonitors,prometheusrules}.yaml
# cert-manager's definitions are templates of its chart, wrapped in two lines of template
# code each.
sed '/{{/d' "$(source_of github.com/cert-manager/cert-manager@v1.18.2)/deploy/crds/crd-certificates.yaml" \
	>"$state/crds-optional/cert-manager.io_certificates.yaml"

module() { (cd "$here/traefik" && go list -m -f '{{.Dir}}' "$1"); }
install -m 0644 -t "$state/crds" \
	"$(module github.com/traefik/traefik/v3)"/docs/content/reference/dynamic-configuration/kubernetes-crd-definition-v1.yml \
	"$(module sigs.k8s.io/gateway-api)"/config/crd/standard/gateway.networking.k8s.io_*.yaml
