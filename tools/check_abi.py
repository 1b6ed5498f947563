#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the C ABI of ucclep.h with that of an older version: only additions pass.

    tools/check_abi.py facts HEADER           prints the facts of a header as JSON
    tools/check_abi.py check HEADER FACTS     exit code 1, with a line for each difference that breaks old programs

Facts are sizes of structs, offsets and sizes of their fields, values of enumerators and numeric macros, and declarations
of functions, as the C compiler (CC, else cc) sees them. A struct with {size, magic} may get fields after its end; no field
may lie where the older form had padding. Any other struct keeps its size.
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

STRUCT = re.compile(r"typedef struct \{([^{}]*)\}\s*(ucclEp\w+)\s*;")
ENUM = re.compile(r"enum \{([^{}]*)\}")
FUNCTION = re.compile(r"^\s*((?:\w+[\s*]+)+?(ucclEp\w+)\s*\([^;{}]*\))\s*;", re.M)
MACRO = re.compile(r"^#define (UCCLEP_\w+) (?:-?\d|0x).*$", re.M)


class Failure(Exception):
    pass


def compiler(*arguments):
    command = shlex.split(os.environ.get("CC", "cc")) + list(arguments)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Failure(f"cannot run the C compiler {command[0]}: {error.strerror}; set CC") from None
    if done.returncode != 0:
        raise Failure(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
    return done.stdout


def fields(body):
    for declaration in filter(None, (part.strip() for part in body.split(";"))):
        pointer = re.search(r"\(\*\s*(\w+)\)", declaration)
        if pointer:
            yield pointer[1]
            continue
        for declarator in declaration.split(","):
            yield re.search(r"(\w+)\s*(?:\[[^]]*\]\s*)*$", declarator)[1]


def facts(header):
    header = os.path.abspath(header)
    text = compiler("-E", "-P", "-dD", "-x", "c", header)
    constants = sorted(match[1] for match in MACRO.finditer(text) if not match[1].startswith("UCCLEP_VERSION"))
    text = re.sub("^#.*$", "", text, flags=re.M)
    enumerators = [part.split("=")[0].strip() for match in ENUM.finditer(text) for part in match[1].split(",")]
    structs = {name: list(fields(body)) for body, name in STRUCT.findall(text)}
    lines = [f'printf("constant {name} %lld\\n", (long long)({name}));' for name in constants + enumerators if name]
    for name, members in structs.items():
        lines.append(f'printf("struct {name} %zu\\n", sizeof({name}));')
        lines += [f'printf("field {name} {member} %zu %zu\\n", offsetof({name}, {member}), sizeof((({name}*)0)->{member}));'
                  for member in members]
    found = {"structs": {}, "constants": {}, "functions": {}}
    for line in run_program(header, lines).splitlines():
        kind, name, *rest = line.split()
        if kind == "constant":
            found["constants"][name] = int(rest[0])
        elif kind == "struct":
            found["structs"][name] = {"size": int(rest[0]), "fields": {}}
        else:
            found["structs"][name]["fields"][rest[0]] = [int(rest[1]), int(rest[2])]
    found["functions"] = {name: " ".join(declaration.split()) for declaration, name in FUNCTION.findall(text)}
    return found


def text_of(found):
    """JSON with a line for each struct, constant and function."""
    parts = []
    for kind, entries in found.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
        parts.append(f" {json.dumps(kind)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(parts) + "\n}"


def run_program(header, lines):
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "facts.c"), os.path.join(folder, "facts")
        with open(source, "w", encoding="utf-8") as file:
            file.write(f'#include <stddef.h>\n#include <stdio.h>\n#include "{header}"\nint main(void) {{\n')
            file.write("\n".join(lines) + "\nreturn 0;\n}\n")
        compiler("-w", "-O0", "-o", program, source)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def struct_differences(name, old, new):
    if new is None:
        yield f"struct {name} is gone"
        return
    for field, (offset, size) in old["fields"].items():
        now = new["fields"].get(field)
        if now is None:
            yield f"{name}.{field} is gone"
        elif now != [offset, size]:
            yield f"{name}.{field} has offset {now[0]} and size {now[1]}, expected {offset} and {size}"
    for field, (offset, _) in new["fields"].items():
        if field not in old["fields"] and offset < old["size"]:
            yield f"{name}.{field} is new at offset {offset}, expected at least {old['size']}, the end of the older form"
    if new["size"] < old["size"] or ("magic" not in old["fields"] and new["size"] != old["size"]):
        yield f"{name} has {new['size']} bytes, expected {old['size']}"


def differences(header, old):
    new = facts(header)
    for name, struct in old["structs"].items():
        yield from struct_differences(name, struct, new["structs"].get(name))
    for name, value in old["constants"].items():
        now = new["constants"].get(name)
        if now != value:
            yield f"{name} is {'gone' if now is None else now}, expected {value}"
    gone = [name for name in old["functions"] if name not in new["functions"]]
    yield from (f"function {name} is gone" for name in gone)
    yield from changed_functions(header, [text for name, text in old["functions"].items() if name not in gone])


def changed_functions(header, declarations):
    """C refuses a second declaration of another type."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "declarations.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(f'#include "{os.path.abspath(header)}"\n' + "".join(text + ";\n" for text in declarations))
        try:
            compiler("-fsyntax-only", source)
        except Failure as failure:
            changed = re.findall(r"conflicting types for .(ucclEp\w+)", str(failure))
            if not changed:
                raise
            yield from (f"function {name} has another type than it had" for name in changed)


def main(arguments):
    if arguments[:1] == ["facts"] and len(arguments) == 2:
        print(text_of(facts(arguments[1])))
        return 0
    if arguments[:1] != ["check"] or len(arguments) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(arguments[2], encoding="utf-8") as file:
        found = list(differences(arguments[1], json.load(file)))
    for line in found:
        print(f"{arguments[1]}: {line}", file=sys.stderr)
    if not found:
        print(f"{arguments[1]} only adds to {arguments[2]}")
    return 1 if found else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        sys.exit(f"check_abi.py: {failure}")
