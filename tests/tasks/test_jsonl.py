"""Questions of the user's own: what a file means, and that what is wrong is named by line and field."""

import json

import numpy as np
import pytest

import winobench
from tests.expectations import raises
from tests.tasks.published_layouts import write_image
from winobench import metrics
from winobench.tasks import tasks_from

TEXTS = {"images": ["a.png"], "texts": ["one", "two", "three"], "answer": 2}
IMAGES = {"images": ["a.png", "sub/b.png"], "texts": ["one"], "answer": 1, "groups": ["easy"], "id": "mine"}
DIAGONAL = {"images": ["a.png", "sub/b.png"], "texts": ["one", "two"], "answer": None}


@pytest.fixture
def write(tmp_path):
    for name in ("a.png", "sub/b.png"):
        write_image(tmp_path / name)

    def write(*rows, name="my_set"):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


def test_questions_of_one_image_or_one_text(write, tmp_path):
    task = winobench.task_from_jsonl(write(TEXTS, "\n", IMAGES))
    assert (task.name, task.metric, task.shape, task.images_compete) == ("my_set", "accuracy", (2, 3), True)
    assert task.chance == {"accuracy": (1 / 3 + 1 / 2) / 2}
    assert task.count(None) == 2
    first, second = task.load(None, None)
    assert (first.id, first.texts, first.target, first.groups) == ("line-000001", ("one", "two", "three"), 2, ())
    assert (second.id, second.images, second.target) == ("mine", (tmp_path / "a.png", tmp_path / "sub" / "b.png"), 1)
    assert second.groups == ("easy",)
    assert list(task.load(None, 1)) == [first]


def test_questions_of_the_diagonal(write):
    task = winobench.task_from_jsonl(write(DIAGONAL), name="pairs")
    assert (task.name, task.metric, task.chance["group"]) == ("pairs", "winoground", 1 / 6)


def test_the_fingerprint_is_of_what_is_asked(write, tmp_path):
    path = write(TEXTS, IMAGES)
    before = winobench.task_from_jsonl(path)
    prints = [before.data_fingerprint(None, limit) for limit in (None, 1)]
    write_image(tmp_path / "sub/b.png", (8, 8))
    after = winobench.task_from_jsonl(path)
    assert after.data_fingerprint(None, 1) == prints[1]
    assert after.data_fingerprint(None, None) != prints[0]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"images": ["c.png"]}, ("missing-images", "2", "'images'", "c.png")),
        ({"images": "a.png"}, ("not-a-list", "2", "'images'")),
        ({"texts": ["one", " "]}, ("not-a-text", "2", "'texts'")),
        ({"answer": 3}, ("wrong-shape", "2", "'answer'", "3")),
        ({"answer": None}, ("contradicting-options", "2", "'answer'")),
        ({"images": ["a.png"], "texts": ["one"], "answer": 0}, ("wrong-shape", "2", "'answer'")),
        ({"id": "line-000001"}, ("repeated-id", "2", "'id'")),
        ({"anwser": 1}, ("unknown-field", "2", "'anwser'", "answer")),
        ({"label": 1}, ("unknown-field", "2", "'label'", "did you mean answer")),
    ],
)
def test_a_bad_line_is_named(change, expected, write):
    row = {**(DIAGONAL if change == {"answer": None} else IMAGES), **change}
    code, *words = expected
    path = write(TEXTS, row)
    with raises(code, *words, path) as caught:
        winobench.task_from_jsonl(path)
    assert str(caught.value).endswith((": correct the line", "?"))


def test_bad_files_are_named(write, tmp_path):
    with raises("not-json", "2", "my_set.jsonl"):
        winobench.task_from_jsonl(write(TEXTS, '{"images"\n'))
    with raises("not-an-object", "line 1", "an object a line"):
        winobench.task_from_jsonl(write("[{}]\n"))
    with raises("wrong-shape", "the question has 1 image and 1 text"):
        winobench.task_from_jsonl(write({"images": ["a.png"], "texts": ["one"], "answer": 0}))
    with raises("no-examples", "my_set.jsonl"):
        winobench.task_from_jsonl(write("\n"))
    with raises("cannot-read", "absent.jsonl"):
        winobench.task_from_jsonl(str(tmp_path / "absent.jsonl"))
    without = {key: value for key, value in TEXTS.items() if key != "answer"}
    with raises("missing-field", "1", "'answer'"):
        winobench.task_from_jsonl(write(without))
    assert [task.name for task in tasks_from([f"jsonl:{write(TEXTS)}"])] == ["my_set"]
    with raises("already-exists", "'winoground'"):
        tasks_from([f"jsonl:{write(TEXTS, name='winoground')}"])
    with raises("unknown-name", "'json:x'", "jsonl"):
        tasks_from(["json:x"])


_METRIC = """
import dataclasses
from winobench.metrics import ACCURACY

LENIENT = dataclasses.replace(ACCURACY, name="lenient", chance=lambda shape: {"accuracy": 0.25})
CLASH = dataclasses.replace(ACCURACY, name="recall")
"""


@pytest.fixture
def metric(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(_METRIC)
    yield path
    metrics.METRICS.data.pop("lenient", None)


def test_a_metric_from_a_file(write, metric):
    path = write(TEXTS, IMAGES)
    (task,) = tasks_from([f"jsonl:{path}:{metric}:LENIENT"])
    assert (task.name, task.metric, task.chance) == ("my_set", "lenient", {"accuracy": 0.25})
    assert metrics.METRICS["lenient"].headline == "accuracy"
    usual = winobench.task_from_jsonl(path)
    assert task.data_fingerprint(None, None) != usual.data_fingerprint(None, None)  # another run
    metric.write_text(_METRIC + "\n# changed\n")
    again = winobench.task_from_jsonl(path, metric=f"{metric}:LENIENT")
    assert again.data_fingerprint(None, None) != task.data_fingerprint(None, None)
    (task,) = tasks_from([f"jsonl:{path}:recall"])
    assert (task.metric, list(task.chance)) == ("recall", ["recall@1", "recall@5"])


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("{metric}:LENIENTT", ("unknown-metric", "LENIENT")),
        ("{metric}:CLASH", ("already-exists", "'recall'")),
        ("nowhere.py:LENIENT", ("no-such-file", "nowhere.py")),
        ("acuracy", ("unknown-metric", "'acuracy'", "accuracy")),
    ],
)
def test_a_bad_metric_is_named(write, metric, word, expected):
    with raises(*expected):
        winobench.task_from_jsonl(write(TEXTS), metric=word.format(metric=metric))


def test_a_file_that_fails_is_named(write, metric):
    metric.write_text("1 / 0")
    with raises("broken-plug-in", str(metric), "ZeroDivisionError"):
        winobench.task_from_jsonl(write(TEXTS), metric=f"{metric}:LENIENT")


def test_a_metric_from_a_file_counts(write, metric, tmp_path):
    metric.write_text(
        "import dataclasses\nfrom winobench.metrics import ACCURACY, Outcome\n"
        "def judge(scores, targets):\n"
        "    right = ACCURACY.judge(scores, targets)['accuracy']\n"
        "    return {'failures': Outcome(~right.correct, right.tie)}\n"
        "LENIENT = dataclasses.replace(ACCURACY, name='lenient', judge=judge, headline='failures',"
        " shown=('failures',), chance=lambda shape: {'failures': 1 - 1 / max(shape)})\n"
    )
    rows = [{**TEXTS, "groups": ["three"]}, {**IMAGES, "texts": ["one"], "groups": ["two"]}]
    (task,) = tasks_from([f"jsonl:{write(*rows)}:{metric}:LENIENT"])
    assert task.chance == {"failures": pytest.approx((2 / 3 + 1 / 2) / 2)}
    found = winobench.evaluate(Longest(), [task], tmp_path / "run", progress=False)["tasks"]["my_set"]
    assert found["three/failures"]["value"] == 0.0
    assert {name: entry["chance"] for name, entry in found.items()} == pytest.approx(
        {"failures": (2 / 3 + 1 / 2) / 2, "three/failures": 2 / 3, "two/failures": 1 / 2}
    )


@pytest.mark.parametrize(
    ("metric", "of_two", "of_three"),
    [
        ("accuracy", {"accuracy": 1 / 2}, {"accuracy": 1 / 3}),
        ("macro_accuracy", {"accuracy": 1 / 2}, {"accuracy": 1 / 3}),
        ("recall", {"recall@1": 1 / 2, "recall@5": 1.0}, {"recall@1": 1 / 3, "recall@5": 1.0}),
        (
            "recall_1_3_5_10",
            {"recall@1": 1 / 2, "recall@3": 1.0, "recall@5": 1.0, "recall@10": 1.0},
            {"recall@1": 1 / 3, "recall@3": 1.0, "recall@5": 1.0, "recall@10": 1.0},
        ),
        ("all_true", {"all_true": 1 / 2}, {"all_true": 1 / 3}),
    ],
)
def test_chance_is_over_a_groups_own_questions(write, tmp_path, metric, of_two, of_three):
    two = {**TEXTS, "texts": ["one", "two"], "answer": 0}
    three = {**TEXTS, "answer": 0}
    rows = [(two, ["colour"]), (two, ["colour", "shape"]), (three, ["size"]), (three, ["size"])]
    path = write(*({**row, "groups": groups} for row, groups in rows), {**two, "groups": ["mixed"]})
    extra = {**three, "groups": ["mixed"]}
    with open(path, "a") as file:
        file.write(json.dumps(extra) + "\n")
    task = winobench.task_from_jsonl(path, metric=metric)
    found = winobench.evaluate(Longest(), [task], tmp_path / "run", progress=False)["tasks"]["my_set"]
    for outcome, level in of_two.items():
        mean = (level + of_three[outcome]) / 2
        expected = {"": mean, "colour/": level, "shape/": level, "size/": of_three[outcome], "mixed/": mean}
        assert {group: found[f"{group}{outcome}"]["chance"] for group in expected} == pytest.approx(expected)
    if metric == "macro_accuracy":  # of colour, shape, size and mixed
        assert found["macro_accuracy"]["chance"] == pytest.approx((1 / 2 + 1 / 2 + 1 / 3 + 5 / 12) / 4)


def test_a_metric_may_have_no_chance_for_some_questions(write, tmp_path):
    path = write(DIAGONAL, {"images": ["a.png"] * 3, "texts": ["one", "two", "three"], "answer": None})
    task = winobench.task_from_jsonl(path)
    assert set(task.chance.values()) <= {None}
    found = winobench.evaluate(Longest(), [task], tmp_path / "run", progress=False)["tasks"]["my_set"]
    assert {entry["chance"] for entry in found.values()} == {None}
    alone = winobench.evaluate(Longest(), [task], tmp_path / "one", limit=1, progress=False)["tasks"]["my_set"]
    assert [alone[name]["chance"] for name in ("text", "image", "group")] == [1 / 4, 1 / 4, 1 / 6]


class Longest:
    def score(self, images, texts):
        return np.array([[len(text) for text in texts]], float)
