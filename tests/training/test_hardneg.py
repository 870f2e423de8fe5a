import dataclasses
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy

from configs import hardneg as hardneg_config
from tests import tiny_sd3, tiny_sdxl, tiny_z_image
from tests.expectations import names, raises
from tests.training import toy_run
from tests.training.toy_run import rows_of
from winobench import parallel
from winobench.base import options
from winobench.base.errors import InputError
from winobench.checkpoints import read_lora
from winobench.clevr import renderer
from winobench.diffusion import families
from winobench.evaluation import evaluate
from winobench.runs.training_settings import HardNeg
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.tasks import TASKS, clevr_hardneg
from winobench.training import hardneg, hardneg_step, loop, tuning
from winobench.training.validation import MEAN

FILE = "pytorch_lora_weights.safetensors"


@pytest.fixture(scope="module", autouse=True)
def few_rays():
    """A call of the renderer makes as many images as these are for, however few are needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer, "_RAYS_PER_CHUNK", 1 << 15)
        yield


@pytest.fixture
def config(tiny_pipeline, tmp_path_factory):
    return make_config(tiny_pipeline, tmp_path_factory)


def make_config(model, tmp_path_factory, changes=()):
    values = {
        "model": str(model),
        "data.cache_dir": str(tmp_path_factory.getbasetemp() / "hardneg-latents"),
        "optimizer.learning_rate": 0.05,
        "optimizer.schedule": "constant",  # so that a run can be prolonged
        "optimizer.warmup_steps": 0,
        "lora.targets": "cross",
        "lora.dropout": 0.1,
        "accumulate": 2,  # so that two devices share the batch of four
    }
    return options.replaced(HardNeg(), {**hardneg_config.FORMS["debug"], **values, **dict(changes)})


def trained(model, tmp_path_factory):
    """(config, folder, adapters) of a short run without validation. Its errors are those of a network that learns."""
    # A mixed step takes twice as long to compile.
    config = make_config(model, tmp_path_factory, {"num_steps": 2, "validate_every": None, "loss.kind": "hard_text"})
    folder = tmp_path_factory.mktemp("runs")
    hardneg.run(config, folder)
    assert all(0 < row["positive_error"] < 20 for row in rows_of(folder) if "positive_error" in row)
    return config, folder / "lora", read_lora(folder / "lora").parts


@pytest.fixture(scope="module")
def finished(tiny_pipeline, tmp_path_factory):
    config = make_config(tiny_pipeline, tmp_path_factory)
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return config, folder, hardneg.run(config, folder)


def tensors(folder):
    return safetensors.numpy.load_file(folder / FILE)


def test_the_papers_config_validates_on_the_published_rows():
    validation = options.replaced(HardNeg(), hardneg_config.FORMS["paper"]).validation
    chosen = [TASKS[name] for name in validation.tasks.split(",")]
    assert [(task.name, task.source.num_examples) for task in chosen] == [
        ("coco_hardneg_text_328", 328),
        ("coco_hardneg_image_328", 328),
    ]
    assert (validation.limit, validation.num_samples) == (None, 4)


@pytest.mark.slow  # a whole run: its parts have quick tests in test_hard_negatives, test_latent_cache and test_loop
def test_training_leaves_adapters_and_numbers(finished):
    config, folder, report = finished
    rows = rows_of(folder)
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3, 4]
    assert [row["step"] for row in rows if MEAN in row] == [0, 2, 4]
    for row in rows:
        if MEAN in row:
            sides = [row[f"validation/clevr_hardneg_{side}"] for side in ("text", "image")]
            assert row[MEAN] == pytest.approx(np.mean(sides))
        else:
            assert 0 < row["positive_error"] < 10
            # Two micro-batches draw a kind each.
            shares = [row[f"share_{kind}"] for kind in ("random_text", "hard_text", "hard_image")]
            assert sum(shares) == pytest.approx(1.0)
            assert all(2 * share % 1 == 0 for share in shares)
    assert list((folder / "tensorboard").iterdir())

    best = max((row for row in rows if row["step"] and MEAN in row), key=lambda row: (row[MEAN], row["step"]))
    last = read_lora(folder / "lora" / "last")
    # attn2 of two blocks down and up and of the middle; four projections in each of the text encoder's two layers.
    unet = last.parts["unet"]
    assert len(unet) == 4 * len({name.split(".transformer_blocks")[0] for name in unet})
    assert all(".attn2." in name for name in unet)
    assert len(last.parts["text_encoder"]) == 8
    assert all(np.abs(adapter.up).max() > 0.01 for part in last.parts.values() for adapter in part.values())
    is_last_best = best["step"] == 4
    same = all((tensors(folder / "lora")[name] == array).all() for name, array in tensors(folder / "lora/last").items())
    assert same == is_last_best

    assert f"step {best['step']}, the best" in report
    assert report.splitlines()[0].startswith("untuned")
    assert report.splitlines()[-1].strip() == training_of(config).evaluation_command(folder / "lora")


@pytest.mark.slow  # one more run
def test_a_stopped_run_continues_to_the_same_adapters(finished, tmp_path):
    config, whole, _ = finished
    folder = shutil.copytree(whole, tmp_path / "parts")
    shutil.rmtree(folder / "checkpoints" / "4")
    shutil.rmtree(folder / "lora")
    assert "step 4, the last" in hardneg.run(config, folder)
    assert rows_of(folder) == rows_of(whole)
    for name, array in tensors(whole / "lora" / "last").items():
        np.testing.assert_array_equal(tensors(folder / "lora" / "last")[name], array)


@pytest.mark.slow
def test_validation_says_what_an_evaluation_of_the_export_says(finished, tmp_path):
    config, folder, _ = finished
    scorer = DiffusionITM.from_pretrained(config.model, lora=folder / "lora" / "last", fuse_lora=False)
    tasks = clevr_hardneg.validation_tasks(seed=config.seed)
    results = evaluate.evaluate(scorer, tasks, tmp_path / "run", num_samples=1, limit=1, progress=False)
    (row,) = [row for row in rows_of(folder) if row["step"] == 4 and MEAN in row]
    for task in tasks:
        assert results["tasks"][task.name]["accuracy"]["value"] == pytest.approx(row[f"validation/{task.name}"])


def test_the_best_validation_is_exported_and_its_checkpoint_kept(config, tmp_path):
    accuracies = iter([0.9, 0.5, 0.7, 0.7, 0.6])  # before the first step, and after each
    exports = []

    class Toy(hardneg.Training):
        watched = "loss"
        num_steps = 4
        _validation = True
        _frozen = toy_run.FROZEN
        _batches_from = staticmethod(toy_run.batches_from)

        def __init__(self, config, workdir):
            tuning.Tuning.__init__(self, config, workdir)
            self._step, self._state = toy_run.make()

        def measure(self, state):
            return {"validation/one": 0.0, MEAN: next(accuracies)}

        def export(self, state, folder):
            exports.append((int(state.step), folder.name))

    report = Toy.run(dataclasses.replace(config, validate_every=1), tmp_path)
    assert [step for step, name in exports if name == "lora"] == [1, 2, 3]
    assert exports[-1] == (4, "last")
    kept = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir() if path.name.isdigit())
    assert kept == [3, 4]
    assert "step 3, the best" in report
    assert "no checkpoint is better" in report


@pytest.mark.slow  # compiles another step twice
def test_eight_devices_do_as_one(config, tmp_path):
    if jax.device_count() < 8:
        pytest.skip("needs eight devices")
    changes = {"mesh.model_parallel": 4, "batch_size": 8, "accumulate": 1, "validate_every": None, "num_steps": 2}
    config = options.replaced(config, {**changes, "loss.kind": "hard_image", "lora.text_encoder": False})
    training = hardneg.Training(config, tmp_path / "eight")
    frozen = jax.tree.leaves(training._frozen)
    here = sum(leaf.addressable_shards[0].data.size for leaf in frozen)
    assert here < 0.3 * sum(leaf.size for leaf in frozen)
    training.train()
    with pytest.MonkeyPatch.context() as patch:
        devices = jax.devices()[:1]
        patch.setattr(jax, "devices", lambda: devices)
        hardneg.run(options.replaced(config, {"mesh.model_parallel": 1}), tmp_path / "one")
    eight, one = (tensors(tmp_path / name / "lora" / "last") for name in ("eight", "one"))
    for name, array in one.items():
        # Adam divides by the gradient's size: where that is all rounding, an update may differ by its whole length.
        difference = np.abs(eight[name] - array)
        assert np.mean(difference > 1e-3) < 0.01, name
    losses = [[row["positive_error"] for row in rows_of(tmp_path / name)] for name in ("eight", "one")]
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.slow
def test_a_model_with_two_text_encoders(tmp_path_factory):
    """SDXL: adapters on all three networks, each trained, in a file that loads again."""
    config, folder, parts = trained(tiny_sdxl.write(tmp_path_factory.mktemp("sdxl")), tmp_path_factory)
    assert set(parts) == {"unet", "text_encoder", "text_encoder_2"}
    # ``up`` starts at zero. The UNet does not use the first encoder's last layer.
    still = {(part, layer) for part, layers in parts.items() for layer in layers if not np.any(layers[layer].up)}
    assert still == {("text_encoder", layer) for layer in parts["text_encoder"] if ".layers.2." in layer}
    assert DiffusionITM.from_pretrained(config.model, lora=folder).fingerprint()["lora"]


@pytest.fixture(scope="module")
def flow_model(tmp_path_factory):
    return tiny_sd3.write(tmp_path_factory.mktemp("sd3"))


@pytest.mark.slow
def test_a_flow_model(flow_model, tmp_path_factory):
    """SD 3: adapters on the joint attention. Without T5, ids of no length go through batches and micro-batches."""
    smaller = families.load_pipeline(flow_model, zero_t5=True, text_tokens=0)
    model = tmp_path_factory.mktemp("clip_alone")
    smaller.save_pretrained(model, dtype="float32")
    config, folder, parts = trained(model, tmp_path_factory)
    assert set(parts) == {"transformer", "text_encoder", "text_encoder_2"}
    layers = parts["transformer"]
    # The query of the last block's text has no influence.
    still = {layer for layer in layers if not np.any(layers[layer].up)}
    assert still <= {"transformer_blocks.1.attn.add_q_proj"}
    assert len(layers) == 15
    scorer = DiffusionITM.from_pretrained(config.model, lora=folder, mesh=parallel.make_mesh(jax.devices()[:1]))
    assert np.isfinite(scorer.score([np.zeros((32, 32, 3), np.uint8)], ["a red cube", ""], num_samples=2)).all()


@pytest.mark.slow
def test_a_third_text_encoder_stays_as_it_is(flow_model, tmp_path_factory, tmp_path):
    """T5, as large as the rest together. The step is traced only: without T5 it runs."""
    config = make_config(flow_model, tmp_path_factory, {"num_steps": 2, "validate_every": None})
    training = hardneg.Training(config, tmp_path / "run")
    state, _ = jax.eval_shape(training._step, training._state, next(training._batches_from(0)), training._frozen)
    assert jax.tree.structure(state) == jax.tree.structure(training._state)
    training.export(training._state, tmp_path / "lora")
    assert set(read_lora(tmp_path / "lora").parts) == {"transformer", "text_encoder", "text_encoder_2"}


@pytest.mark.slow
def test_a_flow_model_with_one_stream(tmp_path_factory):
    """Z-Image: texts of several lengths, which the encoder is given; adapters on the blocks of image and text."""
    *_, parts = trained(tiny_z_image.write(tmp_path_factory.mktemp("z_image")), tmp_path_factory)
    (layers,) = parts.values()
    assert len(layers) == 8
    assert all(np.any(adapter.up) for adapter in layers.values())


@pytest.mark.parametrize("form", hardneg_config.FORMS)
def test_the_schedule_of_every_form_fits_its_steps(form):
    config = options.replaced(HardNeg(), hardneg_config.FORMS[form])
    num_steps = config.num_steps or 1000  # the paper's are as many as its epochs have
    assert hardneg_step.optimizer(config.optimizer, num_steps) is not None


def test_meshes_of_a_cpu_fit_the_batch():
    assert loop.make_mesh(6, 1, 1).size == max(count for count in range(1, jax.device_count() + 1) if 6 % count == 0)
    with raises("indivisible-batch", "7", "2"):
        loop.make_mesh(7, 2, 1)
    with pytest.raises(InputError, match=names("model_parallel", "3")):
        loop.make_mesh(8, 1, 3)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("data.name", "clever", ("unknown-name", "'clever'")),
        ("data.name", "coco_hardneg_train", ("data-not-ready", "winobench prepare")),
        ("validation.tasks", "coco_hardneg_text", ("data-not-ready", "coco_hardneg_text")),
        ("wandb", "mine", ("missing-package", "wandb")),
        ("optimizer.name", "sgd", ("bad-value", "name", "'sgd'")),
        ("loss.timestep_range", (0, 5000), ("out-of-range", "timestep_range", "5000")),
        ("validation.timestep_range", (7, 3), ("bad-value", "--validation.timestep_range", "(7, 3)")),
    ],
)
def test_bad_options_are_named_before_the_model_is_loaded(config, tmp_path, monkeypatch, field, value, message):
    monkeypatch.setattr(hardneg.families, "load_pipeline", lambda *_, **__: pytest.fail("was loaded"))
    if field == "wandb":
        monkeypatch.setattr(hardneg.tuning.writers.importlib.util, "find_spec", lambda name: None)
    with raises(*message):
        hardneg.Training(options.replaced(config, {field: value}), tmp_path)


def test_a_run_may_change_its_length_where_the_learning_rate_does_not_depend_on_it(config):
    assert {"num_steps", "epochs"} <= set(hardneg.free_fields(config))
    config = options.replaced(config, {"optimizer.schedule": "cosine"})
    assert not {"num_steps", "epochs"} & set(hardneg.free_fields(config))


def training_of(config):
    """A run that has read nothing but its config."""
    training = object.__new__(hardneg.Training)
    training._config = config
    return training


def test_epochs_count_rows(config):
    config = dataclasses.replace(config, num_steps=None, epochs=1.5)
    assert training_of(config).count_steps(28) == 11  # 42 rows in batches of 4


def test_the_command_of_a_run_has_all_that_its_model_needs(config, tmp_path):
    config = dataclasses.replace(config, model="some one/model", dtype="bfloat16", revision="v1", allow_pickle=True)

    def command(timestep_range):
        changed = options.replaced(config, {"validation.timestep_range": timestep_range})
        return training_of(changed).evaluation_command(tmp_path / "lora")

    assert command((300, 800)) == (
        "winobench eval --config=gdbench '--model=some one/model'"
        f" --lora={tmp_path / 'lora'} --revision=v1 --dtype=bfloat16 --allow_pickle=true"
        " --sampling.timestep_range=300,800"
    )
    assert "timestep_range" not in command(None)  # the model's own
    assert "--sampling.timestep_range=all" in command("all")
