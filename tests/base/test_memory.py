"""Sizes are asked before they are allocated."""

import os
import platform
import subprocess
import sys

import jax
import numpy as np
import pytest

import winobench
from tests.expectations import raises
from winobench.base import memory


def test_there_is_some_memory():
    assert 1e8 < memory.host_bytes() < 1e15
    assert memory.device_bytes(jax.local_devices()[0]) > 1e8


@pytest.mark.parametrize(("n", "text"), [(15 * 10**8, "1.5 GB"), (16 * 10**15, "16,000,000 GB"), (10**6, "0.001 GB")])
def test_bytes_as_people_say_them(n, text):
    assert memory.gigabytes(n) == text


def test_what_cannot_fit_is_told_with_both_figures(monkeypatch):
    monkeypatch.setattr(memory, "host_bytes", lambda: 8 * 10**9)
    memory.check("a table", 8 * 10**9, "lower it")
    message = ("out-of-memory", "8", "GB")
    with raises(*message):
        memory.check("a table", 8 * 10**9 + 1, "lower it", jax.local_devices()[0])


@pytest.fixture(scope="module")
def embedded():
    return winobench.DiffusionITM.from_pretrained("clevr-tiny")


IMAGE = np.zeros((64, 64, 3), np.uint8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: type(s)(s.pipeline, image_size=65_536), ("out-of-memory", "65,536", "GB")),
        (lambda s: type(s)(s.pipeline, batch_size=2**20), ("out-of-memory", "1,048,576", "batch_size")),
        (lambda s: s.errors([IMAGE], ["a"], num_samples=10**12), ("bad-value", "num_samples", "1000000000000")),
        (lambda s: s.pipeline.generate(["a"], batch_size=2**20), ("out-of-memory", "GB")),
    ],
)
def test_requests_that_are_too_large(embedded, monkeypatch, call, message):
    monkeypatch.setattr(memory, "host_bytes", lambda: 16 * 10**9)
    with raises(*message):
        call(embedded)


def test_errors_of_many_images_and_texts(embedded, monkeypatch):
    monkeypatch.setattr(memory, "host_bytes", lambda: 10**5)
    with raises("out-of-memory", "2", "10,000", "0.00056", "GB"):
        embedded.errors([IMAGE], ["a", "b"], num_samples=10**4)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"guidance_scale": float("nan")}, ("bad-value", "guidance_scale", "nan")),
        ({"num_steps": 0}, ("bad-value", "num_steps", "0")),
        ({"num_steps": 2.0}, ("bad-value", "num_steps", "2.0")),
        ({"seed": -1}, ("bad-value", "seed", "-1")),
        ({"batch_size": 0}, ("bad-value", "batch_size", "0")),
        ({"texts": []}, ("empty-list", "texts")),
        ({"texts": ["a", 5]}, ("wrong-type", "texts[1]")),
        ({"texts": ["\ud83d"]}, ("lone-surrogate",)),
    ],
)
def test_arguments_of_generate(embedded, keywords, message):
    texts = keywords.pop("texts", ["a"])
    with raises(*message):
        embedded.pipeline.generate(texts, **keywords)


_ARRAYS_OF_A_THREAD = """
import resource, threading
import numpy as np
from winobench.base import memory

{call}

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(100_000_000, np.uint8)
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

counts = []
for _ in range(3):
    thread = threading.Thread(target=faults)
    thread.start()
    thread.join()
print(counts[-1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
@pytest.mark.parametrize(("call", "returns"), [("", True), ("memory.keep_freed()", False)])
def test_memory_that_is_kept_is_not_cleared_again(call, returns):
    others = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", _ARRAYS_OF_A_THREAD.format(call=call)]
    done = subprocess.run(command, env=others, check=True, capture_output=True, text=True, timeout=120)
    # The system clears large pages in one fault, of 2 MiB.
    assert (int(done.stdout) > 40) == returns
