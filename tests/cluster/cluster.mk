.PHONY: chart
## Check the chart: lint, and every ci/*.yaml rendered.
chart: tools $(BIN)/helm
	for f in charts/linkreel/ci/*.yaml; do $(BIN)/helm lint --quiet charts/linkreel --values $$f; done
	$(BIN)/helm lint --quiet charts/devstack
	$(GO) test -count=1 ./tests/cluster/...   # Charts are outside the module, so Go's test cache does not notice changes in them.

# About 75 s on two idle cores, once.
$(BIN)/helm:
	@mkdir -p $(BIN)
	GOWORK=off CGO_ENABLED=0 GOBIN=$(BIN) GOFLAGS="-trimpath -buildvcs=false" $(GO) install -ldflags "-s -w" helm.sh/helm/v4/cmd/helm@v4.3.1
test race check: $(BIN)/helm

.PHONY: cluster-build
## Build a real Kubernetes from Go modules (about 17 minutes once, then seconds).
cluster-build:
	tests/cluster/build.sh

.PHONY: cluster-up
## Start the one-node cluster on this machine (root, Debian 12, cgroup v1).
cluster-up: cluster-build
	tests/cluster/up.sh

.PHONY: cluster-test
## Install the chart on the running cluster and run its test cases; CASES selects cases.
cluster-test: tools
	tests/cluster/images.sh
	tests/cluster/test.sh $(CASES)

.PHONY: cluster-down
## Stop the cluster and keep its data.
cluster-down:
	tests/cluster/down.sh

include images/images.mk
