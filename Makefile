# Rowen's chores. `make help` lists them.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# The demo, the benchmarks and the tests on real devices need root.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E)
TARGET := $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: build pictures sim test test-fresh test-unit test-sim test-real test-clients test-deb test-boot test-conformance test-lvm2 conformance-gaps lint deny demo bench experiments experiments-report bench-compare deb man docs install uninstall clean help test-kills test-fuzz test-fuzz-guided test-cuts test-full test-suites test-metrics test-upgrades test-faults test-web test-stores

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 26
	@echo "A single test: see CONTRIBUTING.md, 'Build and test'."

build: ## build target/release/rowen, rowen-web and rowen-remote
	$(CARGO) build --release -p rowen-cli -p rowen-web -p rowen-remote

test: ## everything that each change must pass (root; about 30 minutes; installs the Debian packages that it needs)
	.ci/run

test-fresh: ## make demo and make test in a minimal Debian (root; up to an hour; COMMAND=".ci/run unit" runs that)
	.ci/fresh $(COMMAND)

test-unit: ## tests of the crates; no root, no devices (4 minutes)
	.ci/run unit

test-sim: ## crashes and faults on simulated disks, in full (about 12 minutes; ROWEN_SIM_SEEDS=percent; a twentieth of it in make test)
	.ci/run sim

sim: ## one simulated world (SEED=number, OPTIONS=--trace), or many (SEED="--minutes 10")
	$(CARGO) run --quiet --profile test -p rowen-sim -- $(SEED) $(OPTIONS)

test-fuzz: ## hostile bytes for every decoder (MINUTES=1 for each, SEED=number)
	$(CARGO) run --quiet --profile test -p rowen-fuzz --bin rowen-fuzz -- --seconds $$((60 * $(or $(MINUTES),1))) --from $(or $(SEED),1)
	ROWEN_FUZZ_SECONDS=$$((60 * $(or $(MINUTES),1))) ROWEN_SEED=$(or $(SEED),1) $(CARGO) test --quiet -p rowen-cli --bin rowen changed_command_lines -- --nocapture

test-fuzz-guided: ## the same decoders under libFuzzer, guided by coverage (MINUTES=1 for each, TARGETS=names, SEED=number)
	.ci/packages guided
	fuzz/guided/run --seconds $$((60 * $(or $(MINUTES),1))) $(if $(SEED),--seed $(SEED)) $(TARGETS)

test-real: ## real devices, filesystems, killed servers, power cuts (root; 8 minutes)
	.ci/run real

test-clients: ## LXD, mylvmbackup, libvirt and others on Rowen (root; 2 minutes; installs them)
	.ci/run clients

test-kills: build ## kill -9 at random moments of every command (root; N=1000 kills, SEED=number)
	.ci/packages test
	$(SUDO) crates/cli/tests/kills $(TARGET)/rowen $(or $(N),1000) $(SEED)

test-upgrades: build ## upgrades in service at 200 volumes under fio and SQLite, then with kills (root; N=20 upgrades, KILLS=20, SEED=number, OLD=another build)
	.ci/packages real
	$(SUDO) crates/cli/tests/upgrades $(TARGET)/rowen $(or $(N),20) $(or $(KILLS),20) $(SEED)

test-cuts: build ## power cuts under databases on filesystems (root; N=200 cuts, SEED=number)
	.ci/packages real
	$(CARGO) build --release -p rowen-host --example volatile_disk
	$(SUDO) crates/cli/tests/cuts $(TARGET)/rowen $(TARGET)/examples/volatile_disk $(or $(N),200) $(SEED)

test-faults: build ## disks that fail, hang, rot and are pulled under load (root; N=200 rounds, SEED=number, SCENARIOS=names)
	.ci/packages faults
	$(CARGO) build --release -p rowen-host --example faultdisk --example verified_load
	$(SUDO) crates/cli/tests/faults $(TARGET)/rowen $(TARGET)/examples $(or $(N),200) $(or $(SEED),$$$$) $(SCENARIOS)

test-full: build ## full groups, with kills, power cuts and closings (root; N=20 groups, SEED=number)
	.ci/packages real
	$(CARGO) build --release -p rowen-host --example volatile_disk
	$(SUDO) crates/cli/tests/full $(TARGET)/rowen $(TARGET)/examples/volatile_disk $(or $(N),20) $(SEED)

test-suites: build ## fsx, fio, stress-ng, dbench, xfstests on a volume and on a plain loop device (root; SECONDS=30, XFSTESTS=/a/built/checkout)
	.ci/packages suites
	$(CARGO) install fsx --version 0.3.2 --locked --quiet --root $(TARGET)/tools
	$(SUDO) crates/cli/tests/suites $(TARGET)/rowen $(TARGET)/tools/bin/fsx $(or $(SECONDS),30) $(SEED)

test-deb: ## the Debian packages: built, installed into a directory, used, purged (root; 1 minute)
	.ci/run deb

test-boot: build ## the Debian package under a real systemd and udevd, and a root filesystem on a volume, in QEMU (root; fetches 150 MB)
	.ci/packages boot
	$(SUDO) packaging/boot/test $(TARGET)/rowen $(or $(CARGO_TARGET_DIR),target)/boot

test-metrics: build ## a real Prometheus scrapes the metrics and alerts while a disk fails and servers die (root; installs it)
	.ci/packages metrics
	$(SUDO) packaging/metrics/test $(TARGET)/rowen

test-web: build ## the page of rowen-web over real groups, in headless Chromium at two widths (root; installs it; pictures in target/web)
	.ci/packages web
	$(CARGO) build --release -p rowen-web --example browser
	$(SUDO) packaging/web/test $(TARGET)/rowen $(TARGET)/rowen-web $(TARGET)/examples/browser $(or $(CARGO_TARGET_DIR),target)/web

test-stores: build ## stores in a directory and in real servers of S3, with real groups (root; fetches moto and versitygw)
	.ci/packages stores
	crates/remote/tests/servers $(or $(CARGO_TARGET_DIR),target)/servers
	$(SUDO) crates/remote/tests/stores $(TARGET)/rowen $(or $(CARGO_TARGET_DIR),target)/servers

test-conformance: ## the same commands on the real LVM2 and on Rowen (root; 5 minutes; installs both)
	.ci/run conformance

test-lvm2: ## LVM2's own shell tests on Rowen (root; fetches LVM2's source)
	.ci/run lvm2

conformance-gaps: ## make conformance/gaps.txt from the last test-conformance
	$(CARGO) run -q -p rowen-conformance --example compare -- --gaps conformance $(dir $(TARGET))tmp/conformance

lint: ## clippy, rustfmt; licences, sources and known vulnerabilities of dependencies; every warning is an error (1 minute)
	.ci/run lint

deny: ## licences, sources and known advisories of the dependencies (compiles cargo-deny if there is none: 10 minutes)
	.ci/deny --all

demo: ## the cost of a snapshot: 1000 MiB written without and with one, for each chunk size (root; 5 minutes, 7 GiB)
	.ci/packages demo
	$(CARGO) build --release -p rowen-cli
	$(CARGO) build --release -p rowen-bench
	$(SUDO) $(TARGET)/demo $(DEMO)

bench: ## every published figure against the raw disk (root; BENCH=--quick for a short run)
	.ci/packages bench
	$(CARGO) build --release -p rowen-cli
	$(CARGO) build --release -p rowen-bench
	$(SUDO) $(TARGET)/rowen-bench $(BENCH)

deb: build ## the Debian packages rowen and rowen-lvm, in target/debian
	packaging/debian/build $(TARGET)/rowen $(or $(CARGO_TARGET_DIR),target)/debian

experiments: ## published experiments, on the systems that they measured and on Rowen (root; EXPERIMENT=name, FULL=1 for 90 minutes)
	.ci/packages experiments
	$(CARGO) build --release -p rowen-cli
	$(CARGO) build --release -p rowen-bench -p rowen-experiments
	$(SUDO) $(TARGET)/rowen-experiments $(if $(FULL),--full) --out docs/experiments $(OPTIONS) $(EXPERIMENT)

experiments-report: ## make the report and tables of docs/experiments from the stored measurements
	$(CARGO) build --release -p rowen-experiments
	$(TARGET)/rowen-experiments report docs/experiments/measurements.jsonl --out docs/experiments

bench-compare: ## the effect of a change: REV=main~5 runs the quick bench for it and for the sources here, in turn
	.ci/packages experiments
	experiments/bench-compare $(REV)

man: build ## make manual pages and shell completions under target
	rm -rf $(TARGET)/man $(TARGET)/completion
	$(TARGET)/rowen man $(TARGET)/man
	install -d $(TARGET)/completion
	$(TARGET)/rowen completion bash >$(TARGET)/completion/rowen
	$(TARGET)/rowen completion zsh >$(TARGET)/completion/_rowen

docs: build ## make docs/lvm.md from the tables of commands, options and fields
	$(TARGET)/rowen compatibility >docs/lvm.md

pictures: ## make the pictures of docs/ from their sources (installs graphviz)
	.ci/packages pictures
	docs/pictures/make

SHARE := $(DESTDIR)$(PREFIX)/share
LIB := $(DESTDIR)$(PREFIX)/lib
UNITS := $(notdir $(wildcard packaging/systemd/*.service packaging/systemd/*.socket packaging/systemd/*.timer))

install: man ## install rowen, rowen-web, rowen-remote, LVM's names as links to it, manual pages, completion, units and udev rules under PREFIX
	install -D -m 0755 $(TARGET)/rowen $(DESTDIR)$(PREFIX)/sbin/rowen
	install -m 0755 $(TARGET)/rowen-web $(DESTDIR)$(PREFIX)/sbin/rowen-web
	install -m 0755 $(TARGET)/rowen-remote $(DESTDIR)$(PREFIX)/sbin/rowen-remote
	for name in $$($(TARGET)/rowen commands); do ln -sf rowen $(DESTDIR)$(PREFIX)/sbin/$$name; done
	install -d $(SHARE)/man/man8
	install -m 0644 $(TARGET)/man/*.8 $(SHARE)/man/man8
	install -D -m 0644 $(TARGET)/completion/rowen $(SHARE)/bash-completion/completions/rowen
	for name in $$($(TARGET)/rowen commands); do ln -sf rowen $(SHARE)/bash-completion/completions/$$name; done
	install -D -m 0644 $(TARGET)/completion/_rowen $(SHARE)/zsh/site-functions/_rowen
	install -d $(LIB)/systemd/system $(LIB)/udev/rules.d $(LIB)/modules-load.d
	for unit in $(UNITS); do sed 's|/usr/sbin/rowen|$(PREFIX)/sbin/rowen|' packaging/systemd/$$unit >$(LIB)/systemd/system/$$unit; done
	sed 's|/usr/sbin/rowen|$(PREFIX)/sbin/rowen|' packaging/udev/70-rowen.rules >$(LIB)/udev/rules.d/70-rowen.rules
	install -D -m 0644 -t $(LIB)/systemd/system/run-rowen-.mount.d packaging/systemd/run-rowen-.mount.d/rowen.conf
	install -D -m 0644 packaging/metrics/rowen.rules.yml $(SHARE)/rowen/prometheus/rowen.rules.yml
	install -D -m 0644 packaging/metrics/rowen.grafana.json $(SHARE)/rowen/grafana/rowen.grafana.json
	install -m 0644 packaging/systemd/rowen.modules $(LIB)/modules-load.d/rowen.conf

uninstall: ## remove what install installed
	for name in $$($(DESTDIR)$(PREFIX)/sbin/rowen commands); do \
		rm -f $(SHARE)/man/man8/$$name.8; \
		[ "$$(readlink $(SHARE)/bash-completion/completions/$$name)" != rowen ] || rm -f $(SHARE)/bash-completion/completions/$$name; \
		[ "$$(readlink $(DESTDIR)$(PREFIX)/sbin/$$name)" != rowen ] || rm -f $(DESTDIR)$(PREFIX)/sbin/$$name; done
	rm -f $(SHARE)/man/man8/rowen.8 $(SHARE)/man/man8/rowen-*.8 $(SHARE)/bash-completion/completions/rowen
	cd $(LIB)/systemd/system && rm -f $(UNITS) && rm -rf run-rowen-.mount.d
	rm -rf $(SHARE)/rowen
	rm -f $(LIB)/udev/rules.d/70-rowen.rules $(LIB)/modules-load.d/rowen.conf
	rm -f $(SHARE)/zsh/site-functions/_rowen $(DESTDIR)$(PREFIX)/sbin/rowen $(DESTDIR)$(PREFIX)/sbin/rowen-web $(DESTDIR)$(PREFIX)/sbin/rowen-remote

clean: ## remove everything that was built
	$(CARGO) clean
