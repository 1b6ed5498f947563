#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: check_links.py PAGE.md...

Each relative link of the pages leads to a file, and to a heading of it where the link names one.
"""
import re
import sys
from pathlib import Path


def anchors(page):
    """As GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def faults(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = page.parent / path if path else page
        if not file.exists():
            yield f"{page}: {target}: there is no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{page}: {target}: there is no such heading"


found = [fault for page in sys.argv[1:] for fault in faults(Path(page))]
print("\n".join(found) or f"{len(sys.argv) - 1} pages, 0 faults")
sys.exit(bool(found))
