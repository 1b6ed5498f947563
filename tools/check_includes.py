#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: tools/check_includes.py [DIR]

Checks what the sources in DIR (default: this tree) include, without a compiler:

  order     a folder includes only folders that FLOORS lists below it, and no folder of its own floor
  knots     no two folders, and no two modules (a .hpp with its .cpp), include each other, directly or in a circle
  uses      a device header includes the header that defines each name that it uses
  depth     no chain of includes between public headers is longer than MAX_DEPTH
  size      no folder of device headers has more than MAX_FILES files

Prints one line for each fault, and a last line "N headers, depth D, F faults". The exit status is 1 if there are faults.
"""
import collections
import functools
import os
import re
import sys

MAX_DEPTH = 14
MAX_FILES = 25
# The C contracts stand below everything, although device.hpp, which users include, lies beside them.
CONTRACTS = ("include/ucclep/ucclep.h", "include/ucclep/transport.h")
# Lowest first. Folders in one row are one floor: they do not include each other.
DEVICE = "include/ucclep/device"
FLOORS = {
    "include/ucclep": [
        [f"{DEVICE}/arch"], [f"{DEVICE}/simt"], [f"{DEVICE}/layout"], [f"{DEVICE}/network"], [f"{DEVICE}/protocol"], [f"{DEVICE}/rows"],
        [f"{DEVICE}/ll", f"{DEVICE}/ht"], [f"{DEVICE}/ht/nodes"], [f"{DEVICE}/recovery"], [f"{DEVICE}/user"], [DEVICE], ["include/ucclep"],
    ],
    "src": [
        ["src/base"], ["src/transport", "src/device", "src/bootstrap"], ["src/topology", "src/proxy"],
        ["src/host/context"], ["src/host/boundary"], ["src/host/memory"], ["src/host/network"], ["src/host/group"],
        ["src/host/operations"], ["src/host/api"],
    ],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
# Definitions at the level of a namespace begin in the first column.
DEFINITION = re.compile(
    r"^(?:struct|class|enum class|enum|using|union)\s+(?:alignas\(\d+\)\s+)?(\w+)\s*(?::[^;{\n]*)?(?:\{|=)"
    r"|^(?:UCCLEP_FN|UCCLEP_COLD_FN|UCCLEP_HD)\s[^(;={]*?\b(\w+)\("
    r"|^(?:inline\s+)?constexpr\s[^(;={]*?\b(\w+)\s*[({=]",
    re.MULTILINE)
# Names that a file declares for itself: parameters of templates, members, variables and lambdas.
OWN = re.compile(r"\b(?:class|typename|auto|WarpUniform)\s*[&*]{0,2}\s+(?:const\s+)?(\w+)|&&\s*(\w+)\s*[,)]"
                 r"|^struct (\w+);|^\s+(?:static\s+)?(?:constexpr\s+)?[\w:<>]+\s[*&]?(\w+)\s*[=;,]|^\s+(\w+),?\s*$", re.MULTILINE)
MEMBER = re.compile(r"^\s+(?:static\s+|friend\s+)*(?:UCCLEP_FN|UCCLEP_COLD_FN|UCCLEP_HD)\s[^(;={]*?\b(\w+)\(", re.MULTILINE)
FIELDS = re.compile(r"^\s+[\w:<>]+\s[*&]?(\w+(?:,\s*\*?\w+)*);", re.MULTILINE)
WORD = re.compile(r"\w+")
# A type, or a function or constant of two words; other words are too common to belong to one header.
NAME = re.compile(r"\b(?:[A-Z]\w*|\w+_\w+|ucclEp\w+)\b")
OF_A_TYPE = re.compile(r"(?:[.>]|\b[A-Z]\w*::)$")


class Tree:
    def __init__(self, root):
        self.root = root
        self.text, self.includes = {}, {}
        for top in ("include/ucclep", "src"):
            for at, _, names in os.walk(os.path.join(root, top)):
                for name in names:
                    if name.endswith((".h", ".hpp", ".cpp")):
                        path = os.path.relpath(os.path.join(at, name), root)
                        with open(os.path.join(root, path), encoding="utf-8") as file:
                            self.text[path] = file.read()
        for path, text in self.text.items():
            found = []
            for name in INCLUDE.findall(text):
                for candidate in (f"include/{name}", f"src/{name}", os.path.join(os.path.dirname(path), name)):
                    if candidate in self.text:
                        found.append(candidate)
                        break
            self.includes[path] = found

    def device_headers(self):
        return sorted(path for path in self.text if path.startswith(DEVICE + "/"))


def floor_of(path, floors):
    """The longest listed folder that holds the file, and its floor; None where no listed folder does."""
    best = None
    for level, row in enumerate(floors):
        for folder in row:
            if path.startswith(folder + "/") and (best is None or len(folder) > len(best[0])):
                best = (folder, level)
    return best


def order_faults(tree):
    for path, found in sorted(tree.includes.items()):
        for top, floors in FLOORS.items():
            here = floor_of(path, floors)
            if not path.startswith(top + "/") or path.startswith("src/precompiled"):
                continue
            if here is None:
                yield f"{path}: its folder is on no floor"
                continue
            for other in found:
                there = floor_of(other, floors)
                if other in CONTRACTS or there is None or there[0] == here[0]:
                    continue
                if there[1] >= here[1]:
                    yield f"{path}: includes {other}, which is not below it"


def circles(graph):
    """The strongly connected components of more than one node (Tarjan)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while True:
                member = stack.pop()
                on_stack.discard(member)
                component.append(member)
                if member == node:
                    break
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(10000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def knot_faults(tree):
    modules, folders = collections.defaultdict(set), collections.defaultdict(set)
    for path, found in tree.includes.items():
        for other in found:
            a, b = os.path.splitext(path)[0], os.path.splitext(other)[0]
            if a != b:
                modules[a].add(b)
            a, b = os.path.dirname(path), os.path.dirname(other)
            if a != b and other not in CONTRACTS:
                folders[a].add(b)
    for kind, graph in (("modules", modules), ("folders", folders)):
        for component in circles(graph):
            yield f"{kind} include each other: {' '.join(component)}"


def defined_names(text):
    return {name for groups in DEFINITION.findall(COMMENT.sub(" ", text)) for name in groups if name}


def definers(tree):
    """{name: the one device header that defines it}; a name that several define, or that is a member too, is left out."""
    found, members = collections.defaultdict(set), set()
    for path in tree.device_headers():
        text = COMMENT.sub(" ", tree.text[path])
        members.update(MEMBER.findall(text))
        for fields in FIELDS.findall(text):
            members.update(WORD.findall(fields))
        for name in defined_names(tree.text[path]):
            found[name].add(path)
    return {name: paths.pop() for name, paths in found.items() if len(paths) == 1 and name not in members}


def names_used(text):
    own = defined_names(text) | {name for groups in OWN.findall(text) for name in groups if name}
    for match in NAME.finditer(text):
        # What stands behind a dot, an arrow or a type is a member.
        if match[0] not in own and not OF_A_TYPE.search(text, max(0, match.start() - 80), match.start()):
            yield match[0]


def provides(tree, path, other):
    """simt.hpp is the page of what arch/ has, and arch/ that of itself."""
    direct = tree.includes[path]
    if other.startswith(f"{DEVICE}/arch/"):
        return any(header in direct for header in (other, f"{DEVICE}/simt/simt.hpp", f"{DEVICE}/arch/arch.hpp"))
    return other in direct


def use_faults(tree):
    owner = definers(tree)
    for path in tree.device_headers():
        if path.startswith(f"{DEVICE}/arch/"):
            continue
        missing = collections.defaultdict(set)
        for name in names_used(COMMENT.sub(" ", tree.text[path])):
            other = owner.get(name)
            if other and other != path and not provides(tree, path, other):
                missing[other].add(name)
        for other, names in sorted(missing.items()):
            yield f"{path}: uses {' '.join(sorted(names))}, and does not include {other}"


def longest_chain(tree):
    public = [path for path in tree.text if path.startswith("include/ucclep/")]

    @functools.lru_cache(None)
    def chain(path):
        tails = [chain(other) for other in tree.includes[path] if other.startswith("include/ucclep/") and other != path]
        return (path,) + max(tails, key=len, default=())

    return max((chain(path) for path in public), key=len)


def depth_faults(tree):
    chain = longest_chain(tree)
    if len(chain) - 1 > MAX_DEPTH:
        yield f"a chain of {len(chain) - 1} includes, at most {MAX_DEPTH} are allowed: {' -> '.join(chain)}"


def size_faults(tree):
    folders = collections.Counter(os.path.dirname(path) for path in tree.device_headers())
    for folder, files in sorted(folders.items()):
        if files > MAX_FILES:
            yield f"{folder}: {files} files, at most {MAX_FILES} are allowed"


def main(root):
    tree = Tree(root)
    faults = list(order_faults(tree))
    faults += knot_faults(tree)
    depth = "unknown"
    if not any(fault.startswith("modules include each other: include/") for fault in faults):
        depth = len(longest_chain(tree)) - 1
        faults += depth_faults(tree)
    faults += use_faults(tree)
    faults += size_faults(tree)
    for fault in faults:
        print(fault)
    print(f"{sum(path.endswith(('.h', '.hpp')) for path in tree.text)} headers, depth {depth}, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")))
