"""SugarCrepe, SugarCrepe++, VALSE and COLA: real annotation files where they are at hand, and rows by hand."""

import json
import os
import pathlib

import pytest

from tests.expectations import names
from winobench.base.errors import InputError
from winobench.tasks import TASKS, cola, sugarcrepe, sugarcrepe_pp, sugarcrepe_selfbench, valse
from winobench.tasks.base import SKILLS, Task

REFERENCE = os.environ.get("WINOBENCH_REFERENCE_DATA")
real = pytest.mark.skipif(REFERENCE is None, reason="WINOBENCH_REFERENCE_DATA is not set")


def newer(name):
    return pathlib.Path(REFERENCE) / "newer" / name


@real
@pytest.mark.parametrize("name", [f"{edit}_{what}" for edit, what in sugarcrepe.SETS])
def test_sugarcrepe_as_published(name):
    rows = json.loads((newer("sugarcrepe") / f"{name}.json").read_text())
    task = TASKS[f"sugarcrepe_{name}"]
    items = list(sugarcrepe.read(newer("sugarcrepe"), name))
    assert len(items) == task.source.num_examples == len(rows)
    for (key, row), item in zip(rows.items(), items, strict=True):
        assert (item.id, item.texts) == (key, (row["caption"], row["negative_caption"]))
        assert item.images[0].path == newer("sugarcrepe") / "val2017" / row["filename"]
        assert item.target == 0


def test_sugarcrepes_counts():
    """The paper's 7,511 rows; swap_obj lacks the key 108."""
    assert sum(count for count, _ in sugarcrepe.SETS.values()) == 7511


@real
def test_a_missing_key_moves_no_row():
    ids = [item.id for item in sugarcrepe.read(newer("sugarcrepe"), "swap_obj")]
    assert "108" not in ids
    assert ids[107:109] == ["107", "109"]
    assert ids[-1] == "245"


@real
@pytest.mark.parametrize(("what", "counts"), [("att", (0, 122, 666)), ("obj", (410, 1407, 245))])
def test_sets_merged_as_self_bench_does(what, counts):
    """788 and 2,062 rows, of which its loader keeps these of each set (counted in the published files)."""
    items = list(sugarcrepe_selfbench.read(newer("sugarcrepe"), what))
    assert len(items) == TASKS[f"sugarcrepe_selfbench_{what}"].source.num_examples == sum(counts)
    sets = [name for item in items for name in item.groups]
    assert tuple(sets.count(name) for name in sugarcrepe_selfbench.MERGED[what]) == counts
    by_hand = {}
    for name in sugarcrepe_selfbench.MERGED[what]:
        by_hand |= json.loads((newer("sugarcrepe") / f"{name}.json").read_text())
    assert {item.id: item.texts for item in items} == {
        key: (row["caption"], row["negative_caption"]) for key, row in by_hand.items()
    }


@real
@pytest.mark.parametrize("name", sugarcrepe_pp.SETS)
def test_sugarcrepe_pp_as_published(name, tmp_path):
    (tmp_path / "sugarcrepe_pp").symlink_to(newer("sugarcrepe_pp"))
    rows = json.loads((newer("sugarcrepe_pp") / f"{name}.json").read_text())
    items = list(sugarcrepe_pp.read(tmp_path, name))
    assert len(items) == TASKS[f"sugarcrepe_pp_{name}"].source.num_examples == len(rows)
    assert [item.texts for item in items] == [
        (row["caption"], row["caption2"], row["negative_caption"]) for row in rows
    ]


@real
@pytest.mark.parametrize("piece", valse.PIECES)
def test_valse_as_published(piece):
    file, images, _, _ = valse.PIECES[piece]
    rows = json.loads((newer("valse") / f"{file}.json").read_text())
    items = list(valse.read(newer("valse"), file, images))
    valid = {key: row for key, row in rows.items() if row["mturk"]["caption"] >= 2}
    assert len(items) == TASKS[f"valse_{piece}"].source.num_examples == len(valid)
    assert [item.id for item in items] == list(valid)
    assert [item.texts for item in items] == [(row["caption"], row["foil"]) for row in valid.values()]


@real
def test_cola_as_published():
    rows = json.loads((newer("cola") / "COLA_multiobjects_matching_benchmark.json").read_text())
    items = list(cola.read(newer("cola")))
    assert len(items) == len(rows) == 210
    assert [item.texts for item in items] == [(row[1], row[3]) for row in rows]
    assert [image.path.name for image in items[0].images] == ["2390970.jpg", "2388902.jpg"]
    assert {item.target for item in items} == {None}


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_only_rows_that_annotators_found_valid(tmp_path):
    row = {"image_file": "a.jpg", "caption": "one", "foil": "two", "mturk": {"caption": 2, "foil": 1, "other": 0}}
    weak = {**row, "mturk": {"caption": 1, "foil": 2, "other": 0}}
    write(tmp_path, "existence.json", {"kept": row, "dropped": weak})
    (item,) = valse.read(tmp_path, "existence", "visual7w")
    assert (item.id, item.images[0].path) == ("kept", tmp_path / "images" / "visual7w" / "a.jpg")


@pytest.mark.parametrize(
    ("read", "file", "content", "named"),
    [
        (lambda f: sugarcrepe.read(f, "add_att"), "add_att.json", {"0": {"filename": "a"}}, ("'caption'", "'0'")),
        (lambda f: sugarcrepe.read(f, "add_att"), "add_att.json", [], ("add_att.json",)),
        (
            lambda f: sugarcrepe_pp.read(f, "swap_obj"),
            "sugarcrepe_pp/swap_obj.json",
            [{"id": 1, "filename": "a", "caption": "b", "caption2": "c", "negative_caption": "d"}] * 2,
            ("'id'", "row 2"),
        ),
        (
            lambda f: sugarcrepe_pp.read(f, "swap_obj"),
            "sugarcrepe_pp/swap_obj.json",
            [{"id": 1, "filename": "a", "caption": "b", "caption2": " ", "negative_caption": "d"}],
            ("'caption2'", "row 1"),
        ),
        (lambda f: valse.read(f, "plurals", "x"), "plurals.json", {"k": {"mturk": {"caption": "3"}}}, ("'mturk'",)),
        (cola.read, "COLA_multiobjects_matching_benchmark.json", [["a", "b", "c"]], ("row 1", "4")),
        (cola.read, "COLA_multiobjects_matching_benchmark.json", [["http://x/", "b", "c", "d"]], ("row 1",)),
    ],
)
def test_damaged_rows_are_named(tmp_path, read, file, content, named):
    write(tmp_path, file, content)
    with pytest.raises(InputError, match=names(*named)):
        list(read(tmp_path))


def test_a_skill_is_a_known_one():
    task = TASKS["cola"]
    assert set(task.skills) <= SKILLS.keys()
    fields = {name: getattr(task, name) for name in task.__dataclass_fields__}
    with pytest.raises(ValueError, match="'magic'"):
        Task(**{**fields, "skills": ("magic",)})
