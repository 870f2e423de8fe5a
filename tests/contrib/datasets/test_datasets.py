"""Newer data sets: sets made by hand, and the authors' own annotation files where they are available."""

import dataclasses
import itertools
import json
import shutil

import numpy as np
import PIL.Image
import pytest

import winobench
from tests.contrib.datasets import layouts
from tests.contrib.datasets.layouts import written
from tests.expectations import raises
from tests.tasks import published_layouts
from tests.tasks.damage import put, rows
from tests.tasks.published_layouts import items_of as read
from tests.tasks.published_layouts import pairs_of
from winobench.contrib.datasets import (
    eqbench,
    mmvp,
    naturalbench,
    spec,
    sugarcrepe,
    sugarcrepe_pp,
    sugarcrepe_selfbench,
    valse,
    vismin,
)
from winobench.data import question_texts
from winobench.evaluation import evaluate
from winobench.metrics import METRICS, RATING_METRICS, rating_results
from winobench.report.sections.gallery import task_gallery
from winobench.runs.requests import Response
from winobench.runs.rows import rows_of
from winobench.tasks import TASKS, TEXT_TASKS, groups
from winobench.tasks.base import SKILLS, Task
from winobench.tasks.questions import TextQuestion


def task(name, folder):
    """A task of the items in a folder, as if it had been prepared."""
    items = read(name, folder)
    examples = [dataclasses.replace(item, images=tuple(image.path for image in item.images)) for item in items]
    fields = dict(load=lambda data_dir, limit: examples, ready=lambda data_dir: None, source=None)
    return dataclasses.replace(TASKS[name], **fields, data_fingerprint=lambda data_dir, limit: "x")


def pixels(image):
    return np.asarray(PIL.Image.open(image.path).convert("RGB"))


def test_numbers_of_examples_are_the_published_ones():
    def counts(*names):
        return [TASKS[name].source.num_examples for name in names]

    assert sum(counts(*(f"vismin_{category}" for category in vismin.CATEGORIES))) == 2084
    assert set(counts(*(f"eqbench_{source}" for source in eqbench.SOURCES_OF_FRAMES))) == {20}
    # The numbers of evaluate_eqben_locally.py.
    assert sum(counts(*(f"eqbench_full_{source}" for source in eqbench.SOURCES_OF_FRAMES))) == 251_048
    assert (len(eqbench.SOURCES_OF_FRAMES), len(mmvp.PATTERNS)) == (7, 9)
    forms = [f"naturalbench{form}" for form in naturalbench.FORMS]
    assert counts(*forms) == [7600, 3800, 3800, 1900]  # of 1,900 rows
    assert [TASKS[name].chance for name in forms] == [
        METRICS[TASKS[name].metric].chance(TASKS[name].shape) for name in forms
    ]


def test_pictures_of_tables_are_unpacked_once(tmp_path):
    items = written("vismin_relation", tmp_path)
    assert [item.id for item in items] == ["row-00001", "row-00003", "row-00005"]
    assert items[1].images[1].path == tmp_path / "unpacked" / "row-00003-1.png"
    for number, item in enumerate(items):
        for side, image in enumerate(item.images):
            assert image.path.read_bytes() == published_layouts.make_image(number, side)["bytes"]
    times = [image.path.stat().st_mtime_ns for item in items for image in item.images]
    items[0].images[0].path.write_bytes(b"torn")
    assert read("vismin_relation", tmp_path) == items
    assert items[0].images[0].path.read_bytes() == published_layouts.make_image(0, 0)["bytes"]
    assert [image.path.stat().st_mtime_ns for item in items for image in item.images][1:] == times[1:]
    shutil.rmtree(tmp_path / "unpacked")
    (tmp_path / "unpacked").write_text("in the way")
    with raises("cannot-write", "unpacked"):
        read("vismin_relation", tmp_path)


def test_countbench_asks_for_each_number(tmp_path):
    three, ten, books = written("countbench", tmp_path)
    assert three.texts[:3] == ("Two cups on a table", "Three cups on a table", "Four cups on a table")
    assert (three.target, three.groups) == (1, ("three",))
    assert (ten.texts[8], ten.target) == ("set of ten icons", 8)
    assert books.texts[1] == "THREE BOOKS, two pens"
    assert published_layouts.left_out("countbench", tmp_path) == {
        "row-002": "no image in the table",
        "row-003": "a caption that does not spell out its number",
    }


def test_texts_of_cola_have_their_hard_images(tmp_path):
    plate, cup, sky = written("cola_single_gqa", tmp_path)
    assert [item.id for item in (plate, cup, sky)] == ["text-000", "text-001", "text-005"]
    assert (plate.texts, plate.target) == (("square white plate",), None)
    assert [image.path.name for image in plate.images] == ["0.jpg", "1.jpg", "2.jpg", "3.jpg", "5.jpg"]
    assert [item.ratings for item in (plate, cup, sky)] == [(1, 0, 1, 0, 0), (0, 1, 0, 0, 0, 1), (1, 1, 0)]
    assert published_layouts.left_out("cola_single_gqa", tmp_path) == {
        "text-003": "none of its hard images is a positive one"
    }
    for source in ("clevr", "paco"):
        others = written(f"cola_single_{source}", tmp_path / source)
        assert [(item.id, item.texts, item.ratings) for item in others] == [
            (item.id, item.texts, item.ratings) for item in (plate, cup, sky)
        ]


def test_average_precision_of_cola_is_the_published_codes(tmp_path):
    """Numbers of ColaSingleObjAP (scripts/eval.py) for these files and scores without text 3; float32.

    The first scores have ties. Of 300 random sets with ties the two differ by 1e-7 at most.
    """
    items = written("cola_single_gqa", tmp_path)
    for score, published in (
        (lambda image, text: ((3 * image + 2 * text) % 4) / 4, 0.5333333611488342),
        (lambda image, text: ((5 * image + 7 * text) % 13) / 16, 0.5944444537162781),
    ):
        scores = [[score(int(image.path.stem), int(item.id[5:])) for image in item.images] for item in items]
        found = rating_results(
            *(RATING_METRICS["average_precision"], scores, [item.ratings for item in items]),
            *([item.id for item in items], [item.groups for item in items]),
        )
        assert found["mean_average_precision"]["value"] == pytest.approx(published, abs=1e-7)


def test_pairs_of_coco_counterfactuals(tmp_path):
    """As the hub's loading script names them: images lie in data/images and end in .jpg."""
    items = written("coco_counterfactuals", tmp_path)
    assert [item.id for item in items] == ["0_0", "1_0", "2_0"]
    assert items[0].texts == ("A red cup beside a blue plate.", "A blue cup beside a red plate.")
    names = [str(image.path.relative_to(tmp_path)) for image in items[1].images]
    assert names == ["data/images/1_0_img_0.jpg", "data/images/1_0_img_1.jpg"]
    assert items[0].target is None


def test_mmvp_pairs_neighbouring_numbers(tmp_path):
    items = written("mmvp_structural", tmp_path)
    assert [item.id for item in items] == ["1-2", "3-4", "5-6"]
    assert items[1].texts == ("a photo of a cup, seen 3 times", "a photo of a cup, seen 4 times")
    assert items[1].images[0].path == tmp_path / "MLLM_VLM Images" / "Structural Character" / "3.jpg"


def test_the_headline_is_the_authors_pair_accuracy():
    """Both texts find their image, whatever the images' own texts."""
    metric = METRICS[TASKS["mmvp_color"].metric]
    assert TASKS["cola"].metric == TASKS["mmvp_color"].metric
    scores = [np.array([[0.9, 0.8], [0.1, 0.85]]), np.array([[0.9, 0.1], [0.95, 0.97]])]
    found = metric(scores, [None, None])
    assert found[metric.headline].correct.tolist() == [True, False]
    assert [found[name].correct.tolist() for name in ("text", "group")] == [[True, True], [True, False]]


def test_frames_of_eqben_have_blue_first(tmp_path):
    items = written("eqbench_gebc", tmp_path)
    assert [item.id for item in items] == ["row-000", "row-001", "row-002"]
    assert items[2].images[1].path == tmp_path / "unpacked" / "eqbengebc" / "2" / "1.png"
    assert pixels(items[2].images[1]).tolist() == [[[1, 100, 250]] * 6] * 4


def test_whole_eqben_puts_four_rows_together(tmp_path):
    items = written("eqbench_full_gebc", tmp_path)
    assert [item.id for item in items] == ["000004", "000005", "000006"]
    assert items[0].texts == ("A dog chases two cats.", "Two cats chase a dog.")
    assert [image.path for image in items[0].images] == [tmp_path / f"image/eqbengebc/4/{side}.png" for side in (0, 1)]
    assert pixels(items[2].images[1]).tolist() == [[[1, 100, 250]] * 6] * 4
    # The light version has JPEG files, and no others but arrays.
    light = layouts.write_eqbench_full(tmp_path / "light", "gebc", images="image_jpg")
    for item, other in zip(read("eqbench_full_gebc", light), items, strict=True):
        assert (item.id, item.texts) == (other.id, other.texts)
        assert [image.path.stem for image in item.images] == [image.path.stem for image in other.images]
        assert all(image.path.is_file() for image in item.images)
    assert read("eqbench_full_gebc", light)[1].images[0].path == light / "image_jpg/eqbengebc/5/0.jpg"


def test_whole_eqben_scores_as_its_published_code(tmp_path):
    """Text, image and group of ``evaluate_eqben_locally.py``, which sorts the random rows itself. Ties included."""
    generator = np.random.default_rng(0)
    kinds = ("ag", "youcook2", "gebc", "kubric_loc", "kubric_attr", "kubric_cnt", "sd")
    rows = []
    for pair, caption, image in np.ndindex(7 * 40, 2, 2):
        source = f"eqben{kinds[pair // 40]}"
        about = {"dataset": source, "name": f"c{caption}i{image}", "sample_cnt": pair}
        rows.append({"image": f"{source}/{pair}/{image}.png", "caption": f"{pair} {caption}", "private_info": about})
    rows = [rows[place] for place in generator.permutation(len(rows))]
    (tmp_path / "ann_json_finegrained_random.json").write_text(json.dumps(rows))
    numbers = generator.integers(0, 5, len(rows)).astype(float)
    score = {(row["image"], row["caption"]): number for row, number in zip(rows, numbers, strict=True)}
    published = {
        "ag": (0.15, 0.25, 0.125),
        "youcook2": (0.075, 0.075, 0.05),
        "gebc": (0.1, 0.1, 0.075),
        "kubric_loc": (0.125, 0.15, 0.1),
        "kubric_attr": (0.175, 0.2, 0.175),
        "kubric_cnt": (0.15, 0.175, 0.15),
        "sd": (0.05, 0.025, 0),
    }
    for source, expected in published.items():
        scores = [
            np.array([[score[str(image.path.relative_to(tmp_path / "image")), text] for text in item.texts]
                      for image in item.images])
            for item in read(f"eqbench_full_{source}", tmp_path)
        ]  # fmt: skip
        found = METRICS["winoground"](scores, [None] * len(scores))
        assert tuple(outcome.correct.mean() for outcome in found.values()) == expected
        assert found["text"].tie.any()


def test_frames_of_eqben_are_arrays_of_pictures_in_its_folder(tmp_path):
    layouts.LAYOUTS["eqbench_gebc"](tmp_path)
    path = tmp_path / "images" / "eqbengebc" / "2" / "0.npy"
    for damage in (
        lambda: np.save(path, np.zeros((4, 6, 3))),
        lambda: np.save(path, np.array([{"a": 1}]), allow_pickle=True),
        lambda: path.write_bytes(b""),
    ):
        damage()
        with raises("damaged-file", str(path)):
            read("eqbench_gebc", tmp_path)
    # What leads elsewhere is not opened here; launch.prepare refuses it.
    np.save(tmp_path / "other.npy", np.zeros((4, 6, 3), np.uint8))
    for place in (f"{tmp_path}/other.npy", "eqbengebc/../../other.npy"):
        rows(lambda rows, place=place: rows[2].update(image0="eqbengebc/2/1.npy", image1=place))(
            tmp_path / "all_select.json"
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


def test_aircraft_by_variant(tmp_path):
    first, second, third = written("fgvc_aircraft", tmp_path)
    assert (first.id, first.texts[first.target]) == ("1514522", "a photo of a 707-320, a type of aircraft.")
    assert (second.target, third.target, len(third.texts)) == (1, 99, 100)


def answers(items):
    return {item.id: item.texts[item.target] for item in items}


def test_imagenet_in_each_layout(tmp_path):
    """By folders, flat with Kaggle's table, and flat with the development kit: the same answers."""
    expected = {
        "ILSVRC2012_val_00000001": "a photo of a goldfish.",
        "ILSVRC2012_val_00000002": "a photo of a missile.",
        "ILSVRC2012_val_00000003": "a photo of a tench.",
    }
    by_folder = written("imagenet", tmp_path / "folders")
    assert answers(by_folder) == expected
    assert by_folder[0].images[0].path.parent.name == layouts.TENCH
    # Classes of one name are one candidate.
    assert len(by_folder[0].texts) == 998
    assert by_folder[0].texts.count("a photo of a sunglasses.") == 1
    assert [by_folder[0].texts[place] for place in (658, -1)] == [f"a photo of a class {n}." for n in (658, 999)]
    for write in (layouts.write_kaggle, layouts.write_devkit):
        folder = layouts.LAYOUTS["imagenet"](tmp_path / write.__name__)
        write(folder)
        items = read("imagenet", folder)
        assert answers(items) == expected
        assert all(item.images[0].path.is_file() for item in items)
    kaggle = tmp_path / "write_kaggle"
    (kaggle / "ILSVRC" / "Data" / "CLS-LOC").mkdir(parents=True)
    (kaggle / "val").rename(kaggle / "ILSVRC" / "Data" / "CLS-LOC" / "val")
    assert answers(read("imagenet", kaggle)) == expected


def test_flowers_of_the_test_split(tmp_path):
    items = written("flowers102", tmp_path)
    assert [item.id for item in items] == ["image_00003", "image_00001", "image_00002"]
    assert [item.target for item in items] == [101, 76, 0]
    assert items[1].texts[76] == "a photo of a passion flower."
    assert len(items[0].texts) == 102


def test_crepes_rows(tmp_path):
    items = written("crepe_productivity_swap", tmp_path)
    assert len(items) == 2 * 9
    assert published_layouts.left_out("crepe_productivity_swap", tmp_path).keys() == {
        f"{n}/00002" for n in range(4, 13)
    }
    assert [item.groups for item in items[:3]] == [("4",), ("4",), ("5",)]
    cups = [f"a {color} cup" for color in ("red", "green", "gray", "pink", "black")]
    assert items[0].texts == ("a blue cup, 0", *cups)
    assert items[1].texts == ("a blue cup, 1", *cups[:4])  # of which one stands there twice
    assert items[1].images[0].path == tmp_path / "VG_100K_2" / "2.jpg"
    assert items[0].images[0].box == (2, 1, 12, 13)
    # The archive's folder may be named as the source, too.
    assert len(read("crepe_productivity_swap", tmp_path / "prod_hard_negatives")) == 18
    items = written("crepe_systematicity_comp", tmp_path / "other")
    assert [item.groups for item in items] == [("seen",), ("seen",), ("unseen",), ("unseen",)]


def unit_vectors(signs):
    """Of 300 triples of texts, normal or (with many ties) of signs. Text -> [dimensions]."""
    generator = np.random.default_rng(0)
    found = {}
    for is_sign in (False, True)[: 1 + signs]:
        for name in itertools.product(range(300), "abn"):
            found[name] = generator.choice([-1.0, 1.0], 4) if is_sign else generator.normal(size=8)
    return {f"{number} {which}": vector / np.linalg.norm(vector) for (number, which), vector in found.items()}


@pytest.mark.parametrize(("signs", "published", "ties"), [(False, 0.30666666666666664, 0), (True, 0.26, 58)])
def test_texts_alone_as_the_published_code_counts_them(signs, published, ties):
    """SugarCrepe++'s TOT by ``sugarcrepe_plus_plus_evaluation`` of evaluate_ulms.py, which had these vectors."""
    vectors = unit_vectors(signs)
    protocol = sugarcrepe_pp.PROTOCOLS["similarity"]
    asked = [TextQuestion(str(n), {"caption": f"{n} a"}, (f"{n} b", f"{n} n"), 0) for n in range(300)]
    answers = [
        protocol.read(
            question,
            [
                Response(scores=tuple(float(vectors[one.text] @ vectors[other]) for other in one.others))
                for one in protocol.requests(question)
            ],
        )
        for question in asked
    ]
    found = sugarcrepe_pp.metrics(asked, answers)["accuracy"]
    assert (found["value"], found["ties"], found["n"]) == (published, ties, 300)


@pytest.mark.parametrize(
    ("first", "second", "choice", "tie"),
    [
        ((0.9, 0.8), (0.9, 0.7), 0, False),
        ((0.9, 0.8), (0.9, 0.95), 1, False),  # the second caption is nearer to the wrong one
        ((0.9, 0.95), (0.9, 0.8), 1, False),
        ((0.9, 0.8), (0.9, 0.9), 0, True),
    ],
)
def test_texts_alone_by_hand(first, second, choice, tie):
    question = TextQuestion("1", {"caption": "a"}, ("b", "wrong"), 0)
    one, other = sugarcrepe_pp.PROTOCOLS["similarity"].requests(question)
    assert ((one.text, one.others), (other.text, other.others)) == (("a", ("b", "wrong")), ("b", ("a", "wrong")))
    read_answer = sugarcrepe_pp.PROTOCOLS["similarity"].read
    answer = read_answer(question, [Response(scores=first), Response(scores=second)])
    assert (answer.choice, answer.tie) == (choice, tie)
    assert sugarcrepe_pp.metrics([question], [answer])["accuracy"]["value"] == float(choice == 0 and not tie)
    failed = read_answer(question, [Response(scores=first), None])
    assert sugarcrepe_pp.metrics([question] * 2, [answer, failed])["accuracy"]["n"] == 1
    assert sugarcrepe_pp.metrics([question], [failed]) == {}


@pytest.mark.parametrize("place", ["sugarcrepe_pp", "sources/coco_val2017/sugarcrepe_pp"])
def test_texts_alone_from_the_published_file(place, tmp_path):
    text_task = TEXT_TASKS["sugarcrepe_pp_tot_swap_obj"]
    assert f"put it at {tmp_path / 'sugarcrepe_pp/swap_obj.json'}" in text_task.ready(str(tmp_path))
    assert text_task.count(str(tmp_path)) is None
    layouts.write_sugarcrepe_pp((tmp_path / place).parent, "swap_obj")
    assert (text_task.ready(str(tmp_path)), text_task.count(str(tmp_path))) == (None, 3)
    with pytest.warns(UserWarning, match=r"3 rows .* 245"):
        asked = text_task.load(str(tmp_path), None)
    assert sorted(one.id for one in asked) == ["0", "1", "2"]
    (dogs,) = (one for one in asked if one.id == "1")
    assert (dogs.texts["caption"], dogs.options) == (
        "A dog chases two cats.",
        ("Two cats are chased by a dog.", "Two cats chase a dog."),
    )
    with pytest.warns(UserWarning, match="3 rows"):
        assert text_task.load(str(tmp_path), 2) == asked[:2]
    whole = text_task.data_fingerprint(str(tmp_path), None)
    put(1, "caption2", "Two dogs.")(tmp_path / place / "swap_obj.json")
    assert text_task.data_fingerprint(str(tmp_path), None) != whole
    put(1, "caption2", " ")(tmp_path / place / "swap_obj.json")
    with raises("not-a-text", "'caption2'", "2", "swap_obj.json"):
        text_task.load(str(tmp_path), None)


def test_vlchecklists_objects(tmp_path):
    items = written("vlchecklist_object_size_small", tmp_path)
    assert [item.groups[0] for item in items] == ["vg"] * 6 + ["swig"] * 12 + ["hake"] * 3
    assert [item.id for item in items[::3]] == [
        *("vg_obj/000000", "vg_subj/000000", "swig_agent/000000", "swig_destination/000000", "swig_item/000000"),
        *("swig_tool/000000", "hake_obj/000000"),
    ]
    assert (tmp_path / "data/Object/Size/swig_size/swig_agent/swig_agent_small.json").is_file()
    assert (tmp_path / "data/Object/Size/vg_size/vg_subj_small.json").is_file()
    assert items[6].images[0].path == tmp_path / "swig" / "VG_100K" / "0.jpg"
    assert items[6].texts == ("cup 0 is red", "cup 0 is blue")


def test_naturalbench_asks_each_question_of_each_image(tmp_path):
    folder = layouts.LAYOUTS["naturalbench"](tmp_path)
    single, questions, images, together = (read(f"naturalbench{form}", folder) for form in naturalbench.FORMS)
    assert [len(items) for items in (single, questions, images, together)] == [12, 6, 6, 3]
    yes, no = (f"Is cup 0 red?Please answer Yes or No.\nAnswer: {answer}" for answer in ("Yes", "No"))
    assert together[0].texts[:2] == (yes, no)
    assert question_texts.split(together[0].texts[2]) == ("Is cup 0 blue?Please answer Yes or No.", "No")
    assert answers(single[:4]) == {
        "row-0000/image-0/question-0": yes,
        "row-0000/image-0/question-1": together[0].texts[2],
        "row-0000/image-1/question-0": no,
        "row-0000/image-1/question-1": together[0].texts[3],
    }
    assert images[1].texts == (no, yes, together[0].texts[3], together[0].texts[2])
    assert questions[1].texts == together[0].texts[2:]
    assert together[1].groups == ("multiple_choice",)
    ending = "Option: A: red; B: blue;Please output the letter corresponding to the correct option.\nAnswer: A"
    assert together[1].texts[0].endswith(ending)
    assert pairs_of(single) == pairs_of(questions) == pairs_of(images) == pairs_of(together)


def test_conme_asks_for_letters_and_for_options(tmp_path):
    letters = written("conme_replace_obj", tmp_path)
    ending = "\nAnswer with the option's letter from the given choices directly."
    assert [item.id for item in letters] == ["row-0000", "row-0001", "row-0002"]
    asked = f"What is there, 0?\nA. red\nB. not red{ending}"
    assert [question_texts.split(text) for text in letters[0].texts] == [(asked, "A"), (asked, "B")]
    assert [question_texts.split(text)[1] for text in letters[1].texts] == ["B", "A"]
    assert letters[2].images[0].path == tmp_path / "val2017" / "000000000632.jpg"
    options = read("conme_replace_obj_options", tmp_path)
    assert [question_texts.split(text) for text in options[1].texts] == [
        ("What is there, 1?", "two cats"),
        ("What is there, 1?", "not two cats"),
    ]
    # The published code takes the option with the lower loss, as accuracy does, and the first of two equal ones.
    judged = METRICS["accuracy"]([-np.array([[0.2, 0.7]]), -np.array([[0.9, 0.7]]), -np.array([[0.5, 0.5]])], [0] * 3)
    assert judged["accuracy"].correct.tolist() == [True, False, False]
    assert judged["accuracy"].tie.tolist() == [False, False, True]


def test_texts_of_questions():
    assert question_texts.split(question_texts.join("Which?\nA: one\nB: two", "A")) == ("Which?\nA: one\nB: two", "A")
    for question, answer in (("", "A"), ("Which?", "A\nB")):
        with pytest.raises(ValueError, match="one line"):
            question_texts.join(question, answer)
    with pytest.raises(ValueError, match="not a question"):
        question_texts.split("a cat")


class Answers:
    answers_questions = True

    def fingerprint(self):
        return {"scorer": "yes"}

    def score(self, images, texts):
        return np.array([[question_texts.split(text)[1] in ("Yes", "A") for text in texts] for _ in images], float)


class Decides:
    """Scores how long a text is, and decides by that."""

    def __init__(self, threshold=None):
        self.match_threshold = threshold

    def fingerprint(self):
        return {"scorer": "length"}

    def score(self, images, texts):
        return np.array([[-float(len(text)) for text in texts] for _ in images])


def test_valses_texts_are_judged_alone_where_a_scorer_decides(tmp_path):
    """Captions of 30, 22 and 19 letters, against foils of 30, 21 and 19: by hand."""
    layouts.LAYOUTS["valse_existence"](tmp_path / "source")
    asked = task("valse_existence", tmp_path / "source")
    assert [[len(text) for text in item.texts] for item in asked.load(None, None)] == [[30, 30], [22, 21], [19, 19]]
    plain = evaluate.evaluate(Decides(), [asked], tmp_path / "plain", progress=False)
    assert list(plain["tasks"]["valse_existence"]) == ["accuracy"]
    # -20.5 is above all scores but those of the last row.
    found = evaluate.evaluate(Decides(-20.5), [asked], tmp_path / "run", progress=False)
    rows = found["tasks"]["valse_existence"]
    expected = {"accuracy": 0, "p_c": 1 / 3, "p_f": 2 / 3, "acc": 3 / 6, "min_p": 1 / 3}
    assert {name: row["value"] for name, row in rows.items()} == pytest.approx(expected)
    assert [row["n"] for row in rows.values()] == [3, 3, 3, 6, 3]
    assert {row["chance"] for row in rows.values()} == {0.5}
    assert rows["accuracy"] == plain["tasks"]["valse_existence"]["accuracy"]
    run = winobench.read_run(tmp_path / "run")
    again = {row.name: row.value for row in rows_of(run.tasks["valse_existence"])}
    assert again == pytest.approx(expected)
    assert "min_p" in run.table()
    # A score at the threshold is wrong, for captions and foils.
    tied = evaluate.evaluate(Decides(-21), [asked], tmp_path / "tied", progress=False)["tasks"]["valse_existence"]
    assert [(tied[name]["value"], tied[name]["ties"]) for name in ("p_c", "p_f")] == [(1 / 3, 0), (1 / 3, 1)]
    # A run without these rows is read and compared as before, and gets them by the same command.
    assert winobench.compare(tmp_path / "plain", tmp_path / "run").differences[0].value == 0
    grown = evaluate.evaluate(Decides(-20.5), [asked], tmp_path / "plain", progress=False)
    assert (grown["tasks"], grown["computed_passes"]) == (found["tasks"], 0)


class Matches(Answers):
    answers_questions = False


def test_only_scorers_that_answer_are_asked(tmp_path):
    names = [f"naturalbench{form}" for form in naturalbench.FORMS]
    folder = layouts.LAYOUTS["naturalbench"](tmp_path / "source")

    asked = [task(name, folder) for name in names]
    with raises("cannot-answer", "'naturalbench'", "Matches"):
        evaluate.evaluate(Matches(), asked, tmp_path / "refused", progress=False)
    assert not (tmp_path / "refused").exists()
    results = evaluate.evaluate(Answers(), asked, tmp_path / "run", progress=False)
    # Who always says yes is right half of the time, and never about two images or two questions.
    run = winobench.read_run(tmp_path / "run")
    values = [results["tasks"][name][run.tasks[name].shown[0]]["value"] for name in names]
    assert values == [0.5, 0, 0, 0]
    assert results["passes"] == 3 * 2 * 4
    assert [rows_of(run.tasks[name])[0].correct.mean() for name in names] == values
    gallery, _ = task_gallery(run, "naturalbench_groups", {}, 1, 0)
    (card,) = dict(gallery.kinds)["Surely wrong"]
    assert [[right for _, right, _ in cells] for cells in card.square.cells] == [[True, False] * 2, [False, True] * 2]
    assert not set(names) & set(groups.members("@compositional", TASKS))


def _published():
    """Task -> (file, the texts of a row, what rows it has)."""
    for edit, what in sugarcrepe.SETS:
        yield f"sugarcrepe_{edit}_{what}", f"sugarcrepe/{edit}_{what}.json", ("caption", "negative_caption")
    for name in sugarcrepe_pp.SETS:
        texts = ("caption", "caption2", "negative_caption")
        yield f"sugarcrepe_pp_{name}", f"sugarcrepe_pp/{name}.json", texts
    for piece, (file, *_) in valse.PIECES.items():
        yield f"valse_{piece}", f"valse/{file}.json", ("caption", "foil")
    yield "cola", "cola/COLA_multiobjects_matching_benchmark.json", (1, 3)


@pytest.mark.parametrize(("task", "file", "texts"), list(_published()))
def test_rows_as_published(reference_data, task, file, texts):
    path = reference_data / "newer" / file
    folder, rows = path.parent, json.loads(path.read_text())
    items = list(TASKS[task].source.read(folder.parent if folder.name == "sugarcrepe_pp" else folder))
    if isinstance(rows, dict):  # some of which the annotators did not find valid
        rows = {key: row for key, row in rows.items() if "mturk" not in row or row["mturk"]["caption"] > 1}
        assert [item.id for item in items] == list(rows)
        rows = rows.values()
    assert len(items) == TASKS[task].source.num_examples
    assert [item.texts for item in items] == [tuple(row[name] for name in texts) for row in rows]
    assert {item.target for item in items} == {None if task == "cola" else 0}


@pytest.mark.parametrize(("what", "counts"), [("att", (0, 122, 666)), ("obj", (410, 1407, 245))])
def test_sets_merged_as_self_bench_does(reference_data, what, counts):
    """788 and 2,062 rows, of which its loader keeps these of each set (counted in the published files)."""
    folder = reference_data / "newer" / "sugarcrepe"
    items = list(sugarcrepe_selfbench.read(folder, what))
    assert len(items) == TASKS[f"sugarcrepe_selfbench_{what}"].source.num_examples == sum(counts)
    sets = [name for item in items for name in item.groups]
    assert tuple(sets.count(name) for name in sugarcrepe_selfbench.MERGED[what]) == counts
    by_hand = {}
    for name in sugarcrepe_selfbench.MERGED[what]:
        by_hand |= json.loads((folder / f"{name}.json").read_text())
    assert {item.id: item.texts for item in items} == {
        key: (row["caption"], row["negative_caption"]) for key, row in by_hand.items()
    }


def test_a_skill_is_a_known_one():
    task = TASKS["cola"]
    assert set(task.skills) <= SKILLS.keys()
    fields = {name: getattr(task, name) for name in task.__dataclass_fields__}
    with pytest.raises(ValueError, match="'magic'"):
        Task(**{**fields, "skills": ("magic",)})
