"""COCO with hard negatives."""

import collections

import pytest

from tests.expectations import raises
from tests.tasks import published_layouts
from winobench.tasks import TASKS
from winobench.tasks.annotations import python_list, read_table


@pytest.fixture
def folder(tmp_path):
    return published_layouts.write_coco_hardneg(tmp_path)


def test_captions(folder):
    items = list(TASKS["coco_hardneg_text"].source.read(folder))
    assert [item.id for item in items] == [f"row-{number:06d}" for number in range(4)]
    assert items[1].texts == (
        "A narrow kitchen filled with appliances.",
        "A narrow appliances filled with kitchen .",
    )
    assert items[1].images[0].path == folder / "val2014" / "COCO_val2014_000000000001.jpg"
    # A negative with the same letters is taken only where there is no other one.
    assert items[2].texts[1] == "luggage on and around Luggage carts"
    assert items[3].texts[1] != "A man 's bike near it 's shed ."


def test_images(folder):
    items = list(TASKS["coco_hardneg_image"].source.read(folder))
    neighbours = [{1, 2, 3}, {2, 3, 0}, {3, 0, 1}, {0, 1, 2}]
    for number, (item, near) in enumerate(zip(items, neighbours, strict=True)):
        right, wrong = (int(image.path.stem[-12:]) for image in item.images)
        assert right == number
        assert wrong in near
    assert items[0].texts == ("A child holding a flowered umbrella and petting a yak.",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[2, 3, 0]", "[2, 4, 0]", ("no-such-image", "'neg_image'", "2", "4", "3")),
        ("[2, 3, 0]", "[2, 3, 0", ("not-a-list", "'neg_image'", "2")),
        ("[2, 3, 0]", "[2, 'x']", ("not-a-number", "2", "'neg_image'")),
        ("[2, 3, 0]", "[]", ("no-negative", "'neg_image'", "2")),
        ("\n2\tLugg", "\n1\tLugg", ("rows-out-of-order", "3", "valid_neg_clip.tsv", "'1'", "2")),
        ("\tfilepath", "\tpath", ("missing-column", "valid_neg_clip.tsv", "'filepath'")),
        ("\n1\tA narrow kitchen filled with appliances.", "\n1", ("not-a-list", "2")),
    ],
)
def test_malformed_rows_are_named(folder, old, new, message):
    path = folder / "valid_neg_clip.tsv"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with raises(*message):
        list(TASKS["coco_hardneg_image"].source.read(folder))


def test_published_rows(reference_data):
    folder = reference_data / "gdbench" / "coco_hardneg"
    texts, images = (list(TASKS[f"coco_hardneg_{side}"].source.read(folder)) for side in ("text", "image"))
    assert len(texts) == len(images) == TASKS["coco_hardneg_text"].source.num_examples == 4839
    assert all(len(set(item.images)) == 2 for item in images)
    # The six captions that the module's docstring speaks of.
    same = [item.id for item in texts if len({"".join(text.lower().split()) for text in item.texts}) == 1]
    assert len(same) == 6
    # The draw is as good as even: of rows with three images, each place is taken a third of the times (5 sigma).
    rows = list(read_table(folder / "valid_neg_clip.tsv", ("neg_image", "filepath")).rows())
    files = [row["filepath"].value.split("/")[-1] for row in rows]
    places = collections.Counter(
        [files[n] for n in python_list(row["neg_image"]).value].index(item.images[1].path.name)
        for row, item in zip(rows, images, strict=True)
    )
    assert all(abs(places[place] - 4839 / 3) < 5 * (4839 * 2 / 9) ** 0.5 for place in range(3))


def test_rows_of_the_published_validation(reference_data):
    """Against the published loop, spelt out: a loader of batches of eight in the file's order, every 15th of them."""
    folder = reference_data / "gdbench" / "coco_hardneg"
    for side in ("text", "image"):
        rows = list(TASKS[f"coco_hardneg_{side}"].source.read(folder))
        batches = [rows[start : start + 8] for start in range(0, len(rows), 8)]
        kept = [row for number, batch in enumerate(batches) if number % 15 == 0 for row in batch]
        assert len(batches) == 605
        assert kept[-1].id == f"row-{600 * 8 + 7:06d}"
        task = TASKS[f"coco_hardneg_{side}_328"]
        assert list(task.source.read(folder)) == kept
        assert len(kept) == task.source.num_examples == 328
