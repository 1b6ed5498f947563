#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: tools/bundle.py BUILD-TREE BUNDLE [PROGRAM...]
       tools/bundle.py --targets BUILD-TREE PROGRAM...

Copies the shared library, the tools, the test executables and every library that they need, glibc's own excepted, and hwloc, which
they open at run time, into one folder: stripped, and with run path $ORIGIN, so that the folder runs wherever glibc is 2.36 or newer. The
folder `fallback` in it has libfabric, which the scripts use where the machine has none of its own. The tools' MPI plugin goes
with them when it was built; MPI itself does not, as it has to be the one that the machine's mpirun belongs to. test-gpu.sh there
runs the tests that need GPUs, perf-gpu.sh the tools on GPUs, perf-nodes-gpu.sh those between virtual nodes; commit.txt says what was
built.

With names of programs, as dispatch_perf, the bundle has those alone with the libraries that they need: small enough that bundles of two
commits go to a machine together, where one run compares them. It has no scripts, and no fallback: there it needs the machine's own
libfabric for transports of it. --targets prints what Ninja has to build for such a bundle.
"""
import json
import os
import re
import shutil
import subprocess
import sys

GLIBC_LIMIT = (2, 36)
OPENED = ["libhwloc.so.15"]
# Not beside the library, where they would be found before the machine's own, which know its NICs.
FALLBACK = ["libfabric.so.1"]
SIZE_LIMIT = 60 << 20
SIZE_LIMIT_OF_PROGRAMS = 16 << 20
# Runs only where a script of the source tree has made networks for it; looks at what the build made; has strace look at it; ask neither
# a GPU nor the machine, and are large.
AT_HOME = ["networks_test", "gpu_code_test", "steady_test", "host_unit_test", "executor_test", "engine_test", "fifo_test", "topology_test", "proxy_test",
           "reference_test", "numeric_test", "base_test", "host_launch_w32", "host_launch_w64", "bootstrap_test", "bootstrap_unit_test", "transport_unit_test", "perf_test"]
# What `make examples-cutlass` builds.
WHEN_BUILT = ["layer_perf"]
# What every glibc system has, and what must not be mixed with another glibc.
GLIBC = re.compile(r"^(ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|anl|mvec|nsl|BrokenLocale|thread_db))\.so\.\d+$")


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def built_files(tree):
    """The shared library under its soname with the executables of apps/, perf/, test/ and examples/, and the plugins of perf/. Without the test
    doubles and what needs them: the library would find a double in the bundle instead of the machine's driver. Without the
    baselines, which link what the library opens only where it is, and the drivers of the fuzzer, which ask neither a GPU
    nor the machine."""
    left_out = (["test", "doubles"], ["test", "bench"], ["test", "soft-roce"], ["test", "fuzz"])
    files, plugins = {}, {}
    for target in json.loads(output("meson", "introspect", "--targets", tree)):
        path = target["filename"][0]
        folders = os.path.relpath(os.path.dirname(path), os.path.realpath(tree)).split(os.sep)
        if target["type"] == "shared library" and target["name"] == "ucclep":
            files["libucclep.so.0"] = path
        elif target["type"] == "custom" and folders[0] == "examples" and not path.endswith(".o"):
            files[os.path.basename(path)] = path
        elif target["type"] == "executable" and folders[0] in ("apps", "perf", "test"):
            if folders[:2] in left_out or target["name"] in AT_HOME:
                continue
            if target["name"] in WHEN_BUILT and not os.path.exists(path):
                continue
            files[os.path.basename(path)] = path
        elif target["type"] == "shared module" and folders[0] == "perf":
            plugins[os.path.basename(path)] = path
    return files, plugins


def chosen(tree, programs):
    """The shared library and these programs, as built_files names them."""
    files, _ = built_files(tree)
    for name in programs:
        if name not in files:
            known = sorted(name for name in files if not name.startswith("lib"))
            sys.exit(f"bundle.py: no program {name}; there are: {' '.join(known)}")
    return {name: path for name, path in files.items() if name in programs or name == "libucclep.so.0"}


def needed_libraries(path):
    """Every library that the loader would load for this file, as {soname: path}."""
    found = {}
    for line in output("ldd", path).splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if match and match[2] == "not":
            sys.exit(f"bundle.py: {path} needs {match[1]}, which was not found")
        if match and not GLIBC.match(match[1]):
            found[match[1]] = match[2]
    return found


def opened_libraries(names):
    """Those that are opened by name at run time, and belong to no driver: {soname: path}."""
    found = {}
    for name in names:
        path = output("cc", "-print-file-name=" + name).strip()
        if not os.path.isabs(path):
            sys.exit(f"bundle.py: {name} was not found")
        found[name] = os.path.realpath(path)
    return found


def newest_glibc(path):
    versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", output("readelf", "--version-info", "--wide", path))
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def commit():
    described = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, cwd=os.path.dirname(__file__), check=False)
    return described.stdout.strip() or "unknown"


def with_needed(files):
    """And every library that they need."""
    found = dict(files)
    for path in files.values():
        for name, library in needed_libraries(path).items():
            found.setdefault(name, library)
    return found


def copy_stripped(files, folder):
    os.makedirs(folder)
    for name, path in files.items():
        copy = os.path.join(folder, name)
        shutil.copy(path, copy)
        os.chmod(copy, 0o755)
        subprocess.run(["strip", "--strip-unneeded", copy], check=True)
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", copy], check=True)
        if newest_glibc(copy) > GLIBC_LIMIT:
            sys.exit(f"bundle.py: {name} needs glibc {'.'.join(map(str, newest_glibc(copy)))}")


def size_of(folder):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)


def write_bundle(files, plugins, bundle):
    files = with_needed({**files, **opened_libraries(OPENED)})
    files.update(plugins)
    shutil.rmtree(bundle, ignore_errors=True)
    copy_stripped(files, bundle)
    with open(os.path.join(bundle, "commit.txt"), "w", encoding="utf-8") as file:
        file.write(commit() + "\n")
    return files


def add_rest(bundle):
    """What a bundle of all programs has besides."""
    copy_stripped(with_needed(opened_libraries(FALLBACK)), os.path.join(bundle, "fallback"))
    for script in ("test-gpu.sh", "perf-gpu.sh", "perf-nodes-gpu.sh"):
        shutil.copy(os.path.join(os.path.dirname(__file__), script), bundle)


def main(tree, bundle, *programs):
    files, plugins = (chosen(tree, programs), {}) if programs else built_files(tree)
    if "libucclep.so.0" not in files:
        sys.exit(f"bundle.py: {tree} has no libucclep.so")
    files = write_bundle(files, plugins, bundle)
    if not programs:
        add_rest(bundle)
    size, limit = size_of(bundle), SIZE_LIMIT_OF_PROGRAMS if programs else SIZE_LIMIT
    print(f"{bundle}: {len(files)} files, {size / (1 << 20):.1f} MiB: {' '.join(sorted(files))}")
    if size > limit:
        sys.exit(f"bundle.py: the bundle is larger than {limit >> 20} MiB")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--targets"] and len(sys.argv) > 3:
        print(" ".join(os.path.relpath(path, os.path.realpath(sys.argv[2])) for path in chosen(sys.argv[2], sys.argv[3:]).values()))
    elif len(sys.argv) >= 3 and not sys.argv[1].startswith("-"):
        main(*sys.argv[1:])
    else:
        sys.exit(__doc__)
