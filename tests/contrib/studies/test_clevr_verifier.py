import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import clevr_verifier as config_file
from winobench.base import options
from winobench.base.errors import InputError
from winobench.clevr import objects as clevr_objects
from winobench.clevr import renderer
from winobench.contrib.studies import clevr_verifier
from winobench.contrib.studies import images as pictures
from winobench.contrib.studies.verifier import ClevrVerifier


def make_config(**changes):
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    return options.replaced(config_file.Settings(), {**config_file.FORMS["debug"], **changes})


def inverted(images, levels, generator):
    assert len(images) == len(levels)
    return 255 - images


@pytest.mark.slow
def test_records_are_images_with_their_objects(monkeypatch):
    """Chunks of either kind by turns, and every other pair of chunks by an autoencoder."""
    monkeypatch.setattr(renderer, "chunk_size", lambda size, supersample=2: 4)
    records = list(clevr_verifier.scene_records(make_config(data__num_scenes=10), [inverted]))
    assert len(records) == 10
    scenes = [
        clevr_verifier.sample("free", 4, seed=0, split="train"),
        clevr_verifier.sample("random", 4, seed=0, split="train", start=4),
        clevr_verifier.sample("free", 2, seed=0, split="train", start=8),
    ]
    truth = [objects for some in scenes for objects in clevr_objects.of_scenes(some)]
    drawn = np.concatenate([renderer.render(some) for some in scenes])
    drawn[8:] = 255 - drawn[8:]
    for record, objects, image in zip(records, truth, drawn, strict=True):
        np.testing.assert_array_equal(pictures.decode_png(record["image"]), image)
        assert record["present"].sum() == len(objects)
        assert record["places"].shape == record["attributes"].shape == (5, 4)
        for one, place, numbers in zip(objects, record["places"], record["attributes"], strict=False):
            np.testing.assert_allclose(place, (one.right, one.down, one.radius, one.depth), rtol=1e-6)
            named = [values[n] for values, n in zip(clevr_objects.ATTRIBUTES.values(), numbers, strict=True)]
            assert named == [one.shape, one.color, one.size, one.material]


def test_a_scene_depends_on_its_number_alone():
    some = clevr_verifier.sample("random", 5, seed=3, split="train", start=2)
    one = clevr_verifier.sample("random", 1, seed=3, split="train", start=4)
    for name, values in one.arrays().items():
        np.testing.assert_array_equal(values, some[2].arrays()[name])
    other = clevr_verifier.sample("random", 1, seed=3, split="evaluation", start=4)
    assert not np.array_equal(other.position, one.position)


def test_held_out_scenes_have_as_many_objects_as_their_group_says():
    for group, allowed in (("two", {2}), ("crowd", {3, 4, 5}), ("hard", {3, 4, 5})):
        scenes = clevr_verifier.held_out(group, 30, 0)
        assert len(scenes) == 30
        assert set(scenes.num_objects.tolist()) == allowed


def test_images_vary_a_little():
    """Mean shift and spread of gray images are the constants; half of the images of an edge are blurred."""
    vary = jax.jit(clevr_verifier.vary)
    gray = jnp.zeros((400, 8, 8, 3))
    varied = np.asarray(vary(gray, jax.random.key(0)))
    assert np.abs(varied.mean(axis=(1, 2))).std() < 0.05
    np.testing.assert_allclose(varied.mean(axis=(1, 2)).std(), 0.03, rtol=0.1)
    noise = varied.std(axis=(1, 2)).max(axis=-1)
    assert noise.min() < 0.01
    assert 0.06 < noise.max() < 0.11  # 0.04 of a range of 2
    edge = jnp.zeros((400, 8, 8, 3)).at[:, :, 4:].set(0.5)
    step = np.asarray(vary(edge, jax.random.key(1)))
    rise = (step[:, :, 4] - step[:, :, 3]).mean(axis=(1, 2)) / (step[:, :, 6:] - step[:, :, :2]).mean(axis=(1, 2, 3))
    assert 0.4 < (rise > 0.9).mean() < 0.65
    assert rise.min() < 0.55
    assert vary(gray + 1, jax.random.key(2)).max() <= 1


def cube(right, color="red", size="large", shape="cube", material="metal"):
    return clevr_objects.SceneObject(shape, color, size, material, right, 0.5, 0.1, 0.0)


def test_accuracy_by_hand():
    truth = [[cube(0.2), cube(0.8)], [cube(0.5)], [cube(0.3)], [cube(0.3), cube(0.7)]]
    found = [
        [cube(0.21), cube(0.79, color="blue")],  # one colour is wrong
        [cube(0.5), cube(0.9)],  # one too many
        [cube(0.3, material="rubber")],  # the material is not asked for
        [cube(0.3), cube(0.6)],  # one is at the wrong place
    ]
    measured = clevr_verifier.measure(found, truth)
    values = {name: one["value"] for name, one in measured.items()}
    assert values == {
        "found": pytest.approx(5 / 6),
        "shape": pytest.approx(5 / 6),
        "color": pytest.approx(4 / 6),
        "size": pytest.approx(5 / 6),
        "material": pytest.approx(4 / 6),
        "all_right": pytest.approx(4 / 6),
        "exact": pytest.approx(1 / 4),
        "nothing_else": pytest.approx(2 / 4),
    }
    assert all(one["low"] < one["value"] < one["high"] for one in measured.values())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("training__decay_steps", 21, r"--training.decay_steps is 21, but must be at most the 20"),
        ("network__widths", (30, 96), "widths"),
        ("training__batch_size", 1_000_000_000, r"lower --training.batch_size"),
    ],
)
def test_settings_that_cannot_be_are_refused(field, value, message):
    with pytest.raises(InputError, match=message):
        clevr_verifier.check(make_config(**{field: value}))


@pytest.mark.slow
def test_the_whole_recipe_learns_and_goes_on_where_it_was(single_device, tmp_path, monkeypatch):
    """With one of the autoencoders, as each is compiled anew; the longer run's accuracy is not measured again."""
    monkeypatch.setattr(clevr_verifier, "GENERATORS", ("clevr-tiny",))
    monkeypatch.setattr(clevr_verifier, "_BATCH", 2)
    monkeypatch.setattr(renderer, "_RAYS_PER_CHUNK", 1 << 17)  # of 8 scenes
    changes = {"network__widths": (8, 16), "network__num_blocks": (1, 1, 1), "training__optimizer": "adamw"}
    changes |= {"data__num_scenes": 64, "data__num_held_out": 2}
    said = clevr_verifier.run(make_config(**changes), tmp_path)
    assert "clevr_verifier" in said
    network = ClevrVerifier.from_pretrained(tmp_path / "clevr_verifier")
    assert network.config.widths == (8, 16)
    measured = json.loads((tmp_path / "accuracy.json").read_text())
    kinds = ("rendered", "by the autoencoder of clevr-tiny")
    assert set(measured) == {f"{group}, {kind}" for group, kind in itertools.product(("two", "crowd", "hard"), kinds)}
    monkeypatch.setattr(clevr_verifier, "accuracy", lambda *arguments: measured)
    clevr_verifier.run(make_config(**changes, training__num_steps=40), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "verifier" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == sorted({line["step"] for line in lines})
    assert lines[-1]["step"] == 40
    assert lines[-1]["loss"] < lines[0]["loss"]


@pytest.mark.slow
def test_the_one_that_comes_with_winobench_is_right_on_held_out_pictures():
    """99% of the objects, and 95% of the pictures, of 100 with one to five objects, which no training run can draw."""
    scenes = clevr_verifier.sample("random", 100, seed=1, split="evaluation")
    network = ClevrVerifier.from_pretrained()
    found = network.objects(renderer.render(scenes))
    measured = clevr_verifier.measure(found, clevr_objects.of_scenes(scenes))
    assert measured["all_right"]["value"] >= 0.99
    assert measured["exact"]["value"] >= 0.95
    seen = [one for objects in found for one in objects]
    assert all(0.4 <= one.confidence <= 1 for one in seen)
    assert all(objects == sorted(objects, key=lambda one: one.right) for objects in found)
