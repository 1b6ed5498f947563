#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: sample_prose.py [--seed S]

Prints twenty sentences of README.md and docs/, and twenty error messages of src/, picked at random by the seed. A reader
marks each one that needs a second reading.
"""
import argparse
import random
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = "decisions.md"  # dated records, which nobody has to read
COUNT = 20
# fail(CODE, "text" ...) and its like. Literals that follow each other are one text.
MESSAGE = re.compile(r'\b(?:fail|warn)\(\s*(?:[\w:]+,\s*)?((?:"(?:\\.|[^"\\])*"\s*)+)')


def is_prose(text):
    """A sentence, and not a row of figures, a list of names or a test that is cited."""
    letters = sum(char.isalpha() for char in text)
    return len(text.split()) >= 6 and letters > 0.65 * len(text) and '`: "' not in text


def sentences(page):
    text = re.sub(r"^```.*?^```$", "\n", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=[-|#] ?)", text):
        if block.startswith("#"):
            continue
        for part in block.strip().strip("|").split("|") if block.lstrip().startswith("|") else [block]:
            for sentence in re.split(r"(?<=[.!?]) (?=[A-Z`*])", re.sub(r"\s+", " ", part).strip(" -")):
                if is_prose(sentence):
                    yield f"{page.relative_to(ROOT)}: {sentence}"


def messages(source):
    for match in MESSAGE.finditer(source.read_text(encoding="utf-8")):
        text = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', match[1]))
        if " " in text:
            yield f"{source.relative_to(ROOT)}: {text}"


def sample(title, texts, generator):
    texts = list(texts)
    print(f"{title} ({COUNT} of {len(texts)})")
    for number, text in enumerate(generator.sample(texts, COUNT), 1):
        print(f"{number:3}. {text}")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--seed", type=int, default=1)
random_by_seed = random.Random(parser.parse_args().seed)
pages = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != NOTEBOOK)]
sample("Sentences", (text for page in pages for text in sentences(page)), random_by_seed)
sample("Errors", (text for source in sorted((ROOT / "src").rglob("*.?pp")) for text in messages(source)), random_by_seed)
