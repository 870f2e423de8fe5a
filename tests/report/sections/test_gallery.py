"""Which examples the gallery shows, and how."""

import base64
import io
import pathlib

import numpy as np
from PIL import Image

from winobench.report import cards
from winobench.report.sections import gallery
from winobench.runs import reading
from winobench.runs.examples import Examples
from winobench.runs.run import Run, TaskRun


def test_the_gallery_shows_the_surest_first(run_folders):
    run = reading.read_run(run_folders[0])
    found, lines = gallery.task_gallery(run, "retrieval", run.images("retrieval"), 2, 0)
    assert not found.lacks_images
    kinds = dict(found.kinds)
    assert list(kinds) == ["Surely wrong", "Surely right", "At random"]
    examples = run.tasks["retrieval"].examples
    margins = [
        matrix.ravel()[target] - np.delete(matrix.ravel(), target).max()
        for matrix, target in zip(examples.scores, examples.targets, strict=True)
    ]
    worst = int(np.argmin(margins))
    card = kinds["Surely wrong"][0]
    assert card.id == examples.ids[worst]
    assert not card.is_correct
    assert card.candidates[0].is_chosen
    assert not card.candidates[0].is_right
    assert [one.number - 1 for one in card.candidates if one.is_right] == [examples.targets[worst]]
    assert card.candidates[0].score == "best"
    shares = [one.share for one in card.candidates]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (1, 0)
    assert card.query_text == examples.texts[worst][0]
    assert all(one.image.startswith("data:image/jpeg;base64,") for one in card.candidates)
    assert kinds["Surely right"][0].id == examples.ids[int(np.argmax(margins))]
    ids = [each.id for _, some in found.kinds for each in some]
    assert len(ids) == len(set(ids)) == 6
    written = [line for line in lines if line["id"] == card.id]
    assert [line["score"] for line in written] == examples.scores[worst].ravel().tolist()
    assert sum(line["belongs"] for line in written) == 1


def card_of(scores, texts, target):
    """The one card of a run with one wrong example."""
    examples = Examples(["a"], [()], [("i",)], [texts], [target], [scores], np.array([False]), None)
    task = TaskRun("words", {}, "accuracy", ("accuracy",), 1.0, {}, examples, 1, None, True)
    run = Run(pathlib.Path(), "one", {}, {}, {"words": task}, {}, [])
    found, _ = gallery.task_gallery(run, "words", {}, 1, 0)
    assert found.lacks_images
    (card,) = found.kinds[0][1]
    return card


def test_many_candidates_are_cut_but_never_the_right_one():
    card = card_of(-np.arange(37.0)[None], tuple(map(str, range(37))), 30)
    assert (len(card.candidates), card.hidden, card.query_image) == (10, 27, None)
    assert [one.text for one in card.candidates if one.is_right] == ["30"]
    assert card.verdict == "wrong by 30.0"


def test_a_tie_is_said_to_be_one():
    card = card_of(np.zeros((1, 2)), ("x", "y"), 0)
    assert card.verdict.startswith("tied")
    assert not any(one.is_chosen for one in card.candidates)


def test_damaged_pictures_are_left_out():
    assert cards.image_address(b"no picture", 100) is None
    buffer = io.BytesIO()
    Image.new("RGB", (300, 150), "red").save(buffer, "JPEG")
    assert cards.image_address(buffer.getvalue()[:200], 400) is None
    address = cards.image_address(buffer.getvalue(), 100)
    with Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))) as image:
        assert image.size == (100, 50)
