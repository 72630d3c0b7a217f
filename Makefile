# Every target installs what it needs into this folder (.venv, .cache, target); `make test` and
# `make bench` as root also install the programs of Debian's that judge the server.
# A machine needs Rust (cargo), Python 3.11 or newer, a C compiler and make.
PYTHON ?= python3
FUZZ_SECONDS ?= 16
MINUTES ?= 60
# Those of the crates whose files are not as in this commit are tested by `make check`.
BASE ?= HEAD

export PYTHON
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv
# Tests start hundreds of processes, each of which would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE
# With what the client and the server that are written here are tested.
export XRD_TEST_PYTHON := $(CURDIR)/.venv/bin/python
export XRD_TEST_XROOTD = $(shell command -v xrootd)

STEP := @tools/step
# Two steps at once; on the integration machine all failures are told, not only the first.
AT_ONCE := $(MAKE) --no-print-directory --jobs=2 $(if $(filter true,$(CI)),--keep-going)
MODULE := python/femtobarn/_femtobarn.abi3.so
# What makes the module where a step only has to load it; `make test` has built it with all else.
MODULE_BY := $(if $(wildcard python/femtobarn/_femtobarn.abi3.so),,extension)
FUZZERS := anchors client envelopes messages read_file
# Those that take minutes to build.
SERVER_FUZZERS := commands http metadata sessions tokens turns
# What `make sanitize` tests: those with unsafe code, and the server and the engine above them. The tests of floods measure
# memory, of which the sanitizer takes more.
SANITIZED := rntuple xrd femtobarn-catalog femtobarn-archive femtobarn femtobarn-c femtobarn-server
# Fuzzers are compiled by themselves, with tools/rustc-for-fuzzing.
WORKSPACE := --workspace --exclude femtobarn-fuzz --locked --quiet

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench testbed soak docs fmt lint fuzz sanitize test-long release pin clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install all packages into .venv and build the extension module
	@$(AT_ONCE) .venv/test.stamp extension

demo: ## real and simulated events into a federation, and a report: demo/report.html
	@$(AT_ONCE) .venv/demo.stamp extension
	@.venv/bin/python -m femtobarn_demo

test: ## all that has to pass: formatting, lints, all tests, documentation, a short run of the fuzzers
	@$(AT_ONCE) MODULE_BY=build steps-of-test

check: ## a minute: formatting, lints, types, the unit tests of crates that changed since BASE
	@$(AT_ONCE) steps-of-lint unit-tests

test-long: ## the tests that take minutes, more random cases, long fuzzing
	@$(MAKE) --no-print-directory steps-of-test-long FUZZ_SECONDS=600

bench: ## measure against the peers in 30 minutes, on a quiet machine: bench/report.html, docs/performance.md
	@$(AT_ONCE) .venv/bench.stamp programs module-for-release
	@.venv/bin/python benches/run.py

testbed: ## the papers' workloads with up to 240 clients, in about two hours: testbed/report.html
	@$(AT_ONCE) .venv/demo.stamp module-for-release
	@.venv/bin/femtobarn testbed run all
	@.venv/bin/femtobarn testbed plot

soak: ## a site of three servers under clients, operators and failures for MINUTES (60): soak/report.html
	@$(AT_ONCE) .venv/test.stamp programs build
	@PYTHONPATH=python:tests:examples/site .venv/bin/python -m soak --minutes $(MINUTES)

release: ## wheel, source package and crates into dist/, the wheel tried in an empty environment
	@$(AT_ONCE) .venv/release.stamp
	$(STEP) 'release' tools/release

docs: docs-of-crates ## the site, target/site/index.html, and the reference of the crates, target/doc
	@$(AT_ONCE) site

fmt: .venv/test.stamp ## format all code
	cargo fmt --all
	ruff format --quiet .
	ruff check --quiet --fix-only .

lint: ## formatting and static checks alone
	@$(AT_ONCE) steps-of-lint

fuzz: ## every fuzzer for FUZZ_SECONDS (16) each, those of the server too, which take minutes to build
	@$(MAKE) --no-print-directory $(FUZZERS:%=fuzz-%) $(SERVER_FUZZERS:%=fuzz-%)

sanitize: .venv/test.stamp programs ## tests of libraries, engine and server under the address sanitizer: minutes to build
	$(STEP) 'sanitize' env RUSTC_WORKSPACE_WRAPPER='$(CURDIR)/tools/rustc-for-sanitizing' CARGO_INCREMENTAL=0 \
	    ASAN_OPTIONS=detect_odr_violation=0:detect_leaks=0 \
	    cargo test --locked --quiet $(SANITIZED:%=--package %) --lib --tests --no-fail-fast -- \
	    --skip silent_and_slow_connections_leave_room_for_others

pin: .venv/test.stamp ## resolve the Python packages anew and write requirements/constraints.txt
	uv pip compile --quiet --upgrade --all-extras --generate-hashes --no-annotate --no-header --no-emit-index-url \
	    pyproject.toml --output-file requirements/constraints.txt

clean: ## remove everything that was built or installed
	rm -rf .venv .cache target demo fuzz/artifacts $(MODULE)

# ---- the targets' steps, in the order in which they are begun

.PHONY: steps-of-test steps-of-lint steps-of-test-long
steps-of-test: .venv/test.stamp build programs format-rust format-python lint-python types lint-rust \
    build-fuzzers test-python test-rust test-docs-of-crates stubs site $(FUZZERS:%=fuzz-%)
steps-of-lint: format-rust lint-rust format-python lint-python types stubs
steps-of-test-long: test-rust-long test-python-long sanitize $(FUZZERS:%=fuzz-%) $(SERVER_FUZZERS:%=fuzz-%)

# ---- what is installed

EXTRAS_demo := demo
EXTRAS_test := demo test docs judge
EXTRAS_bench := test judge bench
EXTRAS_release := release

.venv/%.stamp: pyproject.toml requirements/constraints.txt tools/install
	$(STEP) 'install' tools/install $(EXTRAS_$*)
	@touch $@

.PHONY: programs
programs:
	$(STEP) 'install programs' tools/install-programs

# ---- what is built: once for the tests and for Python, without LTO. Benchmarks and releases are of the profile
# `release`. Clippy compiles what tests run, so that nothing is compiled for its lints alone; see tools/rustc-for-tests.

LINTED := env RUSTC_WORKSPACE_WRAPPER='$(CURDIR)/tools/rustc-for-tests'
.PHONY: web build extension module-for-release
web:
	$(STEP) 'build web' tools/web

build: web
	$(STEP) 'build' $(LINTED) cargo build $(WORKSPACE) --lib --bins --tests --examples
	@cp --remove-destination target/debug/lib_femtobarn.so $(MODULE)

# The extension alone, of the same artifacts as `build`: with the same features of all crates.
EXTENSION := --package femtobarn-python --package femtobarn-server --package xrd --lib \
    --features femtobarn-server/testing,xrd/testing --locked --quiet
extension: web
	$(STEP) 'build extension' $(if $(shell command -v clippy-driver),$(LINTED)) cargo build $(EXTENSION)
	@cp --remove-destination target/debug/lib_femtobarn.so $(MODULE)

module-for-release: web
	$(STEP) 'build extension' cargo build --package femtobarn-python --locked --quiet --release
	@cp --remove-destination target/release/lib_femtobarn.so $(MODULE)

# ---- what is checked without being run

.PHONY: format-rust format-python lint-rust lint-python types stubs docs-of-crates site
format-rust:
	$(STEP) 'format of Rust' cargo fmt --all --check

format-python: .venv/test.stamp
	$(STEP) 'format of Python' ruff format --check --quiet .

# Cargo repeats the warnings of what it has not to compile again.
lint-rust: build
	$(STEP) 'clippy' sh -c '! grep --after-context=20 "^warning" .cache/log/build.log'

lint-python: .venv/test.stamp
	$(STEP) 'ruff' ruff check --quiet .

types: .venv/test.stamp
	$(STEP) 'mypy' python -m mypy

stubs: .venv/test.stamp $(MODULE_BY)
	$(STEP) 'stubs' env MYPYPATH=python \
	    python -m mypy.stubtest --mypy-config-file pyproject.toml femtobarn._femtobarn

docs-of-crates: export RUSTDOCFLAGS := -D warnings
docs-of-crates:
	$(STEP) 'docs of crates' cargo doc $(WORKSPACE) --no-deps

site: .venv/test.stamp $(MODULE_BY)
	$(STEP) 'site' python -m sphinx -q -W --keep-going --nitpicky -b html -d .cache/site docs target/site

# ---- what is run

.PHONY: unit-tests test-rust test-docs-of-crates test-python test-rust-long test-python-long
CHANGED = $(sort $(shell { git diff --name-only $(BASE); git ls-files --others --exclude-standard; } | \
    sed -n 's|^crates/\([^/]*\)/.*|\1|p'))
unit-tests:
	$(if $(CHANGED),$(STEP) 'unit tests' $(LINTED) cargo test --locked --quiet $(CHANGED:%=--package %) --lib --bins,@:)

# Many tests wait for servers, disks and clocks: with as many threads as small machines have cores, these would stand still.
test-rust: export RUST_TEST_THREADS := 4
test-rust: .venv/test.stamp programs build
	$(STEP) 'tests of Rust' $(LINTED) cargo test $(WORKSPACE) --tests --no-fail-fast

test-docs-of-crates: export RUSTDOC := $(CURDIR)/tools/rustdoc-with-lints
test-docs-of-crates: build
	$(STEP) 'docs of crates' $(LINTED) cargo test $(WORKSPACE) --doc --no-fail-fast

test-python: export FEMTOBARN_EXAMPLES := $(CURDIR)/target/debug/examples
test-python: .venv/test.stamp programs build
	$(STEP) 'tests of Python' python -m pytest -m 'not long' --numprocesses=4 --dist=loadfile --no-loadscope-reorder \
	    --durations=20

test-rust-long: .venv/test.stamp programs
	$(STEP) 'long tests of Rust' env PROPTEST_CASES=4096 \
	    cargo test $(WORKSPACE) --release -- --include-ignored

test-python-long: .venv/test.stamp programs build
	$(STEP) 'long tests of Python' python -m pytest

# ---- what is fuzzed: from the kept corpus; new inputs go to .cache/fuzz, inputs that fail to fuzz/artifacts

# Fuzzers share the artifacts of all other builds for crates that are not of this workspace. `--workspace` selects
# the same features of those crates as `build`, so that they are not compiled again.
FUZZ_BUILD := env RUSTC_WORKSPACE_WRAPPER='$(CURDIR)/tools/rustc-for-fuzzing' CARGO_INCREMENTAL=0 \
    cargo build --workspace --locked --quiet

.PHONY: build-fuzzers build-server-fuzzers
build-fuzzers:
	$(STEP) 'build fuzzers' $(FUZZ_BUILD) $(FUZZERS:%=--bin fuzz-%)

build-server-fuzzers:
	$(STEP) 'build server fuzzers' $(FUZZ_BUILD) --features femtobarn-fuzz/server $(SERVER_FUZZERS:%=--bin fuzz-%)

$(SERVER_FUZZERS:%=fuzz-%): build-server-fuzzers
$(FUZZERS:%=fuzz-%): build-fuzzers
fuzz-%:
	@mkdir -p .cache/fuzz/$* fuzz/artifacts/$*
	$(STEP) 'fuzz $*' env ASAN_OPTIONS=detect_odr_violation=0 target/debug/$@ \
	    .cache/fuzz/$* $(wildcard fuzz/corpus/$*) -artifact_prefix=fuzz/artifacts/$*/ \
	    -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=3072
