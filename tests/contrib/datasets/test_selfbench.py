"""Self-Bench from a run of pictures and from its published layout: candidates, groups, and what is wrong."""

import json
import shutil

import PIL.Image
import pytest

from tests.expectations import names, raises
from tests.generation import fakes
from winobench.base.errors import InputError
from winobench.generation.generate import generate_images
from winobench.prompts.prompt_files import Prompt
from winobench.runs.image_runs import read_images
from winobench.runs.verdicts import Verdict, write_verdicts
from winobench.tasks import tasks_from

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


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    generators = [fakes.generator(fakes.FakePipeline(name)) for name in ("a", "b")]
    return generate_images(generators, prompts(), tmp_path_factory.mktemp("drawn"), seeds=(5, 6), progress=False).folder


@pytest.fixture
def run(drawn, tmp_path):
    return read_images(shutil.copytree(drawn, tmp_path / "run"))


def test_a_run_of_pictures(run):
    record = run.record("a", 6, 0)
    write_verdicts(run, [Verdict(record.file, record.sha256, True), Verdict("pictures/b/5/00000.png", "0", True)])
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


def published(folder, labels, model="1.5", version=None, judged=lambda number, sample: True):
    """Self-Bench's layout, with a filter file for the version, by default called as the folder."""
    rows = []
    for number, record in enumerate(RECORDS):
        place = folder / "9.0" / model / f"{number:05d}"
        (place / "samples").mkdir(parents=True)
        (place / "metadata.jsonl").write_text(json.dumps(record) + "\n")
        for sample in range(2):
            PIL.Image.new("RGB", (4, 4), (number * 20, sample, 0)).save(place / "samples" / f"{sample:05d}.png")
            if not judged(number, sample):
                continue
            row = {"tag": record["tag"], "original_prompt": record["prompt"], **labels(number, sample)}
            rows.append({**row, "sample_path": f"/data/9.0/{model}/{number:05d}/samples/{sample:05d}.png"})
    (folder / "filter").mkdir(exist_ok=True)
    (folder / "filter" / f"SD-{version or model}-CFG=9.json").write_text(json.dumps(rows))


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


def groups_of(*places):
    return [
        example.groups
        for task in tasks_from([f"selfbench:{place}" for place in places])
        for example in task.load(None, None)
    ]


@pytest.mark.parametrize(
    ("folder", "version"),
    [("stable-diffusion-v1-5", "1.5"), ("stable-diffusion-2-base", "2.0")],
)
@pytest.mark.parametrize("place", [".", ".."])
def test_filter_files_are_found_by_the_version_of_a_models_folder(tmp_path, folder, version, place):
    """As published; the README has the filter files in the folder of the guidance scales, the code above it."""

    def labels(number, sample):
        good = labelled("original_good") if version != "2.0" else {"human_label": "original_good"}
        return good if sample else labelled("bad")

    root = tmp_path / "images"
    published(root, labels, folder, version)
    (root / "filter").rename(root / "moved").rename(root / place / "filter")
    groups = groups_of(root)
    assert groups.count((version, f"{version}, correct")) == groups.count((version,)) == 3
    assert len(groups) == 6


def test_a_missing_filter_file_is_said(tmp_path):
    published(tmp_path, lambda number, sample: labelled("original_good"), "FLUX.1-dev", "3-m")
    with pytest.warns(UserWarning, match=r"SD-flux-CFG=9\.json"):
        assert set(groups_of(tmp_path)) == {("flux",)}


def test_pictures_that_nobody_judges_are_said(tmp_path):
    def labels(number, sample):
        return labelled(*["original_good"] * sample)

    published(tmp_path, labels, judged=lambda number, sample: number)
    (tmp_path / "9.0" / "1.5" / "00002" / "samples" / "00001.png").unlink()
    with pytest.warns(UserWarning, match=r"4 of the 5 images.* 1 images .*00002/samples/00001\.png"):
        assert groups_of(tmp_path).count(("1.5", "1.5, correct")) == 1


def test_two_guidance_scales_of_a_model_are_not_one_drawer(tmp_path):
    published(tmp_path, lambda number, sample: labelled("original_good"))
    (tmp_path / "9.0").rename(tmp_path / "7.0")
    published(tmp_path, lambda number, sample: labelled("original_good"))
    with pytest.raises(InputError, match=names("'1.5'", str(tmp_path / "7.0"), str(tmp_path / "9.0"))):
        tasks_from([f"selfbench:{tmp_path}"])
    assert len(groups_of(tmp_path / "9.0")) == 6
    with pytest.raises(InputError, match=names("'1.5'")):
        groups_of(tmp_path / "9.0", tmp_path / "9.0")


def test_labels_that_contradict_are_named(tmp_path):
    published(tmp_path, lambda number, sample: labelled("original_good"))
    path = tmp_path / "filter" / "SD-1.5-CFG=9.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([*rows, {**rows[0], **labelled("bad")}]))
    with raises("contradicting-rows", "00000/samples/00000.png", "row 7"):
        tasks_from([f"selfbench:{tmp_path}"])


def test_what_is_no_such_folder(tmp_path, run):
    with pytest.raises(InputError, match=names(str(tmp_path / "absent"))):
        tasks_from([f"selfbench:{tmp_path / 'absent'}"])
    generators = [fakes.generator(fakes.FakePipeline("a"))]
    generate_images(generators, fakes.PROMPTS, tmp_path / "other", progress=False)
    with pytest.raises(InputError, match=names("--prompts=geneval:FILE")):
        tasks_from([f"selfbench:{tmp_path / 'other'}"])
    with pytest.raises(InputError, match=names("selfbench")):
        tasks_from(["selfbnch:x"])
    (run.folder / "verdicts.jsonl").write_text('{"file": 1}\n')
    with pytest.raises(InputError, match=names("verdicts.jsonl", "1")):
        tasks_from([f"selfbench:{run.folder}"])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"tag": "counting"}\n', "'include'"),
        ('{"tag": "colours", "include": [], "prompt": "x"}\n', "'colours'"),
        ('{"tag": "counting", "include": [{"class": "cat"}], "prompt": "a photo of nine cats"}\n', "nine cats"),
        ("{\n", "metadata.jsonl"),
    ],
)
def test_a_damaged_record_is_named(tmp_path, content, named):
    published(tmp_path, lambda number, sample: labelled("bad"))
    (tmp_path / "9.0" / "1.5" / "00000" / "metadata.jsonl").write_text(content)
    with pytest.raises(InputError, match=named):
        tasks_from([f"selfbench:{tmp_path}"])
