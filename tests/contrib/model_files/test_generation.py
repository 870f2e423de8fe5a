"""Images of a single file: a finished run loads no pipeline."""

import pytest
import safetensors.torch
import torch

from tests import original_layouts
from tests.expectations import raises
from tests.generation import fakes
from winobench.checkpoints import sources
from winobench.generation import loading
from winobench.generation.generate import Settings, generate_images
from winobench.runs import provenance


@pytest.mark.slow
def test_a_finished_run_of_a_single_file_and_a_word_loads_nothing(tiny_pipeline, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_TICK_NS", 0)
    monkeypatch.setattr(provenance, "software", lambda: {"winobench": {"commit": "1", "dirty": False}})
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path / "cache"))
    path, word, loaded = tmp_path / "model.safetensors", tmp_path / "word.safetensors", []
    load = loading.load_pipeline
    monkeypatch.setattr(loading, "load_pipeline", lambda *args, **named: loaded.append(args) or load(*args, **named))
    settings = Settings(num_steps=1)

    def write(to, tensors):
        safetensors.torch.save_file({name: one.clone() for name, one in tensors.items()}, to)

    tensors = original_layouts.sd15_file(tiny_pipeline)
    write(path, tensors)
    write(word, {"<toy>": torch.zeros(24)})

    def again():
        loaded.clear()
        generators = loading.make_generators([f"{tiny_pipeline}+{path}"], embeddings=[str(word)], settings=settings)
        run = generate_images(generators, fakes.PROMPTS[:1], tmp_path / "run", settings=settings, progress=False)
        return run.records, len(loaded)

    first, loads = again()
    assert (loads, again()) == (1, (first, 0))
    write(path, tensors)
    assert (again(), again()) == ((first, 1), (first, 0))
    write(word, {"<toy>": torch.ones(24)})
    with raises("another-run", "fingerprint"):
        again()
    write(word, {"<toy>": torch.zeros(24)})
    assert again()[0] == first
    write(path, {name: one * 2 for name, one in tensors.items()})
    with raises("another-run", "fingerprint"):
        again()
