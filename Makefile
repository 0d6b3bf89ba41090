# Two commands: `make run` starts Ebb on the bundled sample, `make test` runs every test. Both install what is missing first.
# One profile (release), one feature set, one target folder, so that nothing is compiled twice.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: run test app check-macos lint fmt setup setup-test ui-test rust-test

export PATH := $(CURDIR)/.cache/node/bin:$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
step = @printf '== %s\n'
ui_sources := package.json package-lock.json $(shell find ui -type f -not -path 'ui/dist/*' 2>/dev/null)
sample := sample/groceries

run: setup ui/dist/index.html
	$(step) 'building Ebb (the first time: some minutes)'
	cargo build --release
	@if [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ] || [ "$$(uname -s)" = Darwin ]; then \
	  echo '== opening Ebb on the bundled sample'; target/release/ebb app $(sample); \
	else \
	  echo '== no display here: training the bundled sample in the terminal'; target/release/ebb train $(sample); \
	fi

test: setup-test ui-test lint check-macos rust-test

app: setup ui/dist/index.html
	$(step) 'building the bundle'
	scripts/bundle

setup:
	@scripts/setup run

setup-test:
	@scripts/setup test

node_modules/.package-lock.json: package.json package-lock.json
	$(step) 'fetching what the window is built with'
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

lint: ui/dist/index.html
	$(step) 'checking format and lints'
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings

check-macos: ui/dist/index.html
	@scripts/check-macos
	@scripts/check-macos-selftest

# The end-to-end tests are part of the workspace's tests and need a display, so all of them get one.
rust-test: ui/dist/index.html
	$(step) 'building and running every test (the first time: many minutes)'
	scripts/with-display cargo nextest run --release --workspace
	cargo test --release --workspace --doc --quiet

fmt:
	cargo fmt --all
