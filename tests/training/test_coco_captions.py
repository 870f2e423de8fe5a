import json

import numpy as np
import pytest

from tests.data import published_files
from tests.expectations import raises
from tests.tasks import published_layouts
from winobench.data import images, word_order
from winobench.tasks.annotations import python_list, read_table
from winobench.training import coco_captions
from winobench.training.coco_captions import TRAINING_SETS, TableRow


@pytest.fixture
def published(tmp_path):
    folder = published_layouts.write_coco_hardneg(tmp_path)
    (folder / "valid_neg_clip.tsv").rename(folder / "train_neg_clip.tsv")
    return folder


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr(word_order, "spacy_tagger", lambda **_: published_layouts.stand_in_tagger)


class MeanColour:
    def encode_images(self, paths):
        return np.stack([np.asarray(images.open_image(path), np.float64).mean(axis=(0, 1)) - 128 for path in paths])


def built(folder):
    return list(coco_captions.read_rows(coco_captions.build_table(folder, MeanColour(), "x")))


def read(folder):
    return list(TRAINING_SETS["coco_hardneg_train"].source.read(folder))


def numbers(item):
    return [int(image.path.stem[-12:]) for image in item.images]


def test_published_layout(published):
    items = read(published)
    # The negative of row 2 differs in a capital letter alone.
    assert [item.id for item in items] == ["row-000000", "row-000001", "row-000003"]
    assert items[0].texts == (
        "A child holding a flowered umbrella and petting a yak.",
        "A umbrella holding a flowered child .",
        "A child petting an umbrella .",
    )
    assert [numbers(item) for item in items] == [[0, 1, 2, 3], [1, 2, 3, 0], [3, 0, 1, 2]]
    assert items[0].images[0].path == published / "val2014" / "COCO_val2014_000000000000.jpg"


def test_the_image_itself_is_no_negative(published):
    path = published / "train_neg_clip.tsv"
    # Rows 0 and 1 are of the same image now.
    path.write_text(path.read_text().replace("COCO_val2014_000000000001", "COCO_val2014_000000000000"))
    assert [numbers(item) for item in read(published)] == [[0, 2, 3], [0, 2, 3], [3, 0, 2]]
    path.write_text(path.read_text().replace("[1, 2, 3]", "[1, 0]"))
    assert [item.id for item in read(published)] == ["row-000001", "row-000003"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[2, 3, 0]", "[2, 4, 0]", ("no-such-image", "'neg_image'", "2", "4", "3")),
        ("[2, 3, 0]", "[2, 'x']", ("not-a-number", "2", "'neg_image'")),
        ("[2, 3, 0]", "[]", ("no-negative", "'neg_image'", "2")),
        ("\"['A narrow appliances filled with kitchen .']\"", "[]", ("no-negative", "'neg_caption'", "2")),
        ("\tneg_image", "\tneg", ("missing-column", "train_neg_clip.tsv", "'neg_image'")),
        ("coco/val2014/COCO_val2014_000000000001.jpg", "", ("not-a-text", "'filepath'", "2")),
    ],
)
def test_malformed_rows_are_named(published, old, new, message):
    path = published / "train_neg_clip.tsv"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with raises(*message):
        read(published)


def test_published_rows(reference_data):
    path = reference_data / "gdbench" / "coco_hardneg" / "valid_neg_clip.tsv"
    items = list(coco_captions.read_rows(path, prefix="coco/"))
    # Of 4,839 rows, six have no negative with other words.
    assert len(items) == 4833
    rows = {f"row-{number:06d}": row for number, row in enumerate(read_table(path, ()).rows())}
    for item in items:
        row = rows[item.id]
        assert item.texts[0] == row["title"].value
        assert set(item.texts[1:]) <= set(python_list(row["neg_caption"]).value)
        assert len(item.images) == 4
    assert items[0].images[0].path == path.parent / "val2014" / "COCO_val2014_000000184613.jpg"


def test_what_is_written_is_what_is_read(tmp_path):
    rows = [
        TableRow('A "quoted"\tman\'s dog', "x/ä.jpg", ('A "dog"\tman\'s quoted', "naïve\n'"), (1,)),
        TableRow("b", "coco/y.jpg", ("c",), (0,)),
    ]
    coco_captions.write_table(tmp_path / "table.tsv", rows)
    items = list(coco_captions.read_rows(tmp_path / "table.tsv"))
    assert [item.texts for item in items] == [(row.caption, *row.negative_captions) for row in rows]
    first, second = (tmp_path / row.image for row in rows)
    assert [[image.path for image in item.images] for item in items] == [[first, second], [second, first]]
    # Without the prefix that the reader was not told of.
    assert (tmp_path / "table.tsv").read_text().splitlines()[0] == "\ttitle\tfilepath\tneg_caption\tneg_image"


def write_captions(folder, captions):
    folder.mkdir(exist_ok=True)
    rows = [{"image": image, "caption": caption} for image, caption in captions]
    (folder / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_negatives_are_made_for_captions(tmp_path, stand_in):
    names = [path.name for path in published_files.make_images(tmp_path / "own", 6)]
    captions = [(name, f"A man {number} sits near dogs.") for number, name in enumerate(names)]
    captions.insert(1, (names[0], ["A red horse sits near a green pond.", "Horse."]))
    captions[-1] = (names[5], "Horse.")  # nothing to exchange
    write_captions(tmp_path / "own", captions)
    path = coco_captions.build_table(tmp_path / "own", MeanColour(), "colours")
    assert path == tmp_path / "own" / "train_neg_colours.tsv"
    items = list(coco_captions.read_rows(path))
    assert len(items) == 6
    assert [item.images[0].path.name for item in items] == [names[0], *names[:5]]
    assert "A green horse sits near a red pond." in items[1].texts
    colours = MeanColour().encode_images([tmp_path / "own" / name for name in names])
    unit = colours / np.linalg.norm(colours, axis=1, keepdims=True)
    for item in items:
        image = names.index(item.images[0].path.name)
        others = [n for n in range(5) if n != image]
        expected = sorted(others, key=lambda n: -(unit[n] @ unit[image]))[:3]
        assert [names.index(negative.path.name) for negative in item.images[1:]] == expected
    # The same again, word for word.
    content = path.read_bytes()
    coco_captions.build_table(tmp_path / "own", MeanColour(), "colours")
    assert path.read_bytes() == content


def test_images_that_share_a_caption_are_no_negatives(tmp_path, stand_in):
    names = [path.name for path in published_files.make_images(tmp_path / "own", 6)]
    captions = [(one, ["A man sits near dogs." if one in names[:2] else f"A man sits near {one}."]) for one in names]
    write_captions(tmp_path / "own", captions)
    items = built(tmp_path / "own")
    for item in items[:2]:
        assert not {image.path.name for image in item.images[1:]} & set(names[:2])


def test_karpathy_splits(tmp_path, stand_in):
    for folder in ("train2014", "images"):
        published_files.make_images(tmp_path / folder, 5)
    rows = [
        {
            "filename": f"{number}.{'jpg' if number % 2 else 'png'}",
            "split": split,
            "sentences": [{"raw": f"A man {number} sits near dogs."}],
            **({} if split == "test" else {"filepath": "train2014"}),
        }
        for number, split in enumerate(("train", "restval", "train", "train", "test"))
    ]
    (tmp_path / "dataset_coco.json").write_text(json.dumps({"images": rows}))
    items = built(tmp_path)
    assert [item.images[0].path.name for item in items] == ["0.png", "1.jpg", "2.png", "3.jpg"]
    assert {image.path.parent.name for item in items for image in item.images} == {"train2014"}
    # Flickr30K's names no folders.
    for row in rows:
        row.pop("filepath", None)
    (tmp_path / "dataset_coco.json").write_text(json.dumps({"images": rows}))
    items = built(tmp_path)
    assert {image.path.parent.name for item in items for image in item.images} == {"images"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, ("missing-files", "captions.jsonl", "dataset_*.json")),
        ("", ("empty-file", "captions.jsonl")),
        ('{"image": "0.png"}\n', ("missing-field", "1", "captions.jsonl", "'caption'")),
        ('{"image": "0.png", "caption": "Horse."}\n', ("no-negative",)),
        ('{"image": "no.png", "caption": "A man near a dog"}\n', ("missing-images", "1", "no.png")),
        ('{"image": "0.png", "caption": "A man near a dog"}\n', ("too-few-images", "3", "1")),
    ],
)
def test_bad_captions(tmp_path, stand_in, content, message):
    published_files.make_images(tmp_path, 1)
    if content is not None:
        (tmp_path / "captions.jsonl").write_text(content)
    with raises(*message):
        coco_captions.build_table(tmp_path, MeanColour(), "x")


def test_several_files_of_splits(tmp_path, stand_in):
    for name in ("a", "b"):
        (tmp_path / f"dataset_{name}.json").write_text("{}")
    with raises("missing-files", "2", "dataset_"):
        coco_captions.build_table(tmp_path, MeanColour(), "x")
