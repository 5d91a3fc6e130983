# `make` lists the targets. The variables can be set: make sim RUNS=100000 SEED=7.

# Build tags. `rocksdb` needs a C++ library, which scripts/install-deps.sh installs. The tests have it unless told
# otherwise: make test TAGS=
test race: TAGS ?= rocksdb
# Random jobs, tables and values of `make sim`, and where they start.
RUNS ?= 20000
SEED := $(or $(SEED),$(strip $(shell od -An -N4 -tu4 /dev/urandom)))
# Cases of `make twin`. A tenth are disturbed, a fiftieth are pipelines, and a five-hundredth, 20 at least, run on workers that are killed.
CASES ?= 1000
# For each target of `make fuzz`.
FUZZTIME ?= 30s

given := $(GOFLAGS)
export GOFLAGS = $(strip $(given) $(if $(TAGS),-tags=$(TAGS)))
modules := scripts/each-module.sh
linked = ./sdk/... ./transforms/... ./io/... ./statebackend/... ./runners/... ./testing/clustertest ./testing/connectortest ./testing/ptest
seeds = MILLSTREAM_SEED=$(SEED) MILLSTREAM_RUNS=$(RUNS)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r t d; do printf '%-20s %s\n' "$$t" "$$d"; done

test: deps bin/versitygw ## all tests; installs RocksDB if it is missing (root, Debian or Ubuntu); TAGS= does without
	$(modules) go test ./...

race: PACKAGES ?= ./...
race: deps bin/versitygw ## all tests under the race detector, or those of PACKAGES
	$(if $(filter ./...,$(PACKAGES)),$(modules)) go test -race $(PACKAGES)

deps:
	$(if $(filter rocksdb,$(TAGS)),scripts/install-deps.sh)

lint: bin/staticcheck ## format, vet, staticcheck, tidy go.mod files, and the laws of testing/archtest
	@files="$$(gofmt -l .)"; [ -z "$$files" ] || { echo "not formatted, run gofmt -w:" $$files; exit 1; }
	$(modules) go vet ./...
	$(modules) $(CURDIR)/bin/staticcheck ./...
	$(modules) go mod tidy -diff
	go test ./testing/archtest

bin/staticcheck: internal/tools/go.mod internal/tools/go.sum
	GOFLAGS=-buildvcs=false GOBIN=$(CURDIR)/bin go -C internal/tools install tool
	@touch $@

bin/versitygw: testing/servers/go.mod testing/servers/go.sum
	scripts/build-servers.sh
	@touch $@

platforms: ## compile what users link for macOS and Windows, without cgo, which only rocksdb needs
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build $(linked)
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 go build $(linked)

demo: ## flights on the distributed runner with RocksDB, killed on the way; the answer is compared with a plain loop's
	scripts/install-deps.sh demo
	scripts/demo.sh

sim: ## random jobs, tables and values: RUNS of each, from SEED (printed; fresh unless set)
	@echo "SEED=$(SEED)"
	$(seeds) go test ./internal/engine -run TestRandomJobsAreExact -v -timeout 0
	$(seeds) go test ./internal/kernel -run Table -timeout 0
	$(seeds) go test ./sdk/coder -run Random -timeout 0

twin: ## random strategies and streams beside the reference twin, from SEED: CASES of operators, fewer of pipelines and workers
	@echo "SEED=$(SEED)"
	go test ./testing/twin -run 'IsTheTwin$$' -v -timeout 0 -rapid.checks=$(CASES) -rapid.seed=$(SEED)
	go test ./testing/twin -run IsTheTwinHoweverDisturbed -v -timeout 0 -rapid.checks=$$(($(CASES) / 10 + 100)) -rapid.seed=$(SEED)
	go test ./testing/twin/e2e -run 'EventByEvent|InAnyOrder' -v -timeout 0 -rapid.checks=$$(($(CASES) / 50 + 20)) -rapid.seed=$(SEED)
	MILLSTREAM_SEED=$(SEED) MILLSTREAM_RUNS=$$(($(CASES) / 10000 + 1)) go test ./testing/twin/e2e -run OnWorkers -v -timeout 0

conformance: ## every case of testing/runnertest on every runner, backend, parallelism and mode, with crashes; docs/capabilities.md
	scripts/install-deps.sh
	go test -tags rocksdb ./testing/runnertest -v -timeout 0 -conformance.all -conformance.update

mutants: ## plant faults one at a time, each must be found: all, or N=6 drawn at random; minutes
	go test ./testing/mutants -v -timeout 0 -mutants=$(or $(N),all)

bench: ## the record path, what other steps cost beside it, the exchange and keyed steps
	go test ./runners/direct -run xxx -bench 'Path|Steps' -benchtime 8x
	go test ./runners/distributed/transport -run xxx -bench Exchange -benchtime 8x
	go test ./internal/kernel -run xxx -bench . -benchtime 8x

bench-state: ## state beyond the cache beside a loop in C++, and how long checkpoints stop records; needs RocksDB, minutes
	scripts/install-deps.sh
	scripts/bench-state.sh

checkpoints-at-scale: ## what checkpoints of a million entries upload, and that they restore; needs RocksDB, 2 minutes
	go test -tags rocksdb ./internal/checkpoint -run CheckpointsCostWhatChanged -v -timeout 0 -scale.entries=1000000 -scale.changed=10000 -scale.count=120

scale: ## a million sessions, ten million timers and a million windows that fire, in bounded memory; needs RocksDB, 7 minutes
	scripts/install-deps.sh
	go test -tags rocksdb ./internal/checkpoint -run 'WhileWindowsFire' -v -timeout 0 -scale.windows=1000000 -scale.cache=16777216 -scale.rocksdb=33554432
	go test -tags rocksdb ./internal/checkpoint -run 'OpenSessionsAre' -v -timeout 0 -scale.sessions=1000000 -scale.cache=16777216 -scale.rocksdb=33554432
	go test -tags rocksdb ./internal/checkpoint -run 'PendingTimersAre' -v -timeout 0 -scale.timers=10000000 -scale.cache=67108864 -scale.rocksdb=67108864

failpoints: ## flights as processes, killed at each named failpoint; needs RocksDB
	scripts/failpoints.sh

explore: ## every interleaving of the checkpoint log's writers, within bounds: 8 minutes, 3 GB
	MILLSTREAM_EXPLORE=long go test ./runners/distributed/checkpoint/commitlog -run ExploreOneHistory -v -timeout 0

fuzz: ## every fuzz target for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME)

ci: ## what a change must pass to land
	.ci/run

clean: ## remove what these targets made
	rm -rf bin out

.PHONY: help test race deps lint platforms demo bench-state checkpoints-at-scale scale sim twin conformance mutants bench failpoints explore fuzz ci clean
