"""``llms.txt``, the list of the site's pages for language models: each page's title and first sentence.

The form is that of llmstxt.org: a title, a summary, and a list of links for each section.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator

_TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Initials and "et al." end no sentence.
_SENTENCE = re.compile(r".+?(?<!\b[A-Z])(?<!\bal)[.!?](?=\s|$)|.+", re.DOTALL)
_NO_PROSE = ("```", ":::", "|", "!", "<", "- ", "1. ")


def text(docs: pathlib.Path) -> str:
    """The file of a folder of pages, in the order of their tables of contents."""
    title, sentence = _begin(docs / "index.md")
    lines = [f"# {title}", "", f"> {sentence}"]
    loose = []
    for page in _pages(docs / "index.md"):
        entries = [_entry(docs, under) for under in _pages(page)]
        if entries:
            lines += ["", f"## {_begin(page)[0]}", "", *entries]
        else:
            loose.append(_entry(docs, page))
    return "\n".join([*lines, *(["", "## Optional", "", *loose] if loose else []), ""])


def _entry(docs: pathlib.Path, page: pathlib.Path) -> str:
    title, sentence = _begin(page)
    address = page.relative_to(docs).with_suffix(".html").as_posix()
    return f"- [{title}]({address})" + (f": {sentence}" if sentence else "")


def _pages(index: pathlib.Path) -> Iterator[pathlib.Path]:
    """The pages in a page's tables of contents."""
    if index.suffix == ".md":
        for block in _TOCTREE.findall(index.read_text(encoding="utf-8")):
            for name in block.split("\n"):
                if name and not name.startswith(":"):
                    yield next(
                        path for ending in (".md", ".ipynb") if (path := index.parent / f"{name}{ending}").is_file()
                    )


def _begin(page: pathlib.Path) -> tuple[str, str]:
    """A page's title, and the first sentence before its first section. Empty where a section comes first."""
    source = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        source = "".join(json.loads(source)["cells"][0]["source"])
    title, _, rest = source.partition("\n")
    blocks = [block.strip() for block in re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0].split("\n\n")]
    first = next((block for block in blocks if block and not block.startswith(_NO_PROSE)), "")
    sentence = _SENTENCE.match(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split())))
    return title.removeprefix("# ").strip(), sentence[0] if sentence else ""
