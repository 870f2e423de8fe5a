"""winobench.compare: the numbers of the report, the questions on which runs differ, and refusals."""

import csv
import io
import json
import shutil

import numpy as np
import pytest
import rich.console

import winobench
from tests import wscplus_files
from tests.evaluation import fakes
from tests.expectations import raises
from tests.report.conftest import HOSTILE, Skilled, csv_rows, make_run
from tests.report.test_text_sections import evaluate
from winobench import metrics, report
from winobench.report import analysis
from winobench.report.table import print_differences
from winobench.responders.recorded import RecordedModel
from winobench.runs import reading


@pytest.fixture(scope="module")
def found(run_folders):
    return winobench.compare(winobench.read_run(run_folders[0]), run_folders[1])


@pytest.fixture(scope="module")
def skilled(tmp_path_factory):
    """Two runs with two tasks of some skills."""
    chosen = [fakes.text_task("clevr", 8, ("spatial", "recognition_color")), fakes.square_task("colorswap")]
    root = tmp_path_factory.mktemp("skilled")
    return [
        make_run(Skilled(0.2), root / "a", chosen=chosen, num_samples=4),
        make_run(Skilled(0.7, weights="1"), root / "b", chosen=chosen, num_samples=4, model="other"),
    ]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Two runs of WSC+: one that says neither, and one that is right but once."""
    root = tmp_path_factory.mktemp("texts")
    answers = {"neither": lambda number, answer: 2, "good": lambda number, answer: answer if number else 1 - answer}
    folders = []
    for name, said in answers.items():
        model = RecordedModel(f"recorded:{wscplus_files.write(root / name, said=said)}")
        folders.append(evaluate(model, "wscplus", root / f"run-{name}", "toe", name, data_dir=str(root / name)))
    return folders


def copied(folder, to, *, config=None, results=None):
    """A copy of a run, with files changed by functions of their contents."""
    shutil.copytree(folder, to)
    for name, change in (("config.json", config), ("results.json", results)):
        if change is not None:
            content = json.loads((to / name).read_text())
            change(content)
            (to / name).write_text(json.dumps(content))
    return to


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("kind", ["run_folders", "skilled", "texts"])
def test_the_report_has_the_same_numbers(kind, request, tmp_path):
    folders = request.getfixturevalue(kind)[:2]
    found = winobench.compare(*folders)
    report.write_report(folders, tmp_path, resamples=10)
    rows = list(csv.DictReader(io.StringIO(found.table("csv", groups=True))))
    assert sorted(map(str, rows)) == sorted(map(str, csv_rows(tmp_path / "differences.csv")))
    flips = list(csv.DictReader(io.StringIO(found.flip_table("csv"))))
    assert flips == csv_rows(tmp_path / "flips.csv")
    assert len(flips) > 0
    page = (tmp_path / "report.html").read_text()
    assert "questions that one run has right and the other wrong" in page
    assert '<a href="flips.csv">' in page


def test_values_and_adjusted_p_values(found, run_folders):
    one, other = (reading.read_run(folder) for folder in run_folders[:2])
    for difference in found.differences:
        for value, run in ((difference.first, one), (difference.second, other)):
            assert value == pytest.approx(run.tasks[difference.task].results[difference.name]["value"])
        assert difference.value == pytest.approx(difference.second - difference.first)
        assert difference.name.endswith(difference.metric)
    rates = metrics.false_discovery_rates([difference.p_value for difference in found.differences])
    assert [difference.p_adjusted for difference in found.differences] == pytest.approx(list(rates))
    assert {difference.task for difference in found.differences} == set(one.tasks) - {"mmbias"}
    assert {difference.group for difference in found.differences if difference.task == "clevr"} == {
        "",
        "spatial",
        "recognition_color",
    }


def test_flips_are_the_questions_that_one_run_alone_has_right(found, run_folders):
    one, other = (reading.read_run(folder) for folder in run_folders[:2])
    assert found.flips
    for flip in found.flips:
        first, second = (run.tasks[flip.task].examples for run in (one, other))
        row = first.ids.index(flip.id)
        assert bool(first.correct[row]) is flip.first_is_right
        assert bool(second.correct[row]) is not flip.first_is_right
        np.testing.assert_array_equal(flip.scores[0], first.scores[row])
        np.testing.assert_array_equal(flip.scores[1], second.scores[row])
        assert flip.texts == first.texts[row]
        if flip.right_answer is not None:
            assert [flip.answers[place] == flip.right_answer for place in (0, 1)] == [
                flip.first_is_right,
                not flip.first_is_right,
            ]
    headline = {"square": "group", "retrieval": "recall@1"}
    for task in ("clevr", "square", "retrieval", "relations"):
        name = headline.get(task, "accuracy")
        (row,) = [each for each in found.differences if (each.task, each.name) == (task, name)]
        of_task = [flip for flip in found.flips if flip.task == task]
        assert len(of_task) == row.only_first + row.only_second
    assert {flip.right_answer for flip in found.flips if flip.task == "square"} <= {None}


def test_a_skill_is_the_mean_of_its_tasks(skilled):
    found = winobench.compare(*skilled)
    rows = {(row.task, row.name): row for row in found.differences}
    skill, clevr, swap = rows["@compositional", "macro_mean"], rows["clevr", "accuracy"], rows["colorswap", "group"]
    assert clevr.num_examples != swap.num_examples
    assert skill.first == pytest.approx((clevr.first + swap.first) / 2)
    assert skill.second == pytest.approx((clevr.second + swap.second) / 2)
    assert skill.value == pytest.approx((clevr.value + swap.value) / 2)
    assert skill.low < skill.value < skill.high
    assert not skill.lacks_noise
    assert ("@spatial", "macro_mean") not in rows  # one task alone
    # By hand, from the answers, and without the noise of the samples, which widens it.
    one, other = (reading.read_run(folder).tasks for folder in skilled)
    names = ("clevr", "colorswap")
    images = [some for name in names for some in one[name].examples.images]
    strata = np.repeat([0, 1], [len(one[name].examples.ids) for name in names])
    right = [np.concatenate([run[name].examples.correct for name in names]) for run in (one, other)]
    plain = metrics.paired_difference(*right, metrics.Dependence.from_sets(images), strata=strata)
    assert (skill.value, skill.num_examples) == (pytest.approx(plain.value), len(strata))
    assert skill.high - skill.low >= plain.high - plain.low - 1e-9


def test_texts_are_compared(texts):
    found = winobench.compare(*texts)
    assert (found.first, found.second, found.is_text) == ("neither", "good", True)
    rows = {row.name: row for row in found.differences}
    # Of 24 questions neither is the answer to 12, and one is answered wrongly by the good model.
    assert (rows["accuracy"].first, rows["accuracy"].second) == pytest.approx((12 / 24, 23 / 24))
    gained = [flip for flip in found.flips if not flip.first_is_right]
    assert (rows["accuracy"].only_second, rows["accuracy"].only_first) == (len(gained), len(found.flips) - len(gained))
    assert len(gained) in (11, 12)
    flip = gained[0]
    assert flip.answers[1] == flip.right_answer
    assert flip.right_answer in flip.texts
    assert "pairs_apart" in found.table("csv").splitlines()[0]


def test_it_prints_in_a_few_lines(found):
    assert len(repr(found).splitlines()) <= 3
    assert len(repr(found)) < 500
    page = found._repr_html_()
    assert "<table>" in page
    assert "<script" not in page
    assert "mmbias is not compared" in page
    assert found.notes == ("mmbias is not compared: its numbers are not shares of right answers.",)


def test_tables(found):
    lines = found.table().splitlines()
    assert lines[0].split()[:2] == ["task", "metric"]
    assert "clevr-tiny %" in lines[0]
    assert len(lines) == 2 + sum(not difference.group for difference in found.differences)
    assert len(found.table("markdown", groups=True).splitlines()) == 2 + len(found.differences)
    assert HOSTILE not in found.table("markdown", groups=True)
    assert r"\textless{}script\textgreater{}" in found.table("latex", groups=True)
    for line in found.flip_table("latex").splitlines()[4:-2]:
        assert len([place for place in range(len(line)) if line[place] == "&" and line[place - 1] != "\\"]) == 5
    (row, *_) = csv.DictReader(io.StringIO(found.flip_table("csv")))
    flip = found.flips[0]
    assert json.loads(row["texts"]) == list(flip.texts)
    np.testing.assert_allclose(json.loads(row["first_scores"]), flip.scores[0], rtol=1e-5)
    for table in (found.table, found.flip_table):
        with raises("unknown-name", "'excel'"):
            table("excel")


def test_a_mark_in_the_table():
    difference = analysis.Difference("a", 0.5, 0.6, 0.1, 0.02, 0.18, 0.012, 0.012, 100, 2, 12, 14, True, "clevr")
    found = winobench.Comparison("x", "y", (difference,), (), (), False)
    assert "+10.0 ● ‡" in found.table()
    assert r"+10.0 $\bullet$ \ddag{}" in found.table("latex")
    assert found.flip_table("csv") == "first,second,task\n"


def test_the_runs_keep_their_labels(run_folders):
    one, other = (winobench.read_run(run_folders[0]) for _ in range(2))
    found = winobench.compare(one, other)
    assert one.label == other.label == "clevr-tiny"
    assert found.first != found.second
    assert not found.flips
    assert {difference.value for difference in found.differences} == {0}


def test_some_tasks_alone(run_folders, found):
    some = winobench.compare(*run_folders[:2], tasks=["square"])
    assert {difference.task for difference in some.differences} == {"square"}
    whole = [difference for difference in found.differences if difference.task == "square"]
    assert [each.p_value for each in some.differences] == [each.p_value for each in whole]
    assert some.notes == ()


def test_runs_that_are_not_comparable_are_refused(run_folders, texts, tmp_path):
    with raises("runs-of-two-kinds", str(run_folders[0])):
        winobench.compare(run_folders[0], texts[0])
    with raises("unknown-name", "'pets'", "clevr"):
        winobench.compare(*run_folders[:2], tasks=["pets"])
    with raises("nothing-to-compare"):
        winobench.compare(*run_folders[:2], tasks="mmbias")

    def newer(config):
        config["identity"]["tasks"]["square"]["version"] = 2

    folder = copied(run_folders[1], tmp_path / "newer", config=newer)
    with raises("another-version", "square", "1", "2", str(folder)):
        winobench.compare(run_folders[0], folder)
    assert winobench.compare(run_folders[0], folder, tasks=["clevr"]).differences
    part = make_run(Skilled(0.5), tmp_path / "part", chosen=[fakes.image_task(count=4)], model="part")
    with raises("different-questions", "pictures", "6", "4", str(part)):
        winobench.compare(run_folders[0], part)
    other = make_run(Skilled(0.5), tmp_path / "other", chosen=[fakes.text_task()], model="other")
    with raises("nothing-to-compare", str(other)):
        winobench.compare(run_folders[0], other)


def test_what_lacks_is_noted(run_folders, tmp_path):
    lost = copied(run_folders[1], tmp_path / "lost")
    shutil.rmtree(lost / "errors")
    (lost / "examples" / "square.parquet").unlink()
    found = winobench.compare(run_folders[0], lost)
    assert all(difference.lacks_noise for difference in found.differences)
    assert "square" not in {difference.task for difference in found.differences}
    assert any(note.startswith("square is not compared") for note in found.notes)
    assert any(note.startswith("‡ No complete errors are recorded") for note in found.notes)


def test_failed_calls_are_left_out(texts, tmp_path):
    file = wscplus_files.write(tmp_path)
    rows = csv_rows(file)
    some = tmp_path / "some.csv"
    with some.open("w", newline="", encoding="utf-8") as stream:
        answers = [(row["query"], row["predicted_reason"]) for row in rows[1:]]
        csv.writer(stream).writerows([("query", "response"), *answers])
    model = RecordedModel(f"recorded:{some}")
    folder = evaluate(model, "wscplus", tmp_path / "run", "toe", "model", data_dir=str(tmp_path))
    found = winobench.compare(texts[1], folder)
    assert found.differences[0].num_examples == 23
    assert any("calls failed" in note and "1" in note for note in found.notes)


@pytest.mark.parametrize("kind", ["run_folders", "texts"])
def test_the_terminal_shows_the_numbers_of_the_table_in_80_columns(kind, request):
    compared = winobench.compare(*request.getfixturevalue(kind)[:2])
    for groups in (False, True):
        stream = io.StringIO()
        print_differences(compared, groups=groups, console=rich.console.Console(file=stream, width=80))
        lines = [line.rstrip() for line in stream.getvalue().splitlines()]
        assert max(map(len, lines)) <= 80
        assert lines[:2] == [f"A: {compared.first}", f"B: {compared.second}"]
        lines = [line[1:] for line in lines]  # without the edge of the table
        shown = [row for row in compared.differences if groups or not row.group]
        tasks = list(dict.fromkeys(row.task for row in shown))
        names = [f"{'    ' if row.group else '  '}{row.name.removesuffix('/accuracy')}" for row in shown]
        assert [line for line in lines if line in tasks] == tasks
        for row, name in zip(shown, names, strict=True):
            cells = [f"{100 * value:.1f}" for value in (row.first, row.second)]
            assert any(line.startswith(name[:18]) and line.split()[1:3] == cells for line in lines), row  # folded
