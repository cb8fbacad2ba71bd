# Every target with a `##` comment is listed by `make help`.

GO        ?= go
BIN       := bin
GOLANGCI  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
LICENSES  := github.com/google/go-licenses@v1.6.0
FUZZTIME  ?= 30s
CYCLES    ?= 10
SECONDS   ?= 180
RUN       ?= ^TestSoak

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the static binaries into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o $(BIN)/ ./cmd/...

.PHONY: demo
demo: ## the whole thing in one process for 20 seconds
	$(GO) run ./cmd/outbox-cdc-demo --for 20s

.PHONY: test
test: ## the tests that need Go only
	$(GO) test ./...

.PHONY: test-full
test-full: ## all tests: every Postgres, a real Kafka, Debezium, Chromium, crash and soak
	OUTBOX_TEST_FULL=1 $(GO) test -count=1 ./...

# They run the built binary, in which there is no race detector.
BUILT := e2e|crash|soak|conformance|runbook
# They start no goroutine and share nothing.
SEQUENTIAL := decoder|internal/(encode|encode/connect|debezium|javaregex|jsontext|pgtime|preset)

.PHONY: race
race: ## all tests that need Go only with the race detector, shuffled
	$(GO) test -race -shuffle=on -count=1 -timeout=50m $$($(GO) list ./... | grep -vE '/(test/($(BUILT))|$(SEQUENTIAL))$$')

# The landing gate runs their tests with the race detector.
.PHONY: serverless
serverless: ## list the packages whose tests start no server and may have data races
	@$(GO) list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | grep '\.test ' | grep -v test/kit/serverproc | sed 's/\.test .*//' | grep -vE '/($(SEQUENTIAL))$$'

.PHONY: lint
lint: ## format, vet, golangci-lint, go.mod
	@out=$$($(GO) run $(GOLANGCI) fmt --diff) && test -z "$$out" || { echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(GOLANGCI) run --allow-parallel-runners ./...
	$(GO) mod tidy -diff
	$(GO) mod verify

.PHONY: fmt
fmt: ## format the code
	$(GO) run $(GOLANGCI) fmt

.PHONY: vuln
vuln: ## known vulnerabilities in what we call
	$(GO) run $(VULNCHECK) ./...

# Licences that ask for no more than to be named, and MPL-2.0, which is about changes to its own files. The licence of
# github.com/xi2/xz, which is in the demo, is no known text: its authors have put it into the public domain.
.PHONY: licenses
licenses: ## licences of all that we link
	@out=$$($(GO) run $(LICENSES) check ./... --ignore github.com/xi2/xz \
	  --allowed_licenses=Apache-2.0,BSD-2-Clause,BSD-2-Clause-FreeBSD,BSD-3-Clause,ISC,MIT,MPL-2.0 2>&1) || { echo "$$out"; exit 1; }

.PHONY: bench
bench: ## micro-benchmarks of the stages
	$(GO) test -run='^$$' -bench=. -benchmem ./decoder ./checkpoint ./sink/kafka ./replication ./internal/encode ./internal/relay/owner ./sink/jetstream

.PHONY: bench-servers
bench-servers: ## the built relay on real servers, beside pg_recvlogical; see docs/performance.md
	$(GO) run ./cmd/outbox-cdc-bench --own-servers

.PHONY: bench-outbox
bench-outbox: ## what an event costs the transaction that writes it
	$(GO) run ./cmd/outbox-cdc-bench write

.PHONY: bench-compare
bench-compare: ## the same against the git ref REF, with benchstat
	GO='$(GO)' .ci/bench-compare $(REF)

.PHONY: bench-gate
bench-gate: ## hot code against its floor, as ratios; one package after the other
	OUTBOX_TEST_FULL=1 $(GO) test -p 1 -count=1 -v -run='^TestGate$$' ./decoder ./checkpoint ./sink/kafka ./replication ./internal/encode ./internal/relay/owner ./sink/jetstream ./sink/rabbitmq ./sink/redisstreams ./sink/sqs ./sink/webhook

# A second try, because the fuzzer may end with an error of its own when its time is over.
# An input that fails is kept and fails again. By default the fuzzer takes up to a minute to minimize one interesting
# input, which FuzzImport has many of.
.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	@grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u | while read -r pkg; do \
	  for f in $$(grep -ohE '^func Fuzz[A-Za-z0-9_]+' $$pkg/*_test.go | cut -d' ' -f2); do \
	    echo "$$pkg $$f"; \
	    fuzz="$(GO) test -run=^$$f$$ -fuzz=^$$f$$ -fuzztime=$(FUZZTIME) -fuzzminimizetime=10x $$pkg"; \
	    $$fuzz || $$fuzz || exit 1; \
	  done; \
	done

.PHONY: crash
crash: ## the crash suite, CYCLES kills of every kind
	OUTBOX_TEST_FULL=1 OUTBOX_TEST_CYCLES=$(CYCLES) $(GO) test -count=1 -v -timeout=120m ./test/crash

.PHONY: soak
soak: ## faults drawn from a seed under load, CYCLES of them, judged by the oracle: one relay, two, three brokers, a missing topic, lost slots, parked keys
	OUTBOX_TEST_FULL=1 OUTBOX_TEST_SOAK=$(CYCLES) OUTBOX_TEST_TAKEOVERS=$(CYCLES) OUTBOX_TEST_SOURCE_LOSSES=$(CYCLES) OUTBOX_TEST_SLOT_LOSSES=$(CYCLES) OUTBOX_TEST_PARKS=$(CYCLES) OUTBOX_TEST_REPLICATED=$(CYCLES) \
	  $(GO) test -count=1 -v -timeout=120m -run='$(RUN)' -skip='^TestSoakOver' ./test/soak

.PHONY: soak-brokers
soak-brokers: ## the same with the broker BROKER, such as JetStream, or with every one but Kafka: one relay, then two
	OUTBOX_TEST_FULL=1 OUTBOX_TEST_OVER=$(CYCLES) OUTBOX_TEST_OVER_TAKEOVERS=$(CYCLES) $(GO) test -count=1 -v -timeout=300m -run='^TestSoakOver/$(BROKER)' ./test/soak

.PHONY: hostile
hostile: ## hostile roles write rows and messages for SECONDS beside an honest workload
	OUTBOX_TEST_FULL=1 OUTBOX_TEST_HOSTILE=$(SECONDS) $(GO) test -count=1 -v -timeout=120m -run='^TestHostileWriters$$' ./test/crash

.PHONY: takeover-times
takeover-times: ## how soon a standby has sent its first record, CYCLES takeovers of every kind
	OUTBOX_TEST_FULL=1 OUTBOX_TEST_TAKEOVER_RUNS=$(CYCLES) $(GO) test -count=1 -v -timeout=120m -run='^TestTakeoverTimes$$' ./test/soak

.PHONY: deploy-check
# The test builds promtool, which takes more than ten minutes on a machine that is busy and has compiled nothing.
deploy-check: ## Dockerfiles, manifests, alerts, dashboard, by the libraries of those who read them
	cd deploy/check && $(GO) vet ./... && $(GO) test -count=1 -timeout=60m ./...

.PHONY: examples-check
examples-check: ## what the examples show of libraries that the relay does not need
	cd examples/orms && $(GO) vet ./... && $(GO) test -count=1 ./...
	cd examples/webhook && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: gate
gate: ## what decides whether a change lands
	.ci/run

.PHONY: nightly
nightly: ## what only time, chance and many servers show; STEPS='soak twin' for some of it
	.ci/nightly $(STEPS)
