"""winobench mcp: what an agent can call, and what it gets."""

import functools
import sys

import pytest

import winobench
from launch import listing
from tests import launching
from tests.evaluation import fakes
from tests.expectations import raises
from tests.launch.test_help import check_teaches, read_help
from tests.report.conftest import Skilled, make_run
from winobench.contrib.agents import server

READING = {"list_tasks", "list_models", "follow", "read_results", "read_questions"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    chosen = [fakes.text_task("words", 4, ("spatial",)), fakes.square_task("square")]
    make_run(Skilled(0.4), root / "one", chosen=chosen)
    return root


@pytest.fixture
def make(folder):
    pytest.importorskip("mcp")
    return functools.partial(server.make, list_tasks=listing.data_sets, list_models=listing.models)


def talk(served, *calls):
    """The tools, and the result of each call (name, arguments): a dictionary, or the text of an error."""
    anyio = pytest.importorskip("anyio")
    mcp = pytest.importorskip("mcp")

    async def run():
        async with mcp.Client(served) as client:
            tools = (await client.list_tools()).tools
            results = [await client.call_tool(name, arguments) for name, arguments in calls]
        return tools, [each.content[0].text if each.is_error else each.structured_content for each in results]

    return anyio.run(run)


def test_a_server_only_reads_unless_it_may_start_runs(make, folder):
    tools, (error,) = talk(make([folder]), ("start_evaluation", {"model": "clevr-tiny"}))
    assert {tool.name for tool in tools} == READING
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    assert "start_evaluation" in error
    tools, _ = talk(make([folder], allow_runs=True))
    assert {tool.name for tool in tools if not tool.annotations.read_only_hint} == {"start_evaluation"}


def test_an_agent_reads_runs_results_and_questions(make, folder):
    run = winobench.read_run(folder / "one")
    _, results = talk(
        make([folder]),
        ("follow", {}),
        ("read_results", {"run": "one", "groups": True}),
        ("read_questions", {"run": "one", "task": "words", "which": "all", "count": 3, "first": 1}),
        ("read_questions", {"run": "one", "task": "words"}),
        ("list_models", {"word": "clevr"}),
        ("list_tasks", {}),
        ("list_tasks", {"word": "colorswap"}),
    )
    runs, numbers, some, wrong, models, every, tasks = results
    assert [(each["slug"], each["status"]) for each in runs["runs"]] == [("one", "finished")]
    values = {f"{row['task']}/{row['metric']}": row["value"] for row in numbers["rows"] if not row["group"]}
    expected = {
        f"{task}/{row}": entry["value"] for task, each in run.tasks.items() for row, entry in each.results.items()
    }
    assert values == {name: value for name, value in expected.items() if name.count("/") == 1}
    examples = run.tasks["words"].examples
    assert [question["id"] for question in some["questions"]] == examples.ids[1:4]
    assert some["total"] == len(examples.ids)
    assert wrong["total"] == len(examples.ids) - examples.correct.sum()
    for question in some["questions"]:
        assert question["is_right"] == (question["answer"] == question["right_answer"])
        assert question["scores"] == examples.scores[examples.ids.index(question["id"])].tolist()
    assert {"clevr-tiny", "clevr-flow"} <= {model["name"] for model in models["models"]}
    assert all("tasks" not in row for row in every["data_sets"])
    assert [task["name"] for row in tasks["data_sets"] for task in row["tasks"]] == ["colorswap"]


def test_faults_are_sentences(make, folder):
    _, errors = talk(
        make([folder]),
        ("read_results", {"run": "../one"}),
        ("read_questions", {"run": "one", "task": "pets"}),
        ("list_tasks", {"word": "qqqq"}),
    )
    for error, said in zip(errors, ("no-such-folder", "words, square", "qqqq"), strict=True):
        assert said in error


def test_the_command_talks_by_standard_streams(make, folder):
    mcp = pytest.importorskip("mcp")
    words = ["-m", "winobench", "mcp", str(folder)]
    parameters = mcp.StdioServerParameters(command=sys.executable, args=words, env=launching.environment(), cwd=folder)
    tools, (runs,) = talk(parameters, ("follow", {"run": "one"}))
    assert {tool.name for tool in tools} == READING
    assert runs["runs"][0]["slug"] == "one"


def test_the_package_is_named_where_it_is_missing(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with raises("missing-package", "winobench[mcp]"):
        server.make([folder], listing.data_sets, listing.models)


def test_help_and_folders():
    check_teaches(read_help("mcp"), "mcp", ["--allow_runs", "only reads"])
    launching.refuse("launch.mcp", named=["no folder is named"])
    launching.refuse("launch.mcp", "absent", named=["absent is not a folder"])


def test_an_evaluation_that_fails_ends_with_its_sentence(tmp_path, monkeypatch):
    """It starts, fails, and `follow` has its output."""
    monkeypatch.setenv("PYTHONPATH", str(launching.ROOT))
    tools = server._Tools(server.Library([tmp_path]), tmp_path, listing.data_sets, listing.models)
    started = tools.start_evaluation("no-such-model", tasks="colorswap", limit=2)
    assert started["command"][:3] == ["winobench", "eval", "--config=gdbench"]
    with raises("in-use"):
        tools.start_evaluation("other")
    process = tools._started[started["folder"]]
    assert process.wait(60) == 2
    (entry,) = tools.follow(started["slug"])["runs"]
    assert (entry["status"], entry["exit_status"]) == ("failed", 2)
    assert "error: model 'no-such-model'" in entry["output"]


@pytest.mark.parametrize("config", ["config.py", "a/b", "../gdbench", "gdbench:debug.py", "", "gdbench\n", "--help"])
def test_an_agent_runs_no_config_file(config, tmp_path):
    """A config file is Python code."""
    (tmp_path / "config.py").write_text("raise SystemExit('it ran')")
    tools = server._Tools(server.Library([tmp_path]), tmp_path, listing.data_sets, listing.models)
    with raises("unknown-name", "agents may not run"):
        tools.start_evaluation("clevr-tiny", config=config)
    assert not tools._started
