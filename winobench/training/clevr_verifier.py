"""The recipe of the verifier: rendered scenes, and what two autoencoders make of them -> detector -> folder.

Images that a diffusion model generates come out of its autoencoder, and its latents are never quite right. So half of
what the verifier learns from are reconstructions of the images by the autoencoders of the embedded models, from
latents with some noise. Colours, sharpness and noise of all images vary a little.

Each stage keeps its result in ``<workdir>`` and is skipped when that is there already:

    <workdir>/scenes/           ArrayRecord shards: images (PNG) and what is in them
              verifier/         checkpoints, metrics.jsonl
              clevr_verifier/   the exported network
              accuracy.json     of it, on held-out scenes
"""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.base import files, memory, random_numbers, registry
from winobench.base.errors import InputError
from winobench.models.clevr_verifier import ClevrVerifier, ClevrVerifierConfig, loss
from winobench.training import loop, optimizers
from winobench.training.checkpoints import Checkpoints
from winobench.training.images import decode_png, encode_png

if TYPE_CHECKING:
    import ml_collections

    from winobench.clevr.objects import SceneObject
    from winobench.clevr.scenes import Scenes

NAME = "clevr_verifier"
"""Of the exported folder."""

DRAWERS = ("clevr-tiny", "clevr-flow")
"""The models whose autoencoders reconstruct images."""

MAX_OBJECTS = 5
"""Most objects of a scene that the verifier learns from."""

_BATCH = 64
_MOST_BLUR = 0.8  # share of an image's neighbours in it
_MOST_NOISE = 0.04  # of the range from black to white
_GAIN, _SHIFT = 0.06, 0.03  # spread of the factor and of the term of each colour channel

Reconstruct = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]
"""(images, levels of noise, source of the noise) -> images, as `reconstructor` says."""


def free_fields(config: ml_collections.ConfigDict) -> tuple[str, ...]:
    """The fields of the config that may change when a run continues: the length of the training."""
    return tuple(f"training.{name}" for name in ("num_steps", "decay_steps", "checkpoint_every", "log_every"))


def default_name(config: ml_collections.ConfigDict, spec: str, digest: str) -> str:
    """What a run's folder is called when the config was named ``spec``."""
    return f"train-{registry.model_label(spec.replace(':', '-'))}"


def run(config: ml_collections.ConfigDict, workdir: str | os.PathLike, *, max_seconds: float | None = None) -> str:
    """Runs every stage that is not finished yet, exports the averaged weights and measures them."""
    workdir = pathlib.Path(workdir)
    check(config)
    make_scenes(config, workdir)
    state = train(config, workdir, max_seconds=max_seconds)
    folder = export(config, workdir, state.ema)
    measured = accuracy(ClevrVerifier.from_pretrained(folder), config.data.num_held_out, config.seed)
    files.write_json(workdir / "accuracy.json", measured)
    worst = min(one["all_right"]["value"] for one in measured.values())
    return f"exported {folder}: of held-out objects {100 * worst:.1f}% or more are all right, see accuracy.json"


def check(config: ml_collections.ConfigDict) -> None:
    """Refuses a network that cannot be made and batches that cannot fit, before the first scene is rendered."""
    shape = network_config(config)
    settings = config.training
    if settings.decay_steps > settings.num_steps:
        raise InputError(
            f"config.training.decay_steps is {settings.decay_steps:,}, but must be at most the"
            f" {settings.num_steps:,} of config.training.num_steps, so that the learning rate ends at zero"
        )
    memory.check(
        f"training the verifier on {settings.batch_size:,} images a step",
        4 * 2 * settings.batch_size * (shape.sample_size // 4) ** 2 * shape.widths[0] // jax.device_count(),
        "lower config.training.batch_size",
        jax.local_devices()[0],
    )


def network_config(config: ml_collections.ConfigDict) -> ClevrVerifierConfig:
    """The network's architecture."""
    return ClevrVerifierConfig(widths=tuple(config.network.widths), num_blocks=tuple(config.network.num_blocks))


# Scenes ---------------------------------------------------------------------------------------------------------------


def sample(kind: str, count: int, *, seed: int, split: str, start: int = 0) -> Scenes:
    """Scenes that the verifier learns from, or is measured on.

    Args:
      kind: ``free``, one to five objects, large in scenes of two, whose halves they then take in nine of ten. Or
        ``random``, placed as in the questions of `clevr_hard`.
    """
    from winobench.clevr import questions
    from winobench.clevr import scenes as clevr_scenes

    if kind == "random":
        return questions.random_scenes(count, seed=seed, split=split, start=start)
    return clevr_scenes.sample_free_scenes(
        count, seed=seed, split=split, start=start, min_objects=1, max_objects=MAX_OBJECTS, distinct=0.25
    )


def make_scenes(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> None:
    """Writes the shards of images and their objects."""
    from winobench.data import array_records

    about = {"seed": config.seed, "recipe": 1, "data": config.data.to_dict()}
    if not array_records.is_complete(workdir / "scenes", about):
        records = scene_records(config, [reconstructor(name) for name in DRAWERS])
        array_records.write_shards(workdir / "scenes", records, num_shards=config.data.num_shards, about=about)


def scene_records(
    config: ml_collections.ConfigDict, reconstructors: Sequence[Reconstruct]
) -> Iterator[dict[str, np.ndarray]]:
    """Renders the training scenes, of either kind by turns, and has half of the images reconstructed.

    Yields ``image`` (bytes of a PNG file), ``places`` float32 [objects, 4], ``attributes`` int32 [objects, 4] and
    ``present`` bool [objects], as in `winobench.models.clevr_verifier.loss`.
    """
    from winobench.clevr import objects, renderer

    size = network_config(config).sample_size
    chunk = renderer.chunk_size(size)
    for number, start in enumerate(range(0, config.data.num_scenes, chunk)):
        count = min(chunk, config.data.num_scenes - start)
        scenes = sample(("free", "random")[number % 2], count, seed=config.seed, split="train", start=start)
        pictures = renderer.render(scenes, size)
        if number // 2 % 2:
            generator = np.random.default_rng((config.seed, start))
            levels = config.data.latent_noise * generator.random(count)
            pictures = reconstructors[number // 4 % len(reconstructors)](pictures, levels, generator)
        places = objects.measures(scenes).astype(np.float32)
        attributes = np.stack([getattr(scenes, name) for name in objects.ATTRIBUTES], axis=-1).astype(np.int32)
        present = np.arange(MAX_OBJECTS) < np.asarray(scenes.num_objects)[:, None]
        for n in range(count):
            yield {
                "image": encode_png(pictures[n]),
                "places": places[n],
                "attributes": attributes[n],
                "present": present[n],
            }


@functools.cache
def reconstructor(model: str) -> Reconstruct:
    """Encodes and decodes images by the autoencoder of an embedded model.

    Returns (images uint8 [n, h, w, 3], levels [n], generator) -> the same in shape and dtype. An image's latents get
    Gaussian noise of its level times their own spread in between.
    """
    from winobench.models.autoencoder_kl import AutoencoderKL

    vae = AutoencoderKL.from_pretrained(registry.resolve(model).source, subfolder="vae")
    spread = 1.0 / vae.config.scaling_factor

    @jax.jit
    def both_ways(images: jax.Array, noise: jax.Array) -> jax.Array:
        mean, _ = vae.encode(images.astype(jnp.float32) / 127.5 - 1.0)
        decoded = vae.decode(mean + spread * noise)
        return jnp.clip(jnp.round(decoded * 127.5 + 127.5), 0, 255).astype(jnp.uint8)

    shape = (vae.config.sample_size // vae.config.downsampling,) * 2 + (vae.config.latent_channels,)

    def reconstruct(pictures: np.ndarray, levels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        noise = generator.standard_normal((len(pictures), *shape), np.float32) * levels[:, None, None, None]
        done = []
        for first in range(0, len(pictures), _BATCH):
            at = np.minimum(np.arange(first, first + _BATCH), len(pictures) - 1)
            done.append(np.asarray(both_ways(pictures[at], noise[at].astype(np.float32))))
        return np.concatenate(done)[: len(pictures)]

    return reconstruct


# Training -------------------------------------------------------------------------------------------------------------


def vary(images: jax.Array, key: jax.Array) -> jax.Array:
    """Varies colours, sharpness and noise of images a little: float32 [B, h, w, 3], from -1 to 1 and back. Pure."""
    count = (images.shape[0], 1, 1)
    keys = jax.random.split(key, 5)
    gain = 1.0 + _GAIN * jax.random.normal(keys[0], (*count, 3))
    shift = _SHIFT * jax.random.normal(keys[1], (*count, 3))
    # Half of the images stay sharp. Blurred ones get a share of the mean of their neighbours, by rows and columns.
    share = jnp.maximum(_MOST_BLUR * jax.random.uniform(keys[2], (*count, 1), minval=-1.0), 0.0)
    for axis in (1, 2):
        wide = jnp.pad(images, [(0, 0), *((1, 1) if axis == a else (0, 0) for a in (1, 2)), (0, 0)], mode="edge")
        length = images.shape[axis]
        before, after = (jax.lax.slice_in_dim(wide, at, at + length, axis=axis) for at in (0, 2))
        images = (1.0 - share) * images + share * (images + before + after) / 3.0
    level = 2.0 * _MOST_NOISE * jax.random.uniform(keys[3], (*count, 1))
    noise = level * jax.random.normal(keys[4], images.shape)
    return jnp.clip(images * gain + shift + noise, -1.0, 1.0)


def training_step(config: ml_collections.ConfigDict) -> tuple[loop.StepFn, loop.TrainState]:
    """The jitted training step, and its first state."""
    settings, shape = config.training, network_config(config)
    make = jax.jit(lambda key: nnx.split(ClevrVerifier(shape, rngs=nnx.Rngs(key))))
    graphdef, state = make(random_numbers.seed_key(config.seed))
    params = nnx.to_pure_dict(state)

    def loss_fn(params: loop.Params, batch: loop.Batch, key: jax.Array) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        images = vary(batch["images"].astype(jnp.float32) / 127.5 - 1.0, key)
        maps = nnx.merge(graphdef, params)(images)
        return loss(maps, batch["places"], batch["attributes"], batch["present"])

    rate = optimizers.warmup_constant_decay(
        settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        total_steps=settings.num_steps,
        decay_steps=settings.decay_steps,
    )
    optimizer = optimizers.make_optimizer(settings.optimizer, rate)
    step = loop.make_step(loss_fn, optimizer, seed=config.seed, ema_decay=settings.ema_decay)
    return step, loop.create_state(params, optimizer)


def train(
    config: ml_collections.ConfigDict, workdir: pathlib.Path, *, max_seconds: float | None = None
) -> loop.TrainState:
    """Trains the verifier from ``scenes/``, or resumes."""
    from winobench.data import array_records

    settings = config.training
    step, state = training_step(config)
    source = array_records.ShardSource(workdir / "scenes")

    def batches_from(first: int) -> Iterator[loop.Batch]:
        return array_records.shuffled_batches(
            source, batch_size=settings.batch_size, seed=config.seed, transform=_decoded, first_batch=first
        )

    checkpoints = Checkpoints(workdir / "verifier" / "checkpoints")
    state = loop.train(
        step,
        state,
        batches_from,
        num_steps=settings.num_steps,
        checkpoints=checkpoints,
        metrics_file=workdir / "verifier" / "metrics.jsonl",
        name="verifier",
        log_every=settings.log_every,
        checkpoint_every=settings.checkpoint_every,
        max_seconds=max_seconds,
    )
    checkpoints.close()
    return state


def export(config: ml_collections.ConfigDict, workdir: str | os.PathLike, params: loop.Params) -> pathlib.Path:
    """Writes ``<workdir>/clevr_verifier`` in float16."""
    from winobench import checkpoints

    folder = pathlib.Path(workdir) / NAME
    network = ClevrVerifier(network_config(config), rngs=nnx.Rngs(0))
    nnx.update(network, jax.device_put(params, jax.local_devices()[0]))
    checkpoints.save_model(network, folder, dtype="float16")
    return folder


def _decoded(record: dict[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
    return {"images": decode_png(record["image"]), **{name: record[name] for name in record if name != "image"}}


# Accuracy -------------------------------------------------------------------------------------------------------------


def held_out(group: str, count: int, seed: int) -> Scenes:
    """Scenes of the split ``evaluation``, which no training run can contain.

    Args:
      group: ``two``, free scenes of two objects; ``crowd``, free ones of three to five. Or ``hard``, scenes of three to
        five placed as in the questions of `clevr_hard`.
    """
    from winobench.clevr import scenes as clevr_scenes

    if group == "hard":  # three of five random scenes have three objects or more
        scenes = sample("random", 2 * count + 40, seed=seed, split="evaluation")
        return scenes[np.flatnonzero(scenes.num_objects >= 3)[:count]]
    least, most = {"two": (2, 2), "crowd": (3, MAX_OBJECTS)}[group]
    return clevr_scenes.sample_free_scenes(count, seed=seed, split="evaluation", min_objects=least, max_objects=most)


def accuracy(network: ClevrVerifier, count: int, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Measures a verifier on held-out scenes, and on what the autoencoders make of them.

    Returns group and kind of image ("two, rendered") -> what `measure` says.
    """
    from winobench.clevr import objects, renderer

    measured = {}
    for group in ("two", "crowd", "hard"):
        scenes = held_out(group, count, seed)
        truth = objects.of_scenes(scenes)
        pictures = renderer.render(scenes, network.config.sample_size)
        measured[f"{group}, rendered"] = measure(network.objects(pictures), truth)
        for model in DRAWERS:
            drawn = reconstructor(model)(pictures, np.zeros(len(pictures)), np.random.default_rng(seed))
            measured[f"{group}, by the autoencoder of {model}"] = measure(network.objects(drawn), truth)
    return measured


def measure(
    found: Sequence[Sequence[SceneObject]], truth: Sequence[Sequence[SceneObject]]
) -> dict[str, dict[str, float]]:
    """Compares lists of objects with the true ones. Intervals are of 95% and clustered by image. Pure.

    Returns name -> value, low and high. Of true objects: ``found`` (one is listed within the tolerance of its place),
    each attribute (found, and right), ``all_right`` (found, shape, colour and size right). Of images: ``exact`` (all
    objects are all right, and nothing else is listed) and ``nothing_else``.
    """
    from winobench import metrics
    from winobench.clevr import objects

    rows: dict[str, list[bool]] = {name: [] for name in ("found", *objects.ATTRIBUTES, "all_right")}
    pictures: dict[str, list[bool]] = {"exact": [], "nothing_else": []}
    numbers = []
    for number, (here, there) in enumerate(zip(found, truth, strict=True)):
        pairs = {true: here[at] for at, true in objects.match(here, there)}
        right = []
        for at, one in enumerate(there):
            other = pairs.get(at)
            same = {name: getattr(other, name, None) == getattr(one, name) for name in objects.ATTRIBUTES}
            right.append(same["shape"] and same["color"] and same["size"])
            for name, value in {"found": other is not None, **same, "all_right": right[-1]}.items():
                rows[name].append(value)
            numbers.append(number)
        pictures["nothing_else"].append(len(here) == len(pairs))
        pictures["exact"].append(all(right) and len(here) == len(there))
    results = {name: metrics.clustered(values, numbers) for name, values in rows.items()}
    results |= {name: metrics.wilson(sum(values), len(values)) for name, values in pictures.items()}
    return {name: interval._asdict() for name, interval in results.items()}
