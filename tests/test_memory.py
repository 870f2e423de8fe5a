"""Sizes are asked before they are allocated."""

import jax
import numpy as np
import pytest

import winobench
from winobench import memory
from winobench.errors import InputError


def test_there_is_some_memory():
    assert 1e8 < memory.of_host() < 1e15
    assert memory.of_device(jax.local_devices()[0]) > 1e8


@pytest.mark.parametrize(
    ("number", "text"), [(1_500_000_000, "1.5 GB"), (16 * 10**15, "16,000,000 GB"), (10**6, "0.001 GB")]
)
def test_bytes_as_people_say_them(number, text):
    assert memory.shown(number) == text


def test_what_cannot_fit_is_told_with_both_figures(monkeypatch):
    monkeypatch.setattr(memory, "of_host", lambda: 8 * 10**9)
    memory.check("a table", 8 * 10**9, "lower it")
    message = r"^a table needs about 8 GB of memory, but this machine has 8 GB: lower it$"
    with pytest.raises(InputError, match=message):
        memory.check("a table", 8 * 10**9 + 1, "lower it", jax.local_devices()[0])


@pytest.fixture(scope="module")
def embedded():
    return winobench.DiffusionITM.from_pretrained("clevr-tiny")


IMAGE = np.zeros((64, 64, 3), np.uint8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: type(s)(s.pipeline, image_size=65_536), "65,536 x 65,536 pixels needs about .* GB"),
        (
            lambda s: type(s)(s.pipeline, image_size=10**7),
            "image_size is 10000000, but it must be a whole number from 1",
        ),
        (lambda s: type(s)(s.pipeline, batch_size=2**20), "a batch of 1,048,576 .* needs about .* lower batch_size"),
        (lambda s: type(s)(s.pipeline, batch_size=10**11), "batch_size is 100000000000"),
        (lambda s: s.errors([IMAGE], ["a"], num_samples=10**12), "num_samples is 1000000000000"),
        (lambda s: s.pipeline.generate(["a"], batch_size=2**20), "needs about .* GB"),
    ],
)
def test_requests_that_are_too_large(embedded, monkeypatch, call, message):
    monkeypatch.setattr(memory, "of_host", lambda: 16 * 10**9)
    with pytest.raises(InputError, match=message):
        call(embedded)


def test_errors_of_many_images_and_texts(embedded, monkeypatch):
    monkeypatch.setattr(memory, "of_host", lambda: 10**5)
    with pytest.raises(InputError, match=r"errors of 1 images x 2 texts x 10,000 samples needs about 0\.00056 GB"):
        embedded.errors([IMAGE], ["a", "b"], num_samples=10**4)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"guidance_scale": float("nan")}, "guidance_scale is nan, but it must be a finite number"),
        ({"guidance_scale": float("inf")}, "guidance_scale is inf"),
        ({"num_steps": 0}, "num_steps is 0"),
        ({"num_steps": 1001}, "num_steps is 1001"),
        ({"num_steps": 2.0}, "num_steps is 2.0"),
        ({"seed": -1}, "the seed is -1"),
        ({"seed": True}, "the seed is True"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"texts": "a red cube"}, "texts is a str, but it must be a list"),
        ({"texts": []}, "texts is an empty list"),
        ({"texts": ["a", 5]}, r"texts\[1\] is a int"),
        ({"texts": ["\ud83d"]}, "lone surrogate"),
    ],
)
def test_arguments_of_generate(embedded, keywords, message):
    texts = keywords.pop("texts", ["a"])
    with pytest.raises(InputError, match=message):
        embedded.pipeline.generate(texts, **keywords)
