"""What a user reads in the terminal after an evaluation."""

import io
import re

import numpy as np
import pytest
import rich.console

from winobench.clevr import captions
from winobench.metrics import association_results
from winobench.metrics.association import Association, TargetPair
from winobench.report import table

ENTRY = {"value": 0.5, "low": 0.4, "high": 0.6, "chance": 0.25, "n": 1234, "ties": 7}
DIFFUSION = {"scorer": {"scorer": "diffusion_itm"}}


def printed(tasks, width=80, paper=False, **rest):
    """The lines that are printed, without what pads them on the right."""
    text = io.StringIO()
    table.print_results({"tasks": tasks, **rest}, rich.console.Console(file=text, width=width), paper=paper)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return [line.rstrip() for line in lines]


def config(model, num_samples=250, normalize="auto"):
    return {"model": model, "normalize": normalize, "sampling": {"num_samples": num_samples}}


def row(lines, first):
    """The words of the one line that begins with ``first``."""
    (line,) = [line for line in lines if line.strip().startswith(first)]
    return line.split()


def psi_results(psi, pairs, **options):
    """Results of a bias task whose groups' images have the psi given."""
    groups = [group for group, values in psi.items() for _ in values]
    scores = np.zeros((len(groups), 2))
    scores[:, 0] = np.concatenate(list(psi.values()))
    task = Association(tuple(TargetPair(f"{x}-{y}", x, y, ("good",), ("bad",)) for x, y in pairs))
    return association_results(scores, ["good", "bad"], groups, task, num_permutations=999, **options)


@pytest.fixture(scope="module")
def bias():
    rng = np.random.default_rng(0)
    shifts = {"Christian": 1.5, "Muslim": 0, "Jewish": -2, "Heterosexual": 0, "LGBT": 0}
    psi = {group: rng.normal(size=50) + shift for group, shift in shifts.items()}
    return psi_results(psi, [("Christian", "Muslim"), ("Jewish", "Muslim"), ("Heterosexual", "LGBT")])


def test_a_row_a_metric():
    part = "binding_color_shape/accuracy"
    lines = printed({"clevr": {"accuracy": ENTRY, part: {**ENTRY, "value": 1.0, "high": 1.0, "chance": None}}})
    assert [" ".join(lines[number].split()) for number in (1, 3, 4, 5)] == [
        "task and metric % 95% interval chance n ties",
        "clevr",
        "accuracy 50.0 40.0 to 60.0 25.0 1,234 7",
        "binding_color_shape 100.0 40.0 to 100.0 1,234 7",
    ]
    indents = [len(line) - len(line.lstrip()) for line in lines[3:6]]
    assert indents == sorted(set(indents))
    assert not any("paper" in line for line in lines)


def test_equal_scores_are_said():
    lines = printed({"clevr": {"accuracy": {**ENTRY, "constant": "texts"}}, "pets": {"accuracy": ENTRY}})
    said = " ".join(" ".join(lines).split())
    assert "clevr: the scores are equal over all texts" in said
    assert said.count("are equal over") == 1


def test_the_papers_numbers_stand_beside_ours():
    parts = {f"{name}/accuracy": ENTRY for name in captions.SUBTASKS}
    tasks = {
        "flickr30k_image": {"recall@1": ENTRY, "recall@5": ENTRY},
        "clevr": {"accuracy": ENTRY, **parts},
        "clevr_image": {"accuracy": ENTRY},
    }
    lines = printed(tasks, config=config("sd21-base"), versions=DIFFUSION)
    assert lines[1].split() == ["task", "and", "metric", "%", "95%", "interval", "chance", "paper", "n", "ties"]
    numbers = ["50.0", "40.0", "to", "60.0", "25.0"]
    assert row(lines, "recall@1") == ["recall@1", *numbers, "61.5", "1,234", "7"]
    assert row(lines, "recall@5") == ["recall@5", *numbers, "1,234", "7"]
    assert row(lines, "spatial") == ["spatial", *numbers, "43.9", "1,234", "7"]
    accuracies = [line.split() for line in lines if line.startswith("   accuracy")]
    assert accuracies == [["accuracy", *numbers, "67.9", "1,234", "7"], ["accuracy", *numbers, "1,234", "7"]]
    at = lines.index("  paper: Krojer et al. 2023, arXiv:2305.16397, on the published data")
    assert " ".join(word for line in lines[at + 1 :] for word in line.split()) == (
        'sd21-base, 250 samples a pair: "DiffusionITM (Ours)" in Table 1a; '
        '"Diffusion Classifier / DiffusionITM (Ours)" in Table 1b; "Diffusion Classifier" in Table 6'
        " paper's spatial/accuracy: of the first caption as the true one; Self-Bench's code takes the second"
    )


@pytest.mark.parametrize(
    ("model", "settings", "value", "note"),
    [
        ("clevr-tiny", {"num_samples": 16}, "46.1", "Its images and samples may differ from the run's"),
        ("clevr-tiny", {"normalize": "none"}, "11.1", '"Diffusion Classifier" in Table 1a'),
    ],
)
def test_another_models_number_has_its_own_row(model, settings, value, note):
    tasks = {"flickr30k_image": {"recall@1": ENTRY}}
    of_run = {"config": config(model, **settings), "versions": DIFFUSION}
    lines = printed(tasks, **of_run)
    assert "paper" not in " ".join(lines)
    assert row(lines, "recall@1") == ["recall@1", "50.0", "40.0", "to", "60.0", "25.0", "1,234", "7"]
    with_paper = printed(tasks, paper=True, **of_run)
    assert row(with_paper, "recall@1") == row(lines, "recall@1")
    assert [line.split() for line in with_paper if "(paper)" in line] == [
        ["Stable", "Diffusion", "2.1", "(paper)", value],
    ]
    assert note in " ".join(" ".join(with_paper).split())


def test_the_number_of_the_same_model_says_its_samples():
    of_run = {"config": config("sd21-base", num_samples=8), "versions": DIFFUSION}
    lines = printed({"flickr30k_image": {"recall@1": ENTRY}}, paper=True, **of_run)
    assert row(lines, "recall@1")[6] == "46.1"
    assert '10 samples a pair: "Vanilla SD" in Table 2a' in " ".join(" ".join(lines).split())
    assert "(paper)" not in " ".join(lines)


def test_of_many_groups_those_with_most_examples_are_shown():
    parts = {f"tag {k:02d}/{m}": {**ENTRY, "n": (37 * k) % 101 + 1} for k in range(70) for m in ("text", "image")}
    lines = printed({"winoground": {"text": ENTRY, "image": ENTRY, **parts}})
    shown = [line.split("/")[0].strip() for line in lines if "/text" in line]
    largest = sorted(range(70), key=lambda k: -((37 * k) % 101))[:6]
    assert shown == [f"tag {k:02d}" for k in sorted(largest)]
    assert sum("/image" in line for line in lines) == 6
    assert "     64 more groups in results.json" in lines


def test_long_names_are_broken_and_numbers_are_not():
    name = "a_task_of_somebody_else_with_a_name_that_is_long"
    lines = printed({name: {"accuracy": ENTRY, f"[bold]{name}/accuracy": ENTRY}}, width=60)
    assert name in "".join(line.strip() for line in lines)
    assert "[bold]" in "".join(lines)  # names are no markup
    assert sum("40.0 to 60.0" in line for line in lines) == 2


def test_target_pairs_have_a_table_of_their_own(bias):
    lines = printed({"mmbias": bias, "pets_photo_all": {"accuracy": ENTRY}}, config=config("sd15"), versions=DIFFUSION)
    at = next(index for index, line in enumerate(lines) if "bias of X against Y" in line)
    assert lines[at].split()[-7:] == ["d", "95%", "interval", "paper", "sided", "sided", "n"]
    value, low, high = (f"{bias['Christian-Muslim'][key]:.2f}" for key in ("value", "low", "high"))
    expected = f"Christian-Muslim {value}*† {low} to {high} 1.06* 0.0010 0.0020 100"
    assert row(lines, "Christian-Muslim") == expected.split()
    # Negative, however large, has no star, and two-sided is significant.
    jewish = row(lines, "Jewish-Muslim")
    assert float(jewish[1]) < -1
    assert jewish[5:] == ["0.03", "1.0000", "0.0020", "100"]
    nothing = row(lines, "Heterosexual-LGBT")
    assert abs(float(nothing[1])) < 0.4
    assert float(nothing[6]) > 0.01
    value, low, high = (f"{bias['average_absolute_effect_size'][key]:.2f}" for key in ("value", "low", "high"))
    assert row(lines, "average |d|") == f"average |d| {value} {low} to {high} 0.79 250".split()
    # Digits stand below digits, with and without a star.
    rows = lines[at + 3 : at + 7]
    assert rows[-1].split()[0] == "average"
    points = [[found.start() for found in re.finditer(r"\d\.\d\d\b", line)] for line in rows]  # d, low, high, paper
    assert len({(places[0], places[3]) for places in points}) == 1
    text = " ".join(" ".join(lines).split())
    for said in (
        "* p < 0.01, one-sided towards X, from 999 permutations or all there are.",
        "mmbias: without any bias, average |d| would be about 0.16.",
        'sd15, 20 samples a pair: "SD 1.5" in Table 3',
        "average_absolute_effect_size: averages two pairs",
    ):
        assert said in text
    numbers = [f"{bias['Jewish/association'][key]:.2f}" for key in ("value", "low", "high")]
    assert row(lines, "Jewish ") == ["Jewish", numbers[0], numbers[1], "to", numbers[2], "50"]
    # Only what has an accuracy is in the other table.
    assert [line.strip() for line in lines].count("mmbias") == 2
    assert [line.strip() for line in lines].count("pets_photo_all") == 1


def test_intervals_of_small_groups_are_marked():
    psi = {"A": [0.0, 1, 2, 1, 0, 2], "B": np.arange(12.0) % 4, "C": np.arange(12.0) % 3}
    found = psi_results(psi, [("A", "B"), ("C", "B")])
    assert {name: entry["too_few"] for name, entry in found.items()} == {
        **{"average_absolute_effect_size": True, "A-B": True, "C-B": False},
        **{"A/association": True, "B/association": False, "C/association": False},
    }
    lines = printed({"mmbias": found}, config=config("sd15"), versions=DIFFUSION)
    below = [lines[number - 1].split()[0] for number, line in enumerate(lines) if line.strip() == "n too small"]
    assert below == ["A-B", "average", "A"]
    for entry in found.values():
        del entry["too_few"]  # as of older versions
    assert "n too small" not in "\n".join(printed({"mmbias": found}, config=config("sd15"), versions=DIFFUSION))


@pytest.mark.parametrize(("scale", "expected"), [(1e-4, "0.000200"), (50.0, "100"), (1e4, "20000")])
def test_associations_of_any_size_have_three_digits(scale, expected):
    found = psi_results({"A": [2 * scale, 2 * scale], "B": [scale, 1.5 * scale]}, [("A", "B")])
    found["B/association"] |= {"low": 0.0, "high": 2 * scale}
    assert row(printed({"own": found}), "A ")[1] == expected


def test_pairs_that_are_left_out_are_told():
    psi = {"A": [1, 2], "B": [3, 4.5]}
    found = psi_results(psi, [("A", "B"), ("A", "C")], partial=True)
    lines = printed({"own": found})
    assert "  own: A-C is left out: there is no image of the group 'C'." in lines
    assert not any("paper" in line for line in lines)
    assert row(lines, "A-B")[-1] == "4"


def test_failed_tasks_are_told_with_their_reason():
    reason = "3 images are missing from /data/svo/images (12.jpg, 15.jpg, [99].jpg): download them again"
    lines = printed({"pets": {"accuracy": ENTRY}}, failed={"svo_verb": reason})
    at = lines.index("not evaluated")
    assert " ".join(line.strip() for line in lines[at + 1 :]).strip() == f"svo_verb: {reason}"
    assert all(line.startswith("  ") for line in lines[at + 1 :] if line)
    assert not any("not evaluated" in line for line in printed({"pets": {"accuracy": ENTRY}}, failed={}))
    assert printed({}, failed={"pets": "no data."}) == ["not evaluated", "  pets: no data.", ""]


def test_independent_examples_stand_next_to_n_where_examples_share_an_image():
    shared = {**ENTRY, "n": 56, "independent": 8}
    lines = printed({"clevr": {"accuracy": shared}, "pets": {"accuracy": {**ENTRY, "independent": 1234}}})
    numbers = ["50.0", "40.0", "to", "60.0", "25.0"]
    assert [line.split() for line in lines if line.startswith("   accuracy")] == [
        ["accuracy", *numbers, "56", "8", "7"],
        ["accuracy", *numbers, "1,234", "1,234", "7"],
    ]
    assert sum("independent: at least so many of the n examples share no image" in line for line in lines) == 1
    alone = printed({"pets": {"accuracy": {**ENTRY, "independent": 1234}}})
    assert "independent" not in " ".join(alone)
