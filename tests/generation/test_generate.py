"""Runs of pictures: what is on disk, going on, what is lost, and who reads it."""

import hashlib
import json
import shutil

import jax
import numpy as np
import PIL.Image
import pytest
import safetensors.numpy
import safetensors.torch

import winobench
from tests.changed_files import change_a_byte
from tests.expectations import raises
from tests.generation import fakes
from winobench.base.errors import InputError
from winobench.checkpoints import sources
from winobench.generation import loading, page
from winobench.generation.generate import Generator, Settings, generate_images
from winobench.prompts.prompt_files import Prompt
from winobench.runs import provenance

SEEDS = (3, 1)


def draw(folder, *pipelines, **keywords):
    return fakes.draw(folder, *pipelines, **{"seeds": SEEDS, "batch_size": 1, **keywords})


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The folder of a finished run, which tests must not change."""
    return draw(tmp_path_factory.mktemp("drawn") / "run").folder


@pytest.fixture
def run(drawn, tmp_path):
    return winobench.read_images(shutil.copytree(drawn, tmp_path / "run"))


def test_what_is_on_disk_is_what_was_drawn(tmp_path):
    run = draw(tmp_path / "run", fakes.FakePipeline("first"), fakes.FakePipeline("second", size=16))
    assert [model.label for model in run.models] == ["first", "second"]
    assert run.models[1].settings["image_size"] == 16
    assert run.prompts == tuple(fakes.PROMPTS)
    assert run.seeds == SEEDS
    assert run.categories == ("color", "shape")
    assert [record.place for record in run.records] == [
        (model, seed, number) for model in ("first", "second") for seed in SEEDS for number in range(3)
    ]
    for record in run.records:
        path = tmp_path / "run" / "pictures" / record.model / str(record.seed) / f"{record.number:05d}.png"
        assert run.path(record) == path
        content = path.read_bytes()
        assert (record.sha256, record.size) == (hashlib.sha256(content).hexdigest(), len(content))
        expected = fakes.colour(record.model, record.seed, record.number, record.prompt.text)
        image = run.image(record)
        assert image.shape == ((8, 8, 3) if record.model == "first" else (16, 16, 3))
        np.testing.assert_array_equal(image, np.broadcast_to(expected, image.shape))
    assert run.record("second", 1, 2).prompt.text == "zwei Würfel"
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["kind"], config["status"]) == ("pictures", "finished")
    line = json.loads((tmp_path / "run" / "drawn" / "part-0-00000.jsonl").read_text().splitlines()[0])
    assert line == {
        **{"id": "one", "text": "a red cube", "category": "color"},
        "content": {"objects": [{"color": "red", "shape": "cube", "count": 1}]},
        **{"model": "first", "seed": 3, "number": 0, "fingerprint": run.models[0].fingerprint, "lora": None},
        "settings": {"num_steps": 50, "guidance_scale": 7.5} | {"sampler": "ddim", "image_size": 8, "dtype": "float32"},
        **{"file": "pictures/first/3/00000.png", "sha256": run.records[0].sha256, "size": run.records[0].size},
    }
    again = winobench.read_images(tmp_path / "run")
    assert (again.records, again.models, again.prompts) == (run.records, run.models, run.prompts)


# What happens to a finished run -> whether its next call loads the models, and how many images it generates.
_AFTERWARDS = {
    "nothing": (lambda folder, now: None, False, 0),
    "another command": (lambda folder, now: now.update(config={"model": "b"}), False, 0),
    "another label": (lambda folder, now: now.update(label="mine"), False, 0),
    "another commit": (lambda folder, now: now.update(commit="2"), True, 0),
    "uncommitted changes": (lambda folder, now: now.update(dirty=True), True, 0),
    "changed files of a model": (lambda folder, now: now.update(files="2"), True, 0),
    "files that nobody knows": (lambda folder, now: now.update(files=None), True, 0),
    "a lost image": (lambda folder, now: (folder / "pictures/fake/3/00000.png").unlink(), True, 1),
    "a damaged image": (lambda folder, now: change_a_byte(folder / "pictures/fake/1/00002.png"), True, 1),
    "lost records": (lambda folder, now: (folder / "drawn/part-0-00000.jsonl").unlink(), True, 6),
    "lost prompts": (lambda folder, now: (folder / "drawn/prompts.jsonl").unlink(), True, 0),
}


@pytest.mark.parametrize("event", _AFTERWARDS)
def test_a_finished_run_loads_nothing_where_nothing_has_changed(tmp_path, monkeypatch, event):
    happen, loads, drawn = _AFTERWARDS[event]
    now, loaded, folder = {"commit": "1", "dirty": False, "files": "1"}, [], tmp_path / "run"
    monkeypatch.setattr(provenance, "software", lambda: {"winobench": {key: now[key] for key in ("commit", "dirty")}})

    def again():
        loaded.clear()
        pipeline = fakes.FakePipeline()

        def load():
            loaded.append(pipeline)
            return pipeline

        generator = Generator("fake", "the fake", load, files=lambda: now["files"])
        how = {"seeds": SEEDS, "progress": False, "config": now.get("config"), "label": now.get("label")}
        return generate_images([generator], fakes.PROMPTS, folder, **how), pipeline

    first, _ = again()
    assert len(loaded) == 1
    happen(folder, now)
    found, pipeline = again()
    assert (bool(loaded), len(pipeline.drawn)) == (loads, drawn)
    assert found.records == first.records
    assert json.loads((folder / "config.json").read_text()).get("name") == now.get("label")
    if event not in ("uncommitted changes", "files that nobody knows"):  # what was made again is whole
        again()
        assert not loaded


def test_models_are_given_rewritten_prompts_and_judges_read_the_others(tmp_path):
    prompts = [*fakes.PROMPTS[:1], Prompt("4", "a cat", shown="a <b>striped</b> cat")]
    pipeline = fakes.FakePipeline()
    run = draw(tmp_path / "run", pipeline, prompts=prompts, seeds=(0,))
    assert pipeline.texts == ["a red cube", "a <b>striped</b> cat"]
    assert [(record.prompt.text, record.prompt.shown) for record in run.records] == [
        ("a red cube", None),
        ("a cat", "a <b>striped</b> cat"),
    ]
    lines = (tmp_path / "run" / "drawn" / "prompts.jsonl").read_text().splitlines()
    assert ["shown" in json.loads(line) for line in lines] == [False, True]
    text = page.page_text(run)
    assert text.count("Given to the models:") == 1
    assert "Given to the models: a &lt;b&gt;striped&lt;/b&gt; cat" in text
    with raises("another-run", "prompts.sha256"):
        draw(tmp_path / "run", prompts=[prompts[0], Prompt("4", "a cat")], seeds=(0,))


def test_a_negative_prompt_is_part_of_the_run_only_where_there_is_one(tmp_path):
    pipeline, away = fakes.FakePipeline(), Settings(negative_prompt="blurry")
    plain = draw(tmp_path / "plain", pipeline)
    assert pipeline.more == {}
    # As runs had them before there were negative prompts.
    assert plain.config["identity"]["settings"].keys() == {"num_steps", "guidance_scale", "sampler", "image_size"}
    assert "negative_prompt" not in plain.models[0].settings
    run = draw(tmp_path / "run", pipeline, settings=away)
    assert pipeline.more == {"negative_prompt": "blurry"}
    assert run.config["identity"]["settings"]["negative_prompt"] == "blurry"
    assert run.records[0].settings["negative_prompt"] == "blurry"
    with raises("another-run", "negative_prompt"):
        draw(tmp_path / "plain", pipeline, settings=away)
    with raises("no-effect", "guidance"):
        draw(tmp_path / "none", settings=Settings(guidance_scale=1.0, negative_prompt="blurry"))
    assert not (tmp_path / "none").exists()


def test_the_files_of_a_model_are_known(tiny_pipeline, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_TICK_NS", 0)
    folder = shutil.copytree(tiny_pipeline, tmp_path / "model")

    def files(**how):
        (generator,) = loading.make_generators([str(folder)], settings=Settings(num_steps=2), **how)
        return generator.files()

    first = files()
    assert first == files() == files(dtype="bfloat16")  # which is part of the run's identity
    assert len({first, files(allow_pickle=True), files(backend="native"), None}) == 4
    words = []
    for values in (np.zeros(8, np.float32), np.ones(8, np.float32), np.zeros((2, 4), np.float32)):
        safetensors.numpy.save_file({"<toy>": values}, tmp_path / "word.safetensors")
        words += [files(embeddings=[str(tmp_path / "word.safetensors")]) for _ in range(2)]
    assert words[::2] == words[1::2]
    assert len({first, *words, None}) == 5
    path = folder / "unet" / "config.json"
    path.write_text(path.read_text())
    assert files() not in (first, None)


def test_a_sampler_that_stands_in_is_said(tmp_path, capsys):
    other = fakes.FakePipeline("other")
    other.schedule.scheduler_class = "PNDMScheduler"
    for number, pipeline in enumerate((fakes.FakePipeline(), other)):
        generate_images([fakes.generator(pipeline)], fakes.PROMPTS[:1], tmp_path / str(number))
        said = capsys.readouterr().err
        assert ("PNDMScheduler" in said, "ddim" in said) == (pipeline is other, pipeline is other)


def test_only_what_is_missing_is_drawn(tmp_path):
    at_once = len(jax.local_devices())
    prompts = [fakes.Prompt(str(n), f"image {n}") for n in range(4 * at_once)]
    with pytest.raises(InputError, match="on fire"):
        draw(tmp_path / "run", fakes.FakePipeline(fails_after=2 * at_once), prompts=prompts)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["status"] == "failed: the device is on fire: wait"
    with pytest.raises(InputError, match=r"lacks \d+ of its \d+ images, such as pictures/fake/"):
        winobench.read_images(tmp_path / "run")
    partial = winobench.read_images(tmp_path / "run", complete=False)
    assert 0 < len(partial.records) <= 2 * at_once
    pipeline, idle = fakes.FakePipeline(), fakes.FakePipeline()
    run = draw(tmp_path / "run", pipeline, prompts=prompts)
    assert len(pipeline.drawn) == 8 * at_once - len(partial.records)
    assert set(pipeline.drawn).isdisjoint((record.seed, record.number) for record in partial.records)
    assert len(run.records) == 8 * at_once
    # A third call has nothing to do, and leaves no part behind.
    draw(tmp_path / "run", idle, prompts=prompts)
    assert idle.drawn == []
    assert len(list((tmp_path / "run" / "drawn").glob("part-*"))) == 2


def test_lost_and_damaged_pictures_are_drawn_again_and_said(run, tmp_path, capsys):
    lost, damaged, changed, cut = run.records[0], run.records[2], run.records[4], run.records[5]
    part = tmp_path / "run" / "drawn" / "part-0-00000.jsonl"
    run.path(lost).unlink()
    run.path(damaged).write_bytes(run.path(damaged).read_bytes()[:-1])
    PIL.Image.new("RGB", (8, 8)).save(run.path(changed))
    with pytest.raises(InputError, match=r"has lost \d of its 6 images, such as pictures/fake/3/00000.png: give its"):
        winobench.read_images(tmp_path / "run")
    with pytest.raises(InputError, match="is not the image that was generated"):
        run.image(changed)
    capsys.readouterr()
    part.write_bytes(part.read_bytes()[:-20])  # the line of the last one
    pipeline = fakes.FakePipeline()
    again = draw(tmp_path / "run", pipeline)
    assert pipeline.drawn == [(one.seed, one.number) for one in (lost, damaged, changed, cut)]
    assert (
        "3 images are lost or damaged and generated again, such as pictures/fake/3/00000.png" in capsys.readouterr().err
    )
    assert again.records == run.records


def test_a_folder_of_another_run_is_refused(run, tmp_path):
    with raises("another-run", "settings.num_steps", "50", "9"):
        draw(tmp_path / "run", settings=Settings(num_steps=9))
    with raises("another-run", "prompts.sha256"):
        draw(tmp_path / "run", prompts=fakes.PROMPTS[:2])
    other, later = fakes.FakePipeline(), fakes.FakePipeline()
    other.fingerprint = "0" * 64
    # Images of an earlier version, which did not do what the folder of the model says.
    later.generation_identity = lambda guidance_scale, sampler, image_size: {"zero_empty_text": True}
    for pipeline in (other, later):
        with raises("another-run", "'the fake'", "settings"):
            draw(tmp_path / "run", pipeline)
    # What is there stays, and can be read; with overwrite it goes.
    before = winobench.read_images(tmp_path / "run")
    run = draw(tmp_path / "run", other, prompts=fakes.PROMPTS[:2], overwrite=True)
    assert len(run.records) == 4
    assert len(list((tmp_path / "run").glob("pictures/*/*/*"))) == 4
    assert len(before.records) == 6


def test_arguments_are_checked(tmp_path):
    for keywords, said in (
        ({"seeds": (1, 1)}, "the seeds 1, 1 name one twice"),
        ({"seeds": ()}, "seeds is"),
        ({"prompts": []}, "prompts is an empty list"),
        ({"batch_size": 0}, "batch_size is 0"),
    ):
        with pytest.raises(InputError, match=said):
            draw(tmp_path / "run", **keywords)
    assert not (tmp_path / "run").exists()


def test_what_is_no_run_of_pictures_is_said_in_one_sentence(run, tmp_path):
    with raises("no-such-folder", "absent"):
        winobench.read_images(tmp_path / "absent")
    with raises("not-a-run", "config.json"):
        winobench.read_images(tmp_path)
    for kind, said in (({}, "is a run without images"), ({"kind": "pictures"}, "does not say what was generated")):
        (tmp_path / "config.json").write_text(json.dumps({"schema": 2, "layout": 1, "identity": {}, **kind}))
        with pytest.raises(InputError, match=said):
            winobench.read_images(tmp_path)
    with pytest.raises(InputError, match="has no images of the model 'absent': name one of fake"):
        run.model("absent")
    path = run.folder / "drawn" / "prompts.jsonl"
    path.write_text(path.read_text().replace("red", "tan"))
    with pytest.raises(InputError, match="has changed since the images were generated"):
        winobench.read_images(run.folder)
    config = json.loads((run.folder / "config.json").read_text())
    config["identity"]["models"]["../out"] = config["identity"]["models"]["fake"]
    (run.folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="does not say what was generated"):
        winobench.read_images(run.folder)


def test_prompts_that_edit_an_image_are_refused(tmp_path):
    prompt = fakes.Prompt("1", "Make it red.", content={"source_image": "a.png", "source_sha256": "0" * 64})
    with raises("wrong-kind-of-model", "prompt 1", "winobench collect"):
        draw(tmp_path / "run", fakes.FakePipeline(), prompts=[*fakes.PROMPTS, prompt])
    assert not (tmp_path / "run").exists()
