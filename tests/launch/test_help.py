"""--help of every launcher: what it teaches, flags of its own alone, commands that are right, and no heavy import."""

import json
import re
import subprocess
import sys

import pytest

import winobench
import winobench.__main__ as command_line
from launch import configuration
from launch.overrides import names
from tests import launching
from tests.evaluation import fakes
from tests.report.conftest import Skilled, make_run
from winobench.base import extensions
from winobench.tasks import DATA_SETS, TEXT_TASKS, groups
from winobench.training.coco_captions import TRAINING_SETS

SAID = {
    "eval": ["--list_tasks", "--processes", "--num_samples"],
    "train --config=hardneg": ["--loss.threshold", "--max_minutes"],
    "prepare": ["--source", "--allow_partial"],
    "view": ["--bundle", "--open", "--port", "only this computer"],
    "report": ["runs/gdbench-*", "--out", "--gallery", "--resamples", "--seed", "--raters"],
    "compare": ["--tasks", "--groups", "booktabs"],
    "generate": ["--prompts", "--seeds", "geneval2:FILE", "--processes", "pictures.html"],
    "reproduce": ["--paper", "--data_dir"],
    "judge": ["--rubric", "--label", "geneval2", "RUN/judged/<rubric>-<judge>"],
}
SPECS = configuration.config_names()
OWN = {"--question": "caption", "--list_tasks": "eval"}


@pytest.fixture(scope="module")
def helps():
    found = {}
    for command in SAID:
        launcher, *words = command.split()
        found[launcher] = read_help(launcher, *words)
    return found


def read_help(launcher, *words):
    status, text, err = launching.launch(launching.module(launcher), *words, "--help")
    assert (status, err) == (0, "")
    return text


@pytest.mark.parametrize("command", [*SAID, "train", *extensions.added(extensions.COMMANDS)])
@pytest.mark.parametrize(("terminal", "columns"), [(60, 80), (80, 80), (200, 100)])
def test_help_fits_the_terminal(command, terminal, columns):
    launcher, *words = command.split()
    module = launching.module(launcher)
    status, out, err = launching.launch(module, *words, "--help", COLUMNS=str(terminal))
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= columns
    assert max(map(len, lines)) > 72
    assert sum(line.split()[:2] == ["winobench", launcher] for line in lines) >= 3  # an example a line


def test_the_list_of_commands_fits_the_terminal():
    assert max(map(len, command_line.usage().splitlines())) <= 80


@pytest.mark.parametrize("command", SAID)
def test_help_teaches_by_examples_and_names_only_its_own_flags(helps, command):
    launcher = command.partition(" ")[0]
    check_teaches(helps[launcher], launcher, SAID[command])


def check_teaches(text, launcher, said):
    assert text.count(f"winobench {launcher}") >= 3
    assert all(word in text for word in said)
    flags = {line.split()[0] for line in text.partition("Flags:")[2].splitlines() if line.startswith("  --")}
    assert {flag for flag in OWN if flag in flags} == {flag for flag in OWN if OWN[flag] == launcher}


def test_the_commands_of_all_helps_and_configs_use_known_names(helps):
    check_commands([*helps.values(), *(path.read_text() for path in configuration.config_files().values())], 40)


def check_commands(texts, count):
    """At least ``count`` commands in texts have known fields and tasks."""
    commands = [
        line
        for text in texts
        for line in text.replace("\\\n", "").splitlines()
        if " --" in line.partition("winobench ")[2]
    ]
    assert len(commands) >= count
    marked = {f"@{name}" for name in (*groups.GROUPS, *DATA_SETS)}
    known = {*winobench.TASKS, *TEXT_TASKS, *TRAINING_SETS, *marked, "all"}
    lists = [text.partition("Flags:")[2].partition("\n\n")[0] for text in texts]
    flags = {"help", *re.findall(r"^  --([\w.]+)", "\n".join(lists), re.MULTILINE)}
    for command in commands:
        fields = set()
        for spec in re.findall(r"--config=(\S+)", command):
            fields |= names(configuration.load(spec)).keys()
        given = set(re.findall(r"--([\w.]+)=", command)) - flags
        assert given <= fields or "--config=" not in command, command
        for tasks in re.findall(r"--tasks=(\S+)", command):
            assert {task for task in tasks.split(",") if ":" not in task and "*" not in task} <= known, command


@pytest.mark.parametrize("name", [name for name in SPECS if "protocol" in configuration.options_of(name)])
def test_forms_of_text_benchmarks_name_known_protocols(name):
    module, _ = configuration._load_module(name)
    for form in module.FORMS:
        config = configuration.load(f"{name}:{form}")
        for task in (TEXT_TASKS[name] for name in config.tasks.split(",") if name in TEXT_TASKS):
            assert config.protocol in (None, "all") or {*config.protocol.split(",")} <= {*task.protocols}


LIGHT = """
import json, sys
from tests import launching
for words in json.loads(sys.argv[1]):
    status, _, err = launching.launch(*words)
    print(json.dumps([status, err, sorted({"jax", "flax", "torch", "transformers", "grain"} & set(sys.modules))]))
"""


def light(launches):
    """(status, message, heavy imports) of each, in one process."""
    words = [sys.executable, "-c", LIGHT, json.dumps(launches)]
    done = subprocess.run(words, capture_output=True, text=True, env=launching.environment(), cwd=launching.ROOT)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_help_lists_and_reports_import_nothing_heavy(tmp_path):
    run = make_run(Skilled(0.4), tmp_path / "run", chosen=[fakes.text_task()])
    launches = [["launch.eval", "--help"], ["launch.train", "--config=hardneg", "--help"], ["launch.report", str(run)]]
    launches += [["launch.prepare", word, f"--data_dir={tmp_path}"] for word in ("--list", "--help")]
    assert light(launches) == [[0, "", []]] * len(launches)


def test_wrong_names_of_tasks_and_models_are_found_before_heavy_imports(tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"image": \n')
    wrong = {
        "--tasks=winogroundd": "'winogroundd' is unknown: did you mean winoground",
        f"--tasks={tmp_path}/mine.jsonl": f"write jsonl:{tmp_path}/mine.jsonl",
        f"--tasks=clevr,jsonl:{tmp_path}/mine.jsonl": "line 1 of",
        "--model=clevr-tinny": "did you mean clevr-tiny",
        "--config=winoviz --tasks=winoviz_singel": "'winoviz_singel' is unknown: did you mean winoviz_single",
    }
    for (status, message, heavy), said in zip(
        light([["launch.eval", *words.split()] for words in wrong]), wrong.values(), strict=True
    ):
        assert (status, heavy) == (2, [])
        assert said in message
