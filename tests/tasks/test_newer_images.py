"""What'sUp, the hub's tables, MMVP, EqBen, SPEC, VL-CheckList and sets of classes, in sets made by hand."""

import dataclasses

import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest

import winobench
from tests.expectations import raises
from tests.launch.source_faults import change
from tests.tasks import newer_layouts
from winobench.evaluation import evaluate
from winobench.metrics import METRICS
from winobench.tasks import TASKS, eqbench, mmvp, spec, vismin, whatsup


def read(task, folder):
    return newer_layouts.items_of(task, folder)


def written(task, folder):
    return read(task, newer_layouts.WRITERS[task](folder))


def pixels(image):
    return np.asarray(PIL.Image.open(image.path).convert("RGB"))


def test_whatsup_by_image_pair_and_set(tmp_path):
    ones, pairs, sets = (written(f"whatsup_b{suffix}", tmp_path) for suffix in ("", "_pairs", "_sets"))
    assert [len(ones), len(pairs), len(sets)] == [8, 4, 2]
    assert (ones[2].id, ones[2].groups) == ("mug_in-front_of_plate", ("in-front",))
    assert ones[2].texts[0] == "A mug in front of a plate"
    assert [pair.id for pair in pairs[:2]] == ["mug and plate/left-right", "mug and plate/in-front-behind"]
    assert [image.path.name for image in pairs[1].images] == ["mug_in-front_of_plate.jpeg", "mug_behind_plate.jpeg"]
    assert pairs[1].texts[:2] == ("A mug in front of a plate", "A mug behind a plate")
    # All three ask about the same pairs of image and text.
    asked = [
        {(image.path, text) for item in items for image in item.images for text in item.texts}
        for items in (ones, pairs, sets)
    ]
    assert asked[0] == asked[1] == asked[2]


def test_whatsup_counts_pairs_and_sets_as_published():
    """The published code counts a pair or set where all its images are right, over N / 2 and N / 4."""
    for subset, (_, count, _) in whatsup.SUBSETS.items():
        assert TASKS[f"whatsup_{subset}"].source.num_examples == count
        assert TASKS[f"whatsup_{subset}_pairs"].source.num_examples == count / 2
        assert TASKS[f"whatsup_{subset}_sets"].source.num_examples == count / 4


class Knows:
    """Knows the true text of each picture, by its pixels; of the one in ``mistaken`` it knows the contrary."""

    def __init__(self, truth, mistaken):
        self.truth = truth
        self.mistaken = mistaken

    def score(self, images, texts):
        found = [np.asarray(image).tobytes() for image in images]
        return np.array(
            [[(self.truth[one] == text) != (one == self.mistaken) for text in texts] for one in found], float
        )


def test_pairs_and_sets_follow_from_single_images(tmp_path):
    """One image of the first set is mistaken: 7 of 8 images, 3 of 4 pairs, 1 of 2 sets."""
    names = ["whatsup_a", "whatsup_a_pairs", "whatsup_a_sets"]
    newer_layouts.WRITERS["whatsup_a"](tmp_path)

    def task(name):
        items = read(name, tmp_path)
        examples = [dataclasses.replace(item, images=tuple(image.path for image in item.images)) for item in items]
        fields = dict(load=lambda data_dir, limit: examples, ready=lambda data_dir: None, source=None)
        return dataclasses.replace(TASKS[name], **fields, data_fingerprint=lambda data_dir, limit: "x")

    truth = {pixels(item.images[0]).tobytes(): item.texts[0] for item in read("whatsup_a", tmp_path)}
    scorer = Knows(truth, next(iter(truth)))
    evaluate.evaluate(scorer, list(map(task, names)), tmp_path / "run", progress=False)
    run = winobench.read_run(tmp_path / "run")
    values = [run.tasks[name].results[run.tasks[name].shown[0]]["value"] for name in names]
    assert values == [7 / 8, 3 / 4, 1 / 2]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda rows: rows.pop(1), ("missing-items", "mug and plate", "'right'")),
        (
            lambda rows: rows[1].update(image_path="x/mug_over_plate.jpeg"),
            ("bad-annotations", "2", "'mug_over_plate.jpeg'"),
        ),
        (lambda rows: rows.append(rows[0]), ("repeated-id", "9", "'left'")),
        (
            lambda rows: rows[1]["caption_options"].reverse() or rows[1]["caption_options"].__setitem__(0, "other"),
            ("bad-annotations",),
        ),
        (lambda rows: rows[1]["caption_options"].pop(), ("wrong-number-of-entries", "2", "3", "4")),
    ],
)
def test_whatsup_sets_that_are_none(damage, expected, tmp_path):
    newer_layouts.WRITERS["whatsup_a"](tmp_path)
    change("controlled_images_dataset.json", damage)(tmp_path)
    code, *words = expected
    with raises(code, *words, "controlled_images_dataset.json"):
        read("whatsup_a_sets", tmp_path)


def test_numbers_of_photographs(tmp_path):
    (first, *_) = written("coco_spatial_two", tmp_path)
    assert first.images[0].path == tmp_path / "val2017" / "000000000139.jpg"
    change("coco_qa_two_obj.json", lambda rows: rows[0].__setitem__(0, "139"))(tmp_path)
    assert read("coco_spatial_two", tmp_path)[0] == first
    change("coco_qa_two_obj.json", lambda rows: rows[0].__setitem__(0, "a/139"))(tmp_path)
    with raises("not-a-number", "1", "coco_qa_two_obj.json"):
        read("coco_spatial_two", tmp_path)
    assert written("gqa_spatial_one", tmp_path)[0].images[0].path == tmp_path / "vg_images" / "139.jpg"


def test_vismins_counts():
    """2,084 in the paper."""
    assert sum(count for count, _, _ in vismin.CATEGORIES.values()) == 2084


def test_pictures_of_tables_are_unpacked_once(tmp_path):
    items = written("vismin_relation", tmp_path)
    assert [item.id for item in items] == ["row-00001", "row-00003", "row-00005"]
    assert items[1].images[1].path == tmp_path / "unpacked" / "row-00003-1.png"
    for number, item in enumerate(items):
        for side, image in enumerate(item.images):
            assert image.path.read_bytes() == newer_layouts.picture(number, side)["bytes"]
    times = [image.path.stat().st_mtime_ns for item in items for image in item.images]
    items[0].images[0].path.write_bytes(b"torn")
    assert read("vismin_relation", tmp_path) == items
    assert items[0].images[0].path.read_bytes() == newer_layouts.picture(0, 0)["bytes"]
    assert [image.path.stat().st_mtime_ns for item in items for image in item.images][1:] == times[1:]


def test_bivlcs_groups_are_sugarcrepes_sets(tmp_path):
    assert {item.groups for item in written("bivlc", tmp_path)} == {("swap swap",)}


def test_bad_tables_are_named(tmp_path):
    folder = newer_layouts.WRITERS["colorswap"](tmp_path)
    path = folder / "data" / "test-00001-of-00002.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["caption_2"]), path)
    with raises("missing-column", str(path), "'caption_2'"):
        read("colorswap", folder)
    rows = table.to_pylist()
    rows[0]["image_1"] = None
    newer_layouts.write_table(path, rows)
    with raises("not-an-object", "'image_1'", "1", str(path)):
        read("colorswap", folder)
    path.write_bytes(path.read_bytes()[:-9])
    with raises("damaged-file", str(path)):
        read("colorswap", folder)
    (folder / "unpacked").rename(folder / "elsewhere")
    (folder / "unpacked").write_text("in the way")
    with raises("cannot-write", "unpacked"):
        read("colorswap", folder)


def test_countbench_asks_for_each_number(tmp_path):
    three, ten, books = written("countbench", tmp_path)
    assert three.texts[:3] == ("Two cups on a table", "Three cups on a table", "Four cups on a table")
    assert (three.target, three.groups) == (1, ("three",))
    assert (ten.texts[8], ten.target) == ("set of ten icons", 8)
    assert books.texts[1] == "THREE BOOKS, two pens"
    assert newer_layouts.left_out("countbench", tmp_path) == {
        "row-002": "no image in the table",
        "row-003": "a caption that does not spell out its number",
    }
    (path,) = tmp_path.rglob("*.parquet")
    newer_layouts.write_table(path, [{**pq.read_table(path).to_pylist()[0], "number": 11}])
    with raises("out-of-range", "'number'", "11", str(path)):
        read("countbench", tmp_path)


def test_mmvp_pairs_neighbouring_numbers(tmp_path):
    items = written("mmvp_structural", tmp_path)
    assert [item.id for item in items] == ["1-2", "3-4", "5-6"]
    assert items[1].texts == ("a photo of a cup, seen 3 times", "a photo of a cup, seen 4 times")
    assert items[1].images[0].path == tmp_path / "MLLM_VLM Images" / "Structural Character" / "3.jpg"
    assert len(mmvp.PATTERNS) == 9
    # Rows 2 and 5 are missing, and the others are no pairs, though their number is even.
    path = tmp_path / "Questions.csv"
    lines = [line for line in path.read_text().splitlines() if line[:1] not in "25"]
    path.write_text("\n".join(lines) + "\n")
    with raises("not-a-pair", "1", "2", "'Structural Character'"):
        read("mmvp_structural", tmp_path)


@pytest.mark.parametrize("task", ["mmvp_color", "cola"])
def test_the_headline_is_the_authors_pair_accuracy(task):
    """Both texts find their image, whatever the images' own texts."""
    metric = METRICS[TASKS[task].metric]
    scores = [np.array([[0.9, 0.8], [0.1, 0.85]]), np.array([[0.9, 0.1], [0.95, 0.97]])]
    found = metric(scores, [None, None])
    assert found[metric.headline].correct.tolist() == [True, False]
    assert [found[name].correct.tolist() for name in ("text", "group")] == [[True, True], [True, False]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("8,Color,a cup", ("not-a-pair", "7", "'Color'")),
        ("6,Color,a cup", ("repeated-id", "6")),
        ("six,Color,a cup", ("not-a-number", "8")),
        ("10,Color,", ("not-a-text", "'Statement'")),
    ],
)
def test_bad_rows_of_mmvp(line, expected, tmp_path):
    newer_layouts.WRITERS["mmvp_color"](tmp_path)
    path = tmp_path / "Questions.csv"
    more = [line, "9,Color,a dog"] if expected[0] == "not-a-text" else [line]
    path.write_text(path.read_text() + "\n".join(more) + "\n")
    code, *words = expected
    with raises(code, *words, str(path)):
        read("mmvp_color", tmp_path)


def test_frames_of_eqben_have_blue_first(tmp_path):
    items = written("eqbench_gebc", tmp_path)
    assert [item.id for item in items] == ["row-000", "row-001", "row-002"]
    assert items[2].images[1].path == tmp_path / "unpacked" / "eqbengebc" / "2" / "1.png"
    assert pixels(items[2].images[1]).tolist() == [[[1, 100, 250]] * 6] * 4
    assert {task.source.num_examples for name, task in TASKS.items() if name.startswith("eqbench_")} == {20}
    assert len(eqbench.SOURCES_OF_FRAMES) == 7


def test_frames_of_eqben_are_arrays_of_pictures_in_its_folder(tmp_path):
    newer_layouts.WRITERS["eqbench_gebc"](tmp_path)
    path = tmp_path / "images" / "eqbengebc" / "2" / "0.npy"
    np.save(path, np.zeros((4, 6, 3)))
    with raises("damaged-file", str(path)):
        read("eqbench_gebc", tmp_path)
    np.save(path, np.array([{"a": 1}]), allow_pickle=True)
    with raises("damaged-file", str(path)):
        read("eqbench_gebc", tmp_path)
    path.write_bytes(b"")
    with raises("damaged-file", str(path)):
        read("eqbench_gebc", tmp_path)
    # What leads elsewhere is not opened here; launch.prepare refuses it.
    np.save(tmp_path / "other.npy", np.zeros((4, 6, 3), np.uint8))
    for place in (f"{tmp_path}/other.npy", "eqbengebc/../../other.npy"):
        change("all_select.json", lambda rows, place=place: rows[2].update(image0="eqbengebc/2/1.npy", image1=place))(
            tmp_path
        )
        assert read("eqbench_gebc", tmp_path)[2].images[1].path == tmp_path / "images" / place
    assert not (tmp_path / "unpacked" / "other.png").exists()
    assert not (tmp_path / "other.png").exists()


@pytest.mark.parametrize("subset", spec.SUBSETS)
def test_spec_from_both_sides(subset, tmp_path):
    texts, images = written(f"spec_{subset}_text", tmp_path), read(f"spec_{subset}_image", tmp_path)
    size = spec.SUBSETS[subset][0]
    for one, other in zip(texts, images, strict=True):
        assert one.target == other.target
        assert (len(one.texts), len(other.images)) == (size, size)
        assert one.images == (other.images[other.target],)
        assert other.texts == (one.texts[one.target],)
    # The folder may also be that in which the archive's folder lies.
    (tmp_path / "data" / subset).rename(tmp_path / subset)
    assert [item.texts for item in read(f"spec_{subset}_text", tmp_path)] == [item.texts for item in texts]
    change(f"{subset}/image2text.json", lambda rows: rows[1].update(label=size))(tmp_path)
    with raises("target-not-among-candidates", "'label'", "2", str(size)):
        read(f"spec_{subset}_text", tmp_path)


def test_vlchecklists_groups_are_its_sources(tmp_path):
    items = written("vlchecklist_relation_action", tmp_path)
    assert [item.groups[0] for item in items] == ["vg"] * 3 + ["swig"] * 3 + ["hake"] * 3
    assert items[3].images[0].path == tmp_path / "swig" / "VG_100K" / "0.jpg"
    assert (items[3].id, items[3].texts) == ("swig/000000", ("cup 0 is red", "cup 0 is blue"))
    change("data/Relation/swig_action.json", lambda rows: rows[1][1].update(NEG=[]))(tmp_path)
    with raises("empty-list", "2", "swig_action.json"):
        read("vlchecklist_relation_action", tmp_path)


def test_pictures_of_cifar_and_stl_stand_upright(tmp_path):
    red, green, _ = written("cifar10", tmp_path)
    assert (red.texts[red.target], green.texts[green.target]) == (
        "a blurry photo of a cat.",
        "a blurry photo of a truck.",
    )
    assert pixels(red.images[0]).tolist() == [[[255, 0, 0]] * 32] * 32
    found = pixels(green.images[0])
    assert found[0, 31].tolist() == [255, 255, 255]
    assert found[31, 0].tolist() == [0, 255, 0]
    blue, *_ = written("stl10", tmp_path / "stl")
    assert blue.texts[blue.target] == "a photo of a airplane."
    found = pixels(blue.images[0])
    assert found.shape == (96, 96, 3)
    assert found[0, 95].tolist() == [255, 255, 255]
    assert found[95, 0].tolist() == [0, 0, 255]


def test_bad_files_of_classes_are_named(tmp_path):
    newer_layouts.WRITERS["cifar10"](tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(bytes([10]) + path.read_bytes()[1:])
    with raises("bad-annotations", "1", str(path), "10"):
        read("cifar10", tmp_path)
    newer_layouts.WRITERS["stl10"](tmp_path)
    path = tmp_path / "stl10_binary" / "test_y.bin"
    path.write_bytes(bytes([1, 2]))
    with raises("wrong-number-of-entries", str(path), "2", "3"):
        read("stl10", tmp_path)


def test_aircraft_by_variant(tmp_path):
    first, second, third = written("fgvc_aircraft", tmp_path)
    assert (first.id, first.texts[first.target]) == ("1514522", "a photo of a 707-320, a type of aircraft.")
    assert (second.target, third.target, len(third.texts)) == (1, 99, 100)
    path = tmp_path / "fgvc-aircraft-2013b" / "data" / "images_variant_test.txt"
    for line in ("1008575 Variant 97", "0000001 Zeppelin"):
        path.write_text("1514522 707-320\n1008575 Variant 97\n" + line + "\n")
        with raises("bad-annotations", repr(line), str(path)):
            read("fgvc_aircraft", tmp_path)
