# `make run` starts Ebb on the bundled sample, `make test` runs every test. Both install what is missing first.
# `make check` is the quick gate for a change. One profile (release), one feature set and one target folder, so that nothing is
# compiled twice.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: run test check test-long fuzz soak app docs check-macos check-format lint fmt setup setup-test ui-test rust-test

export PATH := $(CURDIR)/.cache/node/bin:$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
step = @printf '== %s\n'
ui_sources := package.json package-lock.json $(shell find ui -type f -not -path 'ui/dist/*' -not -path 'ui/pictures/*' -not -path 'ui/browser/*' 2>/dev/null)
# All that the window's tests read. Folders too, so that a deleted file counts.
ui_tested := package.json package-lock.json tsconfig.json scripts/browser-tests crates/format/tests/vectors.json $(shell find ui -mindepth 1 \( -path ui/dist -o -path ui/node_modules \) -prune -o -print 2>/dev/null)
ui_passed := target/window-tests-passed
sample := sample/groceries

run: setup ui/dist/index.html
	$(step) 'building Ebb (the first build takes some minutes)'
	cargo build --release
	@if [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ] || [ "$$(launchctl managername 2>/dev/null)" = Aqua ]; then \
	  echo '== opening Ebb on the bundled sample'; target/release/ebb app $(sample); \
	else \
	  echo '== no display: training the bundled sample in the terminal'; target/release/ebb train $(sample); \
	fi

# On Linux, the lints run on the code of a Mac only, and not on tests: `make check` runs them on all code of Linux, and
# `make test-long` on the tests of a Mac. To compile all libraries for both takes too long.
test: setup-test ui-test check-format check-macos rust-test

# The quick gate: format, lints, the window's tests, unit tests and the rules of tests/tidy. No display, no built program. The
# window's tests run only if a file that they read has changed since they passed.
check: setup-test $(ui_passed) lint
	$(step) 'running unit tests'
	cargo nextest run --release --workspace --lib --bins --test tidy

# Slow tests that CI runs at night: every test of `make test` three times, 10,000 fault schedules, all faults of a disk, 1,000 kills
# of the process, a minute of mutated files and a minute of fuzzing for each reader, 200 random schedules of groups, 100 killed
# ranks, longer runs under scripted memory pressure, runs under real memory pressure, and type checks of the tests for Macs and of
# the program for Intel Macs. Fuzzing needs a nightly compiler; scripts/fuzz installs one.
test-long: setup-test ui/dist/index.html
	$(step) 'running every test three times'
	scripts/with-display cargo nextest run --release --workspace --stress-count 3
	$(step) 'training on a device that fails, 10,000 times'
	EBB_FAULT_SCHEDULES=10000 cargo nextest run --release --workspace --test device_faults --no-capture
	$(step) 'training on a disk that fails in every way'
	EBB_DISK_FAULTS=all cargo nextest run --release --workspace --test disk_faults --no-capture
	$(step) 'killing the training 1,000 times'
	EBB_KILLS=1000 cargo nextest run --release --workspace -E 'test(/^random_kills::/)' --no-capture
	$(step) 'simulating machines of ten sizes'
	EBB_ALL_MACHINES=1 EBB_SEEDS=3 cargo nextest run --release --workspace -E 'test(machines_of_all_sizes) | test(unseen_worlds)' --no-capture
	$(step) 'reading mutated files for a minute each'
	EBB_MUTATION_SECONDS=60 cargo nextest run --release --workspace -E 'binary(hostile_files)'
	$(step) 'checking the tests for Macs, and the program for Intel Macs'
	EBB_MACOS_TESTS=1 scripts/check-macos
	EBB_MACOS_INTEL=1 scripts/check-macos
	$(step) 'fuzzing every reader for a minute each, with a nightly compiler'
	scripts/fuzz 60
	$(step) 'training in groups with 200 random schedules'
	EBB_GROUP_SCHEDULES=200 cargo nextest run --release --workspace -E 'test(/^distributed_random_schedules::/)' --no-capture
	$(step) 'killing 100 ranks of groups'
	EBB_RANK_KILLS=100 cargo nextest run --release --workspace -E 'test(/^killed_ranks::/)' --no-capture
	$(step) 'training twice as long in splits and under scripted memory pressure'
	EBB_SPLIT_STEPS=200 EBB_PRESSURE_STEPS=150 cargo nextest run --release --workspace -E 'test(/^(split_equivalence|pressure_invariance|recovery_steps)::/)' --no-capture
	$(step) 'training under real memory pressure'
	scripts/hog-trial 50
	$(step) 'training in groups of processes: memory pressure, stopped ranks, and how exact, fast and polite they are'
	for trial in libraries pressure rest silent waiting stop one predict unequal scaling; do scripts/group-trial $$trial || exit 1; done

# Fuzzes every reader of files that Ebb did not write, each for SECONDS. Needs a nightly compiler.
SECONDS := 60
fuzz:
	scripts/fuzz $(SECONDS)

# Trains in the window and in the terminal for MINUTES, a day if not set, and fails if memory, handles or threads grow.
MINUTES := 1440
soak: setup-test ui/dist/index.html
	cargo build --release
	$(step) 'training for $(MINUTES) minutes'
	scripts/soak-training $(MINUTES)

# The guide as a book in target/book.
docs:
	@command -v mdbook >/dev/null || cargo install --quiet --locked mdbook
	mdbook build docs

app: setup ui/dist/index.html
	$(step) 'building the bundle'
	scripts/bundle

setup:
	@scripts/setup run

setup-test:
	@scripts/setup test

node_modules/.package-lock.json: package.json package-lock.json
	$(step) 'installing the packages of the window'
	npm ci --no-fund --no-audit
	@touch $@

ui/dist/index.html: node_modules/.package-lock.json $(ui_sources)
	$(step) 'building the window'
	npm run --silent build
	@touch $@

ui-test: node_modules/.package-lock.json
	$(step) 'checking and testing the window'
	npm run --silent check
	npm run --silent test
	@$(MAKE) --no-print-directory ui/dist/index.html
	npm run --silent size
	scripts/browser-tests
	@mkdir -p target && touch $(ui_passed)

$(ui_passed): $(ui_tested)
	@$(MAKE) --no-print-directory ui-test

check-format:
	$(step) 'checking the format'
	cargo fmt --all --check

lint: check-format ui/dist/index.html
	$(step) 'checking lints'
	cargo clippy --release --workspace --all-targets -- -D warnings

check-macos: ui/dist/index.html
	@scripts/check-macos
	@scripts/check-macos-selftest

# The end-to-end tests are part of the workspace's tests and need a display, so all of them get one.
rust-test: ui/dist/index.html
	$(step) 'building and running every test (the first time: many minutes)'
	scripts/with-display cargo nextest run --release --workspace
	cargo test --release --workspace --doc --quiet
	@scripts/test-python check

fmt:
	cargo fmt --all
