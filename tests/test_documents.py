"""README and docs: what they tell to type can be typed, their Python runs, and what they point to is there."""

import argparse
import ast
import contextlib
import importlib
import json
import pathlib
import re
import runpy
import shlex
import sys
import tomllib
import types
from unittest import mock

import jax
import numpy as np
import PIL.Image
import pytest

import winobench
from launch import configuration
from tests import launching, tiny_encoders
from tests.evaluation import fakes
from winobench import __main__ as command_line
from winobench import metrics
from winobench.base import registry
from winobench.checkpoints import vision_language
from winobench.diffusion import families, samplers
from winobench.metrics import RATING_METRICS, normalization
from winobench.report import page
from winobench.tasks import DATA_SETS, TEXT_TASKS, _modules, base, groups
from winobench.training.coco_captions import TRAINING_SETS

ROOT = launching.ROOT
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "AGENTS.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("[!_]*/*.md")),
]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ASSIGNED = re.compile(r'^(\w+)="([^"]*)"$', re.MULTILINE)
_LOOP = re.compile(r"^for (\w+) in ([^;\n]+)", re.MULTILINE)
_PLACEHOLDER = re.compile(r"RUN\.*|FILE(\.\w+)?|DIR|FOLDER|NAME|\.\.\.")


def blocks(document, language):
    return [text for found, text in _BLOCK.findall((ROOT / document).read_text()) if found == language]


def commands():
    """(document, words) of every command of Python's that is shown, in a block or between backticks."""
    found = []
    for document in NAMES:
        text = (ROOT / document).read_text()
        prose = _BLOCK.sub("", text)
        lines = [" ".join(each.split()) for each in re.findall(r"`((?:python -m|winobench) [^`]+)`", prose)]
        for block in blocks(document, "bash"):
            # A shell takes the words of an unquoted variable apart, at line breaks as well.
            variables = {name: " ".join(value.split()) for name, value in _ASSIGNED.findall(block)}
            variables |= {name: value.split()[0] for name, value in _LOOP.findall(block)}
            for line in _ASSIGNED.sub("", block).replace("\\\n", " ").splitlines():
                for name, value in variables.items():
                    line = line.replace(f"${name}", value)
                lines += line.split(" && ")
        for line in lines:
            words = shlex.split(line, comments=True)
            if len(words) > 2 and words[0] == "winobench" and words[1] in command_line.commands():
                found.append((document, [f"launch.{words[1]}", *words[2:]]))
            elif len(words) > 2 and pathlib.Path(words[0]).name == "python" and words[1] == "-m":
                found.append((document, words[2:]))
    return found


COMMANDS = commands()


def test_options_have_their_short_names_everywhere():
    folders = [path for name in ("winobench", "launch", "configs", "docs") for path in (ROOT / name).rglob("*.*")]
    texts = {
        path: path.read_text() for path in (*folders, *DOCUMENTS) if path.suffix in (".py", ".md", ".ipynb", ".js")
    }
    assert len(texts) > 500
    long = [str(path) for path, text in texts.items() if re.search(r"--config\.[a-z{]", text)]
    assert not long, "write --NAME for --config.NAME"


def of(*packages):
    chosen = [(document, words) for document, words in COMMANDS if words[0].startswith(packages)]
    return pytest.mark.parametrize(("document", "words"), chosen, ids=[shlex.join(words) for _, words in chosen])


def test_there_are_documents_with_commands():
    assert len(COMMANDS) > 50
    modules = {words[0] for _, words in COMMANDS}
    assert modules >= {"launch.eval", "launch.prepare", "launch.report", "launch.train"}
    others = {"build", "pip", "pytest", "venv", "spacy", "nltk.downloader"}
    assert all(name.startswith(("launch.", "benchmarks.", "winobench.")) or name in others for name in modules)


@of("launch.")
def test_the_launcher_takes_the_words(document, words, monkeypatch):
    """Everything up to the launcher's main: flags, the config, and each of its fields that is set."""

    def parse_only(main, parse):
        configuration._guarded(parse, ["launcher", *words[1:]])

    monkeypatch.setattr(configuration, "_run", parse_only)
    status, _, err = launching.launch(*words)
    assert (status, err) == (0, ""), f"{document}: {shlex.join(words)}"
    for word in words[1:]:
        name, _, value = word.partition("=")
        if name in ("--model", "--tasks") and not _PLACEHOLDER.fullmatch(value):
            for each in value.split(","):
                check_name(name, each)


def check_name(flag, name):
    if name.startswith("@"):
        assert groups.members(name, winobench.TASKS, DATA_SETS)
    elif flag == "--tasks" and ":" in name:
        kind, _, place = name.partition(":")
        assert kind in _modules()["SOURCES"]
        assert _PLACEHOLDER.fullmatch(place.partition(":")[0])
    elif flag != "--model":
        assert name in {*winobench.TASKS, *TEXT_TASKS, *TRAINING_SETS}
    elif "/" not in name and ":" not in name:
        registry.resolve(name)


class _Parsed(Exception):
    pass


@of("benchmarks.")
def test_the_benchmark_takes_the_words(document, words, monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def parse_only(self, *arguments, **options):
        parse(self, *arguments, **options)
        raise _Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    monkeypatch.chdir(ROOT)
    module = importlib.import_module(words[0])
    with pytest.raises(_Parsed):
        module.main(words[1:])


@of("winobench.")
def test_the_program_is_there(document, words):
    module = ROOT.joinpath(*words[0].split("."))
    module = module / "__main__.py" if module.is_dir() else module.with_suffix(".py")
    assert 'if __name__ == "__main__":' in module.read_text()
    used = [name for name in re.findall(r"--(\w+)", " ".join(words))]
    assert all(re.search(rf'"(--)?{name}"', module.read_text()) for name in used)


def test_the_page_on_commands_lists_every_command():
    text = (ROOT / "docs/howto/which_command.md").read_text()
    assert set(re.findall(r"^\| [^|]+ \| `winobench (\w+)", text, re.MULTILINE)) == set(command_line.commands())


def test_the_blocks_that_others_run_are_there():
    """.ci/run and whoever checks the main job read them from the README."""
    text = (ROOT / "README.md").read_text()
    found = dict(re.findall(r"^<!-- ([\w ]+) -->\n```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert found.keys() == {"main job", "tests"}
    for block in found.values():
        assert block.splitlines()[0].startswith("python3 -m venv .venv")
        assert "-m pip install -e " in block
    assert found["main job"].splitlines()[-1] == ".venv/bin/python -m launch.eval --config=gdbench"
    assert ".venv-tests/bin/python -m pytest" in found["tests"]


@pytest.mark.parametrize("document", NAMES)
def test_what_is_shown_can_be_read_and_imported(document):
    for block in blocks(document, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "winobench":
                exec(ast.unparse(node), {})
    for block in blocks(document, "json"):
        json.loads(block)
    for block in blocks(document, "toml"):
        tomllib.loads(block)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder with the files that the snippets name, to run them in."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("cat.jpg", 0), ("dog.jpg", 1)):
        pixels = np.random.default_rng(seed).integers(0, 256, (40, 40, 3), np.uint8)
        PIL.Image.fromarray(pixels).save(tmp_path / name)
    return tmp_path


FLAX = "docs/howto/flax_diffusers.md"


def with_small_pipeline(document, pipeline):
    """A document's Python, with a small pipeline under the names of the published or embedded one."""
    found = "\0".join(blocks(document, "python"))
    names = ('"stable-diffusion-v1-5/stable-diffusion-v1-5"', '"clevr-tiny"')
    assert sum(name in found for name in names) == 1, f"{document} names another model"
    for name in names:
        found = found.replace(name, repr(str(pipeline)))
    return found.replace("512", "64").split("\0")


def test_the_readme_and_the_page_on_flax_generate_and_score(tiny_pipeline, elsewhere):
    """The pipelines and scorers are loaded; what they are asked then fits what they take, but is not computed."""
    draw = mock.create_autospec(winobench.StableDiffusion.generate, return_value=np.zeros((1, 32, 32, 3), np.uint8))
    judge = mock.create_autospec(winobench.DiffusionITM.score)
    evaluate = mock.create_autospec(winobench.evaluate)
    names: dict = {}
    with (
        mock.patch.object(winobench.StableDiffusion, "generate", draw),
        mock.patch.object(winobench.DiffusionITM, "score", judge),
        mock.patch.object(winobench, "evaluate", evaluate),
    ):
        first, evaluation = with_small_pipeline("README.md", tiny_pipeline)
        networks, *others = with_small_pipeline(FLAX, tiny_pipeline)
        for block in (first, evaluation, networks.split("\nstates = ")[0], *others):
            exec(compile(block, "README.md", "exec"), names)
    assert (draw.call_count, judge.call_count, evaluate.call_count) == (3, 2, 1)
    assert set(evaluate.call_args.kwargs["tasks"]) <= set(winobench.TASKS)
    assert (elsewhere / "my-pipeline" / "model_index.json").is_file()


def test_the_page_on_flax_uses_networks(tiny_pipeline):
    """Traced only: outside of a jit, every operation would be compiled by itself."""
    load, call = with_small_pipeline(FLAX, tiny_pipeline)[0].split("\nstates = ")
    names: dict = {}
    exec(compile(load, FLAX, "exec"), names)

    def called():
        inside = dict(names)
        exec(compile(f"states = {call}", FLAX, "exec"), inside)
        return inside["states"], inside["mean"], inside["prediction"]

    states, mean, prediction = jax.eval_shape(called)
    assert states.shape == (1, 77, 24)
    assert prediction.shape == mean.shape == (1, 16, 16, 4)


def test_the_python_on_extending_runs(elsewhere, capsys, monkeypatch):
    """All of it in order, and what its comments promise is printed."""
    monkeypatch.setattr(page, "SECTIONS", page.SECTIONS)
    tables = (
        metrics.METRICS.data,
        normalization.NORMALIZATIONS,
        families.FAMILIES,
        vision_language.NETWORKS,
        samplers.SAMPLERS,
    )
    module = types.ModuleType("extending")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with contextlib.ExitStack() as stack:
        for table in tables:
            stack.enter_context(mock.patch.dict(table))
        for block in blocks("docs/howto/extend.md", "python"):
            exec(compile(block, "docs/howto/extend.md", "exec"), vars(module))
    out = capsys.readouterr().out
    assert "\n1.0\n" in f"\n{out}"
    failures = next(line for line in out.splitlines() if line.startswith("{'value'"))
    assert {"value": 0.0, "chance": 0.5}.items() <= ast.literal_eval(failures).items()
    assert "{} {'brightness': 0.5}\n['own', 'gray_image']\nTrue\n" in out
    assert "Is this a cat?" in out
    assert "compares 2 runs" in module.path.read_text()


def test_the_page_on_extensions_has_the_shortest_published_task():
    assert (ROOT / "winobench/tasks/colorswap.py").read_text() in blocks("docs/howto/extend.md", "python")


def test_five_files_lead_from_a_command_to_a_number():
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    files = re.findall(r"^\| `(winobench/\S+)\.py` ", text.split("\n## ")[1], re.MULTILINE)
    sources = [(ROOT / f"{file}.py").read_text() for file in files]
    assert len(files) == 5
    assert sum(source.count("\n") for source in sources) <= 1050
    for index, neighbour in [*enumerate(files[1:]), *enumerate(files[:-1], 1)]:
        assert f"`{neighbour.replace('/', '.')}`" in ast.get_docstring(ast.parse(sources[index])), files[index]


def test_the_python_of_the_docs_is_called_as_it_is_defined(elsewhere, capsys):
    """Those that would need data or a published model: names exist, and the arguments fit."""
    run = elsewhere / "runs" / "clevr-tiny"
    winobench.evaluate(fakes.FakeScorer(), [fakes.text_task()], run, num_samples=2, progress=False)
    called = {"evaluate": winobench.evaluate, "evaluate_questions": winobench.evaluate_questions}
    load = mock.create_autospec(winobench.DiffusionITM.from_pretrained)
    with (
        mock.patch.multiple(winobench, **{name: mock.create_autospec(each) for name, each in called.items()}),
        mock.patch.object(winobench.DiffusionITM, "from_pretrained", load),
    ):
        ours = ("docs/reference/models.md", "docs/howto/paper_tables.md")
        for document in (*ours, "docs/howto/wscplus.md", "docs/howto/fine_tune.md"):
            for block in blocks(document, "python"):
                exec(block, {"winobench": winobench, "my_scorer": None, "my_model": None})
        for name in called:
            (call,) = getattr(winobench, name).call_args_list
            known = {*winobench.TASKS, *TEXT_TASKS}
            assert set(call.kwargs["tasks"]) <= known
        load.assert_called_once()
    assert re.fullmatch(r"words accuracy [0-9.]+ 12\n", capsys.readouterr().out)


def test_the_questions_of_ones_own_are_read(elsewhere):
    (lines,) = (text for text in blocks("docs/howto/own_tasks.md", "") if text.startswith('{"images"'))
    (elsewhere / "my_set.jsonl").write_text(lines)
    evaluate = mock.create_autospec(winobench.evaluate)
    with mock.patch.object(winobench, "evaluate", evaluate):
        (block,) = blocks("docs/howto/own_tasks.md", "python")
        exec(block, {})
    task, _ = evaluate.call_args.kwargs["tasks"]
    assert [(example.id, example.target) for example in task.load(None, None)] == [("line-000001", 0), ("which dog", 1)]


def test_the_python_of_the_nli_manual_runs(elsewhere, capsys):
    folder = tiny_encoders.write_bert(elsewhere / "model", labels=("entailment", "contradiction"))
    (block,) = blocks("docs/howto/nli.md", "python")
    block, changed = re.subn(r'"runs/[^"]*"', repr(str(folder)), block)
    assert changed == 1
    exec(block, {})
    (line,) = capsys.readouterr().out.splitlines()
    scores = [float(word) for word in re.findall(r"\d\.\d+(?:e-\d+)?", line)]
    assert len(scores) == 2
    assert all(0 <= score <= 1 for score in scores)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_the_python_of_scoring_in_a_loop_runs(tiny_pipeline, capsys, number):
    block = blocks("docs/howto/own_program.md", "python")[number]
    assert block.count('"clevr-tiny"') == 1
    exec(block.replace('"clevr-tiny"', repr(str(tiny_pipeline))), {})
    steps, numbers, scores = zip(*(line.split(" ", 2) for line in capsys.readouterr().out.splitlines()), strict=True)
    assert steps == tuple(map(str, range(2 + number)))
    # Fingerprints in the first, losses in the second: all follow the weights.
    assert len(set(numbers)) == len(set(scores)) == len(steps)


def test_the_python_on_errors_runs(elsewhere, capsys):
    (block,) = blocks("docs/explanation/architecture.md", "python")
    exec(block, {})
    assert capsys.readouterr().out == "evaluate first\n"


def task_rows():
    """{task: (shape, examples, metric, chance, skills)} of the tables in docs/reference/tasks.md, as printed."""
    found = {}
    for line in (ROOT / "docs/reference/tasks.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `") or len(cells) != 6:
            continue
        tasks = re.findall(r"`(\w+)`", cells[0])
        each = [cell.split("; ") for cell in cells[1:]]
        assert {len(values) for values in each} <= {1, len(tasks)}, line
        for place, task in enumerate(tasks):
            assert task not in found
            found[task] = tuple(values[0] if len(values) == 1 else values[place] for values in each)
    return found


def test_every_task_is_in_the_tables_as_it_is_defined():
    found = task_rows()
    assert found.keys() == winobench.TASKS.keys()
    for name, task in winobench.TASKS.items():
        metric = winobench.METRICS.get(task.metric)
        chance = metric and {**metric.chance(task.shape), **task.chance}.get(metric.headline)
        count = task.source.num_examples if task.source else task.count(None)
        expected = (
            "{} x {}".format(*task.shape),
            "–" if count is None else f"{count:,}",
            f"`{task.metric}`",
            "–" if chance is None else f"{100 * chance:.1f}".removesuffix(".0"),
            ", ".join(task.skills),
        )
        assert found[name] == expected, name


def test_metrics_and_tasks_that_run_only_by_name_are_listed():
    text = (ROOT / "docs/reference/tasks.md").read_text()
    section = text.split("## Tasks that run only by name")[1].split("\n## ")[0]
    table = [line for line in text.split("\n## Metrics\n")[1].split("\n## ")[0].splitlines() if line.startswith("|")]
    listed = re.findall(r"^- (.*)$", section, re.MULTILINE)
    assert {name for line in listed for name in re.findall(r"`(\w+)`", line)} == {
        name for name, task in winobench.TASKS.items() if task.when_named
    }
    for name, metric in {**winobench.METRICS, **RATING_METRICS}.items():
        (row,) = (line for line in table if f"`{name}`" in line.split("|")[1])
        assert f"`{metric.headline}`" in row.split("|")[-2]


def test_the_table_of_data_sets_is_up_to_date():
    """And what the page says about them is true of all."""
    script = runpy.run_path(str(ROOT / "docs" / "write_data_sets.py"))
    assert script["main"](["--check"]) == 0, "run python docs/write_data_sets.py"
    for name, task in winobench.TASKS.items():
        assert (task.source is None) == (task.paper is None) == (task.url is None), name


def test_the_groups_are_those_of_the_table():
    rows = re.findall(r"^\| `@(\w+)` \| (.*) \|$", (ROOT / "docs/reference/tasks.md").read_text(), re.MULTILINE)
    assert dict(rows[: len(base.SKILLS)]) == base.SKILLS
    assert tuple(name for name, _ in rows) == groups.GROUPS


def _slugs(path):
    """The anchors of a Markdown file's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", NAMES)
def test_links_lead_somewhere(document):
    path = ROOT / document
    for target in re.findall(r"\]\(([^)\s]+)\)", _BLOCK.sub("", path.read_text())):
        if re.match(r"https?://", target):
            continue
        place, _, anchor = target.partition("#")
        linked = (path.parent / place).resolve() if place else path
        assert linked.exists(), target
        assert not anchor or anchor in _slugs(linked), target


@pytest.mark.parametrize("document", NAMES)
def test_files_that_are_named_exist(document):
    named = re.findall(r"`([\w./-]+)`", (ROOT / document).read_text())
    ours = [name for name in named if re.match(r"(winobench|launch|configs|docs|tests|benchmarks|\.ci)/", name)]
    missing = [name for name in ours if not (ROOT / name).exists()]
    assert not missing


@pytest.mark.parametrize("document", NAMES)
def test_names_of_the_package_exist(document):
    for name in set(re.findall(r"`(winobench(?:\.\w+)+)", (ROOT / document).read_text())):
        first, *rest = name.split(".")
        value = importlib.import_module(first)
        for number, part in enumerate(rest, 1):
            if not hasattr(value, part):
                importlib.import_module(".".join([first, *rest[:number]]))
            value = getattr(value, part)
