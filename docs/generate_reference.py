"""Writes the reference pages that the code determines into docs/_generated: commands, fields, codes and names.

python docs/generate_reference.py     # docs/conf.py calls it for every build of the site
"""

from __future__ import annotations

import ast
import concurrent.futures
import inspect
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

from sphinx import pycode

import winobench
from launch import configuration
from winobench import __main__ as command_line
from winobench.base import extensions, options
from winobench.diffusion import families

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "_generated"

GROUPS = {
    "Score": ("DiffusionITM", "ImageLikelihood", "Contrastive", "ItmHead", "VQAScore", "HostedVQAScore", "load_scorer"),
    "Score inside your program": ("Triples", "denoising_errors", "noise_key"),
    "Evaluate": ("evaluate", "evaluate_questions", "Scoring", "Sampling", "Recording", "Asking", "METRICS"),
    "Tasks": ("TASKS", "TEXT_TASKS", "get_task", "get_text_task", "task_from_jsonl"),
    "Parts of a task": ("Task", "Example", "Association", "TargetPair", "TextTask", "TextQuestion", "Protocol"),
    "Results": ("read_run", "Run", "compare", "Comparison", "InputError"),
    "Generate images": ("generate_images", "read_images", "Images", "read_prompts", "Prompt", "SAMPLERS"),
    "Judge images": ("collect_images", "judge_images", "Judgement"),
    "Pipelines": (
        *("load_pipeline", "Pipeline", "StableDiffusion", "StableDiffusionXL", "StableDiffusion3"),
        *("Flux", "Flux2Klein", "ZImage", "TorchPipeline", "TokenGeneration", "Schedule", "NoiseSchedule"),
    ),
    "Networks": ("UNet2DConditionModel", "AutoencoderKL", "CLIPTextModel", "ClevrVerifier"),
    "Language models": ("load_responder", "VisionLanguageModel", "Captioner"),
}
"""Heading of the API page -> public names."""


def write() -> None:
    """Writes every page. A page whose text is the same stays untouched."""
    FOLDER.mkdir(exist_ok=True)
    pages = {"commands": commands(), "config": config_fields(), "error_codes": error_codes(), "api": api()}
    pages["diffusers_classes"] = diffusers_classes()
    for name, lines in pages.items():
        path, text = FOLDER / f"{name}.md", "\n".join(lines) + "\n"
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def commands() -> Iterator[str]:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        helps = pool.map(_help, command_line.commands())
        for (name, description), text in zip(command_line.commands().items(), helps, strict=True):
            yield from (
                f"## winobench {name}",
                "",
                f"{description[0].upper()}{description[1:]}.",
                "",
                "```text",
                text.strip(),
                "```",
                "",
            )


def _help(name: str) -> str:
    environment = {**os.environ, "COLUMNS": "80", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "winobench", name, "--help"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"winobench {name} --help fails: {done.stderr}")
    return done.stdout


def config_fields() -> Iterator[str]:
    """A section of each config: its forms, and a table of its fields."""
    for name in configuration.config_names():
        module, _ = configuration._load_module(name)
        forms = ", ".join(f"`{name}:{form}`" for form in module.FORMS)
        first = inspect.getdoc(module).partition("\n")[0]
        yield from (f"## {name}", "", _escaped(first), "", f"For `winobench {module.LAUNCHER}`. Forms: {forms}.", "")
        yield from ("| field | default | values | meaning |", "| --- | --- | --- | --- |")
        values = options.values(configuration.load(name))
        for field, declared in configuration.options_of(name).items():
            about = declared.metadata
            allowed = about["range"].wanted + (", or none" if about["range"].optional else "")
            cells = f"`{field}`", f"`{_value(values.get(field))}`", _escaped(allowed), _escaped(about["help"])
            yield f"| {' | '.join(cells)} |"
        yield ""


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value) or '""'


def _escaped(text: str) -> str:
    """Text for a cell of a table, without meaning in Markdown."""
    text = " ".join(text.split())
    for sign in "\\|*_<[$":
        text = text.replace(sign, f"\\{sign}")
    return text


def error_codes() -> Iterator[str]:
    """A table: each code with one of its messages."""
    found: dict[str, tuple[int, str]] = {}
    for folder in ("winobench", "launch", "configs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    for keyword in node.keywords:
                        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant) and keyword.value.value:
                            message = _message(node.args)
                            count, known = found.get(keyword.value.value, (0, ""))
                            found[keyword.value.value] = (count + 1, max(known, message, key=_words))
    yield from ("| code | places | a message |", "| --- | ---: | --- |")
    for code, (count, message) in sorted(found.items()):
        yield f"| `{code}` | {count} | {_escaped(message)} |"


def _words(message: str) -> int:
    """How much a message explains: its letters, up to what fits a line or two."""
    letters = sum(map(str.isalpha, message))
    return letters if letters < 160 else 0


def _message(arguments: Sequence[ast.expr]) -> str:
    """The text of the first argument that has some, with … for what is filled in."""
    for node in arguments:
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            return "".join(parts)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
    return ""


def diffusers_classes() -> Iterator[str]:
    """Tables: the classes of diffusers that can be scored, with figures, and the refused ones."""
    torch_families = extensions.find(extensions.PARTS, "torch_families")
    figures = json.loads((ROOT / "benchmarks" / "results" / "torch-classes.json").read_text())
    measured = {row["class"]: row for row in figures["classes"]}
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    yield from (
        "## Scored",
        "",
        "The route is `native` for a family in Flax, and `torch` for torch's code under JAX. The difference is the"
        " largest one between winobench's and diffusers' predictions on a tiny network of random weights, divided by"
        " their root mean square. diffusers made its predictions in its own loop, with its own scheduler. The seconds"
        " are the time to compile that network on two CPU cores. Later rows with the"
        " same program show less. Some classes are scored, and generate no images with"
        " torch's code here.",
        "",
        f"Measured with {versions} by `python -m benchmarks.torch_classes`.",
        "",
        "| class | route | images | prediction | latents | seconds |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    )
    for name in sorted(torch_families.names()):
        route = "native, torch" if name in families.FAMILIES else "torch"
        images = "generates" if torch_families.family_of(name).generates else ""
        row = measured[name]
        numbers = f"{row['prediction']:.1e} | {row['latents']:.1e} | {row['compiling']:.1f}"
        yield f"| `{name}` | {route} | {images} | {numbers} |"
    yield from ("", "## Refused", "", "| class | reason |", "| --- | --- |")
    for name, reason in sorted(torch_families.refusals.REFUSED.items()):
        yield f"| `{name}` | {_escaped(reason)} |"
    yield from (
        "",
        "winobench also refuses pipelines that make video or sound, that need an image, and classes that it does not"
        " know.",
        "",
    )


def api() -> Iterator[str]:
    """A table of the public names, and directives that take the signature and the docstring of each."""
    listed = {name for names in GROUPS.values() for name in names}
    wrong = (set(winobench.__all__) - {"__version__"}) ^ listed
    if wrong:
        raise RuntimeError(f"GROUPS of docs/generate_reference.py and winobench.__all__ differ by {sorted(wrong)}")
    yield from ("| topic | names |", "| --- | --- |")
    for title, names in GROUPS.items():
        links = ", ".join(f"{{py:obj}}`~winobench.{name}`" for name in names)
        yield f"| [{title}](#{title.lower().replace(' ', '-')}) | {links} |"
    yield ""
    for title, names in GROUPS.items():
        yield from (f"## {title}", "")
        for name in names:
            value = getattr(winobench, name)
            if inspect.isclass(value) or callable(value):
                kind = "class" if inspect.isclass(value) else "function"
                lines = [f".. auto{kind}:: winobench.{name}"]
            else:
                # The docstring of the object is about its type.
                described = pycode.ModuleAnalyzer.for_module(winobench._read_names()[name]).find_attr_docs()[("", name)]
                lines = [f".. data:: winobench.{name}", "", *(f"   {line}" for line in described)]
            yield from ("```{eval-rst}", *lines, "```", "")


if __name__ == "__main__":
    write()
