"""Everything once: images by content, texts, pairs; the empty text only where images compete."""

import hashlib

import numpy as np
import PIL.Image

from tests.evaluation import fakes
from tests.expectations import raises
from winobench.data.images import GRAY_IMAGE, image_hash
from winobench.evaluation.plan import make_plan
from winobench.metrics import normalization
from winobench.tasks.base import Example

GRAY_HASH = image_hash(GRAY_IMAGE)


def _plan(*tasks, limit=None, normalize="auto"):
    return make_plan(tasks, data_dir=None, limit=limit, normalize=normalize)


def _named(plan):
    return [(plan.images[image][0, 0, 0], plan.texts[text]) for image, text in plan.pairs.tolist()]


def test_text_retrieval_never_needs_the_empty_text():
    for normalize in ("auto", "unconditional", "none"):
        plan = _plan(fakes.text_task(count=2), normalize=normalize)
        assert "" not in plan.texts
        texts = ("colour {}", "no colour", "shape {}", "no shape")
        assert _named(plan) == [(image, text.format(image)) for image in range(2) for text in texts]


def test_competing_images_need_the_empty_text_once_each():
    plan = _plan(fakes.image_task(count=2), fakes.square_task(count=2))
    named = _named(plan)
    assert len(set(named)) == len(named)
    assert sorted(number for number, text in named if text == "") == [0, 1, 100, 101]
    # The pictures' pairs are among the square's.
    assert len(named) == 4 * 2 + 4
    terms = (normalization.OWN, normalization.UNCONDITIONAL)
    assert plan.terms == {"pictures": terms, "square": terms}
    assert "" not in _plan(fakes.image_task(count=2), normalize="none").texts


def test_the_gray_image_is_scored_with_each_text_once_where_images_do_not_compete():
    plan = _plan(fakes.text_task(count=2), fakes.image_task(count=2), normalize="gray_image")
    gray = [plan.texts[text] for image, text in plan.pairs.tolist() if plan.image_hashes[image] == GRAY_HASH]
    assert sorted(gray) == ["colour 0", "colour 1", "no colour", "no shape", "shape 0", "shape 1"]
    terms = {"words": normalization.GRAY_IMAGE, "pictures": normalization.UNCONDITIONAL}
    assert plan.terms == {name: (normalization.OWN, term) for name, term in terms.items()}


def test_the_empty_text_is_also_a_text_like_others():
    def load(data_dir, limit):
        yield Example("0", (fakes.image(0),), ("", "something"))

    plan = _plan(fakes.text_task(load=load), fakes.image_task(count=1))
    assert _named(plan).count((0, "")) == 1


def test_images_are_one_by_content_not_by_source(tmp_path):
    pixels = np.arange(75, dtype=np.uint8).reshape(5, 5, 3)
    for name in ("one.png", "two.png"):
        PIL.Image.fromarray(pixels).save(tmp_path / name)
    PIL.Image.fromarray(pixels + 1).save(tmp_path / "other.png")

    def load(data_dir, limit):
        for name in ("one.png", "two.png", "other.png"):
            yield Example(name, (tmp_path / name,), ("a", "b"))
        yield Example("array", (fakes.image(0),), ("a", "b"))
        yield Example("same array", (fakes.image(0),), ("a", "b"))
        yield Example("larger array", (fakes.image(0, size=5),), ("a", "b"))

    plan = _plan(fakes.text_task(load=load))
    assert [question.images[0] for question in plan.questions["words"]] == [0, 0, 1, 2, 2, 3]
    assert len(set(plan.image_hashes)) == 4
    assert plan.text_hashes[0] == hashlib.sha256(b"a").hexdigest()


def test_pairs_are_in_the_order_of_images():
    plan = _plan(fakes.square_task(), fakes.text_task())
    assert (np.diff(plan.pairs[:, 0]) >= 0).all()
    assert plan.pairs.dtype == np.int32


def test_limit_reaches_the_task():
    assert len(_plan(fakes.text_task(), limit=2).questions["words"]) == 4


def test_tasks_are_named_once_each():
    for tasks, code in (([], "nothing-named"), ([fakes.text_task(), fakes.text_task()], "named-twice")):
        with raises(code):
            _plan(*tasks)
