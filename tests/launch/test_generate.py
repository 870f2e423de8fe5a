"""winobench generate from the command line to the page: with small pipelines, and ours."""

import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import PIL.Image
import pytest
from flax import nnx

import winobench
from tests import launching
from winobench import checkpoints
from winobench.models import lora

PROMPTS = ["a red cube", "a blue ball & <b>a dog</b>", "two cats"]
SETTINGS = ("--num_steps=2", "--batch_size=2", "--guidance_scale=3")


launch = functools.partial(launching.launch, "launch.generate")


@pytest.fixture(scope="module")
def lora_folder(tiny_pipeline, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bolder") / "bolder"
    folder.mkdir()
    pipeline = winobench.load_pipeline(tiny_pipeline)
    lora.add_lora(pipeline.unet, lora.LoRAConfig("cross", rank=2), rngs=nnx.Rngs(0))
    for adapter in lora.adapters(pipeline.unet).values():
        adapter.up.set_value(jnp.ones_like(adapter.up[...]))
    checkpoints.save_lora(folder, unet=pipeline.unet)
    return folder


@pytest.fixture(scope="module")
def words(tiny_pipeline):
    return [f"--model={tiny_pipeline}", "--prompts=prompts.txt", "--seeds=0,7", *SETTINGS]


@pytest.fixture(scope="module")
def drawn(words, lora_folder, tmp_path_factory):
    """The folder in which a run was launched, its words, and what it printed."""
    cwd = tmp_path_factory.mktemp("drawn")
    (cwd / "prompts.txt").write_text("\n".join(PROMPTS))
    words = [*words, f"--lora=none,{lora_folder}"]
    status, out, err = launch(*words, cwd=cwd)
    assert status == 0, err
    return cwd, words, out


@pytest.mark.slow
def test_from_prompts_to_the_page(drawn, tiny_pipeline):
    cwd, words, out = drawn
    (folder,) = (cwd / "runs").iterdir()
    label = winobench.base.registry.model_label(str(tiny_pipeline))
    assert re.fullmatch(rf"images-{label}-{label}\+bolder-[0-9a-f]{{8}}", folder.name)
    assert f"12 images are in runs/{folder.name}: 3 prompts, 2 seeds, by {label}, {label} + bolder" in out
    run = winobench.read_images(folder)
    plain, adapted = run.models
    assert (plain.lora, adapted.lora["name"], adapted.lora["scale"]) == (None, "bolder", 1.0)
    assert plain.fingerprint != adapted.fingerprint
    given = {"num_steps": 2, "guidance_scale": 3.0}
    assert plain.settings == given | {"sampler": "ddim", "image_size": 32, "dtype": "float32"}
    # What is on disk is what the pipeline draws, up to rounding, whoever is in a batch with whom.
    pipeline = winobench.load_pipeline(tiny_pipeline)
    assert pipeline.fingerprint == plain.fingerprint
    at_once = 2 * len(jax.local_devices())
    drawn = pipeline.generate(PROMPTS[1:], num_steps=2, guidance_scale=3.0, seed=7, numbers=[1, 2], batch_size=at_once)
    found = [run.image(run.record(plain.label, 7, number)).astype(int) for number in (1, 2)]
    assert np.abs(found - drawn).max() <= 1
    assert np.abs(found[0] - run.image(run.record(adapted.label, 7, 1))).max() > 10
    assert np.abs(found[0] - run.image(run.record(plain.label, 0, 1))).max() > 10
    page = (folder / "pictures.html").read_text()
    assert page.count("<img ") == 12
    assert "a blue ball &amp; &lt;b&gt;a dog&lt;/b&gt;" in page
    assert "<b>a dog" not in page

    before = {path: path.stat().st_mtime_ns for path in folder.glob("pictures/*/*/*.png")}
    image, lost = run.image(run.record(adapted.label, 7, 2)), run.path(run.record(adapted.label, 7, 2))
    lost.unlink()
    status, out, err = launch(*words, cwd=cwd)
    assert (status, "1 image is lost or damaged and generated again, such as pictures/" in err) == (0, True), err
    again = winobench.read_images(folder)
    assert np.abs(image.astype(int) - again.image(again.record(adapted.label, 7, 2))).max() <= 1
    assert {path for path in before if path.stat().st_mtime_ns != before[path]} == {lost}


@pytest.mark.slow
def test_a_killed_run_goes_on(tiny_pipeline, tmp_path):
    words = [f"--model={tiny_pipeline}", "--prompts=clevr:40", *SETTINGS, "--workdir=run"]
    process = launching.start("launch.generate", *words, cwd=tmp_path)
    launching.kill(process, lambda: len(list(tmp_path.glob("run/pictures/*/*/*.png"))) >= 5)
    partial = winobench.read_images(tmp_path / "run", complete=False)
    assert 0 < len(partial.records) < 40
    before = {record.file: (tmp_path / "run" / record.file).stat().st_mtime_ns for record in partial.records}
    # Everything that lies there under a picture's name is a whole picture.
    for path in tmp_path.glob("run/pictures/*/*/*.png"):
        with PIL.Image.open(path) as image:
            assert image.convert("RGB").size == (32, 32)
    status, out, err = launch(*words, cwd=tmp_path)
    assert status == 0, err
    run = winobench.read_images(tmp_path / "run")
    assert len(run.records) == 40
    assert all((tmp_path / "run" / file).stat().st_mtime_ns == time for file, time in before.items())
    assert not list(tmp_path.rglob("*.tmp"))
    assert "40 images are in run" in out
    assert json.loads((tmp_path / "run" / "config.json").read_text())["status"] == "finished"


@pytest.mark.slow
def test_two_processes_share_a_run(drawn, words, tmp_path):
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    both = [*words, "--workdir=two", f"--processes={launching.free_address()}"]
    start = functools.partial(launching.start, "launch.generate", cwd=tmp_path)
    printed = launching.finish([start(*both[:-1], f"{both[-1]},2,{number}") for number in range(2)])
    assert [bool(out) for out, _ in printed] == [True, False]
    two = winobench.read_images(tmp_path / "two")
    parts = [len(path.read_text().splitlines()) for path in sorted(tmp_path.glob("two/drawn/part-*"))]
    assert parts == [3, 3]
    (folder,) = (drawn[0] / "runs").iterdir()
    one = winobench.read_images(folder)
    plain = [record for record in one.records if record.place[0] == one.models[0].label]
    assert [record.place for record in plain] == [record.place for record in two.records]
    for record in plain:
        difference = one.image(record).astype(int) - two.image(two.record(*record.place))
        assert np.abs(difference).max() <= 1
