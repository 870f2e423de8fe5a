"""The server: tools that list tasks and models, follow and read runs and, if that is allowed, start evaluations."""

from __future__ import annotations

import functools
import inspect
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from winobench.base import files, registry
from winobench.base.errors import InputError
from winobench.report.comparison import answer_of, choice_of
from winobench.runs import run_tables
from winobench.runs.examples import Questions
from winobench.runs.reading import read_run, read_without_tables
from winobench.viewer.library import Library

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_MOST_QUESTIONS = 100  # of one call
_CONFIG = re.compile(r"[A-Za-z]\w*(:\w+)?")  # a name, with a form. A path would run a file
_LOG_BYTES = 2_000  # of the end of an evaluation's output
_INSTRUCTIONS = (
    "winobench measures how well models understand images and texts. Values and intervals are shares between 0 and 1,"
    " except for effect sizes and correlations. Intervals are 95% intervals. Runs are named by their field slug."
)


def make(
    folders: Sequence[str | os.PathLike[str]],
    list_tasks: Callable[[str], Mapping[str, Any]],
    list_models: Callable[[str], Mapping[str, Any]],
    *,
    allow_runs: bool = False,
) -> MCPServer:
    """A server of the package ``mcp`` about the runs in some folders. Its method ``run`` serves by standard streams.

    Args:
      folders: of runs, or folders that hold runs. Started evaluations go into the first one.
      list_tasks: word -> data sets with the tasks that have it, as a document of ``--json``. Empty for all.
      list_models: the same for models.
      allow_runs: whether the agent may start evaluations.

    Raises:
      InputError: the package ``mcp`` is not installed (``missing-package``).
    """
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp_types import ToolAnnotations
    except ImportError as error:
        raise InputError(
            f"the server for agents needs a package ({error}): pip install 'winobench[mcp]'.", code="missing-package"
        ) from error
    tools = _Tools(Library(folders), pathlib.Path(files.user_path(folders[0])), list_tasks, list_models)
    server = MCPServer("winobench", instructions=_INSTRUCTIONS, log_level="WARNING")
    reading = [tools.list_tasks, tools.list_models, tools.follow, tools.read_results, tools.read_questions]
    for function in [*reading, *([tools.start_evaluation] if allow_runs else [])]:
        hints = ToolAnnotations(read_only_hint=function in reading, destructive_hint=False)
        server.add_tool(_sentences(function, ToolError), annotations=hints, description=inspect.getdoc(function))
    return server


def _sentences(function: Callable[..., Any], kind: type[Exception]) -> Callable[..., Any]:
    """A tool whose faults are sentences for the agent."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except InputError as error:
            raise kind(f"{error} ({error.code})") from error

    return call


class _Tools:
    """The tools. The docstrings of public methods are for agents."""

    def __init__(
        self,
        library: Library,
        folder: pathlib.Path,
        tasks: Callable[[str], Mapping[str, Any]],
        models: Callable[[str], Mapping[str, Any]],
    ):
        self._library, self._folder, self._tasks, self._models = library, folder, tasks, models
        self._started: dict[str, subprocess.Popen[bytes]] = {}  # folder -> its evaluation

    def list_tasks(self, word: str = "") -> dict[str, Any]:
        """Lists data sets: questions, and whether the data are ready or how to get them. A word such as a task, a data
        set or a skill gives these alone, with their tasks."""
        rows = self._tasks(word)["data_sets"]
        if not word:
            rows = [{name: value for name, value in row.items() if name != "tasks"} for row in rows]
        return {"data_sets": rows}

    def list_models(self, word: str = "") -> dict[str, Any]:
        """Lists models that have a short name, or those with a word in their name, kind or description. Any model id of
        the Hugging Face hub works, too."""
        return dict(self._models(word))

    def follow(self, run: str = "") -> dict[str, Any]:
        """Lists runs, the newest first: status, progress and main results. A slug gives that run alone, with the last
        lines of its output if this server has started it."""
        runs = self._library.runs()
        if not run:
            return {"runs": runs}
        root = os.path.realpath(self._folder / run)
        process = self._started.get(root)
        entry = next((each for each in runs if each["slug"] == run), None)
        if process is None:
            if entry is None:
                self._library.find(run)  # raises
            return {"runs": [entry]}
        status, output = process.poll(), _end_of(_log(root))
        entry = entry or {"slug": run, "status": "starting" if status is None else "failed"}
        return {"runs": [entry | {"exit_status": status, "output": output}]}

    def read_results(self, run: str, groups: bool = False) -> dict[str, Any]:
        """Reads the results of a finished run: a row a task and metric with interval, chance level and number of
        questions. groups adds the rows of sub-tasks."""
        read = read_without_tables(self._library.find(run).root)
        rows = run_tables.records(read.results["tasks"], groups)
        return {"model": read.model, "rows": rows, "failed": dict(read.failed), "notes": list(read.notes)}

    def read_questions(
        self, run: str, task: str, which: Literal["all", "right", "wrong"] = "wrong", first: int = 0, count: int = 20
    ) -> dict[str, Any]:
        """Reads questions of a task in a finished run, with the answers of the model. first is the number of the first
        one, from 0, and count at most 100. Scores have a row an image and a column a text: higher is a better match."""
        read = read_run(self._library.find(run).root)
        record = read.tasks.get(task)
        if record is None or record.examples is None:
            known = ", ".join(name for name, each in read.tasks.items() if each.examples is not None)
            raise InputError(
                f"the run has no questions of the task {task!r:.80}: choose from {known}", code="unknown-name"
            )
        examples = record.examples
        if which != "all" and not record.has_answers:
            raise InputError(f"answers of {task} are neither right nor wrong: give which=all", code="option-of-others")
        rows = [
            row for row in range(len(examples.ids)) if which == "all" or examples.correct[row] == (which == "right")
        ]
        shown = rows[max(first, 0) :][: max(0, min(count, _MOST_QUESTIONS))]
        return {"total": len(rows), "questions": [_question(record, examples, row) for row in shown]}

    def start_evaluation(self, model: str, tasks: str = "", config: str = "gdbench", limit: int = 0) -> dict[str, Any]:
        """Starts winobench eval in the background, one at a time, and returns the slug for follow. tasks are names with
        commas, by default those of the config whose data are ready. config is gdbench for images, winoviz or wscplus
        for texts. limit is the most questions a task, 0 for all. The same arguments resume an interrupted run."""
        if any(process.poll() is None for process in self._started.values()):
            raise InputError("an evaluation is running: wait for its end, which follow shows", code="in-use")
        if not _CONFIG.fullmatch(config):
            raise InputError(
                f"the config {config!r:.80} is not a name such as gdbench or winoviz:debug: files of configs are Python"
                " code, which agents may not run",
                code="unknown-name",
            )
        words = [f"--config={config}", f"--model={model}"]
        words += [f"--tasks={tasks}"] if tasks else []
        words += [f"--limit={limit}"] if limit else []
        name = f"{registry.model_label(config)}-{registry.model_label(model)}-{files.digest(words)[:8]}"
        root = os.path.realpath(self._folder / name)
        command = ["winobench", "eval", *words, f"--workdir={root}"]
        with open(_log(root), "wb") as log:
            self._started[root] = subprocess.Popen(
                [sys.executable, "-m", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        return {"slug": name, "folder": root, "command": command}


def _log(root: str) -> str:
    return f"{root}.log"


def _end_of(path: str) -> str:
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _LOG_BYTES))
        return file.read().decode("utf-8", "replace")


def _question(record: Any, examples: Any, row: int) -> dict[str, Any]:
    question = {
        "id": examples.ids[row],
        "groups": list(examples.groups[row]),
        "images": list(examples.images[row]),
        "texts": list(examples.texts[row]),
        "scores": examples.scores[row].tolist(),
    }
    if record.has_answers:
        question["right_answer"] = answer_of(record, row, examples.targets[row])
        question["answer"] = answer_of(record, row, choice_of(examples, row))
        question["is_right"] = bool(examples.correct[row])
    if isinstance(examples, Questions):
        question |= {"options": list(examples.options[row]), "responses": list(examples.responses[row])}
    return question
