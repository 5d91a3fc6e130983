# `make` lists the targets. The variables can be set: make sim RUNS=100000 SEED=7.

# Build tags. `rocksdb` needs a C++ library: scripts/install-deps.sh.
TAGS ?=
# Random jobs and values of `make sim`, and where they start.
RUNS ?= 20000
SEED := $(or $(SEED),$(strip $(shell od -An -N4 -tu4 /dev/urandom)))
# For each target of `make fuzz`.
FUZZTIME ?= 30s

export GOFLAGS := $(strip $(GOFLAGS) $(if $(TAGS),-tags=$(TAGS)))
modules := scripts/each-module.sh

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r t d; do printf '%-10s %s\n' "$$t" "$$d"; done

test: ## all tests; TAGS=rocksdb adds those of the RocksDB backend
	$(modules) go test ./...

race: ## all tests under the race detector
	$(modules) go test -race ./...

lint: bin/staticcheck ## format, vet, staticcheck, tidy go.mod files, and the laws of testing/archtest
	@files="$$(gofmt -l .)"; [ -z "$$files" ] || { echo "not formatted, run gofmt -w:" $$files; exit 1; }
	$(modules) go vet ./...
	$(modules) $(CURDIR)/bin/staticcheck ./...
	$(modules) go mod tidy -diff
	go test ./testing/archtest

bin/staticcheck: internal/tools/go.mod internal/tools/go.sum
	GOFLAGS=-buildvcs=false GOBIN=$(CURDIR)/bin go -C internal/tools install tool
	@touch $@

platforms: ## compile without cgo, which only rocksdb needs, here and for macOS and Windows
	CGO_ENABLED=0 go build ./...
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build ./...
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 go build ./...

sim: ## random jobs and values: RUNS of them, from SEED (printed; fresh unless set)
	@echo "SEED=$(SEED)"
	go test ./internal/engine -run TestRandomJobsAreExact -v -timeout 0 -engine.runs=$(RUNS) -engine.start=$(SEED)
	go test ./sdk/coder -run Random -timeout 0 -rapid.checks=$(RUNS) -rapid.seed=$(SEED)

fuzz: ## every fuzz target for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME)

ci: ## what a change must pass to land
	.ci/run

clean: ## remove what these targets made
	rm -rf bin out

.PHONY: help test race lint platforms sim fuzz ci clean
