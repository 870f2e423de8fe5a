"""What a user is told of bad data: every published task with every kind of fault, beside a task that is sound.

First faults of the published files, as ``launch.prepare`` meets them, then of prepared sets, as `evaluate` meets them.
"""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import pytest

import winobench.tasks
from launch import prepare as launcher
from tests.expectations import names
from tests.launch import newer_faults
from tests.launch.source_faults import (
    BROKEN,
    DUPLICATE,
    FEWER,
    KINDS,
    MISSING,
    MORE,
    at,
    broken_off,
    change,
    change_lines,
    copy,
    cut,
    delete,
    delete_first,
    first_again,
    missing_image,
    no_file,
    remove,
    repeat_first_key,
    row,
    too_few,
    too_many,
    usual,
    wrong,
)
from tests.tasks import newer_layouts, published_layouts
from winobench.base.errors import InputError
from winobench.data import prepared, published_order, word_order
from winobench.evaluation import evaluate as evaluation
from winobench.tasks import TASKS

# The faults of each family of tasks.

_FLICKR_IMAGE, _FLICKR_TEXT = "val_top10_RN50x64.json", "val_top10_RN50x64_text.json"
_WINOGROUND, _SVO, _IMAGECODE = "examples.jsonl", "svo.json", "valid_data.json"
_SPLIT, _CLASSES, _SPATIAL = "annotations/test.txt", "classes.txt", "captions/spatial.json"
_HARDNEG, _PHRASES, _MUSLIM = "valid_neg_clip.tsv", "textual_phrases.txt", "data/Images/Religion/Muslim"


def _flickr_image():
    def more(lists):
        lists.update({f"A new caption {number}.": next(iter(lists.values())) for number in range(5)})

    def twice(lists):
        lists["A woman walks on the wide beach."][3] = lists["A woman walks on the wide beach."][2]

    key = "A man walks on the wide beach."
    return [
        *usual(_FLICKR_IMAGE, "images/1003.jpg", 12, 12, lambda lists: delete_first(lists, 5), more),
        wrong(DUPLICATE, repeat_first_key(_FLICKR_IMAGE), at(_FLICKR_IMAGE), f"'{key}'"),
        wrong(DUPLICATE, change(_FLICKR_IMAGE, twice), "'A woman walks on the wide beach.'", at(_FLICKR_IMAGE)),
    ]


def _flickr_text():
    path = "datasets/flickr30k/images/{}.jpg"

    def more(lists):
        lists[path.format(9)] = [f"Caption {number}." for number in range(10)]

    def twice(lists):
        lists[path.format(1005)][3] = lists[path.format(1005)][0]

    return [
        *usual(_FLICKR_TEXT, "images/1003.jpg", 12, 12, lambda lists: delete_first(lists, 1), more),
        wrong(DUPLICATE, repeat_first_key(_FLICKR_TEXT), at(_FLICKR_TEXT), f"'{path.format(1000)}'"),
        wrong(DUPLICATE, change(_FLICKR_TEXT, twice), f"'{path.format(1005)}'", at(_FLICKR_TEXT)),
    ]


def _winoground():
    return [
        missing_image("images/ex_1_img_0.png", 6),
        too_few(change_lines(_WINOGROUND, lambda lines: lines[:-1]), 2, 3),
        too_many(change_lines(_WINOGROUND, lambda lines: [*lines, lines[0].replace('"id": 0', '"id": 3')]), 4, 3),
        broken_off(_WINOGROUND, line="line 2"),
        no_file(_WINOGROUND),
        # Where both are there, this is the one that is read.
        wrong(BROKEN, lambda folder: (folder / "data.json").write_text('[{"id" 0}]'), "{root}/data.json", "column 8"),
        wrong(
            DUPLICATE, change_lines(_WINOGROUND, lambda lines: [*lines, lines[0]]), "'id'", *row(4, _WINOGROUND), "0"
        ),
    ]


def _svo(first):
    return [
        missing_image(f"images/{first}.jpg", 4),
        wrong(FEWER, change(_SVO, list.clear), "{root}"),
        broken_off(_SVO),
        no_file(_SVO),
        wrong(BROKEN, change(_SVO, lambda rows: delete(rows[2], "sentence")), *row(3, _SVO), "'sentence'"),
        wrong(DUPLICATE, repeat_first_key(_SVO, 3), *row(4, _SVO), "'pos_id'"),
    ]


def _imagecode(name, first, key, num_images, count=3):
    def misnumber(sets):
        sets[name]["10"] = sets[name].pop(key)

    return [
        *usual(
            _IMAGECODE,
            f"image-sets/{name}/img4.jpg",
            num_images,
            count,
            lambda sets: delete(sets[name], key),
            lambda sets: sets[name].update({"8": "One more"}),
        ),
        wrong(BROKEN, change(_IMAGECODE, misnumber), "'10'", f"'{name}'", at(_IMAGECODE), "0", "9"),
        wrong(DUPLICATE, repeat_first_key(_IMAGECODE), at(_IMAGECODE), "'open-images-1815_f91d6f546e63f20d'"),
        wrong(DUPLICATE, repeat_first_key(_IMAGECODE, name), f"'{name}'", at(_IMAGECODE), f"'{first}'"),
    ]


def _pets_all():
    def _no_image(folder):
        (folder / "images" / "Abyssinian_201.jpg").write_text("no image")

    return [
        missing_image("images/Abyssinian_201.jpg", 3, make=_no_image, reason="is not an image"),
        too_few(remove("images/shiba_inu_12.jpg"), 2, 3),
        too_many(copy("images/shiba_inu_12.jpg", "images/shiba_inu_13.jpg"), 4, 3),
        wrong(BROKEN, cut(_CLASSES), at(_CLASSES), "18", "37"),
        wrong(
            DUPLICATE, change_lines(_CLASSES, lambda lines: [*lines[:-1], lines[0]]), at(_CLASSES), "'abyssinian'", "2"
        ),
        no_file(_CLASSES, remove(_CLASSES)),
    ]


def _visual_genome(file, count):
    return [
        *usual(file, "images/1.jpg", count, count, list.pop, first_again),
        wrong(BROKEN, change(file, lambda rows: rows[2].update(bbox_w="12")), "'bbox_w'", *row(3, file)),
        wrong(DUPLICATE, repeat_first_key(file, 3), *row(4, file), "'image_id'"),
    ]


def _order(file, image, first, num_images, captions_each):
    count = num_images * captions_each

    def more(rows):
        rows.append({**rows[0], "image": rows[0]["image"].replace("000.jpg", "999.jpg")})

    return [
        *usual(file, image, num_images, count, list.pop, more, by=captions_each),
        wrong(DUPLICATE, change(file, first_again), "'image'", *row(num_images + 1, file), f"'{first}'"),
        wrong(DUPLICATE, repeat_first_key(file, 1), *row(2, file), "'image'"),
    ]


def _pets():
    return [
        missing_image("images/Abyssinian_201.jpg", 2),
        too_few(change_lines(_SPLIT, lambda lines: lines[:1]), 1, 2),
        too_many(change_lines(_SPLIT, lambda lines: [*lines, "american_pit_bull_terrier_7 4 2 3\n"]), 3, 2),
        wrong(BROKEN, cut(_CLASSES), at(_CLASSES), "18", "37"),
        wrong(BROKEN, cut(_SPLIT, 0.7), at(_SPLIT), "'shiba_in'", at(_CLASSES)),
        no_file(_SPLIT, remove("annotations")),
        wrong(DUPLICATE, change_lines(_SPLIT, lambda lines: [*lines, lines[0]]), at(_SPLIT), "'Abyssinian_201'"),
        wrong(
            DUPLICATE, change_lines(_CLASSES, lambda lines: [*lines[:-1], lines[0]]), at(_CLASSES), "'abyssinian'", "2"
        ),
    ]


def _clevr():
    name = "CLEVR_val_1.png"
    return [
        missing_image(f"images/{name}", 3),
        too_few(change(_SPATIAL, lambda items: delete(items, name)), 40, 42),
        too_many(change(_SPATIAL, lambda items: items[name].append(["a", "b"])), 43, 42),
        broken_off(_SPATIAL),
        no_file(_SPATIAL),
        wrong(DUPLICATE, repeat_first_key(_SPATIAL), at(_SPATIAL), "'CLEVR_val_0.png'"),
    ]


def _mmbias():
    def count(function):
        return change(_PHRASES, lambda phrases: function(phrases["pleasant_phrases"]))

    return [
        wrong(MISSING, remove(_MUSLIM), at(_MUSLIM), "--allow_partial"),
        missing_image(f"{_MUSLIM}/2.jpg", 27, cut(f"{_MUSLIM}/2.jpg"), "Truncated File Read"),
        wrong(FEWER, count(list.pop), "'pleasant_phrases'", at(_PHRASES), "59", "60"),
        wrong(MORE, count(lambda words: words.append("nice")), "'pleasant_phrases'", "61", "60"),
        broken_off(_PHRASES),
        wrong(BROKEN, remove(*(f"{_MUSLIM}/{number}.jpg" for number in (1, 2, 3))), at(_MUSLIM), "--allow_partial"),
        wrong(DUPLICATE, copy(f"{_MUSLIM}/2.jpg", f"{_MUSLIM}/2.jpeg"), at(_MUSLIM), "2.jpeg", "2.jpg"),
        wrong(DUPLICATE, repeat_first_key(_PHRASES), at(_PHRASES), "'unpleasant_phrases'"),
    ]


def _genderbias():
    suits = [f"suit-images/{number}.jpg" for number in (1, 6, 7, 12)]
    return [
        wrong(MISSING, remove("suit-images"), "{root}/suit-images"),
        missing_image(suits[2], 24, lambda folder: (folder / suits[2]).write_bytes(b""), "is empty"),
        missing_image(
            suits[2],
            24,
            lambda folder: (folder / suits[2]).write_bytes(b"<html>"),
            "is an HTML page: download the file again",
        ),
        wrong(
            FEWER,
            remove(*suits[2:], "apron-images/7.jpg", "apron-images/12.jpg"),
            "suit-images",
            "apron-images",
            "{root}",
            "6",
        ),
        wrong(BROKEN, remove(*suits), "{root}/suit-images"),
        wrong(BROKEN, copy(suits[2], "suit-images/man.jpg"), "{root}/suit-images/man.jpg", "7.jpg"),
        wrong(DUPLICATE, copy(suits[2], "suit-images/7.jpeg"), "{root}/suit-images", "7.jpeg", "7.jpg"),
    ]


def _hardneg(column, fewer):
    return [
        missing_image("val2014/COCO_val2014_000000000001.jpg", 4),
        dataclasses.replace(fewer, make=change_lines(_HARDNEG, lambda lines: lines[:-1])),
        too_many(change_lines(_HARDNEG, lambda lines: [*lines, "4" + lines[1][1:]]), 5, 4),
        broken_off(_HARDNEG),
        wrong(BROKEN, cut(_HARDNEG, 0.8), f"'{column}'", *row(4, _HARDNEG)),
        wrong(DUPLICATE, change_lines(_HARDNEG, lambda lines: [*lines, lines[2]]), *row(5, _HARDNEG), "'1'", "4"),
    ]


def _hardneg_image():
    return _hardneg("neg_image", wrong(FEWER, None, "'neg_image'", *row(1, _HARDNEG), "3", "2"))


def _coco_order():
    image = "val2014/COCO_val2014_00000000000{}.jpg"
    return _order("coco_karpathy_test.json", image.format(1), image.format(0), 2, 2)


def _flickr_order():
    return _order("flickr30k_val.json", "images/1003.jpg", "flickr30k-images/1000.jpg", 12, 5)


FAULTS = {
    "aro_coco_order": _coco_order(),
    "aro_coco_order_published": _coco_order(),
    "aro_flickr_order": _flickr_order(),
    "aro_flickr_order_published": _flickr_order(),
    "aro_vg_attribution": _visual_genome("visual_genome_attribution.json", 28),
    "aro_vg_relation": _visual_genome("visual_genome_relation.json", 5),
    "clevr": _clevr(),
    "coco_hardneg_image": _hardneg_image(),
    "coco_hardneg_image_328": _hardneg_image(),
    "coco_hardneg_text": _hardneg("neg_caption", too_few(None, 3, 4)),
    "coco_hardneg_text_328": _hardneg("neg_caption", too_few(None, 3, 4)),
    "flickr30k_image": _flickr_image(),
    "flickr30k_text": _flickr_text(),
    "genderbias": _genderbias(),
    "imagecode": _imagecode("open-images-1815_f91d6f546e63f20d", "5", "7", 30, count=6),
    "imagecode_static": _imagecode("open-images-1815_f91d6f546e63f20d", "5", "7", 20),
    "imagecode_video": _imagecode("MSR-VTT-videoTestVideo_video7047-shot1_0", "0", "9", 10),
    "mmbias": _mmbias(),
    "pets": _pets(),
    "pets_all": _pets_all(),
    "pets_photo": _pets(),
    "pets_photo_all": _pets_all(),
    "svo_obj": _svo(6),
    "svo_subj": _svo(1),
    "svo_verb": _svo(4),
    "winoground": _winoground(),
    **newer_faults.FAULTS,
}

_NO_NUMBER = "every user has the images that are still on the web, so that any number of rows is right"
INEXPRESSIBLE = {
    ("genderbias", MORE): "its images are not published, so that any number of them is right",
    ("svo_obj", MORE): _NO_NUMBER,
    ("svo_subj", MORE): _NO_NUMBER,
    ("svo_verb", MORE): _NO_NUMBER,
    **newer_faults.INEXPRESSIBLE,
}
"""Faults that a layout has no place for, and why.

Rows of SVO-Probes and of ARO's Visual Genome tasks have no id of their own: a repeated row is one more row, which the
count tells; what can be repeated there is a key within a row."""


def test_no_task_is_forgotten():
    published = {name: task for name, task in TASKS.items() if task.source is not None}
    assert published.keys() == newer_layouts.ALL.keys()
    # Of newer tasks that one function reads, one has the faults.
    readers = {_reader(published[name]) for name in FAULTS}
    assert [name for name, task in published.items() if _reader(task) not in readers] == []
    assert published_layouts.GDBENCH.keys() <= FAULTS.keys()
    covered = {(task, fault.kind) for task, faults in FAULTS.items() for fault in faults}
    assert covered.isdisjoint(INEXPRESSIBLE)
    assert covered | INEXPRESSIBLE.keys() == {(task, kind) for task in FAULTS for kind in KINDS}


def _reader(task):
    return getattr(task.source.read, "func", task.source.read)


@dataclasses.dataclass(frozen=True)
class Pair:
    """A task that is to be broken, and a sound one with its files in the same folder.

    Attributes:
      name: of the first.
      sound: of the second.
      tasks: both; the published number of examples is that of the tiny set.
      source: the folder of the published files.
      data_dir: the folder of both when they are prepared.
    """

    name: str
    sound: str
    tasks: dict[str, winobench.tasks.Task]
    source: pathlib.Path
    data_dir: pathlib.Path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Task -> its `Pair`, made when it is asked for; tests must not change its folders."""
    made = {}

    def make(name):
        sound = "svo_subj" if name == "genderbias" else "genderbias"
        source = tmp_path_factory.mktemp(f"{name}-source")
        tasks = {}
        for one in (name, sound):
            newer_layouts.ALL[one](source)
            task = TASKS[one]
            if task.source.num_examples is not None:
                published = dataclasses.replace(task.source, num_examples=len(list(task.source.read(source))))
                task = dataclasses.replace(task, source=published)
            tasks[one] = task
        pair = Pair(name, sound, tasks, source, tmp_path_factory.mktemp(f"{name}-data"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(winobench.tasks, "TASKS", tasks)
            assert launcher.prepare_tasks(f"{name},{sound}", str(source), str(pair.data_dir), workers=1) == []
        return pair

    with pytest.MonkeyPatch.context() as tagger:
        tagger.setattr(word_order, "spacy_tagger", lambda **_: published_layouts.stand_in_tagger)
        tagger.setattr(published_order, "nltk_tokenizer", lambda: published_layouts.stand_in_tokenizer)
        yield lambda name: made.get(name) or made.setdefault(name, make(name))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param(name, fault, id=f"{name}-{fault.kind}-{number}".replace(" ", "-"))
        for name, faults in FAULTS.items()
        for number, fault in enumerate(faults)
    ],
)
def test_a_bad_source_is_told_in_a_sentence_and_stops_no_other(name, fault, pairs, tmp_path, monkeypatch, capsys):
    pair = pairs(name)
    root, data = tmp_path / "source", tmp_path / "data"
    shutil.copytree(pair.source, root)
    fault.make(root)
    monkeypatch.setattr(winobench.tasks, "TASKS", pair.tasks)
    capsys.readouterr()

    assert launcher.prepare_tasks(f"{name},{pair.sound}", str(root), str(data), workers=1) == [name]
    out, err = capsys.readouterr()
    listed = data / f"{name}.problems.txt"
    *problems, said, last = [line for line in err.splitlines() if not line.startswith("preparing ")]
    assert problems == [f"  {line}" for line in fault.problems]
    assert re.match(names(*(word.format(root=root, listed=listed) for word in fault.named)), said), said
    assert said.startswith(f"error: {name}: ")
    assert said.endswith(f"; {root} must hold {TASKS[name].source.how_to_get}")
    assert last == f"1 of 2 tasks could not be prepared: {name}"
    assert re.fullmatch(rf"{pair.sound}: \d+ examples, \d+ images, .*\n", out)
    assert (listed.read_text().splitlines() if listed.exists() else []) == list(fault.problems)
    assert not (data / name).exists()
    _assert_same(data / pair.sound, pair.data_dir / pair.sound)

    # What was prepared from a sound source stays when the source is prepared again and has become bad.
    if fault is not FAULTS[name][0]:
        return
    older = tmp_path / "older"
    shutil.copytree(pair.data_dir, older)
    options = {"workers": 1, "overwrite": True}
    assert launcher.prepare_tasks(f"{name},{pair.sound}", str(root), str(older), **options) == [name]
    assert capsys.readouterr().err == err.replace(str(data), str(older))
    _assert_same(older / name, pair.data_dir / name)


def _assert_same(folder, other):
    one = prepared.PreparedSet(folder)
    one.verify()
    assert one.fingerprint == prepared.PreparedSet(other).fingerprint


# Prepared sets that are damaged later.


class ByLength:
    """Needs no model: the score is the text's length plus the image's mean."""

    def score(self, images, texts):
        means = [np.asarray(image.open() if hasattr(image, "open") else image).mean() / 255 for image in images]
        return np.add.outer(means, [len(text) for text in texts])


@pytest.fixture(scope="module")
def sets(pairs, tmp_path_factory):
    """Three prepared tasks in one folder; tests must not change it."""
    folder = tmp_path_factory.mktemp("sets")
    for name in ("clevr", "pets", "winoground"):
        shutil.copytree(pairs(name).data_dir / name, folder / name)
    return folder


def _shard(folder, kind):
    (path,) = prepared.set_folder(folder, kind).glob("*.array_record*")
    return path


def _halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("kind", [prepared.IMAGES, prepared.EXAMPLES])
@pytest.mark.parametrize("damage", [_halve, pathlib.Path.unlink])
@pytest.mark.parametrize("name", ["pets", "clevr"])
def test_a_damaged_shard_takes_its_task_away_and_no_other(name, damage, kind, sets, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(sets, data)
    shard = _shard(data / name, kind)
    damage(shard)
    others = [other for other in ("clevr", "pets", "winoground") if other != name]
    results = _evaluate(["clevr", "pets", "winoground"], data, tmp_path)
    assert results["failed"] == {
        name: f"{shard} is damaged or missing: prepare the data again with"
        f" `python -m launch.prepare --task={name} --source=DIR --overwrite`"
    }
    assert list(results["tasks"]) == others
    assert all(results["tasks"][other] for other in others)


def _break_state(path):
    path.write_text(path.read_text()[:-40])


def _lose_keys(path):
    path.write_text(json.dumps({"format": prepared.FORMAT}))


def _make_older(path):
    path.write_text(json.dumps({**json.loads(path.read_text()), "task_version": 0}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_break_state, "{state} is damaged or of another version of winobench: prepare the data again with"),
        (_lose_keys, "{state} is damaged or of another version of winobench: prepare the data again with"),
        (_make_older, "{folder} was prepared for version 0 of the task, which is now at 1: renew it with"),
    ],
)
@pytest.mark.parametrize("name", ["pets", "clevr"])
def test_a_set_that_is_none_is_told_of_and_left_out(name, damage, message, sets, tmp_path, monkeypatch):
    data = tmp_path / "data"
    shutil.copytree(sets, data)
    state = data / name / prepared.STATE
    damage(state)
    sentence = message.format(state=state, folder=data / name)
    sentence += (
        f" `python -m launch.prepare --task={name} --source=DIR`, where DIR holds {TASKS[name].source.how_to_get}"
    )
    assert TASKS[name].ready(str(data)) == sentence
    with pytest.raises(InputError) as caught:
        _evaluate([name, "winoground"], data, tmp_path)
    assert str(caught.value) == f"task {name!r} has no data yet: {sentence}"

    # "ready" means the others; CLEVR is not rendered in the place of a set that is there.
    known = {one: TASKS[one] for one in ("clevr", "pets", "winoground")}
    monkeypatch.setattr(evaluation, "TASKS", known)
    results = _evaluate(evaluation.READY, data, tmp_path)
    assert (list(results["tasks"]), results["failed"]) == ([one for one in known if one != name], {})


def _evaluate(tasks, data, tmp_path):
    return evaluation.evaluate(ByLength(), tasks, tmp_path / "run", data_dir=str(data), progress=False)
