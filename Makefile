# Everything a change needs to pass, and what helps while making it.
# See CONTRIBUTING.md for what each suite is for.

GO ?= go
STATICCHECK = $(GO) tool -modfile=tools/go.mod staticcheck

# The twin test is slow under the race detector: there it gets fewer calls, and
# all of them once more without.
TWIN_RACE_CALLS ?= 2000
FUZZ_TIME ?= 30s

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Modules of their own, for what the core must not depend on.
MODULES = benchmarks storage/dynamostore

.PHONY: test
test: lint race modules ## All that CI runs: lint, every test with -race, the twin test in full, the modules
	$(GO) test -count=1 -run '^TestTwin$$' -timeout 20m .

.PHONY: modules
modules: ## Lint and tests of benchmarks and storage/dynamostore, modules of their own
	@for module in $(MODULES); do \
	  (cd $$module && $(GO) vet ./... && $(GO) tool -modfile=$(CURDIR)/tools/go.mod staticcheck ./... && $(GO) test -timeout 20m ./...) || exit 1; \
	done

.PHONY: race
race: ## Every test, the examples' too, with the race detector
	RATELIMIT_TWIN_CALLS=$(TWIN_RACE_CALLS) $(GO) test -race -timeout 40m ./...

.PHONY: lint
lint: ## gofmt, go vet and staticcheck
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...

.PHONY: bench
bench: ## This library beside its peers, in one run: tables, ratios, bars
	cd benchmarks && $(GO) run .

.PHONY: benchall
benchall: ## The benchmarks of the packages
	$(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: fuzz
fuzz: ## Each fuzz target for FUZZ_TIME (30s)
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$$file"); do \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) "$$(dirname "$$file")" || exit 1; \
	  done; \
	done
