"""What a user is told of bad data, in the whole sentence; tests/tasks/test_faults has the faults of each task."""

import dataclasses
import functools
import json
import pathlib
import re
import shutil
import types

import numpy as np
import pytest

import winobench.tasks
from launch import prepare as launcher
from tests.tasks import published_layouts
from tests.tasks.damage import cut, drop, gone, rows, write
from winobench.base.errors import InputError
from winobench.data import prepared
from winobench.evaluation import choice
from winobench.evaluation import evaluate as evaluation
from winobench.tasks import TASKS

_SVO, _CLASSES, _COLORSWAP = "svo.json", "classes.txt", "data/test-00001-of-00002.parquet"
_MUSLIM, _RESTORE = "data/Images/Religion/Muslim", ": restore the file as it was published"
_CANNOT = (
    "1 of {} images of task '{{task}}' in {{root}} cannot be used, {} ({}), listed in {{listed}}: add or replace it, or"
    " give --allow_partial to leave out the examples that need it"
)


def _image(file, damage, count, reason):
    return file, damage, _CANNOT.format(count, file, reason), f"{file}: {reason}"


SOUND = "genderbias"
# Task -> (file, how it is damaged, the sentence before how to get the files, lines of the file that lists the images).
FAULTS = {
    "svo_subj": [
        _image("images/1.jpg", gone, 4, "missing"),
        (_SVO, rows(list.clear), "{root} has no example of task '{task}': get the annotation files again"),
        (_SVO, drop(2, "sentence"), f"row 3 of {{root}}/{_SVO} has no 'sentence'{_RESTORE}"),
        (
            *(_SVO, cut(0.5)),
            f"{{root}}/{_SVO} breaks off in the middle, as after an unfinished download: get the file again",
        ),
    ],
    "pets_all": [
        _image("images/Abyssinian_201.jpg", write("no image"), 3, "is not an image"),
        (
            *("images/shiba_inu_12.jpg", gone),
            "{root} has 2 examples of task '{task}', but 3 were published: get the annotation files again, or give"
            " --allow_partial to prepare the files that exist",
        ),
        (_CLASSES, cut(0.5), f"{{root}}/{_CLASSES} has 18 breeds, not 37: restore it as it was published"),
    ],
    "mmbias": [
        (
            *(_MUSLIM, gone),
            f"the folder {{root}}/{_MUSLIM} does not exist: make it, with the task's .jpg files in it, or give"
            " --allow_partial to evaluate the pairs whose groups are there",
        )
    ],
    "winoground": [
        (
            *("examples.jsonl", cut(0.5)),
            "line 2 of {root}/examples.jsonl breaks off in the middle, as after an unfinished download: get the file"
            " again",
        )
    ],
    "colorswap": [(_COLORSWAP, cut(0.5), f"{{root}}/{_COLORSWAP} is damaged (ArrowInvalid): get the file again")],
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Task -> itself and a sound one, both from one folder, and prepared; tests must not change its folders."""

    @functools.cache
    def make(name):
        source = tmp_path_factory.mktemp(f"{name}-source")
        tasks = {}
        for one in (name, SOUND):
            published_layouts.LAYOUTS[one](source)
            task = TASKS[one]
            if task.source.num_examples is not None:
                published = dataclasses.replace(task.source, num_examples=len(list(task.source.read(source))))
                task = dataclasses.replace(task, source=published)
            tasks[one] = task
        data_dir = tmp_path_factory.mktemp(f"{name}-data")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(winobench.tasks, "TASKS", tasks)
            assert launcher.prepare_tasks(f"{name},{SOUND}", str(source), str(data_dir), workers=1) == []
        return types.SimpleNamespace(tasks=tasks, source=source, data_dir=data_dir)

    return make


@pytest.mark.parametrize(("name", "fault"), [(name, fault) for name, faults in FAULTS.items() for fault in faults])
def test_a_bad_source_is_told_in_a_sentence_and_stops_no_other(name, fault, pairs, tmp_path, monkeypatch, capsys):
    file, damage, sentence, *problems = fault
    pair = pairs(name)
    root, data = tmp_path / "source", tmp_path / "data"
    shutil.copytree(pair.source, root)
    damage(root / file)
    monkeypatch.setattr(winobench.tasks, "TASKS", pair.tasks)
    capsys.readouterr()

    assert launcher.prepare_tasks(f"{name},{SOUND}", str(root), str(data), workers=1) == [name]
    out, err = capsys.readouterr()
    listed = data / f"{name}.problems.txt"
    sentence = sentence.format(task=name, root=root, listed=listed)
    expected = f"error: {name}: {sentence}; {root} must hold {TASKS[name].source.how_to_get}"
    assert [line for line in err.splitlines() if not line.startswith("preparing ")] == [
        *(f"  {line}" for line in problems),
        expected,
        f"1 of 2 tasks could not be prepared: {name}",
    ]
    assert re.fullmatch(rf"{SOUND}: \d+ examples, \d+ images, .*\n", out)
    assert (listed.read_text().splitlines() if listed.exists() else []) == problems
    assert not (data / name).exists()
    sound = prepared.PreparedSet(data / SOUND)
    sound.verify()
    assert sound.fingerprint == prepared.PreparedSet(pair.data_dir / SOUND).fingerprint


class ByLength:
    """Needs no model: the score is the text's length plus the image's mean."""

    def score(self, images, texts):
        means = [np.asarray(image.open() if hasattr(image, "open") else image).mean() / 255 for image in images]
        return np.add.outer(means, [len(text) for text in texts])


@pytest.fixture(scope="module")
def sets(pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    for name in ("clevr", "pets", "winoground"):
        shutil.copytree(pairs(name).data_dir / name, folder / name)
    return folder


def _halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("name", "damage", "kind"), [("pets", _halve, prepared.IMAGES), ("clevr", pathlib.Path.unlink, prepared.EXAMPLES)]
)
def test_a_damaged_shard_takes_its_task_away_and_no_other(name, damage, kind, sets, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(sets, data)
    (shard,) = prepared.set_folder(data / name, kind).glob("*.array_record*")
    damage(shard)
    others = [other for other in ("clevr", "pets", "winoground") if other != name]
    results = _evaluate(["clevr", "pets", "winoground"], data, tmp_path)
    assert results["failed"] == {
        name: f"{shard} is damaged or missing: prepare the data again with"
        f" `winobench prepare --tasks={name} --source=DIR --overwrite`"
    }
    assert list(results["tasks"]) == others
    assert all(results["tasks"][other] for other in others)


def _break_state(path):
    path.write_text(path.read_text()[:-40])


def _make_older(path):
    path.write_text(json.dumps({**json.loads(path.read_text()), "task_version": 0}))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("pets", _break_state, "{state} is damaged or of another version of winobench: prepare the data again with"),
        ("clevr", _make_older, "{folder} was prepared for version 0 of the task, which is now at 1: renew it with"),
    ],
)
def test_a_set_that_is_none_is_told_of_and_left_out(name, damage, message, sets, tmp_path, monkeypatch):
    data = tmp_path / "data"
    shutil.copytree(sets, data)
    state = data / name / prepared.STATE
    damage(state)
    sentence = message.format(state=state, folder=data / name)
    sentence += f" `winobench prepare --tasks={name} --source=DIR`, where DIR holds {TASKS[name].source.how_to_get}"
    assert TASKS[name].ready(str(data)) == sentence
    with pytest.raises(InputError) as caught:
        _evaluate([name, "winoground"], data, tmp_path)
    assert str(caught.value) == f"task {name!r} has no data yet: {sentence}"

    # "ready" means the others; CLEVR is not rendered in the place of a set that is there.
    known = {one: TASKS[one] for one in ("clevr", "pets", "winoground")}
    monkeypatch.setattr(choice, "TASKS", known)
    results = _evaluate(choice.READY, data, tmp_path)
    assert (list(results["tasks"]), results["failed"]) == ([one for one in known if one != name], {})


def _evaluate(tasks, data, tmp_path):
    return evaluation.evaluate(ByLength(), tasks, tmp_path / "run", data_dir=str(data), progress=False)
