#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: check_site.py FOLDER

Each link and picture of the HTML pages leads to a file of the folder, and to an element of it where the link names one.
Nothing is loaded from another machine: the site works offline.
"""
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.add(attrs.get("id"))
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        loaded = attrs.get("src") if tag in ("img", "script") else attrs.get("href") if tag == "link" else None
        self.loads += [loaded] if loaded else []


def faults(folder):
    pages = {path.resolve(): Page(path) for path in Path(folder).rglob("*.html")}
    for path, page in pages.items():
        for target in page.links + page.loads:
            url = urlsplit(target)
            file = (path.parent / unquote(url.path)).resolve() if url.path else path
            if url.scheme or url.netloc:
                if target in page.loads:
                    yield f"{path}: {target} is loaded from another machine"
            elif not file.is_file():
                yield f"{path}: {target}: there is no such file"
            elif url.fragment and file in pages and unquote(url.fragment) not in pages[file].ids:
                yield f"{path}: {target}: there is no such element"


found = sorted(set(faults(sys.argv[1])))
print("\n".join(found), end="\n" if found else "")
sys.exit(bool(found))
