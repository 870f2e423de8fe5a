"""Tasks on people's ratings from published files to the page: prepared, scored, printed, reported."""

import csv
import io

import numpy as np
import pytest
import rich.console

import winobench
from launch import prepare
from tests.contrib.datasets import layouts
from tests.evaluation import fakes
from tests.tiny_vision_language import write_vision_language
from winobench.data.images import open_image
from winobench.evaluation import evaluate
from winobench.metrics import RATING_METRICS
from winobench.report.page import write_report
from winobench.report.table import print_results
from winobench.tasks import TASKS

NAMES = (
    *("cola_single_gqa", "meta_geneval", "meta_imagereward", "meta_seetrue", "meta_tifa160", "meta_tifa160_authors"),
    *("meta_genai_bench", "meta_hpdv2", "meta_evalmuse", "meta_evalmuse_elements"),
)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name in NAMES:
        source = layouts.ALL[name](tmp_path_factory.mktemp(name))
        assert not prepare.prepare_tasks(name, str(source), str(folder), workers=1, allow_partial=True)
    return folder


@pytest.fixture
def evaluated(data_dir, tmp_path):
    """Evaluates a scorer on these sets, by one sample, in a folder of the test."""

    def call(scorer, *names, folder="run", num_samples=1, **options):
        options |= {"data_dir": str(data_dir), "num_samples": num_samples, "progress": False}
        return evaluate.evaluate(scorer, list(names), tmp_path / folder, **options)

    return call


class Sampling(fakes.FakeScorer):
    def iter_errors(self, images, *arguments, **options):
        return super().iter_errors([np.asarray(open_image(image)) for image in images], *arguments, **options)


class Follower:
    """Scores pictures by the people's ratings that it is told, pixel for pixel; needs no samples."""

    def __init__(self, ratings):
        self.ratings = ratings

    def fingerprint(self):
        return {"scorer": "follower", "scoring_version": 1}

    def score(self, images, texts):
        return np.array([[self.ratings[np.asarray(one).tobytes(), text] for text in texts] for one in images])


def ratings_of(name, data_dir):
    return {
        (np.asarray(image.open()).tobytes(), example.texts[0]): rating
        for example in TASKS[name].load(str(data_dir), None)
        for image, rating in zip(example.images, example.ratings, strict=True)
    }


def test_ratings_survive_the_way_into_a_prepared_set(data_dir, tmp_path):
    items = list(TASKS["meta_geneval"].source.read(layouts.write_geneval(tmp_path)))
    assert [one.ratings for one in TASKS["meta_geneval"].load(str(data_dir), None)] == [one.ratings for one in items]


def test_who_follows_people_agrees_with_them(evaluated, data_dir):
    known = ratings_of("meta_tifa160", data_dir)
    found = evaluated(Follower(known), "meta_tifa160")["tasks"]["meta_tifa160"]
    for measure in ("pairwise_accuracy", "kendall_tau_b", "pearson", "within_prompt_pairwise_accuracy"):
        assert found[measure]["value"] == pytest.approx(1), measure
        assert (found[measure]["n"], found[measure]["prompts"]) == (15, 3)
    assert found["coco/kendall_tau_b"]["value"] == pytest.approx(1)
    assert "drawbench/kendall_tau_b" not in found  # a single prompt


@pytest.mark.slow
def test_a_vision_language_model_is_compared_with_people(evaluated, tmp_path_factory):
    """VQAScore, whose scores are probabilities, as GenAI-Bench's authors use it."""
    scorer = winobench.VQAScore.from_pretrained(write_vision_language(tmp_path_factory.mktemp("model"), "qwen3_vl"))
    found = evaluated(scorer, "meta_genai_bench", "meta_evalmuse_elements")["tasks"]
    assert {f"{group}pearson" for group in ("", "basic/", "counting/")} <= found["meta_genai_bench"].keys()
    assert found["meta_genai_bench"]["pearson"]["n"] == 28
    assert found["meta_evalmuse_elements"].keys() >= {"auroc", "element_accuracy", "color/element_accuracy"}


def test_a_run_its_table_and_its_page(evaluated, data_dir, tmp_path):
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder, scorer in zip(folders, (Sampling(), Sampling(weights="1")), strict=True):
        results = evaluated(scorer, *NAMES, folder=folder.name, num_samples=2, model=folder.name)
    assert results["failed"] == {}
    # Each picture under its prompt and under no prompt.
    examples = [one for name in NAMES for one in TASKS[name].load(str(data_dir), None)]
    pairs = {(image.content_hash, text) for one in examples for image in one.images for text in (*one.texts, "")}
    assert results["passes"] == 2 * len(pairs)
    for name in NAMES:
        metric = RATING_METRICS[TASKS[name].metric]
        assert next(iter(results["tasks"][name])) == metric.headline
    console = rich.console.Console(width=80, record=True, file=io.StringIO())
    print_results(results, console)
    text = console.export_text()
    value = results["tasks"]["meta_geneval"]["auroc"]["value"]
    assert "agreement with people" in text
    precision = results["tasks"]["cola_single_gqa"]["mean_average_precision"]
    assert f"{precision['value']:.3f}" in text.partition("ranking of images")[2]
    assert f"{value:.3f}" in text
    write_report(folders, tmp_path / "report", gallery_examples=2)
    page = (tmp_path / "report" / "report.html").read_text()
    assert 'id="people"' in page
    with open(tmp_path / "report" / "people.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["task"] for row in rows} == set(NAMES)
    wanted = {"run": "other", "task": "meta_geneval", "measure": "auroc", "group": ""}
    assert [float(row["value"]) for row in rows if wanted.items() <= row.items()] == [value]
    assert (tmp_path / "report" / "people.png").is_file()


def test_scores_are_less_the_error_without_the_prompt(evaluated, tmp_path):
    """And less that of a gray image, where that is asked for: prompts are compared, too."""
    import pyarrow.parquet as pq

    terms = {}
    for normalize in ("auto", "none", "gray_image"):
        evaluated(Sampling(), "meta_tifa160", folder=normalize, normalize=normalize)
        table = pq.read_table(tmp_path / normalize / "examples" / "meta_tifa160.parquet")
        terms[normalize] = table["terms"][0].as_py()
        assert table["correct"].null_count == table.num_rows == 3
        assert [len(given) for given in table["ratings"].to_pylist()] == [5, 5, 5]
    assert terms == {
        "auto": ["own", "unconditional"],
        "none": ["own"],
        "gray_image": ["own", "unconditional", "gray_image"],
    }


def test_one_prompt_is_too_few(evaluated):
    results = evaluated(Sampling(), "meta_tifa160", limit=1)
    assert results["tasks"] == {}
    assert "two prompts" in results["failed"]["meta_tifa160"]


def test_a_race_takes_all_samples(evaluated):
    results = evaluated(Sampling(), "meta_tifa160", num_samples=4, mode="race", timesteps="low_discrepancy")
    assert results["passes"] == 2 * 15 * 4
