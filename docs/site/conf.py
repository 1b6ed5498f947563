# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the site of `make docs`. Its pages are the Markdown files of the project; docs/index.md is the navigation."""
from pathlib import Path

from docutils.nodes import rubric
from sphinx.addnodes import pending_xref

project = "libucclep"
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/*/*.md", "perf/README.md"]
exclude_patterns = [".*", "build*", "dist", "src", "test", "third_party", "bindings", "examples", "packaging"]
extensions = ["myst_parser", "breathe"]
myst_heading_anchors = 6
highlight_language = "text"

breathe_projects = {"libucclep": "../../build-docs/xml"}
breathe_default_project = "libucclep"
breathe_domain_by_extension = {"h": "cpp"}

html_theme = "furo"
html_title = "libucclep"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False


def folders_without_links(app, doctree):
    """A link to a folder of the sources becomes its words: the site has no page for it."""
    folder = Path(app.env.doc2path(app.env.docname)).parent
    for link in list(doctree.findall(pending_xref)):
        if (folder / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def groups_without_titles(app, doctree):
    """Functions that share a comment need no title of their own."""
    for title in list(doctree.findall(rubric)):
        if title.astext() == "Unnamed Group":
            title.parent.remove(title)


def setup(app):
    app.connect("doctree-read", folders_without_links)
    app.connect("doctree-read", groups_without_titles)
