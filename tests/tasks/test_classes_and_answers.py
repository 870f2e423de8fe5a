"""ImageNet, flowers, CREPE and NaturalBench, in sets made by hand."""

import dataclasses

import numpy as np
import pyarrow.parquet as pq
import pytest

import winobench
from tests.expectations import raises
from tests.launch.source_faults import change
from tests.tasks import class_layouts, newer_layouts
from winobench.data import question_texts
from winobench.evaluation import evaluate
from winobench.metrics import METRICS
from winobench.report.sections.gallery import task_gallery
from winobench.runs.rows import rows_of
from winobench.tasks import TASKS, class_prompts, groups, naturalbench


def read(task, folder):
    return newer_layouts.items_of(task, folder)


def written(task, folder):
    return read(task, newer_layouts.WRITERS[task](folder))


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
    assert by_folder[0].images[0].path.parent.name == class_layouts.TENCH
    for write in (class_layouts.write_kaggle, class_layouts.write_devkit):
        folder = newer_layouts.WRITERS["imagenet"](tmp_path / write.__name__)
        write(folder)
        items = read("imagenet", folder)
        assert answers(items) == expected
        assert all(item.images[0].path.is_file() for item in items)
    kaggle = tmp_path / "write_kaggle"
    (kaggle / "ILSVRC" / "Data" / "CLS-LOC").mkdir(parents=True)
    (kaggle / "val").rename(kaggle / "ILSVRC" / "Data" / "CLS-LOC" / "val")
    assert answers(read("imagenet", kaggle)) == expected


def test_classes_of_one_name_are_one_candidate(tmp_path):
    (item, *_) = written("imagenet", tmp_path)
    assert len(item.texts) == 998
    assert item.texts.count("a photo of a sunglasses.") == 1
    assert item.texts[658] == "a photo of a class 658."
    assert item.texts[-1] == "a photo of a class 999."


def test_bad_files_of_imagenet_are_named(tmp_path):
    folder = newer_layouts.WRITERS["imagenet"](tmp_path)
    class_layouts.write_devkit(folder)
    data = folder / "ILSVRC2012_devkit_t12" / "data"
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("3\n4\n2\n")
    with raises("unknown-name", "2", "'4'", "ILSVRC2012_validation_ground_truth.txt"):
        read("imagenet", folder)
    (data / "meta.mat").write_bytes(b"no matrix")
    with raises("damaged-file", str(data / "meta.mat")):
        read("imagenet", folder)
    (data / "ILSVRC2012_validation_ground_truth.txt").unlink()
    with raises("no-such-file", "ILSVRC2012_validation_ground_truth.txt"):
        read("imagenet", folder)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a,b,102", ("out-of-range", "'102'")),
        ("a,b,one", ("out-of-range", "'one'")),
        ("a,b,0", ("repeated-id", "0")),
        (",b,101", ("not-a-text", "'prompt'")),
        (None, ("wrong-number-of-entries", "101", "102")),
    ],
)
def test_bad_prompts_are_named(line, expected, tmp_path):
    path = tmp_path / "prompts.csv"
    class_layouts.write_prompts(path, {}, 101)
    path.write_text(path.read_text() + (f"{line}\n" if line else ""))
    code, *words = expected
    with raises(code, *words, str(path)):
        class_prompts.read(path, 102)


def test_flowers_of_the_test_split(tmp_path):
    items = written("flowers102", tmp_path)
    assert [item.id for item in items] == ["image_00003", "image_00001", "image_00002"]
    assert [item.target for item in items] == [101, 76, 0]
    assert items[1].texts[76] == "a photo of a passion flower."
    assert len(items[0].texts) == 102


def test_crepes_rows(tmp_path):
    items = written("crepe_productivity_swap", tmp_path)
    assert len(items) == 2 * 9
    assert newer_layouts.left_out("crepe_productivity_swap", tmp_path).keys() == {f"{n}/00002" for n in range(4, 13)}
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


def test_vlchecklists_objects(tmp_path):
    items = written("vlchecklist_object_size_small", tmp_path)
    assert [item.groups[0] for item in items] == ["vg"] * 6 + ["swig"] * 12 + ["hake"] * 3
    assert [item.id for item in items[::3]] == [
        *("vg_obj/000000", "vg_subj/000000", "swig_agent/000000", "swig_destination/000000", "swig_item/000000"),
        *("swig_tool/000000", "hake_obj/000000"),
    ]
    assert (tmp_path / "data/Object/Size/swig_size/swig_agent/swig_agent_small.json").is_file()
    assert (tmp_path / "data/Object/Size/vg_size/vg_subj_small.json").is_file()


def test_naturalbench_asks_each_question_of_each_image(tmp_path):
    folder = newer_layouts.WRITERS["naturalbench"](tmp_path)
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
    assert (
        together[1]
        .texts[0]
        .endswith("Option: A: red; B: blue;Please output the letter corresponding to the correct option.\nAnswer: A")
    )
    asked = [
        {(image.path, text) for item in items for image in item.images for text in item.texts}
        for items in (single, questions, images, together)
    ]
    assert asked[0] == asked[1] == asked[2] == asked[3]


def test_naturalbenchs_counts_are_those_of_1900_rows():
    counts = [TASKS[f"naturalbench{form}"].source.num_examples for form in naturalbench.FORMS]
    assert counts == [7600, 3800, 3800, 1900]
    assert [TASKS[f"naturalbench{form}"].chance for form in naturalbench.FORMS] == [
        METRICS[TASKS[f"naturalbench{form}"].metric].chance(TASKS[f"naturalbench{form}"].shape)
        for form in naturalbench.FORMS
    ]


def test_a_type_of_question_that_is_unknown(tmp_path):
    folder = newer_layouts.WRITERS["naturalbench"](tmp_path)
    (path,) = folder.rglob("*.parquet")
    rows = pq.read_table(path).to_pylist()
    newer_layouts.write_table(path, [{**rows[0], "Question_Type": "essay"}])
    with raises("unknown-name", "'essay'", "'Question_Type'", str(path)):
        read("naturalbench", folder)


def test_texts_of_questions():
    assert question_texts.split(question_texts.join("Which?\nA: one\nB: two", "A")) == ("Which?\nA: one\nB: two", "A")
    for question, answer in (("", "A"), ("Which?", " "), ("Which?", "A\nB")):
        with pytest.raises(ValueError, match="one line"):
            question_texts.join(question, answer)
    with pytest.raises(ValueError, match="not a question"):
        question_texts.split("a cat")


class Answers:
    """Says yes, or A, to whatever is asked."""

    answers_questions = True

    def fingerprint(self):
        return {"scorer": "yes"}

    def score(self, images, texts):
        return np.array([[question_texts.split(text)[1] in ("Yes", "A") for text in texts] for _ in images], float)


class Matches(Answers):
    answers_questions = False


def test_only_scorers_that_answer_are_asked(tmp_path):
    names = [f"naturalbench{form}" for form in naturalbench.FORMS]
    folder = newer_layouts.WRITERS["naturalbench"](tmp_path / "source")

    def task(name):
        items = read(name, folder)
        examples = [dataclasses.replace(item, images=tuple(image.path for image in item.images)) for item in items]
        fields = dict(load=lambda data_dir, limit: examples, ready=lambda data_dir: None, source=None)
        return dataclasses.replace(TASKS[name], **fields, data_fingerprint=lambda data_dir, limit: "x")

    tasks = list(map(task, names))
    with raises("cannot-answer", "'naturalbench'", "Matches"):
        evaluate.evaluate(Matches(), tasks, tmp_path / "refused", progress=False)
    assert not (tmp_path / "refused").exists()
    results = evaluate.evaluate(Answers(), tasks, tmp_path / "run", progress=False)
    # Who always says yes is right half of the time, and never about two images or two questions.
    run = winobench.read_run(tmp_path / "run")
    values = [results["tasks"][name][run.tasks[name].shown[0]]["value"] for name in names]
    assert values == [0.5, 0, 0, 0]
    assert results["passes"] == 3 * 2 * 4
    # What reports make of the recorded scores again.
    assert [rows_of(run.tasks[name])[0].correct.mean() for name in names] == values
    gallery, _ = task_gallery(run, "naturalbench_groups", {}, 1, 0)
    (card,) = dict(gallery.kinds)["Surely wrong"]
    assert [[right for _, right, _ in cells] for cells in card.square.cells] == [[True, False] * 2, [False, True] * 2]
    assert not set(names) & set(groups.members("@compositional", TASKS))


def test_captions_of_naturalbench(tmp_path):
    items = written("naturalbench_retrieval", tmp_path)
    assert [item.id for item in items] == ["0", "1", "2"]
    assert items[1].texts == ("A dog chases two cats.", "Two cats chase a dog.")
    change("NaturalBench-Retrieval/metadata.json", lambda rows: rows[1].update(image_0=3))(tmp_path)
    with raises("not-a-text", "'image_0'", "2"):
        read("naturalbench_retrieval", tmp_path)
