"""Draws the imports between packages of winobench, and writes the drawing into docs/explanation/architecture.md.

python docs/draw_architecture.py            # rewrite the drawing
python docs/draw_architecture.py --check    # only say whether it is up to date

A package is a folder of ``winobench``, ``launch`` or ``configs``. Arrows are imports, also late ones inside functions
and ones for type checkers. Arrows that follow from others are left out. A circle is an error.
"""

from __future__ import annotations

import ast
import collections
import graphlib
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
_PARTS = {"drawing": "drawing", "names": "names_table"}  # name of a comment -> the function that makes what follows


def package_of(module: str) -> str | None:
    """The package of a dotted module name; None for other packages'."""
    first, *rest = module.split(".")
    if first in ("launch", "configs"):
        return first
    if first != "winobench":
        return None
    if rest[:1] == ["contrib"]:
        return f"contrib.{rest[1]}" if rest[1:] else None
    return rest[0] if rest and (ROOT / "winobench" / rest[0]).is_dir() else None


def is_contrib(package: str | None) -> bool:
    return package is not None and package.startswith("contrib.")


def core_names() -> dict[str, list[str]]:
    """Contrib package -> the modules of the core that it imports."""
    modules, found = dict(sources()), collections.defaultdict(set)
    for name, path in modules.items():
        if is_contrib(here := package_of(name)):
            for there in imports(path):
                while there and there not in modules:
                    there = there.rpartition(".")[0]
                if there and package_of(there) != here:
                    found[here.removeprefix("contrib.")].add(there.removeprefix("winobench."))
    return {package: sorted(names) for package, names in sorted(found.items())}


def names_table() -> str:
    rows = (
        f"| `contrib/{package}` | {', '.join(f'`{name}`' for name in names)} |"
        for package, names in core_names().items()
    )
    return "\n".join(["| package | modules of the core |", "| --- | --- |", *rows])


def sources() -> Iterator[tuple[str, pathlib.Path]]:
    """(dotted name, path) of each module."""
    for folder in ("winobench", "launch", "configs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            yield name.removesuffix(".__init__"), path


def imports(path: pathlib.Path) -> Iterator[str]:
    """The dotted name of each import, also inside functions and for type checkers."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(ROOT).parent.parts if path.is_relative_to(ROOT) else ()
            start = above[: len(above) - node.level + 1] if node.level else ()
            module = ".".join([*start, *filter(None, [node.module])])
            # The folders ``launch`` and ``configs`` of a contrib package are parts of the packages of these names.
            module = re.sub(r"^winobench\.contrib\.\w+\.(?=(launch|configs)(\.|$))", "", module)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def check_modules() -> None:
    """Raises `graphlib.CycleError` if modules import each other in a circle."""
    modules = dict(sources())
    graph: dict[str, set[str]] = {}
    for here, path in modules.items():
        graph[here] = set()
        for there in imports(path):
            while there and there not in modules:
                there = there.rpartition(".")[0]
            graph[here] |= {there} - {here, ""}
    graphlib.TopologicalSorter(graph).prepare()


def upwards_by_name() -> dict[tuple[str, str], set[str]]:
    """(package, higher package that a string names) -> the files that import it by that name."""
    heights = floors(edges())
    named: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for name, path in sources():
        here = package_of(name)
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and re.fullmatch(r"winobench(\.\w+){2,}(:\w+)?", text):
                there = package_of(text.partition(":")[0])
                is_module = (ROOT / text.partition(":")[0].replace(".", "/")).with_suffix(".py").exists()
                is_package = (ROOT / text.replace(".", "/") / "__init__.py").exists()
                is_of_core = here is not None and there is not None and not is_contrib(here) and not is_contrib(there)
                if is_of_core and (is_module or is_package) and heights[there] > heights[here]:
                    named[here, there].add(path.relative_to(ROOT).as_posix())
    return dict(named)


def edges() -> dict[tuple[str, str], set[str]]:
    """(package, package that it imports) -> the files that do."""
    found: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for name, path in sources():
        here = package_of(name)
        for module in [] if is_contrib(here) else imports(path):
            there = package_of(module)
            if here is not None and there is not None and there != here:
                found[here, there].add(path.relative_to(ROOT).as_posix())
    return dict(found)


def floors(arrows: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Package -> its floor: one above the highest that it imports.

    Raises:
      ValueError: packages import each other in a circle, which is named.
    """
    below = collections.defaultdict(set)
    for here, there in arrows:
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
    arrows = set(edges())
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
    lines += [f"    {here} -. by name .-> {there}" for here, there in sorted(upwards_by_name())]
    return "\n".join([*lines, "```"])


def main(words: list[str]) -> int:
    """Rewrites the page, or checks it."""
    page = wanted = PAGE.read_text()
    for part, function in _PARTS.items():
        begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
        before, _, rest = wanted.partition(begin)
        _, _, after = rest.partition(end)
        wanted = f"{before}{begin}\n{globals()[function]()}\n{end}{after}"
    if words == ["--check"]:
        return int(wanted != page)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
