"""Rubrics of DPG-Bench, OneIG-Bench and TIIF-Bench on small files, by hand and against the published code.

The published code ran on synthetic answers with dependencies and ties: DPG-Bench's on 60 sets of 333 images, of which
both left out 30, and OneIG-Bench's on 40 sets of 386 prompts with two images each. TIIF-Bench's read all 27,008 answers
that it publishes, of gpt-4o and Qwen2.5-VL about 25 models. None of them was unread. All numbers agreed. The constants
below are numbers of the published code, too.
"""

import collections
import itertools
import math

import pytest

from tests.contrib.benchmarks import question_layouts as layouts
from winobench.base import registry
from winobench.contrib.benchmarks.rubrics import dpg_bench, oneig, tiif
from winobench.prompts.named_sets import read_prompts
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Score
from winobench.runs.requests import InputImage, Response

IMAGE = InputImage("image.png", "0" * 64)
TEXT, OPTIONS = "picture_text", "picture_options"


def means(scores):
    values = collections.defaultdict(list)
    for metric, group, value in scores:
        values[metric, group].append(value)
    return {place: math.fsum(numbers) / len(numbers) for place, numbers in values.items()}


def macros(rubric, values):
    found = dict(values)
    for (metric, row), groups in rubric.macros.items():
        found[metric, row] = math.fsum(found[metric, group] for group in groups) / len(groups)
    return found


def scores(rubric, prompt, answer, kind=TEXT):
    """Scores of an image, from ``answer(question with its wording)``."""
    requests = list(rubric.requests(prompt, IMAGE, kind))
    assert {request.kind for request in requests} == {kind}
    assert {request.image for request in requests} == {IMAGE}
    return list(rubric.scores(prompt, [answer(request) for request in requests], kind))


def test_dpg_bench_as_published(tmp_path):
    """By hand: of seven questions the first and the sixth of the table count, since a parent is read as it is then."""
    rubric = dpg_bench.RUBRICS[0]
    prompts = read_prompts(f"dpg_bench:{layouts.write_dpg(tmp_path / 'dpg')}")
    assert [rubric.fits(prompt) for prompt in prompts] == [False, True, True]
    others = {"Is there a mat?": "no", "Is the cat grey?": "a dog"}

    def write(request):
        assert request.question.endswith("? Please answer yes or no.")
        return Response(text=others.get(request.question.removesuffix(" Please answer yes or no."), "yes"))

    def choose(request):
        assert request.options == ("yes", "no")
        return Response(scores=(-1.0, -2.0) if write(request).text == "yes" else (-1.0, -1.0))

    found = [score for prompt in prompts[1:] for score in scores(rubric, prompt, write)]
    assert found[:2] == [Score("score", ALL, 2 / 7), Score("unread", ALL, 1 / 7)]
    chosen = [score for prompt in prompts[1:] for score in scores(rubric, prompt, choose, OPTIONS)]
    assert chosen == [score for score in found if score.metric != "unread"]
    values = means(chosen)
    assert values.pop(("score", ALL)) == pytest.approx(0.6428571428571428, abs=1e-15)
    assert values == {
        ("level_1", "entity"): 3 / 4,
        ("level_1", "attribute"): 2 / 3,
        ("level_1", "relation"): 1.0,
        ("level_1", "global"): 1.0,
        ("level_2", "entity - whole"): 2 / 3,
        ("level_2", "entity - part"): 1.0,
        ("level_2", "attribute - color"): 1 / 2,
        ("level_2", "attribute - state"): 1.0,
        ("level_2", "relation - spatial"): 1.0,
        ("level_2", "global -"): 1.0,
    }


def test_oneig_as_published(tmp_path):
    """By hand: 2 and 3 of 5 questions of the first prompt, since a child of a child of a wrong one stays right."""
    rubric = oneig.RUBRICS[0]
    prompts = read_prompts(f"oneig:{layouts.write_oneig(tmp_path / 'oneig')}")
    assert all(map(rubric.fits, prompts))
    other = [
        {"One?": "No", "Five?": "Yes.", "Is it blue?": "no", "Alone?": "yes"},
        {"Two?": "No", "Is it full?": "No"},
    ]

    def write(answers):
        def answer(request):
            asked = request.question.removesuffix(". Please answer 'Yes' or 'No' only.")
            assert asked.endswith("?")
            assert request.max_tokens == 128
            return Response(text=answers.get(asked, "Yes"))

        return answer

    server = registry.resolve("openai:Qwen/Qwen2.5-VL-7B-Instruct@http://localhost:8000/v1")
    assert rubric.is_published(server.title)
    found = [scores(rubric, prompt, write(answers)) for prompt in prompts for answers in other]
    assert [one[0].value for one in found[:2]] == [2 / 5, 3 / 5]
    assert means(score for one in found for score in one) == pytest.approx(
        {
            ("unread", ALL): 0.0,
            ("alignment", ALL): 0.625,
            ("alignment", "Anime_Stylization"): 0.5,
            ("alignment", "Portrait"): 0.75,
            ("alignment", "General_Object"): 0.5,
            ("alignment", "short"): 0.5,
            ("alignment", "middle"): 0.5,
            ("alignment", "long"): 1.0,
            ("alignment", "T, P"): 0.5,
            ("alignment", "NP"): 0.6666666666666666,
        },
        abs=1e-15,
    )
    likelier = scores(rubric, prompts[1], lambda request: Response(scores=(-0.1, -2.4)), OPTIONS)
    assert likelier[0] == Score("alignment", ALL, 1.0)
    tied = scores(rubric, prompts[1], lambda request: Response(scores=(-0.7, -0.7)), OPTIONS)
    assert tied[0] == Score("alignment", ALL, 0.0)


def test_tiif_asks_all_questions_at_once_and_reads_lines(tmp_path):
    rubric = tiif.RUBRICS[0]
    prompts = read_prompts(f"tiif:{layouts.write_tiif(tmp_path / 'data')}")
    assert all(map(rubric.fits, prompts))
    negation = next(prompt for prompt in prompts if prompt.id == "negation-0-long")
    (request,) = rubric.requests(negation, IMAGE, TEXT)
    assert "\n\nQuestions:\nIs there a street?\nIs there a cat?\n\nNote that:\n1. Each answer" in request.question
    assert request.max_tokens == 200

    def read(text):
        return scores(rubric, negation, lambda request: Response(text=text))

    right, wrong = (Score("accuracy", "negation-long", value) for value in (1.0, 0.0))
    readable, unread = (Score("unread", ALL, value) for value in (0.0, 1.0))
    assert read("Here you are:\n\n  Yes, a street.\nNO.\n") == [readable, right, right]
    assert read("no\n\nyes, one\n1. no") == [readable, wrong, wrong]
    assert read("yes") == read("yes\nno\nno") == read("nothing\nyesterday") == read("") == [unread]


def test_tiif_by_options(tmp_path):
    rubric = tiif.RUBRICS[0]
    prompts = read_prompts(f"tiif:{layouts.write_tiif(tmp_path / 'data')}")
    child = prompts[0]
    requests = list(rubric.requests(child, IMAGE, OPTIONS))
    assert [request.question for request in requests] == [
        "Is there a child? Please answer yes or no.",
        "Does it run? Please answer yes or no.",
    ]
    negation = next(prompt for prompt in prompts if prompt.id == "negation-0-short")
    tied = scores(rubric, negation, lambda request: Response(scores=(-0.7, -0.7)), OPTIONS)
    assert [score.value for score in tied] == [0.0, 1.0]


def test_tiif_means_of_means_as_published():
    """summary_dimension_results.py, and Mean_Accuracy of summary_results.py, on shares that a formula gives."""
    rubric = tiif.RUBRICS[0]
    every = sorted({group.rpartition("-")[0] for group in rubric.macros["accuracy", ALL]})
    assert len(every) == 39
    shares = {"short": lambda number: 7 * number % 11 / 10, "long": lambda number: 5 * number % 13 / 12}
    values = {
        ("accuracy", f"{kind}-{length}"): share(number)
        for number, kind in enumerate(every)
        for length, share in shares.items()
    }
    found = macros(rubric, values)
    published = {
        "Basic_Attribute": (0.175, 0.4583333333),
        "Basic_Relation": (0.5, 0.3541666667),
        "Basic_Reasoning": (0.55, 0.375),
        "Basic_Overall": (0.4083333333, 0.3958333333),
        "Advanced_Attribute+Relation": (0.5875, 0.6770833333),
        "Advanced_Attribute+Reasoning": (0.525, 0.6145833333),
        "Advanced_Relation+Reasoning": (0.5, 0.4583333333),
        "Advanced_Text Generation": (0.3, 0.5),
        "Advanced_Style Control": (0.7, 0.0833333333),
        "Advanced_Overall": (0.5346153846, 0.5608974359),
        "Real_Complex": (0.5, 0.1666666667),
        "Real_Overall": (0.5, 0.1666666667),
        "overall": (0.4819444444, 0.4097222222),
    }
    rows = {("accuracy", f"{row}-{length}") for row in published for length in shares}
    assert rows | {("accuracy", ALL)} == rubric.macros.keys()
    for row, numbers in published.items():
        for length, number in zip(shares, numbers, strict=True):
            assert found["accuracy", f"{row}-{length}"] == pytest.approx(number, abs=6e-11)
    assert found["accuracy", ALL] == pytest.approx(0.4974358974358974, abs=1e-15)


def test_published_judges_are_known_by_their_names():
    published = {
        dpg_bench: ["damo/mplug_visual-question-answering_coco_large_en"],
        oneig: ["Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl-7b"],
        tiif: ["gpt-4o", "openai:gpt-4o-2024-11-20"],
    }
    others = ["gpt-4o-mini", "gpt-4o-audio-preview", "qwen2.5-vl-72b", "blip-vqa"]
    for module, found in published.items():
        for name in itertools.chain(*published.values(), others):
            assert module.RUBRICS[0].is_published(name) == (name in found)


def test_rubrics_state_what_judges_read():
    for module in (dpg_bench, oneig, tiif):
        (rubric,) = module.RUBRICS
        assert rubric.wordings.keys() == set(rubric.kinds)
        assert all(text.count("{}") == 1 for texts in rubric.wordings.values() for text in texts)
        assert not rubric.fits(Prompt("1", "A cube."))
        assert rubric.name == module.__name__.rpartition(".")[2]
