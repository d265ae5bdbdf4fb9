.PHONY: chart
## Check the chart: lint, and every ci/*.yaml rendered (needs helm; make cluster-build makes one).
chart:
	PATH="$(CURDIR)/.local/cluster/bin:$$PATH" sh -ec 'for f in charts/linkreel/ci/*.yaml; do helm lint --quiet charts/linkreel --values $$f; done; helm lint --quiet charts/devstack'
	$(GO) test -count=1 ./tests/cluster/...   # Charts are outside of the module, so its cache does not see them change.

.PHONY: cluster-build
## Build a real Kubernetes from Go modules (about 10 minutes once, then seconds).
cluster-build:
	tests/cluster/build.sh

.PHONY: cluster-up
## Start the one-node cluster on this machine (root, Debian 12, cgroup v1).
cluster-up: cluster-build
	tests/cluster/up.sh

.PHONY: cluster-test
## Install the chart on the running cluster and try everything; CASES names some of the cases.
cluster-test:
	tests/cluster/test.sh $(CASES)

.PHONY: cluster-down
## Stop the cluster; its data stays in .local/cluster.
cluster-down:
	tests/cluster/down.sh

include images/images.mk
