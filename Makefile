# SPDX-License-Identifier: Apache-2.0
# What people type; the work is done by Meson and the scripts in tools/. WERROR=true makes warnings errors.
# NVIDIA_TARGETS=all and AMD_TARGETS=all embed code for all GPUs of a release, as install, deb and RELEASE=1 wheel do; else it is for one
# of each vendor. NVIDIA_TARGETS=sm_80,sm_90a chooses some.
# SHARD=I/N has `make mutants` try the Ith of N parts.
PREFIX ?= /usr/local
RELEASE ?= 0

.PHONY: all perf check test test-sanitizers test-threads test-addresses test-more test-long test-nodes soak test-python test-clients test-gpu \
  test-roce fuzz mutants model lint format docs install bundle wheel deb sanitized-library device-library examples-cutlass clean

all:
	@tools/deps.sh build
	@tools/build.sh build all gpu-examples

perf:
	@tools/deps.sh build
	@tools/build.sh build tools
	@tools/perf.sh

test:
	@tools/test.sh

check:
	@tools/test.sh check

test-sanitizers:
	@tools/test.sh sanitizers

# Its two halves: ThreadSanitizer; AddressSanitizer with UndefinedBehaviorSanitizer.
test-threads:
	@tools/test.sh threads

test-addresses:
	@tools/test.sh addresses

test-more:
	@tools/test.sh more

test-long:
	@tools/test.sh long

test-nodes:
	@tools/test.sh nodes

soak:
	@tools/test.sh soak

test-python:
	@tools/test-python.sh

# Code of vLLM, SGLang, Megatron-LM and torchtitan over deep_ep; CLIENTS_SKIP="vllm sglang" leaves some out.
test-clients:
	@tools/test-clients.sh

test-gpu:
	@tools/deps.sh test
	@tools/build.sh build all gpu-examples
	@tools/test-gpu.sh build

test-roce:
	@tools/test-roce.sh

fuzz:
	@tools/fuzz.sh

mutants:
	@tools/deps.sh mutants
	@tools/mutants.py $(if $(SHARD),--shard $(SHARD))

model:
	@tools/deps.sh model
	@test/model/check.sh

lint:
	@tools/lint.sh

format:
	@tools/deps.sh format
	@tools/format.sh

docs:
	@tools/deps.sh docs
	@tools/docs.sh

install: export AMD_TARGETS ?= all
install: export NVIDIA_TARGETS ?= all
install: all
	@tools/install.sh "$(PREFIX)"

# build/bundle, or with NAME=before build/bundle-before; with PROGRAMS="combine_perf dispatch_perf" of those alone.
ifndef PROGRAMS
bundle: export AMD_TARGETS ?= all
endif
bundle:
	@tools/deps.sh bundle
ifdef PROGRAMS
	@tools/build.sh build build.ninja >/dev/null
	@targets=$$(tools/bundle.py --targets build $(PROGRAMS)) && tools/build.sh build $$targets
else
	@tools/build.sh build all gpu-examples
endif
	@tools/bundle.py build build/bundle$(if $(filter command,$(origin NAME)),-$(NAME)) $(PROGRAMS)

wheel:
	@RELEASE=$(RELEASE) tools/wheel.sh

deb: export AMD_TARGETS ?= all
deb: export NVIDIA_TARGETS ?= all
deb:
	@tools/deps.sh deb
	@tools/build.sh build library tools
	@tools/deb.sh

# The host device reports its lanes to ThreadSanitizer here: for programs that debug kernels of their own.
sanitized-library:
	@tools/deps.sh sanitized
	@tools/sanitized_library.sh

# libucclep_device.bc, and with nvcc libucclep_device.ptx: the device API for kernels in Triton and CuPy.
device-library:
	@tools/deps.sh device-library
	@tools/build.sh build device-library
	@mkdir -p build/device-library
	@for kind in bc ptx; do \
	  file=build/src/device/library/libucclep_device.$$kind; \
	  if [ -f $$file ]; then cp -p $$file build/device-library/ && echo build/device-library/libucclep_device.$$kind; fi; \
	done

# layer_perf, with CUTLASS's headers from PyPI in build/cutlass. Needs nvcc.
examples-cutlass:
	@tools/deps.sh build
	@tools/examples_cutlass.sh build

clean:
	rm -rf build build-check build-tsan build-asan build-fuzz build-lint build-mutants build-docs dist
