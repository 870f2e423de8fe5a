"""Tasks on pictures that people have rated: ratings by hand, and rows that contradict each other."""

import json

import numpy as np
import pytest
import scipy.stats

from tests.contrib.datasets import layouts
from tests.expectations import raises
from tests.tasks import damage
from winobench.contrib.datasets import (
    meta_evalmuse,
    meta_genai_bench,
    meta_geneval,
    meta_hpdv2,
    meta_imagereward,
    meta_seetrue,
    meta_tifa160,
    people,
    rating_measures,
)
from winobench.evaluation import summary
from winobench.evaluation.plan import Question
from winobench.metrics import ratings
from winobench.tasks import TASKS
from winobench.tasks.annotations import Entry


@pytest.fixture
def published(reference_data):
    folder = reference_data / "newer" / "people"
    return folder if folder.is_dir() else pytest.skip("needs the published annotations")


def test_ratings_of_tifa160_are_means(tmp_path):
    items = list(meta_tifa160.read(layouts.write_tifa160(tmp_path, authors=False)))
    assert [item.id for item in items] == ["coco_1", "drawbench_2", "coco_3"]
    assert [item.groups for item in items] == [("coco",), ("drawbench",), ("coco",)]
    # Of the first prompt: (1, 1), (2, 2), (3, 5), (4, 5), (5, 2).
    assert items[0].ratings == (1.0, 2.0, 4.0, 4.5, 3.5)
    assert items[0].images[0].path == tmp_path / "tifa160" / "coco_1_mini_dalle.jpg"
    layouts.write_tifa160(tmp_path, authors=True)
    assert list(meta_tifa160.read_authors(tmp_path)) == items


def test_ratings_of_imagereward_are_minus_ranks(tmp_path):
    items = list(meta_imagereward.read(layouts.write_imagereward(tmp_path)))
    assert items[0].ratings == (-1.0, -2.0, -3.0, -4.0)
    assert [len(item.images) for item in items] == [4, 9, 5]


def test_ratings_of_geneval_are_shares_of_full_marks(tmp_path):
    items = list(meta_geneval.read(layouts.write_geneval(tmp_path)))
    assert [item.id for item in items] == [
        f"{name}/{prompt}" for name in meta_geneval.SETS for prompt in ("00000", "00094")
    ]
    # Of prompt 0 and picture 0 answers 1, 2, 3, 4, 4; of picture 3 answers 4, 4, 4, 1, 2.
    assert items[0].ratings == (0.4, 0.6, 0.6, 0.6)
    # Of prompt 94, place 1, picture 1: 1, 2, 3, 4, 4, of which the first one is the 4 of the answer that is cut in two.
    assert items[3].ratings[1] == 0.6
    assert items[3].images[1].path == tmp_path / "images" / "if-xl" / "00094" / "samples" / "00001.png"


def test_texts_of_seetrue_have_all_their_images(tmp_path):
    items = list(meta_seetrue.read(layouts.write_seetrue(tmp_path)))
    assert [item.id for item in items] == ["editbench/000", "editbench/001", "coco_t2i/000", "drawbench/000"]
    assert [item.ratings for item in items] == [(1.0, 1.0), (1.0, 1.0, 0.0, 1.0), (0.0, 1.0, 0.0), (0.0, 1.0, 1.0, 0.0)]
    assert items[2].images[1].path == tmp_path / "images" / "1_1.png"
    assert (items[2].texts, items[2].groups) == (("a red cup, number 1",), ("coco_t2i",))


def test_auroc_of_seetrue_is_the_published_codes(tmp_path):
    """Numbers of t2v_metrics' SeeTrue.evaluate_scores for these rows and scores, half of which are ties."""
    items = layouts.written("meta_seetrue", tmp_path)
    rows = (tmp_path / "SeeTRUE.csv").read_text().splitlines()[1:]
    scores = {row.partition(",")[0]: (7 * place * place + 3) % 5 for place, row in enumerate(rows)}
    given = [(item.id, [scores[image.path.name] for image in item.images], item.ratings) for item in items]
    for source, expected in (("coco_t2i", 1.0), ("drawbench", 0.25), ("editbench", 0.1), ("", 0.525)):
        chosen = [row for row in given if row[0].startswith(source)]
        rated = ratings.Rated.of(
            [one for _, found, _ in chosen for one in found],
            [one for *_, labels in chosen for one in labels],
            [id for id, found, _ in chosen for _ in found],
        )
        assert rating_measures.auroc(rated, rated.ratings > rating_measures.YES_ABOVE).value(
            len(chosen)
        ) == pytest.approx(expected, abs=1e-12)


def test_every_picture_of_geneval_has_an_address():
    downloads = TASKS["meta_geneval"].source.downloads
    assert len(downloads) == 3 + 3 * 100 * 4
    assert len({download.to for download in downloads}) == len(downloads)
    (one,) = (download for download in downloads if download.to == "images/clip/00542/samples/00003.png")
    assert one.url.endswith("djghosh/aigen-images/resolve/main/images/clip/00542/samples/00003.png")


def test_ratings_of_genai_bench_are_means(tmp_path):
    items = list(meta_genai_bench.read(layouts.write_genai_bench(tmp_path)))
    assert [item.id for item in items] == ["00001", "00002", "00003", "00004", "00005"]
    assert items[0].groups == ("attribute", "spatial_relation", "basic")
    assert items[4].groups == ()
    # Of the first image 1 + (1, 2, 5) % 5 are 2, 3, 1. The third prompt lacks the second and the fifth model.
    assert items[0].ratings[0] == 2.0
    assert [image.path.parent.name for image in items[2].images] == [
        *("DALLE_3", "DeepFloyd_I_XL_v1", "Midjourney_6", "SDXL_Base")
    ]
    assert items[0].images[3].path == tmp_path / "Midjourney_6" / "00001.jpeg"


def test_misprints_of_genai_bench_are_left_out(tmp_path):
    path = layouts.write_genai_bench(tmp_path) / "genai_image.json"
    damage.put("00001", "models", "DALLE_3", [5, 41, 4])(path)
    damage.put("00002", "models", "DeepFloyd_I_XL_v1", [3, 3, 33])(path)
    items = list(meta_genai_bench.read(tmp_path))
    assert (items[0].ratings[0], items[1].ratings[2]) == (4.5, 3.0)


def test_ratings_of_hpdv2_are_minus_ranks(tmp_path):
    items = list(meta_hpdv2.read(layouts.write_hpdv2(tmp_path)))
    assert items[0].ratings == (-1.0, -8.0, -6.0, -4.0, -2.0, -9.0, -7.0, -5.0, -3.0)
    assert [(item.id, len(item.images)) for item in items] == [("000", 9), ("001", 10), ("002", 9)]
    assert items[1].images[2].path == tmp_path / "test" / "10000002.jpg"


def test_ratings_of_evalmuse_are_means_of_images_and_of_elements(tmp_path):
    items = list(meta_evalmuse.read(layouts.write_evalmuse(tmp_path)))
    assert [(item.id, item.groups) for item in items] == [
        *(("00000", ("real",)), ("00001", ("real",)), ("00002", ("synth",)), ("00003", ("synth",)))
    ]
    # Of the second image 1 + (3, 4, 7) % 5 are 4, 5, 3. The first has six answers, 1 + (0, 1, 4, 9, 16, 25) % 5.
    assert items[0].ratings[:2] == (16 / 6, 4.0)
    assert items[0].images[0].path == tmp_path / "images" / "SDXL-Turbo" / "00000.png"
    elements = list(meta_evalmuse.read_elements(tmp_path))
    assert [(one.id, one.texts, one.groups) for one in elements[1:3]] == [
        ("00000/red (color)", ("red",), ("color",)),
        ("00001/two cats (animal/human)", ("two cats",), ("animal_human",)),
    ]
    # Of element 0 and the first image (0, 1, 2, 3, 4, 5) % 5 % 2 are two of six; of the second (1, 2, 3), two of three.
    assert elements[0].ratings[:2] == (2 / 6, 2 / 3)
    assert TASKS["meta_evalmuse_elements"].prompt_of(elements[2].id) == "00001"


def rated_images(items):
    """The id, image file and rating of each image."""
    return [
        (item.id, image.path, rating) for item in items for image, rating in zip(item.images, item.ratings, strict=True)
    ]


def numbers_of(task, items, scores):
    """All values of a task's results, from scores by id and image file."""
    by_item = [np.array([scores[item.id, image.path] for image in item.images]) for item in items]
    questions = [Question(item.id, (0,) * len(item.images), (0,), 0, item.groups, item.ratings) for item in items]
    found = summary.task_results(TASKS[task], questions, [one[:, None] for one in by_item])
    return {name: row["value"] for name, row in found.items()}


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (None, (0.952876490281785, 0.8276782008017042, 0.8306878306878307)),
        (0.5, (0.9107689912114142, 0.8173885283996225, 0.7724867724867724)),  # with ties of scores
    ],
)
def test_agreement_in_genai_bench_is_that_of_the_published_code(tmp_path, step, expected):
    """GenAIBench_Image of t2v_metrics (6ecb74f) read this folder, evaluated these scores, and gave these numbers."""
    items = list(meta_genai_bench.read(layouts.write_genai_bench(tmp_path)))
    scores = {}
    for id, path, rating in rated_images(items):
        score = rating + (int(id) * 7 + meta_genai_bench.MODELS.index(path.parent.name) * 11) % 13 / 20
        scores[id, path] = step * np.round(score / step) if step else score
    found = numbers_of("meta_genai_bench", items, scores)
    names = ("pearson", "kendall_tau_b", "pairwise_accuracy")
    assert tuple(found[name] for name in names) == pytest.approx(expected, abs=1e-12)
    of_skills = {
        None: {"attribute": (0.966496957434227, 0.835467353046005, 8 / 9)},
        0.5: {"counting": (0.931809443558, 0.8929995329613664, 0.8181818181818182)},
    }
    for skill, values in of_skills[step].items():
        assert tuple(found[f"{skill}/{name}"] for name in names) == pytest.approx(values, abs=1e-12)
    assert found["basic/pearson"] == found["attribute/pearson"]


def test_preferences_in_hpdv2_are_those_of_the_published_code(tmp_path):
    """HPSv2's evaluation (866735e) gave 0.748148 for these scores, and 0.738889 for those with ties.

    It breaks a tie by the order of the file, which makes it right or wrong. Here it is wrong, as in ImageReward's code,
    by which HPSv2 evaluates ImageReward's test set and which gave 0.670370.
    """
    items = list(meta_hpdv2.read(layouts.write_hpdv2(tmp_path)))
    for step, expected in ((None, 0.7481481481481481), (3, 0.6703703703703704)):
        scores = {}
        for id, path, rating in rated_images(items):
            score = rating + (int(id) * 5 + int(path.stem[1:]) * 3) % 7 * 1.3
            scores[id, path] = np.round(score / step) if step else score
        found = numbers_of("meta_hpdv2", items, scores)
        assert found["mean_preference_accuracy"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("has_ties", "expected", "accuracy"),
    [
        (False, (0.4813508043723834, 0.5435787152127164), 0.775),
        (True, (0.39749790836677784, 0.5052451816686255), 0.725),
    ],
)
def test_agreement_in_evalmuse_is_that_of_the_published_code(tmp_path, has_ties, expected, accuracy):
    """Its process_train.py (0fa141b) read this file. compute_metrics and calculate_accuracy gave these numbers."""
    items = list(meta_evalmuse.read(layouts.write_evalmuse(tmp_path)))
    given = enumerate(rated_images(items))
    scores = {(id, path): rating / 2 + place * 7 % 11 / 4 for place, (id, path, rating) in given}
    if has_ties:
        scores = {key: np.round(score) for key, score in scores.items()}
    found = numbers_of("meta_evalmuse", items, scores)
    assert found["spearman"] == pytest.approx(expected[0], abs=1e-12)
    assert found["logistic_pearson"] == pytest.approx(expected[1], abs=1e-6)  # the least squares of two programs
    elements = list(meta_evalmuse.read_elements(tmp_path))
    given = enumerate(rated_images(elements))
    scores = {(id, path): rating * 0.6 + place * 5 % 9 / 20 for place, (id, path, rating) in given}
    if has_ties:
        scores = {key: np.round(score * 4) / 4 for key, score in scores.items()}
    assert numbers_of("meta_evalmuse_elements", elements, scores)["element_accuracy"] == pytest.approx(accuracy)


def test_answers_are_numbers_or_texts_of_such():
    assert [people.answer(Entry(value, "here"), 1, 5) for value in (4, "4", " 2.0")] == [4, 4, 2]
    for value in (True, None, "4.5", 4.0, "-1", [4]):
        with raises("not-a-number", "here"):
            people.answer(Entry(value, "here"), 1, 5)


def results_of(task, rows):
    """Of (id, scores, ratings) whose prompts are the same text."""
    questions = [Question(id, (0,) * len(given), (0,), 0, (), tuple(given)) for id, _, given in rows]
    return summary.task_results(TASKS[task], questions, [np.array(scores)[:, None] for _, scores, _ in rows])


def test_rows_with_equal_prompts_are_ranked_apart():
    """Two pictures a row: one pair each, of which the first is right. Across the rows there would be four more."""
    found = results_of("meta_imagereward", [("a", [2.0, 1.0], [-1.0, -2.0]), ("b", [8.0, 9.0], [-1.0, -2.0])])
    assert found["preference_accuracy"]["value"] == found["mean_preference_accuracy"]["value"] == 1 / 2
    assert (found["preference_accuracy"]["pairs"], found["preference_accuracy"]["prompts"]) == (2, 2)


def test_pictures_of_a_prompt_of_geneval_are_compared_whatever_drew_them():
    rows = [("sdv2/00000", [1.0], [0.2]), ("clip/00000", [2.0], [0.8]), ("sdv2/00014", [1.0, 2.0], [0.2, 0.8])]
    found = results_of("meta_geneval", rows)
    tau = found["within_prompt_kendall_tau_b"]
    assert tau["prompts"] == tau["prompts_with_tau"] == 2


def test_the_published_annotations_have_the_published_counts(published):
    for name, count in (("tifa160", 160), ("tifa160_authors", 160), ("imagereward", 466), ("geneval", 300)):
        name = f"meta_{name}"
        items = list(TASKS[name].source.read(published))
        assert len(items) == count == TASKS[name].source.num_examples
    assert sum(len(item.images) for item in items) == 1200
    ranked = [(item.id, np.arange(len(item.ratings)), item.ratings) for item in meta_imagereward.read(published)]
    assert results_of("meta_imagereward", ranked)["preference_accuracy"]["pairs"] == 6399  # Table 3


def test_published_scores_have_the_published_correlations(published):
    """Outputs of TIFA's compute_correlation.ipynb."""
    rows = list(json.loads((published / "human_annotations_with_scores.json").read_text()).values())
    for column, tau, correlation in (
        ("clipscore_vitb32", 0.2314458979024208, 0.3318181645103688),
        ("tifa_mplug-large", 0.4717164648720951, 0.5967201059577838),
    ):
        rated = ratings.Rated.of(
            [row[column] for row in rows], [row["human_avg"] for row in rows], [row["text_id"] for row in rows]
        )
        measures = rating_measures.rank_measures(rated)
        assert measures["kendall_tau_b"].value(160) == pytest.approx(tau, abs=1e-12)
        assert measures["pearson"].value(160) == pytest.approx(correlation, abs=1e-12)
        expected = scipy.stats.kendalltau(rated.scores, rated.ratings, variant="c").statistic
        assert measures["kendall_tau_c"].value(160) == pytest.approx(expected, abs=1e-12)
        assert np.isfinite(measures["pairwise_accuracy"].value(160))
