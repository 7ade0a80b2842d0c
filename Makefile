PREFIX ?= /usr/local
# The folder of a libtorch that is not to be fetched; build scripts run in other folders than this.
ifdef LIBTORCH
override export LIBTORCH := $(abspath $(LIBTORCH))
endif

CARGO_DENY := cargo-deny@0.20.2
CARGO_FUZZ := cargo-fuzz@0.13.2
CARGO_ABOUT := cargo-about@0.9.3
CARGO_CYCLONEDX := cargo-cyclonedx@0.5.9
FUZZ_SECONDS ?= 60
# 1: with what a GPU needs, libplmkit_cuda.so, libtorch and CUDA's libraries; library: without the last, which only a GPU needs.
GPU ?=
WITH_LIBRARY := $(filter 1 library,$(GPU))
CRATES := --workspace $(if $(WITH_LIBRARY),,--exclude plmkit-cuda)
# What to compile: the programs, or `tests` where the tests are to be run as well. What tests alone ask of a library has it, and all
# that uses it, compiled again otherwise.
BUILD ?= programs
# Options of the comparisons, of vectors and of scores: --configurations 8M,650M, --dtypes f32, …
PARITY ?=
SCORES ?=
# Options of the suite on libtorch for CUDA: --cases NAME, …
GPU_LOAD ?=
# Which third of the nightly targets: 1, 2 or 3; all where none is named.
THIRD ?=
# Which tests of torture, by parts of their names, and which checks of Nextflow: all where none is named.
TORTURE ?=
NEXTFLOW ?=
# Options of the benchmark: --quick, --models 150M, --baseline FILE, …
BENCH ?=
# Which parts to measure, and options of criterion: attention, linear/avx2, --save-baseline NAME, …
PARTS ?=

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## Fetch what is not a crate: nothing; with GPU=1 libtorch and CUDA's libraries into .libtorch (1.1 GB, once)
	@$(if $(WITH_LIBRARY),GPU=$(GPU) scripts/libtorch.sh fetch,true)

build: setup ## Build the programs into target/release; with GPU=1 the library for GPUs beside them
	cargo build --release --locked $(if $(filter tests,$(BUILD)),$(CRATES) --lib --bins --tests,--package plmkit $(if $(WITH_LIBRARY),--package plmkit-cuda))

# For what tests the library, on a machine without a GPU.
library:
	@$(MAKE) --no-print-directory build GPU=$(or $(WITH_LIBRARY),library)

demo: build ## Run the whole chain on 100 proteins and a tiny model
	@tests/demo.sh

test: build .venv/readers/complete ## Run the tests, and open every file with pyarrow, polars and DuckDB
	cargo test --release --locked $(CRATES)
	$(if $(WITH_LIBRARY),cargo test --release --locked $(CRATES) --test gpu_embed --test validate_embeddings -- --ignored)
	PYTHONDONTWRITEBYTECODE=1 .venv/readers/bin/python -m pytest -q -p no:cacheprovider -m "not elsewhere" tests/python tests/bench

results-check: build .venv/readers/complete .venv/ways/complete .venv/reference/complete ## Run all of docs/results.md, AnnData, …, and the converter of references (half a minute, 6 GB of Python packages)
	PYTHONDONTWRITEBYTECODE=1 .venv/readers/bin/python -m pytest -q -p no:cacheprovider tests/python/test_results.py tests/python/test_reference_to_parquet.py

nightly: ## Run everything, one after the other; THIRD=1, 2 or 3: a third of it (three hours on two cores, root)
	@.ci/run nightly $(THIRD)

torture: build ## Kill the programs, fill their disks, damage their files and starve them of memory (minutes)
	cargo test --release --locked $(CRATES) --test torture -- --ignored --nocapture --test-threads 2 $(TORTURE)

translate-check: build .venv/readers/complete ## Compare translations with EMBOSS (minutes, root, 25 MB of Debian's packages)
	@tests/install/packages.sh emboss emboss-test bowtie-examples
	.venv/readers/bin/python tests/translate/check.py

parity: export PYTHONDONTWRITEBYTECODE = 1
parity: library .venv/reference/complete ## Compare with transformers, fair-esm and float64, all models (minutes, 5 GB of Python packages)
	.venv/reference/bin/python tests/parity $(PARITY)
	.venv/reference/bin/python tests/parity/batch_invariance.py $(BATCH_INVARIANCE)
	.venv/reference/bin/python tests/parity/scores.py $(SCORES)
	.venv/reference/bin/python tests/parity/converter.py

parity-mutants: build .venv/reference/complete ## Build gpu-embed with known defects and see that the comparison finds each
	PYTHONDONTWRITEBYTECODE=1 .venv/reference/bin/python tests/parity/mutants.py

bench: export PYTHONDONTWRITEBYTECODE = 1
bench: build .venv/reference/complete .venv/esm-cpp/complete ## Measure the programs beside transformers, fair-esm and esm-cpp (an hour or two, 5 GB of Python packages)
	.venv/reference/bin/python tests/bench $(BENCH)

bench-scores: export PYTHONDONTWRITEBYTECODE = 1
bench-scores: build .venv/reference/complete ## Measure masked scores beside a loop over transformers (minutes, 5 GB of Python packages)
	.venv/reference/bin/python tests/bench/masked_scores.py

bench-parts: ## Measure the packer, the tokenizer, the digests, the readers and the CPU kernels alone (minutes)
	cargo bench --locked $(addprefix --package plmkit-,contract cpu pack sequence store) -- $(PARTS)

bench-sharding: build ## Measure fasta-shard beside seqkit on 1.2 M proteins (Debian's seqkit and mmseqs2-examples; minutes, 2 GB of disk)
	PYTHONDONTWRITEBYTECODE=1 python3 tests/bench/sharding.py $(BENCH)

bench-neighbours: build .venv/ways/complete ## Measure nearest neighbours beside faiss and numpy (minutes, 2 GB of disk)
	cargo build --release --locked --example synthetic --example product
	PYTHONDONTWRITEBYTECODE=1 .venv/ways/bin/python tests/bench/neighbours.py $(BENCH)

fuzz: .cargo-tools/$(CARGO_FUZZ) ## Run each fuzz target for FUZZ_SECONDS (needs a nightly compiler)
	cargo run --release --locked --example fuzz-seeds tests/fuzz/corpus
	@PATH="$(abspath .cargo-tools/bin):$$PATH" tests/fuzz/run.sh $(FUZZ_SECONDS)

kernels: ## Compile the CUDA kernels for every architecture, without a GPU (90 MB of NVRTC)
	@scripts/libtorch.sh fetch-nvrtc
	cargo test --release --locked -p plmkit-gpu --test folder -- --ignored
	LD_LIBRARY_PATH="$(abspath .libtorch/nvidia/cu13/lib)$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}" \
		cargo test --release --locked -p plmkit-gpu -- --ignored --nocapture

target/gpu-load/tree/run: .venv/reference/complete $(wildcard tests/gpu-load/*.cpp tests/gpu-load/*.h tests/gpu-load/tree.sh) scripts/absent.sh
	@INSTALLED=1 tests/gpu-load/tree.sh target/gpu-load/tree

gpu-load: library target/gpu-load/tree/run ## Run gpu-embed on libtorch for CUDA with stand-ins for driver and GPU (2 min, 5 GB of Python packages)
	PYTHONDONTWRITEBYTECODE=1 .venv/reference/bin/python tests/gpu-load $(GPU_LOAD)

# A stage takes a minute on four free cores; each ends at its deadline whatever happens.
gpu-accept-cpu: export PYTHON = .venv/reference/bin/python
gpu-accept-cpu: gpu-switches .venv/reference/complete ## Run the acceptance of a GPU on the CPU, where it shows only that it works (minutes, 5 GB of Python packages)
	PYTHONDONTWRITEBYTECODE=1 $(PYTHON) tests/gpu/test_cases.py
	for stage in a b c; do \
		tests/gpu/accept.sh --stage $$stage --work target/gpu/work --out target/gpu/$$stage --device cpu --quick --deadline 200 || exit; \
	done

gpu-switches: library ## Build the library for GPUs once for each change that only a GPU can judge
	PYTHONDONTWRITEBYTECODE=1 python3 tests/gpu/switches.py

gpu-load-mutants: library target/gpu-load/tree/run ## Build gpu-embed with known defects of its GPU path and see that gpu-load finds each
	PYTHONDONTWRITEBYTECODE=1 .venv/reference/bin/python tests/gpu-load/mutants.py

monitoring: build .venv/monitoring/complete ## Check metrics and alerts with a real Prometheus, dashboards and the compose file with their schemas (40 MB of packages)
	@tests/monitor_log/prometheus/prometheus.sh
	PYTHONDONTWRITEBYTECODE=1 .venv/monitoring/bin/python tests/monitor_log/prometheus/check.py

lint: setup ## Check formatting, lints, documentation and the released programs
	cargo fmt --all --check
	cargo clippy --release --locked $(CRATES) --all-targets -- -D warnings
	cargo clippy --release --locked --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --release --locked $(CRATES) --no-deps
	scripts/version.sh check
	printf '%s\n' tests/parity/mutants/*.patch tests/gpu-load/mutants/*.patch tests/gpu/switches/*.patch | xargs -n 1 git apply --check -C1

# Not in lint: cargo-deny compiles for minutes.
licences: .cargo-tools/$(CARGO_DENY) ## Check the licences and the sources of the dependencies
	.cargo-tools/bin/cargo-deny --locked check --hide-inclusion-graph bans licenses sources

# Not in licences: a database that changes daily would fail builds that did not, and it has to be fetched from GitHub.
advisories: .cargo-tools/$(CARGO_DENY) ## Look the dependencies up in the RustSec database
	.cargo-tools/bin/cargo-deny --locked check advisories

workflows-nextflow: build .venv/snakemake/complete ## Run the Nextflow workflow with the real engine (minutes, a JDK and Maven, 100 MB of jars)
	@tests/workflows/estimate.sh
	PYTHONDONTWRITEBYTECODE=1 .venv/snakemake/bin/python tests/workflows/nextflow $(NEXTFLOW)

workflows-snakemake: build .venv/snakemake/complete ## Run the Snakemake workflow here and on a SLURM of its own (minutes, root)
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=target $(addprefix tests/workflows/snakemake/,local modules slurm)

workflows-multiqc: build .venv/snakemake/complete .venv/multiqc/complete ## See the reports in MultiQC (1.1 GB of Python packages)
	@tests/workflows/snakemake/multiqc.sh
	PYTHONDONTWRITEBYTECODE=1 .venv/snakemake/bin/python tests/workflows/nextflow multiqc

workflows-slurm: build ## Run plmkit, and the batch scripts on a SLURM of their own (minutes, root)
	@tests/workflows/plmkit.sh
	@tests/workflows/slurm/sbatch.sh

workflows-overhead: build .venv/snakemake/complete ## Time 20,000 proteins by plmkit, Snakemake and Nextflow (ten minutes)
	@tests/workflows/overhead.sh

# Beside each other, since they wait for SLURM more than they compute.
tests/workflows/snakemake/%: build .venv/snakemake/complete FORCE
	@$@.sh

install: build ## Install into PREFIX, /usr/local by default; with GPU=1 what a GPU needs as well
	@scripts/stage.sh $(or $(CARGO_TARGET_DIR),target)/release "$(abspath $(DESTDIR)$(PREFIX))"
	$(if $(WITH_LIBRARY),@scripts/libtorch.sh install "$(abspath $(DESTDIR)$(PREFIX))/lib/plmkit")

install-check: .venv/reference/complete ## See that an installation works where nothing else is: CPU, GPU=1 and LIBTORCH= (minutes, root, 1.1 GB of wheels)
	@tests/install/check.sh

dist: setup .cargo-tools/$(CARGO_ABOUT) .cargo-tools/$(CARGO_CYCLONEDX) ## Build for glibc 2.28 and pack into dist/ (100 MB of zig, once)
	@scripts/dist.sh

wheel: dist .venv/packaging/complete ## Make the Python package plmkit of what dist built, with GPU=1 plmkit-cuda as well
	@scripts/wheel/wheel.sh

wheel-check: build .venv/packaging/complete ## Make a wheel of what is built, install it where nothing else is and run the chain (seconds)
	@scripts/stage.sh $(or $(CARGO_TARGET_DIR),target)/release "target/wheel-check/plmkit-$$(scripts/version.sh)-$$(uname -m)-linux"
	@DIST=target/wheel-check PLATFORM=linux_$$(uname -m) scripts/wheel/wheel.sh
	@DIST=target/wheel-check PARTS=plain tests/delivery/check.sh

dist-check: export GPU = library
dist-check: wheel .venv/reference/complete ## See that tarball and wheels work where nothing else is (minutes, root; PARTS=again: another build has the same bytes)
	@tests/delivery/check.sh

images: dist ## Build the image plmkit-cpu by docker or podman, with GPU=1 plmkit as well (1.1 GB of wheels)
	@GPU=$(GPU) containers/images.sh build

sif: ## Make SIF files for Apptainer from the images, in dist
	@GPU=$(GPU) containers/images.sh sif

images-check: build .venv/snakemake/complete ## Build images and SIF files, run the chain and the workflows from them (minutes, root, a JDK and Maven)
	@tests/delivery/images.sh

conda: build .venv/conda/complete ## Write the Conda recipe of HEAD into dist/conda, check it and run its tests
	@containers/conda/recipe.sh dist/conda
	PYTHONDONTWRITEBYTECODE=1 .venv/conda/bin/python tests/delivery/conda.py dist/conda

aarch64-check: build ## Compile for aarch64 and run that under qemu: tests of the kernels, of the model, the demo (minutes, root; AARCH64=kernels: less; AARCH64="dist gpu": what is delivered)
	@tests/delivery/aarch64.sh

goldens: .venv/reference/complete ## Make the files of test-data again (fetches 5 GB of Python packages)
	python3 test-data/make_proteins.py
	.venv/reference/bin/python test-data/make_model_tiny.py
	.venv/reference/bin/python test-data/make_model_bin.py
	.venv/reference/bin/python test-data/make_goldens.py
	.venv/reference/bin/python test-data/make_relatives.py
	.venv/reference/bin/python scripts/make-golden.py test-data/model-tiny test-data/golden/proteins.fasta \
		test-data/golden/vectors.parquet --layers 2,4

.cargo-tools/$(CARGO_ABOUT): FEATURES := --features cli
# It compares every file of every crate with every licence: minutes without optimisation.
.cargo-tools/$(CARGO_ABOUT): export CARGO_PROFILE_DEV_OPT_LEVEL := 1
# Without optimisation: each runs for a second, and compiles for minutes.
.cargo-tools/%:
	cargo install --debug --locked --quiet --root .cargo-tools $(FEATURES) $*
	touch $@

# Without pip inside: Debian's python3 has no ensurepip unless python3-venv is installed too.
.venv/%/complete: tests/python/requirements-%.txt
	rm -rf .venv/$*
	python3 -m venv --without-pip .venv/$*
	python3 -m pip --python .venv/$*/bin/python install --quiet -r $<
	touch $@

FORCE:

.PHONY: help setup build library demo test nightly results-check torture parity parity-mutants bench bench-parts bench-scores bench-sharding bench-neighbours fuzz kernels translate-check gpu-load gpu-load-mutants gpu-switches gpu-accept-cpu monitoring \
	workflows-nextflow workflows-snakemake workflows-slurm workflows-multiqc workflows-overhead lint licences advisories install install-check \
	dist wheel wheel-check dist-check images sif images-check conda aarch64-check goldens
