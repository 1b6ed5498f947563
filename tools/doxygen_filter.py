#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: doxygen_filter.py HEADER: the header as doxygen reads it, so that the header itself stays plain to read.

C headers: every name of "int a, b; /**< words */" gets the words. Device headers: plain comments at the scope of declarations
are documentation, the first one of the file; what clang-format must not touch is shown as it is.
"""
import re
import sys


def each_name_by_itself(text):
    text = re.sub(r"(?<=\w) \.\. (?=\w)", " to ", text)  # doxygen ends the brief description at a point
    head = r"  unsigned size, magic;\n"
    text = re.sub(head, "  unsigned size; /**< sizeof the struct, by its INIT macro */\n"
                        "  unsigned magic; /**< by its INIT macro */\n", text)
    members = r"^  ((?:const )?[\w]+\*? \*?)(\w+(?:\[\w+\])?(?:, \*?\w+(?:\[\w+\])?)+);\s*(/\*\*<.*?\*/)"

    def split(match):
        kind, names, words = match.groups()
        return " ".join(f"{kind.strip(' *') + ('*' if '*' in kind else '')} {name.strip(' *')}; {words}" for name in names.split(","))

    return re.sub(members, split, text, flags=re.S | re.M)


def escaped(words):
    return re.sub(r"([\\<>#@*%]|::)", r"\\\1", words)


def each_member(code, words):
    """The lines of "  int a = 0, b = 0;" one by one."""
    kind, names = re.match(r"(\s*(?:[\w:]+\s)?)(.*)$", code).groups()
    several = re.fullmatch(r"\w+ = [^,;]*(, \w+ = [^,;]*)+;", names) is not None
    for name in names.rstrip(";").split(", ") if several else [names]:
        yield f"{kind}{name}{';' if several else ''}  ///< {words}"


class DeviceHeader:
    """What is open at the end of a line: True for each brace of a namespace or type, False for that of a function."""

    def __init__(self):
        self.open, self.since = [], ""

    def is_declaration(self):
        return all(self.open)

    def read(self, code):
        if code.lstrip().startswith("#"):
            return
        for character in code:
            if character == "{":
                self.open.append(bool(re.search(r"\b(namespace|struct|class|enum|union)\b", self.since)) and "(" not in self.since)
            elif character == "}" and self.open:
                self.open.pop()
            self.since = "" if character in ";{}" else self.since + character

    def of(self, text):
        verbatim = False
        for line in text.splitlines():
            code, _, words = re.match(r"(.*?)(\s*)(//.*)?$", line).groups()
            declares = self.is_declaration()
            self.read(code)
            if words is None or not declares or re.match(r"\s*(#|\}|struct \w+;)", code):
                yield code
            elif "SPDX" in words:
                yield "/// @file"
            elif "clang-format" in words:
                verbatim = "off" in words
                yield "/// @verbatim" if verbatim else "/// @endverbatim"
            elif code:
                yield from each_member(code, escaped(words[2:].strip()))
            else:
                yield "///" + (words[2:] if verbatim else escaped(words[2:]))


def main():
    with open(sys.argv[1]) as file:
        text = file.read()
    print("\n".join(DeviceHeader().of(text)) if sys.argv[1].endswith(".hpp") else each_name_by_itself(text))


if __name__ == "__main__":
    main()
