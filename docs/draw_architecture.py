"""Draws the imports between packages of winobench, and writes the drawing into docs/explanation/architecture.md.

python docs/draw_architecture.py            # rewrite the drawing
python docs/draw_architecture.py --check    # only say whether it is up to date

A package is a folder of ``winobench``, ``launch`` or ``configs``.
Arrows are imports, those inside functions, too; what follows from other arrows is left out. One arrow points upwards,
`UPWARD`: another one would make a circle, and is an error.
"""

from __future__ import annotations

import ast
import collections
import pathlib
import sys
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
UPWARD = ("models", "checkpoints")
"""``from_pretrained`` of a network, which reads its checkpoint; inside a function."""

_BEGIN, _END = "<!-- drawing -->", "<!-- end of drawing -->"


def package_of(module: str) -> str | None:
    """The package of a dotted module name; None for other packages'."""
    first, *rest = module.split(".")
    if first in ("launch", "configs"):
        return first
    if first != "winobench":
        return None
    return rest[0] if rest and (ROOT / "winobench" / rest[0]).is_dir() else None


def imports(path: pathlib.Path) -> Iterator[str]:
    """The dotted name of each import that is not for type checkers alone."""

    def visit(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    return visit(ast.parse(path.read_text()))


def edges() -> dict[tuple[str, str], set[str]]:
    """(package, package that it imports) -> the files that do."""
    found: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for folder in ("winobench", "launch", "configs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).with_suffix("").as_posix()
            if name in ("winobench/__init__", "winobench/__main__"):  # late imports
                continue
            here = package_of(name.replace("/", "."))
            for module in imports(path):
                there = package_of(module)
                if there is not None and there != here:
                    found[here, there].add(f"{name}.py")
    return dict(found)


def floors(arrows: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Room -> its floor: one above the highest that it imports, `UPWARD` left aside.

    Raises:
      ValueError: packages import each other in a circle, which is named.
    """
    below = collections.defaultdict(set)
    for here, there in arrows:
        if (here, there) != UPWARD:
            below[here].add(there)
            below[there]
    found: dict[str, int] = {}

    def floor(package: str, path: tuple[str, ...]) -> int:
        if package in path:
            raise ValueError(f"packages import each other: {' -> '.join((*path[path.index(package) :], package))}")
        if package not in found:
            found[package] = 1 + max((floor(other, (*path, package)) for other in below[package]), default=-1)
        return found[package]

    for package in sorted(below):
        floor(package, ())
    return found


def drawing() -> str:
    """The packages in Mermaid's language."""
    arrows = {arrow for arrow in edges() if arrow != UPWARD}
    heights = floors(arrows)
    reach: dict[str, set[str]] = {}
    for package in sorted(heights, key=heights.get):
        near = {there for here, there in arrows if here == package}
        reach[package] = near.union(*(reach[other] for other in near))
    lines = ["```mermaid", "flowchart TD"]
    for here, there in sorted(arrows):
        others = {other for start, other in arrows if start == here and other != there}
        if not any(there in reach[other] for other in others):
            lines.append(f"    {here} --> {there}")
    return "\n".join([*lines, f"    {UPWARD[0]} -. from_pretrained .-> {UPWARD[1]}", "```"])


def main(words: list[str]) -> int:
    """Rewrites the page, or checks it."""
    page = PAGE.read_text()
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    wanted = f"{before}{_BEGIN}\n{drawing()}\n{_END}{after}"
    if words == ["--check"]:
        return int(wanted != page)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
