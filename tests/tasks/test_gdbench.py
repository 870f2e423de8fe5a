"""GDBench's published files: tiny sets in their layouts, and the authors' own files where they are available."""

import collections
import json

import numpy as np
import pytest

from tests.tasks import published_layouts
from tests.tasks.damage import put, rows
from tests.tasks.published_layouts import items_of as read
from tests.tasks.published_layouts import written
from winobench.clevr import captions
from winobench.data import published_order
from winobench.data.example import ImageFile
from winobench.metrics import METRICS
from winobench.report import published
from winobench.tasks import TASKS, aro_visual_genome
from winobench.tasks.annotations import python_list, read_lines, read_table


def test_winoground(tmp_path):
    items = written("winoground", tmp_path)
    assert [item.id for item in items] == ["0", "1", "2"]
    assert items[0].texts == ("an old person kisses a young person", "a young person kisses an old person")
    assert [image.path for image in items[2].images] == [tmp_path / "images" / f"ex_2_img_{n}.png" for n in (0, 1)]
    assert items[0].groups == ("Relation", "Adjective-Age", "1 main predicate")
    assert items[1].groups == ("Both", "Noun", "Adjective-Color", "Symbolic", "Series", "1 main predicate")
    assert items[2].groups == ("Object", "Scope", "Pragmatics", "2 main predicates")
    # GDBench's file, and images next to it, do as well.
    rows = [json.loads(line) for line in (tmp_path / "examples.jsonl").read_text().splitlines()]
    published_layouts.write_json(tmp_path / "data.json", rows)
    (tmp_path / "examples.jsonl").unlink()
    assert read("winoground", tmp_path) == items
    for path in list((tmp_path / "images").iterdir()):
        path.rename(tmp_path / path.name)
    (tmp_path / "images").rmdir()
    assert read("winoground", tmp_path)[1].images[0].path == tmp_path / "ex_1_img_0.png"


def test_published_rows_of_winoground(reference_data):
    items = read("winoground", reference_data / "gdbench" / "winoground")
    assert len(items) == TASKS["winoground"].source.num_examples == 400
    counts = collections.Counter(group for item in items for group in item.groups)
    # The collapsed tags of the paper's Table 2, its numbers of main predicates, and two of its other tags.
    assert [counts[name] for name in ("Object", "Relation", "Both", "Symbolic")] == [141, 233, 26, 41]
    assert [counts[name] for name in ("1 main predicate", "2 main predicates")] == [292, 108]
    assert not any("/" in group for group in counts)


def test_photographs_and_videos_of_imagecode_are_two_tasks(tmp_path):
    static, video, both = (written(f"imagecode{kind}", tmp_path) for kind in ("_static", "_video", ""))
    assert [(item.id.rsplit("/", 1)[1], item.target) for item in static] == [("5", 5), ("7", 7), ("1", 1)]
    assert [item.target for item in video] == [0, 9, 3]
    assert {item.id: item for item in both} == {item.id: item for item in static + video}
    assert len(both) == 6
    assert static[0].texts == ("A deer head hangs next to a painting",)
    sets = tmp_path / "image-sets" / "open-images-1815_f91d6f546e63f20d"
    assert [image.path for image in static[1].images] == [sets / f"img{index}.jpg" for index in range(10)]
    # The published code has recall at 5 of the photographs alone.
    one, all_of_them = TASKS["imagecode_static"], TASKS["imagecode"]
    assert (one.metric, one.chance) == ("recall", {"recall@1": 0.1, "recall@5": 0.5})
    assert (all_of_them.metric, all_of_them.chance) == ("accuracy", {"accuracy": 0.1})


def test_published_descriptions_of_imagecode(reference_data):
    counts = {"imagecode_static": 430, "imagecode_video": 1872, "imagecode": 430 + 1872}
    items = {name: read(name, reference_data / "gdbench" / "imagecode") for name in counts}
    assert {name: len(found) for name, found in items.items()} == counts
    assert {name: TASKS[name].source.num_examples for name in counts} == counts
    assert len({item.id.rsplit("/", 1)[0] for item in items["imagecode_static"]}) == 155


def test_numbers_up_to_six_of_genderbias_are_men(tmp_path):
    items = {item.id: item for item in written("genderbias", tmp_path)}
    assert len(items) == 6 * 4
    assert items["suit/6"].groups == ("male_clothes",)
    assert items["apron/7"].groups == ("female_clothes",)
    assert items["apron/7"].texts == items["suit/6"].texts == ("suit", "apron")
    assert items["wine/12"].groups == ("female_drinks",)
    assert items["purse/1"].images[0].path == tmp_path / "purse-images" / "1.jpg"
    pairs = TASKS["genderbias"].association.pairs
    assert [(p.name, p.group_x, p.group_y, p.texts_a, p.texts_b) for p in pairs] == [
        ("clothes", "male_clothes", "female_clothes", ("suit",), ("apron",)),
        ("bags", "male_bags", "female_bags", ("briefcase",), ("purse",)),
        ("drinks", "male_drinks", "female_drinks", ("beer",), ("wine",)),
    ]
    groups = {item.groups[0] for item in items.values()}
    assert groups == {group for pair in pairs for group in (pair.group_x, pair.group_y)}
    # Images in other formats are left out by name.
    (tmp_path / "suit-images" / "1.jpg").rename(tmp_path / "suit-images" / "1.PNG")
    (tmp_path / "suit-images" / "about.txt").write_text("x")
    assert published_layouts.left_out("genderbias", tmp_path) == {"suit/1.PNG": "not a .jpg file"}
    assert len(read("genderbias", tmp_path)) == 6 * 4 - 1


@pytest.mark.parametrize(
    ("name", "prompt"), [("pets", "an image of a shiba inu"), ("pets_photo", "a photo of a shiba inu")]
)
def test_pets_by_split_and_all(tmp_path, name, prompt):
    items = written(name, tmp_path)
    assert [item.id for item in items] == ["Abyssinian_201", "shiba_inu_12"]
    assert [len(item.texts) for item in items] == [37, 37]
    assert items[1].texts[items[1].target] == prompt
    assert items[1].images[0].path == tmp_path / "images" / "shiba_inu_12.jpg"
    # All photographs need no split.
    (tmp_path / "annotations" / "test.txt").unlink()
    (tmp_path / "images" / "._shiba_inu_12.jpg").write_bytes(b"Mac OS X")
    (tmp_path / "images" / "Abyssinian_201.mat").write_bytes(b"no photograph")
    items = read(f"{name}_all", tmp_path)
    assert [item.id for item in items] == ["Abyssinian_201", "american_pit_bull_terrier_7", "shiba_inu_12"]
    assert items[2].texts[items[2].target] == prompt
    assert [TASKS[task].source.num_examples for task in (f"{name}_all", name)] == [7390, 3669]
    assert [one.to for one in TASKS[f"{name}_all"].source.downloads] == ["classes.txt", "images.tar.gz"]


def test_published_classes_of_pets(reference_data):
    classes = read_lines(reference_data / "gdbench" / "pets" / "classes.txt")
    assert len(classes) == 37
    assert sorted(classes) == [name.replace("_", " ") for name in sorted(published_layouts._PETS.split())]


def test_relations_of_visual_genome(tmp_path):
    items = written("aro_vg_relation", tmp_path)
    assert [item.id for item in items] == [f"row-{number:06d}" for number in range(5)]
    assert items[1].images == (ImageFile(tmp_path / "images" / "1.jpg", (1, 2, 14, 11)),)
    assert items[0].texts == ("the cup is on the table 0", "the table 0 is on the cup")
    # "next to" is symmetric, and does not count for the mean over relations.
    assert [item.groups for item in items] == [("on",), (), ("on",), ("behind",), ("to the left of",)]
    # Boxes are rounded as PIL rounds them.
    box = {"bbox_x": -0.6, "bbox_y": 1.4, "bbox_w": 10.2, "bbox_h": 8}
    rows(lambda content: content[0].update(box))(tmp_path / "visual_genome_relation.json")
    assert read("aro_vg_relation", tmp_path)[0].images[0].box == (-1, 1, 10, 9)
    assert len(aro_visual_genome.SYMMETRIC_RELATIONS) == 157
    assert {"close to", "hanging over", "larger than", "around", "adjusting"} <= aro_visual_genome.SYMMETRIC_RELATIONS
    assert not any("\n" in name or "  " in name for name in aro_visual_genome.SYMMETRIC_RELATIONS)
    assert "on" not in aro_visual_genome.SYMMETRIC_RELATIONS


def test_attributes_of_visual_genome_count_from_25_rows_on(tmp_path):
    items = written("aro_vg_attribution", tmp_path)
    assert [item.groups for item in items] == [("white_black",)] * 25 + [()] * 3
    assert items[0].texts[0] == "the white door and the black road 0"


def test_every_caption_is_an_item_of_aro_order(tmp_path):
    items = written("aro_coco_order", tmp_path)
    assert [item.id for item in items] == [f"COCO_val2014_{image:012d}/{n}" for image in (0, 1) for n in (0, 1)]
    assert items[2].images[0].path == tmp_path / "val2014" / "COCO_val2014_000000000001.jpg"
    assert items[0].texts[0] == "a man with a red helmet on a small moped on a dirt road"
    for item in items:
        assert item.target == 0
        assert len(item.texts) == 5
        assert len({tuple(sorted(text.split())) for text in item.texts}) == 1  # the same words
    items = written("aro_flickr_order", tmp_path / "flickr")
    assert len(items) == 60
    assert items[0].images[0].path == tmp_path / "flickr" / "images" / "1000.jpg"


def test_published_shuffles_without_those_that_say_the_same(tmp_path):
    path = published_layouts.write_aro_coco_order(tmp_path) / "coco_karpathy_test.json"
    put(0, "caption", ["Two dogs.", "Dog"])(path)
    items = read("aro_coco_order_published", tmp_path)
    order = published_order.PublishedShuffles(published_layouts.stand_in_tagger, published_layouts.stand_in_tokenizer)
    expected = [order(caption) for row in json.loads(path.read_text()) for caption in row["caption"]]
    assert [item.texts for item in items] == [tuple(dict.fromkeys(texts)) for texts in expected]
    assert expected[0].count("two dogs") > 1
    # Nothing stands against a caption of one word; the published code counts it as right, and so do we.
    assert items[1].texts == ("dog",)
    outcome = METRICS["accuracy"](np.zeros((1, 1, 1)), [0])["accuracy"]
    assert (outcome.correct.tolist(), outcome.tie.tolist()) == ([True], [False])
    assert TASKS["aro_coco_order_published"].when_named
    assert TASKS["aro_coco_order"].version == 2  # older prepared data are not those of today


def test_captions_and_images_of_coco_hardneg(tmp_path):
    items = written("coco_hardneg_text", tmp_path)
    assert [item.id for item in items] == [f"row-{number:06d}" for number in range(4)]
    assert items[1].texts == ("A narrow kitchen filled with appliances.", "A narrow appliances filled with kitchen .")
    assert items[1].images[0].path == tmp_path / "val2014" / "COCO_val2014_000000000001.jpg"
    # A negative with the same letters is taken only where there is no other one.
    assert items[2].texts[1] == "luggage on and around Luggage carts"
    assert items[3].texts[1] != "A man 's bike near it 's shed ."
    items = read("coco_hardneg_image", tmp_path)
    for number, (item, near) in enumerate(zip(items, [{1, 2, 3}, {2, 3, 0}, {3, 0, 1}, {0, 1, 2}], strict=True)):
        right, wrong = (int(image.path.stem[-12:]) for image in item.images)
        assert right == number
        assert wrong in near
    assert items[0].texts == ("A child holding a flowered umbrella and petting a yak.",)


def test_published_rows_of_coco_hardneg(reference_data):
    folder = reference_data / "gdbench" / "coco_hardneg"
    texts, images = (read(f"coco_hardneg_{side}", folder) for side in ("text", "image"))
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
    # The published validation, spelt out: a loader of batches of eight in the file's order, every 15th of them.
    for side, rows in (("text", texts), ("image", images)):
        batches = [rows[start : start + 8] for start in range(0, len(rows), 8)]
        kept = [row for number, batch in enumerate(batches) if number % 15 == 0 for row in batch]
        assert len(batches) == 605
        assert kept[-1].id == f"row-{600 * 8 + 7:06d}"
        assert read(f"coco_hardneg_{side}_328", folder) == kept
        assert len(kept) == TASKS[f"coco_hardneg_{side}_328"].source.num_examples == 328


@pytest.mark.parametrize(("part", "rows"), [("subj", [0, 1]), ("verb", [2, 4]), ("obj", [3, 5])])
def test_each_task_of_svo_takes_the_rows_of_its_part(tmp_path, part, rows):
    items = written(f"svo_{part}", tmp_path)
    assert [item.id for item in items] == [f"row-{row:06d}" for row in rows]
    for item, row in zip(items, rows, strict=True):
        assert [image.path for image in item.images] == [tmp_path / "images" / f"{2 * row + n}.jpg" for n in (0, 1)]
        assert item.target == 0


def test_published_captions_of_clevr(tmp_path, reference_data):
    (tmp_path / "captions").symlink_to((reference_data / "gdbench" / "clevr").resolve())
    items = {item.id: item for item in read("clevr", tmp_path)}
    assert len(items) == TASKS["clevr"].source.num_examples == 574 * 7 * 2
    assert {item.groups[0] for item in items.values()} == set(captions.SUBTASKS)
    texts = tuple(f"On the {side} is a gray cylinder." for side in ("right", "left"))
    assert items["CLEVR_val2_000138.png/spatial/0"].texts == texts
    # Of each item of ``spatial`` Self-Bench takes the other caption as true; each paper has its own number.
    others = read("clevr_spatial_selfbench", tmp_path)
    assert len(others) == TASKS["clevr_spatial_selfbench"].source.num_examples == 1148
    assert all(one.texts == items[one.id].texts[::-1] and one.images == items[one.id].images for one in others)
    settings = {"model": "sd3-medium", "kind": "diffusion"}
    assert published.reference("clevr_spatial_selfbench", "accuracy", **settings).printed == ".59"
    assert published.reference("clevr", "spatial/accuracy", **settings).printed == "43.9"
