"""The command line: ``winobench NAME ...``. In a checkout, ``python -m launch.NAME ...`` takes the same words."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pathlib
import runpy
import sys

from winobench.base import extensions, near_names
from winobench.base.version import __version__

OWN_COMMANDS = {
    "eval": "evaluate a text-to-image model, a baseline or a language model",
    "view": "show runs in the browser: comparisons, questions and their errors",
    "report": "make one page of tables, figures and examples from finished runs",
    "compare": "paired differences of two runs, with intervals",
    "export": "write tables, model cards, hub metadata and logs of inspect_ai",
    "prepare": "get and prepare the data of a task or a training set",
    "reproduce": "list the papers' tables, and which have their data here",
    "train": "train or fine-tune a model",
    "generate": "generate the images of a set of prompts",
    "collect": "make a run of images that another program made",
    "judge": "have a model judge generated images by their benchmark's rubric",
}


_RENAMED = {"draw": "generate"}  # old names, which work in this version
_OF_RATE = ("--rater", "--finish", "--judge")  # flags of winobench rate, which compare was before


@functools.cache
def commands() -> dict[str, str]:
    """Name -> description of each command, also of packages that plug in."""
    added = [name for name in extensions.added(extensions.COMMANDS) if name not in OWN_COMMANDS]
    return OWN_COMMANDS | {name: _description(name) for name in added}


def _description(name: str) -> str:
    """The first line of a plugged-in command's docstring, as a part of a list."""
    for folder in map(pathlib.Path, extensions.folders("launch")):
        for path in (folder / f"{name}.py", folder / name / "__main__.py"):
            if path.is_file():
                line = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or name).splitlines()[0]
                line = line.partition(": winobench ")[0].rstrip(".")
                return line[0].lower() + line[1:]
    return f"a command of {extensions.added(extensions.COMMANDS)[name]}"


def main() -> None:
    """Runs the launcher that the first word names, with the other words."""
    name, words = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    name = name if name.startswith("-") else name.replace("-", "_")
    if name in ("--help", "-h", "help", "--version"):
        with importlib.import_module(f"{launchers()}.output").watched():
            print(f"winobench {__version__}" if name == "--version" else usage())
        return
    if name == "compare" and any(word.partition("=")[0] in _OF_RATE for word in words):
        print("winobench compare with people is now winobench rate", file=sys.stderr)
        name = "rate"
    if name in _RENAMED:
        print(f"winobench {name} is now winobench {_RENAMED[name]}", file=sys.stderr)
        name = _RENAMED[name]
    if name not in OWN_COMMANDS and name not in commands():
        advice = near_names.did_you_mean(name, commands(), f"choose one of {', '.join(commands())}.")
        print(f"error: command {name[:100]!r} is unknown: {advice}", file=sys.stderr)
        sys.exit(2)
    package = launchers()
    importlib.import_module(package).guard()
    sys.argv[1:] = words
    runpy.run_module(f"{package}.{name}", run_name="__main__", alter_sys=True)


def launchers() -> str:
    """The package of the launchers: ``launch`` next to this package in a checkout on the path, else our own one."""
    spec = importlib.util.find_spec("launch")
    checkout = pathlib.Path(__file__).resolve().parents[1]
    is_ours = spec is not None and spec.origin is not None and pathlib.Path(spec.origin).parents[1] == checkout
    return "launch" if is_ours else "winobench.launch"


def usage() -> str:
    lines = [f"  {name:<12} {description}" for name, description in commands().items()]
    return "\n".join(
        [
            "usage: winobench COMMAND [--config=NAME] [--FIELD=VALUE ...] [FLAGS]",
            "",
            *lines,
            "",
            "winobench COMMAND --help explains a command.",
        ]
    )


if __name__ == "__main__":
    main()
