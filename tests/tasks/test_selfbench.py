"""Self-Bench from a run of pictures and from its published layout: candidates, groups, and what is wrong."""

import json
import shutil

import numpy as np
import PIL.Image
import pytest

from tests.expectations import names, raises
from tests.pictures import fakes
from winobench.data.pictures.prompts import Prompt
from winobench.data.pictures.verdicts import Verdict, write_verdicts
from winobench.errors import InputError
from winobench.evaluation import evaluate
from winobench.pictures.draw import draw_pictures
from winobench.tasks import selfbench, tasks_from

RECORDS = [
    {"tag": "counting", "include": [{"class": "bus", "count": 3}], "prompt": "a photo of three buses"},
    {"tag": "counting", "include": [{"class": "cat", "count": 2}], "prompt": "a photo of two cats"},
    {
        "tag": "position",
        "include": [{"class": "dog", "count": 1}, {"class": "cow", "count": 1, "position": ["below", 0]}],
        "prompt": "a photo of a cow below a dog",
    },
]


def prompts():
    return [
        Prompt(f"{n:05d}", row["prompt"], row["tag"], {k: v for k, v in row.items() if k != "prompt"})
        for n, row in enumerate(RECORDS)
    ]


@pytest.fixture
def run(tmp_path):
    drawers = [fakes.drawer(fakes.FakePipeline(name)) for name in ("a", "b")]
    return draw_pictures(drawers, prompts(), tmp_path / "run", seeds=(5, 6), progress=False)


def test_a_run_of_pictures(run):
    record = run.record("a", 6, 0)
    write_verdicts(
        run.folder, [Verdict(record.file, record.sha256, True), Verdict("pictures/b/5/00000.png", "0", True)]
    )
    counting, position = tasks_from([f"selfbench:{run.folder}"])
    assert (counting.name, counting.shape, counting.count(None)) == ("selfbench_counting", (1, 4), 8)
    assert position.chance == {"accuracy": 0.25}
    examples = {example.id: example for example in counting.load(None, None)}
    one = examples["a/6/0"]
    assert one.texts[one.target] == "a photo of three buses"
    assert one.texts[0] == "a photo of one bus"
    assert one.groups == ("a", "a, correct")
    # A verdict on another picture than the one that is there counts for nothing.
    assert examples["b/5/0"].groups == ("b",)
    assert [example.id for example in counting.load(None, 1)] == ["a/5/0", "b/5/0"]
    assert counting.data_fingerprint(None, None) != counting.data_fingerprint(None, 1)


def test_it_is_evaluated_by_drawer(run, tmp_path):
    write_verdicts(run.folder, [Verdict(one.file, one.sha256, one.model == "a") for one in run.records])

    class Right:
        def score(self, images, texts):
            return np.array([[float("three" in text or "two" in text) for text in texts] for _ in images])

    results = evaluate.evaluate(Right(), f"selfbench:{run.folder}", tmp_path / "judged", progress=False)
    rows = results["tasks"]["selfbench_counting"]
    assert (rows["a/accuracy"]["n"], rows["b/accuracy"]["n"], rows["a, correct/accuracy"]["n"]) == (4, 4, 4)
    assert "b, correct/accuracy" not in rows
    assert rows["accuracy"]["ties"] == 8  # it cannot tell three from two


FOLDERS = {version: folder for folder, version in selfbench.VERSIONS.items()}


def published(folder, labels, model="1.5"):
    rows, version, model = [], model, FOLDERS.get(model, model)
    for number, record in enumerate(RECORDS):
        place = folder / "9.0" / model / f"{number:05d}"
        (place / "samples").mkdir(parents=True)
        (place / "metadata.jsonl").write_text(json.dumps(record) + "\n")
        for sample in range(2):
            PIL.Image.new("RGB", (4, 4), (number * 20, sample, 0)).save(place / "samples" / f"{sample:05d}.png")
            rows.append(
                {
                    "tag": record["tag"],
                    "original_prompt": record["prompt"],
                    "sample_path": f"/data/9.0/{model}/{number:05d}/samples/{sample:05d}.png",
                    **labels(number, sample),
                }
            )
    (folder / "filter").mkdir(exist_ok=True)
    (folder / "filter" / f"SD-{version}-CFG=9.json").write_text(json.dumps(rows))


def labelled(*names):
    return {"labels": [{"label": name} for name in names]}


@pytest.mark.parametrize(("model", "correct"), [("1.5", 1), ("3-m", 2)])
def test_the_published_layout(tmp_path, model, correct):
    """All of a picture's labels must be good, but of 3-m one is enough."""

    def labels(number, sample):
        return labelled("original_good", "original_good" if sample else "bad") if number == 0 else labelled("bad")

    published(tmp_path, labels, model)
    counting, position = tasks_from([f"selfbench:{tmp_path}"])
    assert (counting.count(None), position.count(None)) == (4, 2)
    groups = [example.groups for example in counting.load(None, None)]
    assert groups.count((model, f"{model}, correct")) == correct
    assert groups.count((model,)) == 4 - correct
    # The folder of a guidance scale may be named, too.
    assert tasks_from([f"selfbench:{tmp_path / '9.0'}"])[0].count(None) == 4


def test_human_labels_and_two_drawers(tmp_path):
    for model in ("2.0", "flux"):
        published(tmp_path / model, lambda number, sample: {"human_label": "bad" if sample else "original_good"}, model)
    counting, _ = tasks_from([f"selfbench:{tmp_path / '2.0'}", f"selfbench:{tmp_path / 'flux'}"])
    groups = [example.groups for example in counting.load(None, None)]
    assert groups.count(("2.0", "2.0, correct")) == groups.count(("flux", "flux, correct")) == 2
    with pytest.raises(InputError, match=names("'2.0'")):
        tasks_from([f"selfbench:{tmp_path / '2.0'}"] * 2)


def test_what_is_no_such_folder(tmp_path, run):
    with pytest.raises(InputError, match=names(str(tmp_path / "absent"))):
        tasks_from([f"selfbench:{tmp_path / 'absent'}"])
    drawers = [fakes.drawer(fakes.FakePipeline("a"))]
    draw_pictures(drawers, fakes.PROMPTS, tmp_path / "other", progress=False)
    with pytest.raises(InputError, match=names("--config.prompts=geneval:FILE")):
        tasks_from([f"selfbench:{tmp_path / 'other'}"])
    with pytest.raises(InputError, match=names("selfbench")):
        tasks_from(["selfbnch:x"])
    (run.folder / "verdicts.jsonl").write_text('{"file": 1}\n')
    with pytest.raises(InputError, match=names("verdicts.jsonl", "1")):
        tasks_from([f"selfbench:{run.folder}"])


def test_each_version_has_its_folder_and_its_filter(tmp_path):
    """Drawers are called by their versions, beside which the published numbers stand."""
    for version in FOLDERS:
        published(tmp_path, lambda _, sample: {"human_label": "bad" if sample else "original_good"}, version)
    for folder in (tmp_path, tmp_path / "9.0"):
        counting, _ = tasks_from([f"selfbench:{folder}"])
        groups = [group for example in counting.load(None, None) for group in example.groups]
        assert {group: groups.count(group) for group in groups} == {
            group: count for version in FOLDERS for group, count in ((version, 4), (f"{version}, correct", 2))
        }
    # The published code looks one level higher.
    (tmp_path / "filter").rename(tmp_path.parent / "filter")
    assert tasks_from([f"selfbench:{tmp_path}"])[0].data_fingerprint(None, None) == counting.data_fingerprint(
        None, None
    )
    shutil.rmtree(tmp_path.parent / "filter")


def test_a_filter_that_is_missing_or_of_other_pictures_is_said(tmp_path):
    published(tmp_path, lambda number, sample: labelled("original_good"), "2.0")
    path = tmp_path / "filter" / "SD-2.0-CFG=9.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([{**row, "sample_path": "/data/other/" + row["sample_path"][-9:]} for row in rows]))
    with raises("contradicting-rows", "2.0", FOLDERS["2.0"]):
        tasks_from([f"selfbench:{tmp_path}"])
    path.rename(path.with_name("SD-2-CFG=9.json"))
    with pytest.warns(UserWarning, match=names(str(path), "2.0, correct")):
        counting, _ = tasks_from([f"selfbench:{tmp_path}"])
    assert {example.groups for example in counting.load(None, None)} == {("2.0", "2.0, no filter")}
    (tmp_path / "9.0" / "2.0").symlink_to(FOLDERS["2.0"])
    with raises("named-twice", "'2.0'"), pytest.warns(UserWarning, match="filter"):
        tasks_from([f"selfbench:{tmp_path}"])


def test_labels_count_before_a_human_label(tmp_path):
    published(tmp_path, lambda number, sample: {**labelled("bad"), "human_label": "original_good"})
    counting, _ = tasks_from([f"selfbench:{tmp_path}"])
    assert {example.groups for example in counting.load(None, None)} == {("1.5",)}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "metadata.jsonl"),
        ('{"tag": "counting"}\n', "'include'"),
        ('{"tag": "colours", "include": [], "prompt": "x"}\n', "'colours'"),
        ('{"tag": "counting", "include": [{"class": "cat"}], "prompt": "a photo of nine cats"}\n', "nine cats"),
        ('{"tag": "counting", "include": [], "prompt": "a photo of two cats"}\n', "two cats"),
        ("{\n", "metadata.jsonl"),
    ],
)
def test_a_damaged_record_is_named(tmp_path, content, named):
    published(tmp_path, lambda number, sample: labelled("bad"))
    (tmp_path / "9.0" / FOLDERS["1.5"] / "00000" / "metadata.jsonl").write_text(content)
    with pytest.raises(InputError, match=named):
        tasks_from([f"selfbench:{tmp_path}"])
