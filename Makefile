.DEFAULT_GOAL := help
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo unknown)

.PHONY: help
help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/dwk, one static binary
	CGO_ENABLED=0 go build -trimpath -o bin/dwk ./cmd/dwk

.PHONY: test
test: ## run all tests, those of real processes included
	go test -timeout 20m ./...

.PHONY: test-race
test-race: ## run the tests under the race detector, at reduced counts
	go test -race -short -timeout 20m $$(go list ./... | grep -v /fleettest)

.PHONY: test-long
test-long: ## run the tests at full counts
	DWK_TEST_LONG=1 go test -timeout 60m -count=1 ./...

.PHONY: sim
sim: ## simulate fleets for SIM_TIME (10m) from a seed that is new each time, or SEED
	DWK_SIM_TIME=$${SIM_TIME:-10m} DWK_SIM_SEED=$${SEED:-$$(date +%s)} go test -timeout 24h -count=1 -v -run TestSimulation ./internal/sim

.PHONY: mutants
mutants: ## remove guards one at a time and see that tests notice (MUTANT=a name or part of one)
	DWK_TEST_MUTANTS=$(CURDIR)/docs/figures/mutants.json go test -timeout 6h -count=1 -v -run "TestMutantsAreFound$(if $(MUTANT),/$(MUTANT))" ./internal/mutants

.PHONY: s3server
s3server: ## build bin/s3server, the S3 server of tests, which else the first test builds
	@mkdir -p bin
	cd tools && go vet ./... && CGO_ENABLED=0 go build -buildvcs=false -o ../bin/s3server ./s3server

.PHONY: test-npm
test-npm: ## run clients from npm against the libSQL server of dwk dev; needs Node and its registry
	cd tools/npm && npm ci --ignore-scripts --omit=optional --no-audit --no-fund
	DWK_TEST_NPM=$(CURDIR)/tools/npm go test -timeout 10m -count=1 -v -run TestNPM ./internal/hrana

.PHONY: test-remotestorage
test-remotestorage: ## run other projects' remoteStorage clients and tests (PARTS="suite client browser", RS_SUITE=a checkout)
	apps/remotestorage/interop/run.sh $(PARTS)

.PHONY: test-browser
test-browser: ## chat in Chromium while the replicas of examples/room are replaced; needs node, npm and chromium
	examples/room/browser/run.sh

.PHONY: test-live
test-live: ## run the suites at the servers that DWK_TEST_LIVE_ variables name: docs/testing.md
	@test -n "$$DWK_TEST_LIVE_SQL_URL$$DWK_TEST_LIVE_S3_URL" || { echo "DWK_TEST_LIVE_SQL_URL and DWK_TEST_LIVE_S3_URL name nothing: see docs/testing.md"; exit 1; }
	go test -p 1 -timeout 60m -count=1 -v -run 'Live|/^live$$' ./internal/libsql/libsqltest ./internal/sqldb ./internal/kv ./internal/lease ./internal/bucket/s3
	go test -timeout 60m -count=1 -v -run '^(TestLab|TestKilledBetweenUploadAndCommit)$$/^live$$' ./internal/fleettest

RECORDS ?= bin/robustness-records
JOBS ?= 1

.PHONY: robustness
robustness: s3server ## run drawn loads and faults against real processes, for DURATION=1h, JOBS=2 at a time; what has a record in RECORDS is passed over
	CGO_ENABLED=0 go build -tags faults -o bin/dwk-faults ./cmd/dwk
	go build -o bin/robustness ./internal/fleettest/chaos/robustness
	bin/robustness -program bin/dwk-faults -seeds internal/fleettest/chaos/seeds.txt -out $(RECORDS) -duration $(or $(DURATION),0) -jobs $(JOBS) >/dev/null

.PHONY: robustness-figures
robustness-figures: ## write the records in RECORDS into docs/figures and docs/figures.md
	go run ./internal/fleettest/chaos/robustness -out $(RECORDS) -collect docs/figures/robustness.json
	go test -count=1 -run TestFiguresDocument ./internal/fleettest/figures -update

.PHONY: fuzz
fuzz: ## fuzz each codec and parser for a while (FUZZTIME=1m)
	@for p in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
	    echo "== $$p $$f"; \
	    go test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-1m} -fuzzminimizetime 1x $$p || exit 1; \
	  done; \
	done

.PHONY: bench-npm
bench-npm: ## compare SQL batches with those of @libsql/client from npm
	cd tools/npm && npm ci --ignore-scripts --omit=optional --no-audit --no-fund
	DWK_TEST_NPM=$(CURDIR)/tools/npm go test -timeout 10m -run '^$$' -bench BesideNode -benchtime 300x ./internal/hrana

.PHONY: bench
bench: ## run the benchmarks of the code
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-remotestorage
bench-remotestorage: build ## measure the remoteStorage server beside armadietto; needs node, npm and strace
	mkdir -p bin/armadietto && npm install --silent --no-save --no-audit --no-fund --prefix bin/armadietto armadietto@0.6.6
	DWK_BENCH_ARMADIETTO=$(CURDIR)/bin/armadietto DWK_BENCH_PROGRAM=$(CURDIR)/bin/dwk go test -timeout 20m -count=1 -v -run TestStorageSpeed ./internal/fleettest

WORKERD := 1.20261117.1
.PHONY: bench-beside
bench-beside: build ## measure beside workerd from npm and etcd; needs node, npm, strace and etcd (Debian: etcd-server)
	mkdir -p bin/workerd docs/figures && npm install --silent --no-save --no-audit --no-fund --prefix bin/workerd workerd@$(WORKERD)
	cd bench && go vet ./... && CGO_ENABLED=0 go build -buildvcs=false -o ../bin/beside .
	bin/beside -dwk bin/dwk -workerd bin/workerd/node_modules/@cloudflare/workerd-*/bin/workerd -worker bench/workerd -out docs/figures/beside.json

.PHONY: soak
soak: ## load a fleet of three for DURATION (15m, at least 2m) and fail when something grows
	mkdir -p docs/figures
	DWK_SOAK=$(or $(DURATION),15m) DWK_SOAK_OUT=$(CURDIR)/docs/figures/soak.json go test -timeout 0 -count=1 -v -run '^TestSoak$$' ./internal/fleettest

.PHONY: check-configs
check-configs: ## check and test the alert rules; needs promtool (Debian: prometheus)
	promtool check rules configs/prometheus-alerts.yaml
	promtool test rules configs/prometheus-alerts-test.yaml

.PHONY: ci
ci: ## run what the project's CI runs
	.ci/run

.PHONY: fmt
fmt: ## format the code
	gofmt -w .

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
