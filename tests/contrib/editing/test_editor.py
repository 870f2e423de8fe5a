"""Edits as scores: distances by hand, pictures on disk before their scores, resuming, devices, the figure."""

import json

import jax
import numpy as np
import PIL.Image
import pytest

from tests.evaluation.fakes import make_task
from tests.expectations import names
from tests.scorers import fakes
from winobench import parallel
from winobench.base.errors import InputError
from winobench.contrib.editing import EditDistance, figure, optimization
from winobench.data.images import image_hash
from winobench.evaluation import evaluate
from winobench.runs.edits import Edit, EditWriter, edit_files, read_edits
from winobench.scorers import samples
from winobench.tasks.base import Example

IMAGES = [fakes.image(seed) for seed in range(3)]
TEXTS = ["a cat", "three blind mice"]
STEPS = 5


class Pipeline(fakes.Pipeline):
    """The fakes' has no decoder: pictures are the latents, in steps of 4 pixels."""

    def encode_images(self, images, *, noise=None, batch_size=8):
        del noise, batch_size
        return np.stack([fakes.latents(image) for image in images]).astype(np.float32)

    def decode_latents(self, latents, *, batch_size=8):
        del batch_size
        images = np.clip(np.asarray(latents) * 127.5 + 127.5, 0, 255).astype(np.uint8)
        return np.repeat(np.repeat(images, 4, axis=1), 4, axis=2)


def editor(folder, devices=1, **options):
    mesh = parallel.make_mesh(jax.devices()[:devices])
    return EditDistance(Pipeline(), folder, **{"num_steps": STEPS, "batch_size": 2, "mesh": mesh, **options})


def task():
    examples = [
        Example("one", tuple(IMAGES[:2]), (TEXTS[0],), 0),
        Example("two", (IMAGES[2], IMAGES[0]), (TEXTS[1],), 1),
    ]
    return make_task("pictures", "accuracy", (2, 1), {}, lambda data_dir, limit: examples, images_compete=True)


def test_scores_are_minus_the_distance_that_latents_move(tmp_path):
    found = editor(tmp_path).score(IMAGES, TEXTS)
    pipeline = Pipeline()
    latents = pipeline.encode_images(np.stack([np.asarray(image) for image in IMAGES]))
    function, params = pipeline.denoiser_function()
    timesteps = optimization.step_timesteps(pipeline.schedule, "fixed", STEPS, 0)
    for column, text in enumerate(TEXTS):
        conditions = pipeline.encode_texts([text] * 3)
        moved = optimization.optimize_latents(
            function, pipeline.schedule, params, latents, conditions, samples.noise_key(0), timesteps
        )
        distances = np.sqrt(np.sum((np.asarray(moved) - np.asarray(latents)) ** 2, axis=(1, 2, 3)))
        np.testing.assert_allclose(found[:, column], -distances, rtol=1e-5)


def test_what_is_recorded(tmp_path):
    scores = editor(tmp_path, num_steps=100).score(IMAGES, TEXTS)
    edits = read_edits(tmp_path)
    assert set(edits) == {(image_hash(image), text) for image in IMAGES for text in TEXTS}
    for row, image in enumerate(IMAGES):
        for column, text in enumerate(TEXTS):
            edit = edits[image_hash(image), text]
            assert edit.distance == pytest.approx(-scores[row, column])
            with PIL.Image.open(tmp_path / edit.before) as before:
                np.testing.assert_array_equal(np.asarray(before), np.asarray(image))
            with PIL.Image.open(tmp_path / edit.after) as after:
                assert (np.asarray(after) != np.asarray(image)).any()
    # On noise that the optimisation has not seen.
    assert sum(edit.error_after for edit in edits.values()) < 0.96 * sum(edit.error_before for edit in edits.values())


def test_pictures_are_on_disk_before_their_scores(tmp_path):
    pairs = np.array([(image, 0) for image in range(3)])
    for numbers, _ in editor(tmp_path).iter_scores(IMAGES, TEXTS, pairs):
        known = read_edits(tmp_path)
        assert {(image_hash(IMAGES[number]), TEXTS[0]) for number in numbers} <= set(known)
        assert all((tmp_path / edit.after).is_file() for edit in known.values())
        break
    assert len(read_edits(tmp_path)) == 2


def test_edits_follow_the_weights(tmp_path):
    one = editor(tmp_path)
    before = one.score(IMAGES[:1], TEXTS)
    one.pipeline.unet.offset.set_value(one.pipeline.unet.offset.get_value() * 3)
    after = one.score(IMAGES[:1], TEXTS)
    assert not np.allclose(before, after)
    mesh = parallel.make_mesh(jax.devices()[:1])
    again = EditDistance(one.pipeline, tmp_path, num_steps=STEPS, batch_size=2, mesh=mesh)
    np.testing.assert_array_equal(again.score(IMAGES[:1], TEXTS), after)


def test_devices_share_the_edits(tmp_path):
    one = editor(tmp_path / "one").score(IMAGES, TEXTS)
    several = editor(tmp_path / "several", devices=8, batch_size=1).score(IMAGES, TEXTS)
    np.testing.assert_allclose(one, several, rtol=1e-5)


def test_a_task_is_judged_by_the_distance(tmp_path):
    results = evaluate.evaluate(editor(tmp_path / "run"), [task()], tmp_path / "run", progress=False)
    scores = [
        editor(tmp_path / "again").score(list(one.images), list(one.texts))[:, 0] for one in task().load(None, None)
    ]
    right = [bool(found.argmax() == target) for found, target in zip(scores, (0, 1), strict=True)]
    assert results["tasks"]["pictures"]["accuracy"]["value"] == np.mean(right)
    # Again: everything is recorded, and nothing is edited.
    path = tmp_path / "run" / "edits" / "part-0.jsonl"
    before = path.read_bytes()
    evaluate.evaluate(editor(tmp_path / "run"), [task()], tmp_path / "run", progress=False)
    assert path.read_bytes() == before
    assert figure.draw(tmp_path / "run") == tmp_path / "run" / "edits.png"
    with PIL.Image.open(tmp_path / "run" / "edits.png") as drawn:
        assert min(drawn.size) > 100


def test_another_option_is_another_scorer(tmp_path):
    options = ({}, {"num_steps": 6}, {"learning_rate": 0.1}, {"timesteps": "random"}, {"seed": 1}, {"strength": 0.7})
    *prints, last = (json.dumps(editor(tmp_path, **some).fingerprint(), sort_keys=True) for some in options)
    assert len(set(prints)) == len(prints)
    assert last == prints[0]  # of optimising it is no option


def test_wrong_options_are_named(tmp_path):
    for options, named in (
        ({"method": "draw"}, "'draw'"),
        ({"strength": 0.0}, "strength"),
        ({"num_steps": 0}, "num_steps"),
    ):
        with pytest.raises(InputError, match=names(named)):
            editor(tmp_path, **options)


def test_half_a_line_is_no_edit(tmp_path):
    edit, other = (Edit(one * 64, "a cat", 1.0, 3.0, 2.0, *edit_files(one * 64, "a cat")) for one in "ab")
    image = np.zeros((4, 4, 3), np.uint8)
    EditWriter(tmp_path).add(edit, image, image)
    path = tmp_path / "edits" / "part-0.jsonl"
    with path.open("ab") as file:
        file.write(b'{"image": "b')
    assert read_edits(tmp_path) == {("a" * 64, "a cat"): edit}
    EditWriter(tmp_path).add(other, image, image)
    assert set(read_edits(tmp_path)) == {("a" * 64, "a cat"), ("b" * 64, "a cat")}
    # A line that names files elsewhere is none of ours.
    with path.open("a") as file:
        file.write(json.dumps({**edit.__dict__, "after": "../../etc/passwd"}) + "\n")
    assert read_edits(tmp_path)["a" * 64, "a cat"] == edit
