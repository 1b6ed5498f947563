#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: compare_kernels.py [--renamed OLD=NEW]... [--gone NAME]... OLD NEW

Did a change of the sources leave the GPU code as it was? OLD and NEW are build trees, or two files of a kind: PTX (.ptx),
an AMD code object (.hsaco), a shared library (.so). Compares every kernel of every target, in whatever order and file of
that target it lies, and the symbols that libucclep.so exports. What may differ is the order of kernels, the numbers of
labels, the names of functions and variables, comments, line tables and addresses.

Prints a line for each difference, and in the end how many kernels there were; the exit status is 1 if anything differs.
--renamed: kernel OLD has the name NEW now. --gone: kernel NAME is not there any more. Names are without "ucclep_".
"""
import argparse
import glob
import os
import re
import struct
import subprocess
import sys

PREFIX = "ucclep_"
CODE = "src/device/kernels"
LIBRARY = "src/libucclep.so"


def output_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


# --- PTX: what a kernel is made of are its text, and the functions and variables that it uses, and those that they use.

COMMENT = re.compile(r"//.*|^\s*\.(?:loc|file)\b.*", re.MULTILINE)
DEFINED = re.compile(r"\.(entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$]+)")
VARIABLE = re.compile(r"([\w$]+)\s*(?:\[[\d\s]*\])*\s*(?:=.*)?;$", re.DOTALL)
NAME = re.compile(r"(?<![\w$%.])[A-Za-z_$][\w$]*")


def statements(text):
    """The definitions and declarations of a PTX file, without comments."""
    depth, begin = 0, 0
    text = COMMENT.sub("", text)
    for match in re.finditer(r"[{};]", text):
        depth += {"{": 1, "}": -1, ";": 0}[match[0]]
        if depth == 0:
            yield text[begin : match.end()].strip()
            begin = match.end()


def kernels_of_ptx(text):
    """{kernel: text}."""
    items, entries = {}, []
    for statement in statements(text):
        lines = "\n".join(" ".join(line.split()) for line in statement.splitlines() if line.strip())
        lines = re.sub(r"\$L__BB\d+_", "$L__BB_", lines)
        if statement.endswith("}"):
            kind, name = DEFINED.search(lines).groups()
            entries += [name] if kind == "entry" else []
        elif re.search(r"\.(entry|func)\b", lines) or (match := VARIABLE.search(lines)) is None:
            continue  # a declaration, or a directive
        else:
            name = match[1]
        items[name] = lines
    return {entry.removeprefix(PREFIX): with_all_used(entry, items) for entry in entries}


def with_all_used(entry, items):
    """The text of a kernel and of what it uses. Names become numbers in the order in which they come, as a C++ function
    that is renamed has the same code."""
    used, names = [], [entry]
    for name in names:  # grows meanwhile
        used.append(items[name])
        names += [word for word in dict.fromkeys(NAME.findall(items[name])) if word in items and word not in names]
    numbers = {}
    for word in names + re.findall(r"\b_Z\w+", "\n".join(used)):
        numbers.setdefault(re.sub(r"_param_\d+$", "", word), len(numbers))
    return NAME.sub(lambda match: numbered(match[0], numbers), "\n".join(used))


def numbered(word, numbers):
    name, parameter = re.fullmatch(r"(.*?)(_param_\d+)?", word).groups(default="")
    return f"<name {numbers[name]}>{parameter}" if name in numbers else word


# --- AMD: instructions, the descriptor that the hardware reads, and what the metadata says to drivers.


def symbols_of_elf(data):
    """{name: bytes} of an ELF file with 64 bits."""
    sections_at, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + size * i) for i in range(count)]
    symbols = {}
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        for at in range(offset, offset + length, entry):
            name, _, _, section, value, extent = struct.unpack_from("<IBBHQQ", data, at)
            if 0 < section < count and extent != 0:
                begin = sections[section][4] + value - sections[section][3]
                text = data[sections[link][4] + name :]
                symbols[text[: text.index(b"\0")].decode()] = data[begin : begin + extent]
    return symbols


def instructions_of(disassembly):
    """{symbol: instructions}, without addresses and the padding behind the end."""
    functions, lines = {}, []
    for line in disassembly.splitlines():
        if match := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            lines = functions.setdefault(match[1], [])
        elif line.startswith("\t"):
            lines.append(" ".join(line.split("//")[0].split()))
    for lines in functions.values():
        while lines and re.match(r"s_nop|s_code_end|\.\.\.", lines[-1]):
            lines.pop()
    return functions


def metadata_of(notes):
    """{kernel: lines} of the metadata in the notes."""
    kernels = {}
    listed = re.split(r"^(?=\S)", notes.partition("amdhsa.kernels:\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    for item in re.split(r"^  - ", listed, flags=re.MULTILINE)[1:]:
        lines = ("    " + item).splitlines()
        name = next(line.split()[1] for line in lines if line.startswith("    .name:"))
        kernels[name] = [line for line in lines if not re.match(r"    \.(name|symbol):", line)]
    return kernels


def kernels_of_code_object(path):
    with open(path, "rb") as file:
        symbols = symbols_of_elf(file.read())
    functions = instructions_of(output_of("llvm-objdump-19", "-d", path))
    kernels = {}
    for name, lines in metadata_of(output_of("llvm-readelf-19", "--notes", path)).items():
        descriptor = symbols[name + ".kd"]
        descriptor = descriptor[:16] + descriptor[24:]  # without the distance of the code
        parts = ["descriptor " + descriptor.hex(" ", 4)] + lines + functions[name]
        kernels[name.removeprefix(PREFIX)] = "\n".join(parts)
    for name in functions.keys() - {PREFIX + kernel for kernel in kernels} - kernels.keys():
        kernels[name] = "\n".join(functions[name])  # what kernels call
    return kernels


# --- Both sides.


def exports_of(path):
    """{symbol: type} of a shared library."""
    return {line.split()[-1]: line.split()[-2] for line in output_of("nm", "-D", "--defined-only", path).splitlines()}


def read(path):
    """{what it is for: {name: text}}, of a file or a build tree."""
    if os.path.isdir(path):
        files = sorted(glob.glob(f"{path}/{CODE}/*.ptx") + glob.glob(f"{path}/{CODE}/*.hsaco"))
        files = [file for file in files if not os.path.basename(file).startswith("trial")]
        libraries = glob.glob(f"{path}/{LIBRARY}.*.*")
        files += [file for file in libraries if re.search(r"\.so[.\d]*$", file)]
    else:
        files = [path]
    found = {}
    for file in files:
        base = os.path.basename(file)
        if ".so" in base:
            target, names = "exports", exports_of(file)
        else:
            target = re.split(r"[-.]", base)[0] if os.path.isdir(path) else base.rpartition(".")[2]
            if base.endswith(".ptx"):
                with open(file, encoding="utf-8") as text:
                    names = kernels_of_ptx(text.read())
            else:
                names = kernels_of_code_object(file)
        known = found.setdefault(target, {})
        for name in sorted(known.keys() & names.keys()):
            raise SystemExit(f"{file} has {name}, which another file of {target} has, too")
        known |= names
    if not found:
        raise SystemExit(f"{path} holds no GPU code and no library")
    return found


def first_difference(old, new):
    pairs = list(zip(old.splitlines(), new.splitlines()))
    for number, (before, after) in enumerate(pairs, 1):
        if before != after:
            return f"line {number}: {before} | {after}"
    return f"{len(old.splitlines())} lines | {len(new.splitlines())} lines"


def differences(old, new, renamed, gone):
    """Sentences, and how many kernels are identical and how many differ."""
    found, identical, differing = [], 0, 0
    for target in sorted(old.keys() | new.keys()):
        if target not in old or target not in new:
            found.append(f"{target}: only {'OLD' if target in old else 'NEW'} has it")
            continue
        before = {renamed.get(name, name): text for name, text in old[target].items()}
        after = new[target]
        lost = before.keys() - after.keys()
        sentences = [f"{target}: {name} is gone" for name in sorted(lost - gone)]
        sentences += [f"{target}: {name} is still there" for name in sorted(gone & after.keys())]
        sentences += [f"{target}: {name} is new" for name in sorted(after.keys() - before.keys())]
        same = [name for name in before.keys() & after.keys() if before[name] == after[name]]
        for name in sorted((before.keys() & after.keys()) - set(same)):
            sentences.append(f"{target}: {name} differs, {first_difference(before[name], after[name])}")
        if target != "exports":
            identical += len(same)
            differing += len(sentences)
        found += sentences
    return found, identical, differing


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n", maxsplit=1)[0].removeprefix("Usage: "))
    parser.add_argument("--renamed", action="append", default=[])
    parser.add_argument("--gone", action="append", default=[])
    parser.add_argument("old")
    parser.add_argument("new")
    options = parser.parse_args()
    renamed = dict(pair.split("=") for pair in options.renamed)
    found, identical, differing = differences(read(options.old), read(options.new), renamed, set(options.gone))
    for sentence in found:
        print(sentence)
    print(f"{identical} kernels identical, {differing} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
