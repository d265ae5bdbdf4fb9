# Linkreel. `make help` lists what people run; CI runs the same targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

BIN     := $(CURDIR)/.local/bin
MODULES := libs libs/clients/go services/localcloud services/auth services/console services/events services/links services/videos services/transcoding-worker services/cli services/standalone tests
PKGS    := $(MODULES:%=./%/...)
# The packages whose tests take longest, the longest first. They begin first, because one that begins late runs alone at the end.
SLOW    := $(addprefix ./,tests/e2e tests/contract tests/faults services/links services/standalone tests/media services/videos tests/cluster)
RACE    ?= $(filter ./libs/% ./services/%,$(PKGS))
SERVICES := auth console events links videos transcoding-worker
GO      ?= go
# A program of the standard library alone, so that it runs while everything else is still being compiled.
INSTALL := cd services/standalone && GOWORK=off $(GO) run ./cmd/tools
# One way of compiling for all targets, the one of a release, so that they share what they have compiled.
# disable_grpc_modules leaves out the storage client's gRPC transport, which no service uses.
# Programs are linked without debug information (-w), so the compiler need not make it: a tenth to a fifth of its work.
export GOFLAGS     ?= -trimpath -tags=disable_grpc_modules -gcflags=all=-dwarf=false
export CGO_ENABLED ?= 0
SUITE := $(BIN)/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg
export MODULES PKGS GO BIN

.PHONY: help
## Show this list.
help:
	@awk '/^## /{d=substr($$0,4)} /^[a-z0-9-]+:/{if(d!=""){split($$1,a,":"); printf "  make %-14s %s\n", a[1], d; d=""}}' $(MAKEFILE_LIST)

.PHONY: run
## Run the whole system on this machine (installs redis and ffmpeg when missing).
run:
	@echo "Building Linkreel. The first time takes some minutes: it downloads Go modules, redis and ffmpeg."
	@$(MAKE) --no-print-directory -j2 $(BIN)/linkreel packages   # Downloading packages and compiling share no resource.
	@exec $(BIN)/linkreel up

.PHONY: packages
packages:
	@$(INSTALL) redis ffmpeg

.PHONY: check
## Before a commit: vet, lint and short tests of everything, or of PKG=./services/links/...
check: tools $(BIN)/golangci-lint
	@tools/check.sh $(PKG)

.PHONY: test
## Run every test (installs what is missing, see tools). `make lint` vets.
test: tools $(BIN)/gotestsum
	@mkdir -p .local
	$(SUITE) --jsonfile .local/test.json -- -vet=off -p 2 -timeout 20m $(SLOW) $(PKGS)

.PHONY: race
## Run the tests of libs and services under the race detector (RACE=./tests/e2e/... for others).
race: tools $(BIN)/gotestsum
	@$(INSTALL) gcc
	CGO_ENABLED=1 $(SUITE) -- -vet=off -race -short -p 2 -timeout 20m $(RACE)

# The packages that have a test with a long form.
PROOF ?= $(sort $(dir $(shell grep -rl --include='*_test.go' LINKREEL_FULL $(MODULES:%=./%))))
.PHONY: proof
## Run the long forms of tests, for hours, and print their figures (PROOF=./tests/faults RUN=TestKills for some).
proof: tools runtimes $(BIN)/helm $(BIN)/gotestsum
	LINKREEL_FULL=1 $(BIN)/gotestsum --format standard-verbose -- -p 1 -count 1 -timeout 4h $(if $(RUN),-run '$(RUN)') $(PROOF)

.PHONY: runtimes
## Install Deno and Bun, on which `make proof` runs the TypeScript client (needs npm).
runtimes:
	cd libs/clients/typescript/runtimes && npm ci --ignore-scripts

.PHONY: slow
## Show the tests of the last `make test` that took over 20 s.
slow: $(BIN)/gotestsum
	@$(BIN)/gotestsum tool slowest --jsonfile .local/test.json --threshold 20s

.PHONY: busy
## Run BUSY, the packages that wait for time or processes, ROUNDS (20) times beside two busy loops.
busy: tools $(BIN)/helm
	tools/busy.sh $(BUSY)

.PHONY: e2e
## Run the end-to-end stories only, the one in a real browser included.
e2e: tools $(BIN)/gotestsum
	$(BIN)/gotestsum --format testname -- -p 1 -timeout 20m ./tests/e2e/...

.PHONY: bench
## Measure: Go benchmarks of hot paths, then system figures as ratios in one run.
bench: tools
	$(GO) run ./tests/bench

.PHONY: lint
## Check code, import order, formatting and workflows.
lint: $(BIN)/golangci-lint $(BIN)/actionlint
	$(BIN)/golangci-lint run $(PKGS)
	$(BIN)/actionlint -shellcheck= -pyflakes=   # Only what every machine has.

.PHONY: fmt
## Format all Go code.
fmt:
	gofmt -w $(MODULES) tools

.PHONY: tidy
## Make every module's requirements exact, with one version of each across the workspace.
tidy:
	$(GO) work sync
	@for m in $(MODULES) tools; do (cd $$m && GOWORK=off $(GO) mod tidy); done
	$(GO) work sync

.PHONY: build
## Build the services and the linkreel program into dist/.
build:
	@mkdir -p dist
	CGO_ENABLED=0 $(GO) build -ldflags "-s -w" -o dist/ $(SERVICES:%=./services/%/cmd/...) ./services/standalone/cmd/linkreel

.PHONY: build-alone
## Build every module without the workspace, as images do.
build-alone:   # That go.mod names what tests import is shown by make tidy.
	@for m in $(MODULES); do echo "build $$m alone"; (cd $$m && GOWORK=off $(GO) build ./...); done

.PHONY: release
## Build a release and push it: make release VERSION=0.4.0 REGISTRY=ghcr.io/linkreel (RELEASE_FLAGS=-insecure for plain HTTP).
release: $(BIN)/linkreel-release
	@$(BIN)/linkreel-release $(RELEASE_FLAGS) build push tag

# The parts of it, for the workflow. Here make and a shell would expand a VERSION, which is the name of a tag that
# somebody chose: the program reads it from the environment.
.PHONY: release-build release-push release-tag release-serve
release-build release-push release-tag release-serve: $(BIN)/linkreel-release
	@exec $(BIN)/linkreel-release $(RELEASE_FLAGS) $(@:release-%=%)

.PHONY: chart-local
## Build this commit for your own registry, with a chart that installs it: make chart-local REGISTRY=registry.example.com/linkreel
chart-local: export VERSION = 0.0.0-g$(shell git rev-parse --short HEAD)
chart-local: release
	@echo "The chart is dist/release/linkreel-$(VERSION).tgz"

.PHONY: $(BIN)/linkreel-release
$(BIN)/linkreel-release:
	@mkdir -p $(BIN)
	@cd tools/release && GOWORK=off CGO_ENABLED=0 $(GO) build -trimpath -o $@ .

.PHONY: generate
## Rebuild what is made from sources: Go types of the contract, web assets, the TypeScript client (needs node and npm).
generate: generate-go
	cd tools/player && npm ci --ignore-scripts --no-audit --no-fund
	cd tools && GOWORK=off $(GO) run ./player && GOWORK=off $(GO) run ./webassets
	cd libs/clients/typescript && npm ci --ignore-scripts --no-audit --no-fund && npm run --silent generate && npm run --silent build

.PHONY: generate-go
generate-go:
	cd tools && GOWORK=off $(GO) run ./clients

.PHONY: generate-check
## Fail when generated files are not what their sources make (without node only the Go ones).
generate-check: generate-go
	@git diff --exit-code --stat -- libs/apispec/wire libs/clients docs/api || { echo "generate-check: run make generate and commit what it changes"; exit 1; }
	@if ! command -v npm >/dev/null; then echo "generate-check: the rest is skipped, there is no npm on this machine"; \
	elif ! $(MAKE) --no-print-directory generate; then echo "generate-check: the files cannot be generated"; exit 1; \
	else git diff --exit-code --stat -- '*.js' '*.css' '*.ts' '*.json' '*.html' 'libs/apispec/docs/guides' || { echo "generate-check: run make generate and commit what it changes"; exit 1; }; fi

.PHONY: vuln
## Look for known vulnerabilities in what we call. Without the database it is skipped with a line; VULN_REQUIRED=1 fails then.
vuln: $(BIN)/govulncheck
	@tools/vuln.sh

.PHONY: tools
## Install what runs and tests need from the system: redis, ffmpeg, chromium, promtool, kubectl, and what runs the examples of the docs.
tools: $(if $(shell command -v npm),tests/contract/npm/node_modules/.package-lock.json)
	@$(INSTALL) redis ffmpeg chromium node curl jq openssl python3 pip mypy promtool nginx kubectl

tests/contract/npm/node_modules/.package-lock.json: tests/contract/npm/package-lock.json
	cd $(dir $<) && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

.PHONY: fuzz
## Run every fuzz target for FUZZTIME (default 5m) each.
fuzz:
	@for m in $(MODULES); do (cd $$m && for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep ^Fuzz || true); do \
	    echo "== $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $${FUZZTIME:-5m} $$p; done; done); done

.PHONY: clean
## Remove what was built; the data of `make run` stays in .local/data.
clean:
	rm -rf dist $(BIN) tests/artifacts

.PHONY: $(BIN)/linkreel
$(BIN)/linkreel:
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 $(GO) build -ldflags "-s -w" -o $@ ./services/standalone/cmd/linkreel

$(BIN)/gotestsum: tools/go.sum
	@mkdir -p $(BIN)
	cd tools && GOWORK=off CGO_ENABLED=0 $(GO) build -o $@ gotest.tools/gotestsum

$(BIN)/golangci-lint: tools/go.sum
	@mkdir -p $(BIN)
	cd tools && GOWORK=off CGO_ENABLED=0 $(GO) build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# By itself: it does not build with the YAML library that the tools of the module need.
$(BIN)/actionlint: Makefile
	@mkdir -p $(BIN)
	GOWORK=off CGO_ENABLED=0 GOBIN=$(BIN) $(GO) install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

$(BIN)/govulncheck: tools/go.sum
	@mkdir -p $(BIN)
	cd tools && GOWORK=off CGO_ENABLED=0 $(GO) build -o $@ golang.org/x/vuln/cmd/govulncheck

-include tests/cluster/cluster.mk
