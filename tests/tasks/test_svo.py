"""SVO-Probes."""

import json

import pytest

from tests.expectations import names
from tests.tasks import published_layouts
from winobench.errors import InputError
from winobench.tasks import TASKS


@pytest.fixture
def folder(tmp_path):
    return published_layouts.write_svo(tmp_path)


@pytest.mark.parametrize(("part", "rows"), [("subj", [0, 1]), ("verb", [2, 4]), ("obj", [3, 5])])
def test_each_task_takes_the_rows_of_its_part(folder, part, rows):
    items = list(TASKS[f"svo_{part}"].source.read(folder))
    assert [item.id for item in items] == [f"row-{row:06d}" for row in rows]
    for item, row in zip(items, rows, strict=True):
        assert [image.path for image in item.images] == [folder / "images" / f"{2 * row + n}.jpg" for n in (0, 1)]
        assert item.target == 0


def test_unknown_part_is_named(folder):
    path = folder / "svo.json"
    rows = json.loads(path.read_text())
    rows[3]["neg_type"] = "adverb"
    path.write_text(json.dumps(rows))
    with pytest.raises(InputError, match=names("'neg_type'", "4", "svo.json", "'adverb'")):
        list(TASKS["svo_subj"].source.read(folder))


def test_published_sample(reference_data):
    folder = reference_data / "gdbench" / "svo"
    counts = {part: len(list(TASKS[f"svo_{part}"].source.read(folder))) for part in ("subj", "verb", "obj")}
    assert counts == {"subj": 2, "verb": 1, "obj": 0}
