"""winobench prepare: choosing tasks, preparing several, downloads, and what it says about bad sources."""

import functools
import json
import pathlib
import re
import signal
import subprocess
import sys

import pytest

import winobench.tasks
from launch import listing
from launch import prepare as launcher
from tests import launching
from tests.data import published_files, web_server
from tests.expectations import names, raises
from tests.scorers import tiny_models
from tests.tasks import published_layouts
from winobench.base.errors import InputError
from winobench.data import prepared, word_order
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.scorers.contrastive import Contrastive
from winobench.tasks.base import PublishedData
from winobench.tasks.published import published_task
from winobench.training.coco_captions import TRAINING_SETS

ROOT = pathlib.Path(__file__).parents[2]


launch = functools.partial(launching.launch, "launch.prepare")


def _read(folder):
    try:
        names = (folder / "list.txt").read_text().split()
    except FileNotFoundError:
        raise InputError(f"there is no {folder / 'list.txt'}: download it") from None
    for name in names:
        yield Item(name, (ImageFile(folder / name),), ("a", "b"))


def _task(name, **options):
    source = PublishedData(**{"read": _read, "how_to_get": "list.txt", "num_examples": 10, **options})
    fields = dict(description="A toy.", metric="accuracy", shape=(1, 2), chance={}, images_compete=False)
    return published_task(name=name, version=1, source=source, **fields)


@pytest.fixture
def tasks(monkeypatch):
    """Known tasks: two toys, and the built-in one that renders its images; may be added to."""
    known = {
        "toy": _task("toy"),
        "larger": _task("larger", num_examples=12),
        "clevr_image": winobench.tasks.get_task("clevr_image"),
    }
    monkeypatch.setattr(winobench.tasks, "TASKS", known)
    return known


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "source"
    names = [path.name for path in published_files.make_images(root)]
    (root / "list.txt").write_text("\n".join(names))
    return root


@pytest.fixture
def run(tmp_path, capsys):
    """Prepares with the default folder in ``tmp_path``; returns (names of failed tasks, stdout, stderr)."""

    def call(task, source=None, **options):
        source = None if source is None else str(source)
        failed = launcher.prepare_tasks(task, source, str(tmp_path / "data"), workers=1, **options)
        return failed, *capsys.readouterr()

    return call


def test_several_tasks_from_one_folder(run, tasks, source, tmp_path):
    tasks["larger"] = _task("larger")
    failed, out, err = run("toy, larger,toy", source)
    assert (failed, len(out.splitlines())) == ([], 2)
    assert re.fullmatch(rf"toy: 10 examples, 10 images, 0\.\d MB in {tmp_path}/data/toy", out.splitlines()[0])
    assert err.splitlines()[0] == "preparing toy: 10 images"
    prepared.PreparedSet(tmp_path / "data" / "toy").verify()

    made = prepared.read_state(tmp_path / "data" / "toy")
    failed, out, err = run("toy", source)
    assert (failed, err) == ([], "")
    assert out.startswith("toy: is ready, 10 examples,")
    assert out.endswith("; --overwrite prepares it again\n")
    (source / "0.png").write_bytes((source / "2.png").read_bytes())
    assert run("toy", source, overwrite=True)[0] == []
    assert prepared.read_state(tmp_path / "data" / "toy")["content"] != made["content"]


def _listed(name, data_dir):
    return listing.prepared_text(listing.prepared_sets(name, str(data_dir)), name)


def test_one_failure_does_not_stop_the_others(run, tasks, source, tmp_path):
    failed, out, err = run("larger,toy", source)
    assert failed == ["larger"]
    assert out.startswith("toy: 10 examples")
    assert re.match(names("error: larger", str(source), "10", "12", "--allow_partial", "list.txt"), err.splitlines()[0])
    assert err.splitlines()[-1] == "1 of 2 tasks could not be prepared: larger"
    assert run("larger", source, allow_partial=True)[0] == []
    state = prepared.read_state(tmp_path / "data" / "larger")
    assert (state["is_partial"], state["num_examples"]) == (True, 10)
    assert "    larger: ready, 10 of 12 examples (partial), 10 images," in _listed("larger", tmp_path / "data")
    assert "    toy: ready, 10 examples, 10 images," in _listed("toy", tmp_path / "data")
    with open(source / "list.txt", "a") as file:
        file.write("\nmore-1.png\nmore-2.png")
    for name in ("more-1.png", "more-2.png"):
        (source / name).write_bytes((source / "0.png").read_bytes())
    assert run("larger", source)[0] == []
    assert not prepared.read_state(tmp_path / "data" / "larger")["is_partial"]


def test_a_set_of_an_older_version_is_renewed(run, tasks, source, tmp_path):
    published_files.prepare(tmp_path / "data" / "toy", _read(source), source, task_version=0)
    assert "was prepared for version 0" in " ".join(_listed("toy", tmp_path / "data").split())
    assert run("toy", source)[0] == []
    assert prepared.read_state(tmp_path / "data" / "toy")["task_version"] == 1


def test_bad_images_are_listed_twenty_on_the_terminal_and_all_in_a_file(run, tasks, source, tmp_path):
    tasks["toy"] = _task("toy", num_examples=40)
    images = [path.name for path in published_files.make_images(source, 40)]
    (source / "list.txt").write_text("\n".join(images))
    (source / images[0]).write_bytes(b"x")
    failed, _, err = run("toy", source)
    assert failed == ["toy"]
    assert err.splitlines()[1] == "  0.png: is not an image"
    for name in images[5:30]:
        (source / name).unlink()
    failed, out, err = run("toy", source)
    assert (failed, out) == (["toy"], "")
    lines = err.splitlines()
    assert lines[:20] == [f"  {name}: missing" for name in images[5:25]]
    assert lines[20] == "  and 5 more"
    listed = tmp_path / "data" / "toy.problems.txt"
    words = ("error: toy", "25 of 40", f"{images[5]} (missing)", "24", str(listed), "--allow_partial", str(source))
    assert re.match(names(*words), lines[21])
    assert listed.read_text().splitlines() == [f"{name}: missing" for name in images[5:30]]


def test_the_folder_of_sources_is_the_default(run, tasks, source, tmp_path):
    where = tmp_path / "data" / "sources" / "toy"
    failed, out, err = run("toy")
    assert (failed, out) == (["toy"], "")
    assert re.match(names("error: toy", str(where), "--source=DIR", "list.txt"), err.rstrip())
    where.mkdir(parents=True)
    (where / "list.txt.part").write_text("")
    failed, _, err = run("toy")
    assert failed == ["toy"]
    assert re.match(names("error: toy", f"{where}/list.txt", str(where)), err.rstrip())
    for path in source.iterdir():
        path.rename(where / path.name)
    failed, out, _ = run("toy")
    assert failed == []
    assert out.endswith(f"{tmp_path}/data/toy; {where} is not needed any more\n")


def test_downloads(run, tasks, source, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with web_server.running() as server:
        server.files = {f"/{path.name}": path.read_bytes() for path in source.iterdir()}
        files = tuple(Download(name[1:], server.address + name, note="free") for name in server.files)
        tasks["toy"] = _task("toy", downloads=files, shared_folder="toys")
        tasks["other"] = _task("other", downloads=files, shared_folder="toys")
        server.behaviour = ["404"]
        failed, _, err = run("toy")
        assert failed == ["toy"]
        assert "404 Not Found" in err
        assert err.endswith(". Or name with --source=DIR a folder that holds list.txt\n")
        failed, _, err = run("toy,other")
        assert failed == []
        assert "downloading list.txt (free): 0.0 MB\n" in err
        assert len(server.requests) == 12
    assert prepared.PreparedSet(tmp_path / "data" / "toy").num_examples == 10
    assert (tmp_path / "data" / "sources" / "toys" / "list.txt").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (None, ("nothing-named", "--tasks=NAME", "--tasks=all", "winobench prepare --list")),
        ("wscplus", ("nothing-to-prepare", "'wscplus'", "put it at", "WSC+.csv")),
        ("svo", ("unknown-name", "'svo'", "--tasks=@svo", "svo_subj, svo_verb, svo_obj")),
        (" , ", ("nothing-named",)),
        ("tyo", ("unknown-name", "'tyo'", "did you mean toy?")),
        ("toy,clevr_image", ("nothing-to-prepare", "'clevr_image'")),
    ],
)
def test_bad_choices(tasks, words, message):
    with raises(*message):
        launcher.choose_tasks(words)
    assert [task.name for task in launcher.choose_tasks("all")] == ["toy", "larger"]


@pytest.fixture
def gender_source(tmp_path):
    return published_layouts.write_genderbias(tmp_path / "gender")


def test_from_the_command_line(gender_source, tmp_path):
    words = ["--tasks=genderbias", f"--source={gender_source}", f"--data_dir={tmp_path / 'data'}", "--workers=2"]
    status, out, err = launch(*words, cwd=tmp_path)
    assert status == 0, err
    assert out.startswith("genderbias: 24 examples, 24 images, ")
    assert err == "preparing genderbias: 24 images\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "gender"]
    assert json.loads((tmp_path / "data" / "genderbias" / "prepared.json").read_text())["task"] == "genderbias"
    task, data_dir = winobench.tasks.get_task("genderbias"), str(tmp_path / "data")
    assert task.ready(data_dir) is None
    assert task.count(data_dir) == 24
    examples = list(task.load(data_dir, 2))
    groups = {f"{gender}_{topic}" for gender in ("male", "female") for topic in ("clothes", "bags", "drinks")}
    assert {example.groups for example in examples} == {(group,) for group in groups}
    assert len(examples) == 12


def test_ctrl_c_is_one_line(gender_source, tmp_path):
    words = ["--tasks=genderbias", f"--source={gender_source}", f"--data_dir={tmp_path / 'data'}", "--workers=1"]
    code = (
        "import sys, time, runpy\n"
        "from winobench.data import preparing\n"
        "def wait(*_):\n    print('waiting', flush=True)\n    time.sleep(600)\n"
        "preparing.encode = wait\nsys.argv[0] = 'prepare'\n"
        "runpy.run_module('launch.prepare', run_name='__main__')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines() == ["preparing genderbias: 24 images", "interrupted"]


@pytest.mark.slow
def test_lists_of_candidates_by_another_model(run, tmp_path, monkeypatch):
    """The lists are made with the model's vectors, and the sets hold them; tasks without lists say so."""
    flickr = published_layouts.write_flickr30k(tmp_path / "flickr30k")
    model = tiny_models.write_clip(tmp_path / "tiny-clip")
    known = {name: winobench.tasks.get_task(name) for name in ("flickr30k_image", "flickr30k_text", "clevr")}
    monkeypatch.setattr(winobench.tasks, "TASKS", known)
    failed, _, err = run("flickr30k_image,flickr30k_text", flickr, lists=str(model))
    assert failed == [], err
    scorer = Contrastive.from_pretrained(model)
    lists = json.loads((flickr / "val_top10_tiny-clip_text.json").read_text())
    examples = list(known["flickr30k_text"].load(str(tmp_path / "data"), None))
    assert len(examples) == len(lists) == published_layouts.NUM_FLICKR_IMAGES
    assert [example.texts for example in examples] == [tuple(dict.fromkeys(texts)) for texts in lists.values()]
    scores = scorer.score([examples[0].images[0]], examples[0].texts)[0]
    assert sorted(scores[1:], reverse=True) == pytest.approx(scores[1:])  # the right one first, the others by score
    assert "is ready" in run("flickr30k_text", flickr)[1]
    with pytest.raises(InputError, match=names("'clevr'")):
        run("clevr", flickr, lists=str(model))
    with raises("wrong-kind-of-model"):
        run("flickr30k_text", flickr, lists="clevr-tiny")


def test_a_training_set_is_prepared_and_listed(run, tmp_path):
    root = published_layouts.write_coco_hardneg(tmp_path / "coco")
    (root / "valid_neg_clip.tsv").rename(root / "train_neg_clip.tsv")
    data_dir = str(tmp_path / "data")
    training_set = TRAINING_SETS["coco_hardneg_train"]
    command = ("winobench prepare", "--tasks=coco_hardneg_train")
    with pytest.raises(InputError, match=names("'coco_hardneg_train'", *command)):
        training_set.load(data_dir)
    failed, out, err = run("coco_hardneg_train", root)
    assert failed == [], err
    assert out.startswith("coco_hardneg_train: 3 examples, 4 images, ")
    assert "is ready" in run("coco_hardneg_train", root)[1]
    assert "    coco_hardneg_train: ready, 3 examples, 4 images, " in _listed("coco_hardneg_train", data_dir)
    assert "`winobench prepare --tasks=capt" not in _listed("coco_hardneg_train", data_dir)
    assert "command: winobench prepare --tasks=captions_hardneg_train" in _listed("captions_hardneg_train", data_dir)
    rows = {row["name"]: row["state"] for row in listing.prepared_sets(data_dir=data_dir)["data_sets"]}
    assert (rows["coco_hardneg_train"], rows["captions_hardneg_train"]) == ("ready", "by hand")
    assert not set(TRAINING_SETS) & set(winobench.tasks.TASKS)
    assert not set(TRAINING_SETS) & {task.name for task in launcher.choose_tasks("all")}
    source = training_set.load(data_dir)
    source.verify()

    (root / "val2014" / "COCO_val2014_000000000001.jpg").unlink()
    failed, _, err = run("coco_hardneg_train", root, overwrite=True)
    assert failed == ["coco_hardneg_train"]
    assert err.splitlines()[0] == "  val2014/COCO_val2014_000000000001.jpg: missing"
    assert "unpacked from http://images.cocodataset.org/zips/train2014.zip and http://images.coco" in err


def test_negatives_for_captions_of_the_users_own(run, tmp_path, monkeypatch):
    root = tmp_path / "own"
    names = [path.name for path in published_files.make_images(root, 5)]
    rows = [{"image": name, "caption": f"a dog near the old tree {name}"} for name in names]
    (root / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(word_order, "spacy_tagger", lambda: published_layouts.stand_in_tagger)
    failed, out, err = run("captions_hardneg_train", root, lists=str(tiny_models.write_clip(tmp_path / "tiny-clip")))
    assert failed == [], err
    assert out.startswith("captions_hardneg_train: 5 examples, 5 images, ")
    assert (root / "train_neg_tiny-clip.tsv").is_file()
    source = TRAINING_SETS["captions_hardneg_train"].load(str(tmp_path / "data"))
    assert all(len(row.negative_images) == 3 and row.image not in row.negative_images for row in source.rows)
