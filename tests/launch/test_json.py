"""``--json``: one document on standard output, which its schema describes, and all messages on standard error."""

import json
import pathlib
import re

import jsonschema
import pytest

import winobench
from launch import documents
from tests import launching, wscplus_files
from tests.evaluation import fakes
from tests.generation import fakes as fake_images
from tests.report.conftest import Skilled, make_run
from tests.responders import api_server
from tests.rubrics.test_geneval2 import ROWS, write
from tests.tasks import published_layouts
from winobench.prompts.named_sets import read_prompts

SCHEMAS = pathlib.Path(__file__).parents[2] / "docs" / "schemas"
TESTED = {
    "eval",
    "prepare",
    "export",
    "compare",
    "report",
    "judge",
    "collect",
    "generate",
    "understand",
    "reproduce",
    "plan",
    "rate",
    "caption",
    "edit",
    "write_items",
}


def printed(schema, launcher, *words, **how):
    """The document and the messages of a command."""
    status, out, err = launching.launch(f"launch.{launcher}", *words, "--json", **how)
    assert status == 0, err
    return validated(schema, out), err


def validated(schema, text):
    document = json.loads(text)
    described = json.loads((SCHEMAS / f"{schema}.schema.json").read_text())
    jsonschema.Draft202012Validator(described).validate(document)
    # A schema without the document's keys would allow anything.
    name = described["$ref"].rpartition("/")[2]
    assert document.keys() <= described["$defs"][name]["properties"].keys()
    return document


def test_every_command_with_documents_is_tested():
    launchers = [*launching.ROOT.glob("launch/*.py"), *launching.ROOT.glob("winobench/contrib/*/launch/*.py")]
    assert {path.stem for path in launchers if "output.define_json()" in path.read_text()} == TESTED
    assert {*documents.DOCUMENTS} <= {path.name.partition(".")[0] for path in SCHEMAS.iterdir()}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("data_sets", ["eval", "--list_tasks"]),
        ("data_sets", ["eval", "--list_tasks=@spatial"]),
        ("data_sets", ["prepare", "--list"]),
        ("data_sets", ["prepare", "--list=svo"]),
        ("models", ["eval", "--list_models"]),
        ("models", ["eval", "--list_models=clip"]),
    ],
)
def test_lists(schema, words):
    document, err = printed(schema, *words)
    rows = document[schema]
    assert rows
    assert rows[0]["name"] in err  # the text is a message now
    if schema == "data_sets":
        assert all(row["tasks"] for row in rows)


def test_prepared_sets(tmp_path):
    source = published_layouts.write_winoground(tmp_path / "source")
    words = [f"--source={source}", f"--data_dir={tmp_path / 'data'}", "--workers=1", "--allow_partial"]
    for said in ("winoground: ", "winoground: is ready, "):
        document, err = printed("prepared_sets", "prepare", "--tasks=winoground", *words)
        (row,) = document["prepared"]
        state = json.loads((tmp_path / "data" / "winoground" / "prepared.json").read_text())
        assert (row["folder"], row["published"]) == (str(tmp_path / "data" / "winoground"), 400)
        assert (row["examples"], row["images"]) == (state["num_examples"], state["num_images"])
        assert (row["is_partial"], document["failed"]) == (True, {})
        assert said in err
    status, out, err = launching.launch("launch.prepare", "--tasks=winoground,colorswap", *words, "--json")
    document = validated("prepared_sets", out)
    assert (status, [row["task"] for row in document["prepared"]]) == (2, ["winoground"])
    assert f"error: colorswap: {document['failed']['colorswap']}" in err


def test_tables_of_papers(tmp_path):
    """The first table by hand: seven tasks of four data sets, five methods each."""
    document, err = printed("paper_tables", "reproduce", "--paper=gdbench", f"--data_dir={tmp_path}")
    table = document["tables"][0]
    assert (table["place"], table["numbers"], len(table["tasks"])) == ("Table 1a", 35, 7)
    assert table["missing"] == table["tasks"]
    assert table["needs"] == ["flickr30k", "svo", "imagecode", "winoground"]
    assert re.search(r"gdbench +Table 1a +35 +0 of 7", err)
    assert "clevr" in document["tables"][1]["missing"]  # the paper's images are not here, though others are rendered
    assert "data sets that are not here: flickr30k, svo" in err
    launching.refuse("launch.reproduce", "--paper=dall-e", named=["dall-e", "gdbench"])


def test_refusals_print_no_document():
    launching.refuse("launch.eval", "--list_tasks=qqqqqqq", "--json", named=["'qqqqqqq'"])


def test_results_of_an_evaluation(tmp_path):
    file = wscplus_files.write(tmp_path, said=lambda number, answer: 2)
    words = ["--config=wscplus", f"--config.model=recorded:{file}", "--config.protocol=toe"]
    words += [f"--config.data_dir={tmp_path}", f"--workdir={tmp_path / 'run'}"]
    document, err = printed("evaluations", "eval", *words)
    (run,) = document["runs"]
    assert run["folder"] == str(tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "results.json").read_text())
    assert run["results"]["tasks"] == stored["tasks"]
    assert "for figures, comparisons and examples" in err


def test_exports_and_reports(tmp_path):
    folder = make_run(Skilled(0.4), tmp_path / "one", chosen=[fakes.text_task()])
    document, err = printed("table", "export", folder, "--groups")
    rows = {(row["task"], row["metric"], row["group"]): row["value"] for row in document["rows"]}
    stored = json.loads((pathlib.Path(folder) / "results.json").read_text())["tasks"]["words"]
    assert rows["words", "accuracy", ""] == stored["accuracy"]["value"]
    assert len(rows) == len(stored)
    assert err.startswith("task,")
    document, err = printed("report", "report", folder, f"--out={tmp_path / 'page'}", "--gallery=0")
    assert pathlib.Path(document["page"]) == tmp_path / "page" / "report.html"
    assert all((tmp_path / "page" / name).is_file() for name in document["files"])
    assert "next to it" in err


def test_differences_of_two_runs(tmp_path):
    folders = [make_run(Skilled(skill), tmp_path / str(skill), chosen=[fakes.text_task()]) for skill in (0.2, 0.7)]
    document, err = printed("differences", "compare", *folders, "--groups")
    expected = winobench.compare(*folders)
    rows = [(row["task"], row["first_value"], row["second_value"], row["p"]) for row in document["differences"]]
    assert rows == [(row.task, row.first, row.second, row.p_value) for row in expected.differences]
    assert (document["notes"], err.startswith("A: ")) == (list(expected.notes), True)


@pytest.mark.slow
def test_generated_images(tiny_pipeline, tmp_path):
    (tmp_path / "prompts.txt").write_text("a red cube")
    words = [f"--config.model={tiny_pipeline}", f"--config.prompts={tmp_path / 'prompts.txt'}", "--config.num_steps=1"]
    document, err = printed("generated_images", "generate", *words, f"--workdir={tmp_path / 'run'}")
    assert document == {"folder": str(tmp_path / "run"), "page": document["page"], "images": 1}
    assert pathlib.Path(document["page"]).is_file()
    assert "look at them in" in err


def test_judgements(tmp_path, monkeypatch):
    prompts = read_prompts(write(tmp_path / "data.jsonl", ROWS), limit=2)
    run = fake_images.draw(tmp_path / "run", "a", prompts=prompts)
    with api_server.running_with_keys(monkeypatch) as server:
        server.answer = lambda prompt: "one" if "How many" in str(prompt) else "Yes"
        words = [run.folder, f"--model=openai:m@{server.address}/v1", "--api.logprobs=false", "--api.votes=1"]
        document, err = printed("judgements", "judge", *words)
    (judgement,) = document["judgements"]
    assert judgement["folder"] == str(run.folder)
    assert judgement["models"]["a"]["soft_tifa_am"]["all"]["value"] == pytest.approx(0.75)
    assert re.search(r"soft tifa am, count +50\.0", err)
