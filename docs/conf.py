"""The documentation site: sphinx-build -W -b html docs docs/_build/html. Needs the extra ``docs``, and no network."""

import pathlib
import sys

from latex2mathml import converter

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import generate_reference  # noqa: E402
import llms  # noqa: E402
import make_gallery  # noqa: E402

import winobench  # noqa: E402

project = "winobench"
author = "The winobench authors"
copyright = author
version = release = winobench.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "_generated", "schemas", "**.ipynb_checkpoints"]
# Single backticks in docstrings.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_default_options = {"members": True}
napoleon_use_ivar = True

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
# GitHub renders Mermaid. Here it is text.
suppress_warnings = ["misc.highlighting_failure"]
# Tutorials keep their outputs. A test runs them.
nb_execution_mode = "off"

html_theme = "furo"
html_title = f"winobench {release}"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
# The reports of the gallery, once docs/make_gallery.py has made them.
html_extra_path = [str(make_gallery.FOLDER)] if make_gallery.FOLDER.is_dir() else []
html_css_files = ["site.css"]
html_math_renderer = "mathml"
copybutton_exclude = ".linenos, .gp, .go"
linkcheck_ignore = [r"https?://.*"]


def _inline(self, node):
    self.body.append(converter.convert(node.astext()))
    raise _skip()


def _block(self, node):
    label = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    formula = converter.convert(node.astext(), display="block")
    self.body.append(f'<div class="math">{label}{formula}</div>')
    raise _skip()


def _skip():
    from docutils import nodes

    return nodes.SkipNode()


_hidden: dict[str, list[str]] = {}


def _keep_colons(app, kind, name, value, settings, lines):
    """Hides an attribute's text from napoleon, which takes the words before a colon for a type."""
    if name in _hidden:
        lines[:] = _hidden.pop(name)
    elif kind in ("attribute", "property", "data"):
        _hidden[name], lines[:] = list(lines), []


def _write_llms(app, error):
    if error is None and app.builder.format == "html":
        (pathlib.Path(app.outdir) / "llms.txt").write_text(llms.text(ROOT / "docs"), encoding="utf-8")


def setup(app):
    # Browsers show MathML by themselves; MathJax would come from another host.
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("builder-inited", lambda _: generate_reference.write())
    app.connect("build-finished", _write_llms)
    app.connect("autodoc-process-docstring", _keep_colons, priority=400)
    app.connect("autodoc-process-docstring", _keep_colons, priority=600)
