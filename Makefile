# Every target installs what it needs into this folder (.venv, .cache, target); `make test` and
# `make bench` as root also install the programs of Debian's that judge the server.
# A machine needs Rust (cargo), Python 3.11 or newer, a C compiler and make.
PYTHON ?= python3
STEPS := $(PYTHON) tools/steps.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long bench testbed docs fmt lint fuzz pin clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install all packages into .venv and build the extension module
	@$(STEPS) setup

demo: ## real and simulated events into a federation, and a report: demo/report.html
	@$(STEPS) build
	@.venv/bin/python -m femtobarn.demo

test: ## formatting, lints, all tests, documentation, and a short run of the fuzzers
	@$(STEPS) test

test-long: ## the tests that take minutes, more random cases, long fuzzing
	@$(STEPS) test-long

bench: ## measure against the peers in 30 minutes: bench/report.html, docs/performance.md
	@$(STEPS) bench
	@.venv/bin/python benches/run.py

testbed: ## the papers' workloads with up to 240 clients, in about two hours: testbed/report.html
	@$(STEPS) build
	@.venv/bin/femtobarn testbed run all
	@.venv/bin/femtobarn testbed plot

docs: ## the reference of the crates, in target/doc
	@$(STEPS) docs

fmt: ## format all code
	@$(STEPS) fmt

lint: ## formatting and static checks alone
	@$(STEPS) lint

fuzz: ## every fuzzer for FUZZ_SECONDS (20) each
	@$(STEPS) fuzz

pin: ## resolve the Python packages anew and write requirements/constraints.txt
	@$(PYTHON) tools/environment.py pin

clean: ## remove everything that was built or installed
	rm -rf .venv .cache target demo fuzz/target fuzz/artifacts python/femtobarn/_femtobarn*.so
