PREFIX ?= /usr/local
TOOLS := fasta-shard pack-batches gpu-embed validate-embeddings monitor-log
# What gpu-embed loads on a CPU; the libraries find each other as long as torch/ and nvidia/ lie side by side.
LIBRARIES := torch/lib/libtorch_cpu.so torch/lib/libc10.so torch/lib/libgomp.so.1 \
	nvidia/cu13/lib/libcudart.so.13 nvidia/cu13/lib/libcupti.so.13

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## Fetch libtorch into .libtorch (0.6 GB, once)
	@lib/esm2/libtorch/setup.sh

build: setup ## Build the five programs into target/release
	cargo build --release --locked

demo: build ## Run the whole chain on 100 proteins and a tiny model
	@tests/demo.sh

test: build .venv/readers/complete ## Run the tests, and open every file with pyarrow, polars and DuckDB
	cargo test --release --locked --workspace
	PYTHONDONTWRITEBYTECODE=1 .venv/readers/bin/python -m pytest -q -p no:cacheprovider tests/python

torture: build ## Damage the programs' inputs and starve them of memory (minutes)
	cargo test --release --locked --test torture -- --ignored --nocapture --test-threads 2

lint: setup ## Check formatting, lints, documentation and the build without libtorch
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
	cargo clippy --release --locked --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --release --locked --workspace --no-deps

install: build ## Install into PREFIX, /usr/local by default
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/lib/plmkit"
	install $(addprefix target/release/,$(TOOLS)) "$(DESTDIR)$(PREFIX)/bin"
ifndef LIBTORCH
	cd .libtorch && cp -R --parents $(LIBRARIES) *.dist-info "$(abspath $(DESTDIR)$(PREFIX))/lib/plmkit"
endif

goldens: .venv/reference/complete ## Make the files of test-data again (fetches 5 GB of Python packages)
	python3 test-data/make_proteins.py
	.venv/reference/bin/python test-data/make_model_tiny.py
	.venv/reference/bin/python test-data/make_goldens.py

# Without pip inside: Debian's python3 has no ensurepip unless python3-venv is installed too.
.venv/%/complete: tests/python/requirements-%.txt
	rm -rf .venv/$*
	python3 -m venv --without-pip .venv/$*
	python3 -m pip --python .venv/$*/bin/python install --quiet -r $<
	touch $@

.PHONY: help setup build demo test torture lint install goldens
