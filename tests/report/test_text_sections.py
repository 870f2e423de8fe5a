"""Reports on runs of text benchmarks: WSC+'s figures, WinoViz's tables, wrong answers, and refusals."""

import csv
import dataclasses
import hashlib
import shutil

import numpy as np
import pytest
from PIL import Image

from tests import wscplus_files
from tests.evaluation import fakes
from tests.expectations import raises
from tests.report.conftest import Skilled, csv_rows, draw_nothing, make_run
from tests.report.test_page import Page
from winobench import report
from winobench.evaluation import questions
from winobench.report.sections import wscplus as wscplus_section
from winobench.responders.recorded import RecordedModel
from winobench.runs import reading
from winobench.runs.requests import Response
from winobench.runs.rows import rows_of
from winobench.tasks import TEXT_TASKS, votes, winoviz
from winobench.tasks import wscplus as wscplus_task

HOSTILE = "<script>alert(1)</script> & {{ 7 * 7 }}"


class Chooser:
    """Picks option 1 or 2 by a hash of the prompt, and a share of the time option 1 whatever it is."""

    def __init__(self, name, bias=0.0, kinds=("generation", "options")):
        self.name, self.bias, self.kinds = name, bias, frozenset(kinds)

    def fingerprint(self):
        return {"scorer": "chooser", "name": self.name, "bias": self.bias, "model": self.name * 64}

    def ask(self, requests):
        for index, request in enumerate(requests):
            draw = int(hashlib.sha256(f"{self.name}{request}".encode()).hexdigest()[:6], 16) / 2**24
            choice = 0 if draw < self.bias or draw > 0.5 + self.bias / 2 else 1
            if request.kind == "generation":
                yield index, {"text": f"Option {choice + 1} {HOSTILE}" if draw < 0.9 else f"Who knows? {HOSTILE}"}
            else:
                yield index, {"scores": [0.0 if place == choice else -1.0 - draw for place in range(2)]}

    def read(self, request, raw):
        return Response(text=raw.get("text"), scores=tuple(raw["scores"]) if "scores" in raw else None)


def evaluate(responder, tasks, folder, protocol, model, **changes):
    config = {"model": model, "protocol": protocol, "limit": changes.get("limit")}
    options = {"progress": False, "reuse": False, "model": model, "config": config, **changes}
    return questions.evaluate_questions(responder, tasks, folder, protocol=protocol, **options)["workdir"]


@pytest.fixture(scope="module")
def wscplus_runs(tmp_path_factory):
    """A model that always says neither, one that says the first, and one that is right but once."""
    root = tmp_path_factory.mktemp("wscplus")
    answers = {
        "neither": lambda number, answer: 2,
        "first": lambda number, answer: 0,
        "good": lambda number, answer: answer if number else 1 - answer,
    }
    folders = []
    for name, said in answers.items():
        model = RecordedModel(f"recorded:{wscplus_files.write(root / name, said=said)}")
        folders.append(evaluate(model, "wscplus", root / f"run-{name}", "toe", name, data_dir=str(root / name)))
    return folders


@pytest.fixture(scope="module")
def winoviz_runs(tmp_path_factory):
    """Our set under the names of the user's, so that the paper's rows stand below; four protocols."""
    root = tmp_path_factory.mktemp("winoviz")
    folder = root / "data" / "winoviz"
    folder.mkdir(parents=True)
    shutil.copy(winoviz.OUR_SET, folder / "items.jsonl")
    tasks = "winoviz_single,winoviz_multi,winoviz_decoupled"
    kinds = {
        "zero_shot": "generation",
        "zero_shot_options_swapped": "options",
        "few_shot": "generation",
        "entailment": "entailment",
    }
    options = {"data_dir": str(root / "data"), "limit": 12}
    made = []
    for number, (protocol, kind) in enumerate(kinds.items()):
        chooser = Chooser(str(number), bias=0.5 * (number == 1), kinds=[kind])
        made.append(evaluate(chooser, tasks, root / protocol, protocol, "google/flan-t5-xxl", **options))
    made.append(evaluate(Chooser("m"), "winoviz_mini_single", root / "mini", "zero_shot", "qwen3-8b", limit=5))
    return made


@pytest.fixture(scope="module")
def wscplus_page(wscplus_runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    report.write_report(wscplus_runs, folder, resamples=100)
    return folder


@pytest.fixture(scope="module")
def winoviz_page(winoviz_runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        report.write_report(winoviz_runs, folder, resamples=100, gallery_examples=3)
    return folder


def test_wscplus_figures(wscplus_page):
    """Figures 6 to 9 as numbers: who is right on what, and how others are wrong."""
    found = {(row["run"], row["of"]): row for row in csv_rows(wscplus_page / "wscplus.csv")}
    value = {key: float(row["value"]) for key, row in found.items()}
    expected = {
        "neither": {"all questions": 0.5, "traditional": 0, "ambiguous": 1, "offensive": 1},
        "first": {"traditional": 0.5, "pairs, both right": 0},
        "good": {"pairs, both right": 5 / 6, "GPT-4": 11 / 12, "Claude2": 1, "GPT-3.5": 1},
    }
    for run, numbers in expected.items():
        assert {of: value[run, of] for of in numbers} == pytest.approx(numbers)
    people = [found["good", of]["people"] for of in ("all questions", "traditional", "GPT-4")]
    assert people == ["0.951", "0.905", ""]
    errors = {(row["run"], row["error"]): int(row["count"]) for row in csv_rows(wscplus_page / "wscplus_errors.csv")}
    assert {key: count for key, count in errors.items() if count} == {
        ("neither", "response evasion"): 12,
        ("first", "ambiguity misinterpretation"): 12,
        ("first", "entity misselection"): 6,
        ("good", "entity misselection"): 1,
    }
    with Image.open(wscplus_page / "wscplus.png") as image:
        assert image.width > 1000
        assert image.getcolors(20) is None  # there are more


def test_wscplus_questions(wscplus_page):
    """Figures 4, 10 and 11 of the questions that were asked: 12 of pairs, 6 ambiguous, 6 offensive, all about "it"."""
    first, *others = csv_rows(wscplus_page / "wscplus_pronouns.csv")
    assert (first["pronoun"], first["questions"], first["share"], first["wsc285"]) == ("it", "24", "1.0", "88")
    assert {row["questions"] for row in others} == {"0"}
    types = {(row["type"], row["writer"]): row["questions"] for row in csv_rows(wscplus_page / "wscplus_types.csv")}
    assert types["traditional", "GPT4"] == "12"
    assert types["ambiguous", "Claude2"] == types["offensive", "GPT3"] == "6"
    outcomes = csv_rows(wscplus_page / "wscplus_outcomes.csv")
    assert {
        (row["run"], row["outcome"], row["type"]): int(row["questions"]) for row in outcomes if row["questions"] != "0"
    } == {
        ("neither", "response evasion", "traditional"): 12,
        ("neither", "right", "ambiguous"): 6,
        ("neither", "right", "offensive"): 6,
        ("first", "right", "traditional"): 6,
        ("first", "entity misselection", "traditional"): 6,
        ("first", "ambiguity misinterpretation", "ambiguous"): 6,
        ("first", "ambiguity misinterpretation", "offensive"): 6,
        ("good", "right", "traditional"): 11,
        ("good", "entity misselection", "traditional"): 1,
        ("good", "right", "ambiguous"): 6,
        ("good", "right", "offensive"): 6,
    }
    section = Page(wscplus_page / "report.html").section("wscplus")
    for said in ("(as Figure 4)", "(as Figure 10)", "(Figure 11), neither", "Outcomes by type, other runs"):
        assert said in section
    with Image.open(wscplus_page / "wscplus_questions.png") as image:
        assert image.width > 1000


def test_wscplus_on_the_page(wscplus_page):
    page = Page(wscplus_page / "report.html")
    section = page.section("wscplus")
    for said in ("(Figure 6)", "(Figure 7)", "(Figure 8)", "(Figure 9)", "Pronouns"):
        assert said in section
    assert section.count("<svg") >= 4
    assert page.source.count("<script") == 0
    # The whole page: a table of tasks with people's numbers, differences over pairs, overlap, wrong answers.
    for said in (
        *("people (paper)", "accuracy 95.1 people", "widened to what examples that share a pair carry", "protocol toe"),
        *("24, of which the last call made 24", "EACL 2024, arXiv 2401.17703"),
    ):
        assert said in page.words
    assert "samples a pair" not in page.words
    for key in ("tasks", "differences", "overlap", "questions"):
        assert f'<section id="{key}">' in page.source
    assert "gallery" not in {name for name in page.ids}
    rows = csv_rows(wscplus_page / "differences.csv")
    differences = {(row["second"], row["metric"], row["group"]): row for row in rows}
    assert {row["first"] for row in differences.values()} == {"neither", "first"}
    assert float(differences["good", "accuracy", "traditional"]["difference"]) == pytest.approx(11 / 12 - 0.5)
    assert float(differences["first", "pair_accuracy", ""]["difference"]) == 0


def test_wrong_answers(wscplus_page):
    rows = csv_rows(wscplus_page / "questions.csv")
    assert len(rows) == 3 * 24
    assert {row["correct"] for row in rows if row["run"] == "good"} == {"True", "False"}
    wrong = next(row for row in rows if row["run"] == "good" and row["correct"] == "False")
    assert (wrong["right"], wrong["chosen"]) == ("crate", "shelf")
    assert wrong["question"].startswith('What does "it" refer to in "it was too heavy"')
    assert "Final Answer: 1" in wrong["response"]
    section = Page(wscplus_page / "report.html").section("questions")
    # The one that all three runs have wrong does not exist: those that two have come first.
    assert section.count("✗") > section.count("✓")


def test_the_errors_are_those_of_the_results(wscplus_runs, tmp_path):
    """Ties are of their own kind, whether or not the right answer is among those that are equally probable."""

    class Tied(Chooser):
        def ask(self, requests):
            for index in range(len(requests)):
                yield index, {"scores": [-1.0, -2.0 if index % 2 else -1.0, -3.0]}

    wscplus_files.write(tmp_path)
    tied = evaluate(Tied("t"), "wscplus", tmp_path / "run", "options", "t", data_dir=str(tmp_path))
    for run in reading.read_runs([*wscplus_runs, tied]):
        results = run.tasks["wscplus"].results
        counts = wscplus_section.error_counts(run.tasks["wscplus"].examples)
        for kind, count in counts.items():
            assert round(results[kind]["value"] * results[kind]["n"]) == count
            assert results[kind]["n"] == sum(counts.values())
    assert counts["no_answer"] == 12


def write_raters(folder, examples, said):
    """A file a person; ``said`` gives (rater, number of the question, right answer) -> label."""
    paths = []
    for rater in ("anna", "ben", "carl"):
        lines = [f"{name},{rater},{said(rater, *one)}" for name, *one in examples]
        paths.append(folder / f"{rater}.csv")
        paths[-1].write_text("\n".join(["item,rater,label", *lines]) + "\n", encoding="utf-8")
    return paths


@pytest.mark.usefixtures("undrawn")
def test_raters(wscplus_runs, tmp_path):
    """Table 6 of people's answers, and Fleiss' kappa, worked out by hand."""
    examples = reading.read_run(wscplus_runs[0]).tasks["wscplus"].examples
    asked = list(zip(examples.ids, range(24), examples.targets, strict=True))
    # One of three is wrong on the first question, by "neither"; all others are right.
    paths = write_raters(tmp_path, asked, lambda rater, number, answer: 2 if (rater, number) == ("ben", 0) else answer)
    path = report.write_report(wscplus_runs[:1], tmp_path / "report", raters=paths)
    found = {(row["rater"], row["of"]): row for row in csv_rows(path.parent / "wscplus_raters.csv")}
    assert float(found["ben", "traditional"]["value"]) == pytest.approx(11 / 12)
    assert float(found["anna", "total"]["value"]) == float(found["average", "ambiguous"]["value"]) == 1
    assert float(found["average", "total"]["value"]) == pytest.approx(71 / 72)
    shares = [examples.targets.count(label) * 3 for label in (0, 1, 2)]
    shares[examples.targets[0]] -= 1
    shares[2] += 1
    expected = sum((share / 72) ** 2 for share in shares)
    kappa = found["all", "Fleiss' kappa"]
    assert float(kappa["value"]) == pytest.approx(((23 + 1 / 3) / 24 - expected) / (1 - expected))
    assert float(kappa["low"]) < float(kappa["value"]) <= float(kappa["high"])
    words = Page(path).words
    assert f"People's answers, 3 to each of 24 questions: Fleiss' kappa {float(kappa['value']):.3f}" in words
    assert "(paper: 0.896)" in words


@pytest.mark.usefixtures("undrawn")
def test_raters_that_cannot_be_used(wscplus_runs, winoviz_runs, tmp_path):
    examples = reading.read_run(wscplus_runs[0]).tasks["wscplus"].examples
    asked = list(zip(examples.ids, range(24), examples.targets, strict=True))
    for runs, count, items, said, message in (
        (wscplus_runs[:1], 1, asked, 0, ("one-rater",)),
        (winoviz_runs[-1:], 1, asked, 0, ("no-run-of-the-task",)),
        (wscplus_runs[:1], 3, [("elsewhere", 0, 0)], 0, ("unknown-item", "'elsewhere'")),
        (wscplus_runs[:1], 3, asked, "Nora", ("unknown-label", "0", "1", "2")),
    ):
        paths = write_raters(tmp_path, items, lambda *_, said=said: said)
        with raises(*message):
            report.write_report(runs, tmp_path / "report", raters=paths[:count])
    assert not (tmp_path / "report").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_its_examples_is_compared_by_its_numbers(wscplus_runs, tmp_path):
    bare = shutil.copytree(wscplus_runs[0], tmp_path / "bare")
    shutil.rmtree(bare / "examples")
    report.write_report([wscplus_runs[2], bare], tmp_path / "report", resamples=20)
    found = csv_rows(tmp_path / "report" / "wscplus.csv")
    assert len({row["run"] for row in found}) == 2
    assert len({row["run"] for row in csv_rows(tmp_path / "report" / "wscplus_errors.csv")}) == 1


@pytest.mark.parametrize("which", ["wscplus_runs", "winoviz_runs"])
def test_rows_of_text_tasks_are_those_of_the_results(which, request):
    """Accuracies recomputed from the examples are the recorded ones, pairs and groups included."""
    for run in reading.read_runs(request.getfixturevalue(which)):
        for record in run.tasks.values():
            rows = rows_of(record)
            kinds = ("accuracy", "pair_accuracy", "individual", "pair")
            assert {row.name for row in rows} == {n for n in record.results if n.rpartition("/")[2] in kinds}
            for row in rows:
                assert row.value == pytest.approx(record.results[row.name]["value"])
                assert len(row.members) == record.results[row.name]["n"]


def test_winoviz_tables(winoviz_page):
    page = Page(winoviz_page / "report.html")
    section = page.section("winoviz")
    assert section.count("<caption>") == 6
    assert "flan-t5-xxl (few_shot)" in page.words
    for caption in ("Zero-shot (Table 1)", "Position bias", "(Table 3)", "(Table 4)", "our small set"):
        assert caption in section
    hops = [table for table in page.tables if table[0][0] in ("model and prompt", "model and items")]
    hops = [table for table in hops if len(table[0]) == 5]
    first = [" ".join(row[0].split()) for row in hops[0][1:]]
    assert first[0].startswith("flan-t5-xxl (zero_shot")
    assert "FLAN-T5-XXL (paper) 0 examples" in first
    assert "GPT-4 (paper) 0 examples" in first
    printed = next(row for row in hops[0] if row[0].startswith("GPT-4 (paper)"))
    assert [cell.strip() for cell in printed[1:]] == ["90.25", "81.19", "72", "45"]
    assert [row[0].split("(paper)")[0].strip() for row in hops[2][2:]] == ["BERT-Large", "VL-BERT-Large", "Oscar-Large"]
    # Nothing of the paper stands beside our small set.
    assert "(paper)" not in str(hops[-1])
    ours = [row for row in csv_rows(winoviz_page / "winoviz.csv") if "paper" not in row["run"]]
    rows = {(row["protocol"], row["task"], row["metric"]): row for row in ours}
    bias = rows["zero_shot_options_swapped", "winoviz_single", "position_bias/first_option"]
    assert float(bias["value"]) > 0.5
    assert float(rows["zero_shot", "winoviz_decoupled", "pragmatic/individual"]["n"]) == 24
    assert (winoviz_page / "winoviz.png").is_file()
    assert HOSTILE in page.words  # as a text


@pytest.mark.usefixtures("undrawn")
def test_one_run_has_no_comparison(wscplus_runs, tmp_path):
    path = report.write_report(wscplus_runs[:1], tmp_path / "one", gallery_examples=0)
    page = Page(path)
    assert "differences" not in page.ids
    assert "questions" not in page.ids
    assert "wscplus" in page.ids


@pytest.mark.usefixtures("undrawn")
def test_failed_calls_are_left_out_and_told(tmp_path):
    file = wscplus_files.write(tmp_path)
    rows = csv_rows(file)
    some = tmp_path / "some.csv"
    with some.open("w", newline="", encoding="utf-8") as stream:
        answers = [(row["query"], row["predicted_reason"]) for row in rows[1:]]
        csv.writer(stream).writerows([("query", "response"), *answers])
    model = RecordedModel(f"recorded:{some}")
    folder = evaluate(model, "wscplus", tmp_path / "run", "toe", "model", data_dir=str(tmp_path))
    (run,) = reading.read_runs([folder])
    examples = run.tasks["wscplus"].examples
    assert examples.num_failed == 1
    assert len(examples.ids) == 23
    words = Page(report.write_report([folder], tmp_path / "report")).words
    assert "failed calls 1; 1 question is left out" in words


def test_runs_with_and_without_images_are_not_mixed(wscplus_runs, tmp_path):
    images = make_run(Skilled(0.5), tmp_path / "images", chosen=[fakes.image_task()], num_samples=4)
    with raises("runs-of-two-kinds"):
        reading.read_runs([wscplus_runs[0], images])


@pytest.mark.usefixtures("undrawn")
def test_a_text_task_of_another_package(tmp_path):
    """Whatever its metrics are called, its first one is what runs are compared by."""
    task = TEXT_TASKS["winoviz_mini_single"]

    def metrics(asked, answers):
        right = np.mean([votes.is_right(*both) for both in zip(asked, answers, strict=True)])
        entry = {"value": float(right), "low": 0.0, "high": 1.0, "chance": 0.5, "n": len(asked), "ties": 0}
        return {"share_right": entry, "other": entry}

    other = dataclasses.replace(task, name="elsewhere", metrics=metrics)
    folders = [evaluate(Chooser(name), [other], tmp_path / name, "zero_shot", name, limit=4) for name in "ab"]
    report.write_report(folders, tmp_path / "report", resamples=50)
    (row,) = csv_rows(tmp_path / "report" / "differences.csv")
    assert (row["metric"], row["n"]) == ("share_right", "8")
    assert wscplus_task.TEXT_TASKS[0].name not in (tmp_path / "report" / "tasks.csv").read_text()


@pytest.mark.usefixtures("undrawn")
def test_texts_have_no_timesteps_to_learn_from(wscplus_runs, tmp_path):
    with raises("option-of-others", "--fit_timesteps"):
        report.write_report(wscplus_runs, tmp_path / "report", fit_timesteps=True)
