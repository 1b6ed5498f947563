#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: check_prose.py [PAGE.md | HEADER.h ...]      (default: the pages that are clean, below)

Finds habits that make a sentence hard to read at first sight, in the prose of pages and in the comments of headers. Code,
headings and the first column of a table, which name things, are left out. A finding is a reason to write the sentence
again: subject, verb, object.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLEAN = """
CHANGELOG.md
README.md
CONTRIBUTING.md
SECURITY.md
include/ucclep/ucclep.h
include/ucclep/transport.h
docs/architecture.md
docs/c-api.md
docs/concepts.md
docs/conformance.md
docs/cpu-device.md
docs/debugging.md
docs/decisions.md
docs/device-api.md
docs/environment.md
docs/frameworks.md
docs/from-deep-ep.md
docs/from-nccl.md
docs/hub.md
docs/install.md
docs/limits.md
docs/logs-and-traces.md
docs/perf-tools.md
docs/porting.md
docs/protocol.md
docs/python.md
docs/quick-start.md
docs/security.md
docs/top.md
docs/topology.md
docs/tuning.md
docs/upgrading.md
perf/README.md
""".split()

SAY = r"(?:says?|said|tells?|told|brings?|brought|gives?|gave|hears?|heard|mend(?:s|ed|ing)?|part(?:s|ed|ing)? (?:from|with))"
START = r"(?:^|(?<=[.:;] )|(?<=[.:;]\n)|(?<=\n\n)|(?<=\n- )|(?<=\| ))"  # of a sentence or a cell
# A question in a sentence ("shows what a row is") is fine behind these.
ASKS = r"shows?|names?|describes?|lists?|reads?|prints?|knows?|sees?|explains?|documents?|decides?|checks?|measures?|reports?|on|about"
HABITS = {
    "headless relative: name the subject (a rank that .., the process that ..)": [
        START + r"(?:Who|Whoever|who|What)\b(?![^.|]*\?)",
        r"(?<![\w,)`] )\b(?:to|of|by|from|than|for|with|as|but|and|only|on)\s+who(?:ever)?\b",
    ],
    "definition without a verb": [
        START + r"(?:Of|By|For) (?:an? |the |one |its )?\w+(?: of [\w' ]+)?[.:](?=\s)",
        r"(?<!is )(?<!are )(?<!\breturns )[^\s`|]: `?ucclEp(?:[A-Z]\w*)(?:Argument|Usage|Supported|Memory|Error|Timeout|Aborted|Overflow)\b(?! \()",
    ],
    "possessive: write a library stream, a user kernel": [
        r"\bof (?:the |a |an )?\w+'s(?=[.,;:)]|$| (?:and|or|that|which|is|are|in|on|do|does)\b)",
        r"\b(?:of|by) (?:yours|ours|theirs|mine|users)\b",
    ],
    "so many: write how many, N, the number of": [r"\bso (?:many|much|few)\b(?! that)"],
    "as ever": [r"\bas ever\b"],
    "what as a noun: name the thing": [
        r"\b(?!(?:" + ASKS + r")\s)[A-Za-z]+,?\s+what\b(?!\?)",
    ],
    "household verb: use the technical one (send, return, report, notify, publish, forward, repair, detach)": [
        r"\b" + SAY + r"\b",
        r"\bopen(?:s|ed|ing)? (?:an?|the|one|another)?\s*(?:operation|dispatch|combine)\b",
    ],
}


def blank(text):
    """The same text without its characters, so that numbers of lines stay."""
    return re.sub(r"[^\n]", " ", text)


def prose_of_page(text):
    text = re.sub(r"^```.*?^```|^    .*?$|^#.*?$|^\|[^|\n]*(?=\|)|`[^`\n]*`|\]\([^)]*\)|\"[^\"\n]*\"", lambda code: stand_in(code[0]), text,
                  flags=re.DOTALL | re.MULTILINE)
    return text


def stand_in(code):
    """Code in a line counts as a name; a block counts as nothing."""
    return "`" + "x" * (len(code) - 2) + "`" if code.startswith("`") and "\n" not in code else blank(code)


def prose_of_header(text):
    """Only comments, without their marks. Code in a comment is between @code and @endcode."""
    result, end = [], 0
    for comment in re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.DOTALL):
        words = re.sub(r"@code.*?@endcode", lambda code: blank(code[0]), comment[0], flags=re.DOTALL)
        words = re.sub(r"^\s*\*(?!/) ?|/\*\*?<?|\*/|///?<?|@\w+", lambda mark: blank(mark[0]), words, flags=re.MULTILINE)
        result += [blank(text[end : comment.start()]), words]
        end = comment.end()
    return "".join(result)


def findings(path):
    text = path.read_text(encoding="utf-8")
    prose = prose_of_page(text) if path.suffix == ".md" else prose_of_header(text)
    for habit, patterns in HABITS.items():
        for pattern in patterns:
            for match in re.finditer(pattern, prose, re.MULTILINE):
                line = prose.count("\n", 0, match.end()) + 1
                yield line, f"{path}:{line}: {' '.join(match[0].split())!r}: {habit}"


paths = [Path(name) for name in sys.argv[1:]] or [ROOT / name for name in CLEAN]
found = [finding for path in paths for _, finding in sorted(findings(path))]
print("\n".join(found) or f"{len(paths)} pages, 0 findings")
sys.exit(bool(found))
