"""The recipe of the verifier: rendered scenes, and their reconstructions by two autoencoders -> detector -> folder.

A diffusion model's autoencoder decodes latents that are never quite right. So half of the training images are
reconstructions by the embedded models' autoencoders, from latents with some noise.

Each stage keeps its result in ``<workdir>`` and is skipped when that is there already:

    <workdir>/scenes/           ArrayRecord shards: images (PNG) and their objects
              verifier/         checkpoints, metrics.jsonl
              clevr_verifier/   the exported network
              accuracy.json     of it, on held-out scenes
"""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench import checkpoints, metrics
from winobench.base import files, memory, registry
from winobench.clevr import objects, questions, renderer
from winobench.clevr import scenes as clevr_scenes
from winobench.contrib.studies import embedded
from winobench.contrib.studies.images import decode_png, encode_png
from winobench.contrib.studies.verifier import ClevrVerifier, ClevrVerifierConfig, loss
from winobench.data import array_records
from winobench.models.autoencoder_kl import AutoencoderKL
from winobench.training import loop

if TYPE_CHECKING:
    from configs.clevr_verifier import Settings

NAME = "clevr_verifier"  # of the exported folder
GENERATORS = ("clevr-tiny", "clevr-flow")  # the models whose autoencoders reconstruct images
MAX_OBJECTS = 5  # of a training scene
_BATCH = 64
_MOST_BLUR = 0.8  # share of an image's neighbours in it
_MOST_NOISE = 0.04  # of the range from black to white
_GAIN, _SHIFT = 0.06, 0.03  # spread of the factor and of the term of each colour channel

# (images, levels of noise, source of the noise) -> images
Reconstruct = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]

default_name = embedded.default_name

ONE_PROCESS = True


def free_fields(config: Settings) -> tuple[str, ...]:
    return embedded.free_fields("training")


def run(
    config: Settings,
    workdir: str | os.PathLike,
    *,
    max_seconds: float | None = None,
    log: Sequence[str] = (),
) -> str:
    workdir = pathlib.Path(workdir)
    check(config)
    make_scenes(config, workdir)
    state = train(config, workdir, max_seconds=max_seconds, log=log)
    folder = export(config, workdir, state.ema)
    measured = accuracy(ClevrVerifier.from_pretrained(folder), config.data.num_held_out, config.seed)
    files.write_json(workdir / "accuracy.json", measured)
    worst = min(values["all_right"]["value"] for values in measured.values())
    return f"exported {folder}: of held-out objects {100 * worst:.1f}% or more are all right, see accuracy.json"


def check(config: Settings) -> None:
    """Refuses a network that cannot be made and batches that cannot fit, before the first scene is rendered."""
    shape = network_config(config)
    settings = config.training
    embedded.check_decay(config, "training")
    memory.check(
        f"training the verifier on {settings.batch_size:,} images a step",
        4 * 2 * settings.batch_size * (shape.sample_size // 4) ** 2 * shape.widths[0] // jax.device_count(),
        "lower --training.batch_size",
        jax.local_devices()[0],
    )


def network_config(config: Settings) -> ClevrVerifierConfig:
    return ClevrVerifierConfig(widths=tuple(config.network.widths), num_blocks=tuple(config.network.num_blocks))


# Scenes ---------------------------------------------------------------------------------------------------------------


def sample(kind: str, count: int, *, seed: int, split: str, start: int = 0) -> clevr_scenes.Scenes:
    """Scenes: ``free`` ones of 1 to 5 objects (large if two, 9 of 10 in halves), or ``random`` as in `clevr_hard`."""
    if kind == "random":
        return questions.random_scenes(count, seed=seed, split=split, start=start)
    return clevr_scenes.sample_free_scenes(
        count, seed=seed, split=split, start=start, min_objects=1, max_objects=MAX_OBJECTS, distinct=0.25
    )


def make_scenes(config: Settings, workdir: pathlib.Path) -> None:
    about = embedded.about_stage(config, "data")
    if not array_records.is_complete(workdir / "scenes", about):
        records = scene_records(config, [reconstructor(name) for name in GENERATORS])
        array_records.write_shards(workdir / "scenes", records, num_shards=config.data.num_shards, about=about)


def scene_records(config: Settings, reconstructors: Sequence[Reconstruct]) -> Iterator[dict[str, np.ndarray]]:
    """Training scenes of either kind by turns, half of them reconstructed: ``image`` (a PNG file), and as in `loss`
    ``places`` float32 [objects, 4], ``attributes`` int32 [objects, 4], ``present`` bool [objects].
    """
    size = network_config(config).sample_size
    chunk = renderer.chunk_size(size)
    for number, start in enumerate(range(0, config.data.num_scenes, chunk)):
        count = min(chunk, config.data.num_scenes - start)
        scenes = sample(("free", "random")[number % 2], count, seed=config.seed, split="train", start=start)
        images = renderer.render(scenes, size)
        if number // 2 % 2:
            generator = np.random.default_rng((config.seed, start))
            levels = config.data.latent_noise * generator.random(count)
            images = reconstructors[number // 4 % len(reconstructors)](images, levels, generator)
        places = objects.measures(scenes).astype(np.float32)
        attributes = np.stack([getattr(scenes, name) for name in objects.ATTRIBUTES], axis=-1).astype(np.int32)
        present = np.arange(MAX_OBJECTS) < np.asarray(scenes.num_objects)[:, None]
        for n in range(count):
            yield {
                "image": encode_png(images[n]),
                "places": places[n],
                "attributes": attributes[n],
                "present": present[n],
            }


@functools.cache
def reconstructor(model: str) -> Reconstruct:
    """Encodes and decodes images uint8 [n, h, w, 3] by the autoencoder of an embedded model.

    An image's latents get Gaussian noise of its level times their own spread in between.
    """
    vae = AutoencoderKL.from_pretrained(registry.resolve(model).source, subfolder="vae")
    spread = 1.0 / vae.config.scaling_factor

    @jax.jit
    def both_ways(images: jax.Array, noise: jax.Array) -> jax.Array:
        mean, _ = vae.encode(images.astype(jnp.float32) / 127.5 - 1.0)
        decoded = vae.decode(mean + spread * noise)
        return jnp.clip(jnp.round(decoded * 127.5 + 127.5), 0, 255).astype(jnp.uint8)

    shape = (vae.config.sample_size // vae.config.downsampling,) * 2 + (vae.config.latent_channels,)

    def reconstruct(originals: np.ndarray, levels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        noise = generator.standard_normal((len(originals), *shape), np.float32) * levels[:, None, None, None]
        done = []
        for first in range(0, len(originals), _BATCH):
            at = np.minimum(np.arange(first, first + _BATCH), len(originals) - 1)
            done.append(np.asarray(both_ways(originals[at], noise[at].astype(np.float32))))
        return np.concatenate(done)[: len(originals)]

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


def train(
    config: Settings,
    workdir: pathlib.Path,
    *,
    max_seconds: float | None = None,
    log: Sequence[str] = (),
) -> loop.TrainState:
    """Trains the verifier from ``scenes/``, or resumes."""
    graphdef, params = embedded.split_model(ClevrVerifier, network_config(config), config.seed)

    def loss_fn(params: loop.Params, batch: loop.Batch, key: jax.Array) -> tuple[jax.Array, loop.Metrics]:
        images = vary(batch["images"].astype(jnp.float32) / 127.5 - 1.0, key)
        maps = nnx.merge(graphdef, params)(images)
        return loss(maps, batch["places"], batch["attributes"], batch["present"])

    step, state = embedded.make_step(loss_fn, params, config.training, config.seed)
    source, folder = array_records.ShardSource(workdir / "scenes"), workdir / "verifier"
    batches = embedded.shuffled(source, _decoded, config.training, config.seed)
    return embedded.train_stage(step, state, batches, config.training, folder, max_seconds=max_seconds, log=log)


def export(config: Settings, workdir: str | os.PathLike, params: loop.Params) -> pathlib.Path:
    """Writes ``<workdir>/clevr_verifier`` in float16."""
    folder = pathlib.Path(workdir) / NAME
    network = ClevrVerifier(network_config(config), rngs=nnx.Rngs(0))
    nnx.update(network, embedded.on_one_device(params))
    checkpoints.save_model(network, folder, dtype="float16")
    return folder


def _decoded(record: dict[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
    return {"images": decode_png(record["image"]), **{name: record[name] for name in record if name != "image"}}


# Accuracy -------------------------------------------------------------------------------------------------------------


def held_out(group: str, count: int, seed: int) -> clevr_scenes.Scenes:
    """Scenes of the split ``evaluation``: of ``two`` objects, a ``crowd`` of 3 to 5, or 3 to 5 as in `clevr_hard`."""
    if group == "hard":  # three of five random scenes have three objects or more
        scenes = sample("random", 2 * count + 40, seed=seed, split="evaluation")
        return scenes[np.flatnonzero(scenes.num_objects >= 3)[:count]]
    least, most = {"two": (2, 2), "crowd": (3, MAX_OBJECTS)}[group]
    return clevr_scenes.sample_free_scenes(count, seed=seed, split="evaluation", min_objects=least, max_objects=most)


def accuracy(network: ClevrVerifier, count: int, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Group and kind of image ("two, rendered") -> `measure`, of held-out scenes and their reconstructions."""
    measured = {}
    for group in ("two", "crowd", "hard"):
        scenes = held_out(group, count, seed)
        truth = objects.of_scenes(scenes)
        images = renderer.render(scenes, network.config.sample_size)
        measured[f"{group}, rendered"] = measure(network.objects(images), truth)
        for model in GENERATORS:
            drawn = reconstructor(model)(images, np.zeros(len(images)), np.random.default_rng(seed))
            measured[f"{group}, by the autoencoder of {model}"] = measure(network.objects(drawn), truth)
    return measured


def measure(
    listed: Sequence[Sequence[objects.SceneObject]], truth: Sequence[Sequence[objects.SceneObject]]
) -> dict[str, dict[str, float]]:
    """Compares lists of objects with the true ones: name -> value, low and high of a 95% interval clustered by image.

    Shares of true objects: ``found`` (one is listed within the tolerance of its place), each attribute (found and
    right), ``all_right`` (shape, colour and size). Shares of images: ``exact`` (all right and nothing else listed),
    ``nothing_else``.
    """
    rows: dict[str, list[bool]] = {name: [] for name in ("found", *objects.ATTRIBUTES, "all_right")}
    images: dict[str, list[bool]] = {"exact": [], "nothing_else": []}
    numbers = []
    for number, (listed_objects, true_objects) in enumerate(zip(listed, truth, strict=True)):
        pairs = {true: listed_objects[at] for at, true in objects.match(listed_objects, true_objects)}
        right = []
        for at, true_object in enumerate(true_objects):
            other = pairs.get(at)
            same = {name: getattr(other, name, None) == getattr(true_object, name) for name in objects.ATTRIBUTES}
            right.append(same["shape"] and same["color"] and same["size"])
            for name, value in {"found": other is not None, **same, "all_right": right[-1]}.items():
                rows[name].append(value)
            numbers.append(number)
        images["nothing_else"].append(len(listed_objects) == len(pairs))
        images["exact"].append(all(right) and len(listed_objects) == len(true_objects))
    results = {name: metrics.clustered(values, numbers) for name, values in rows.items()}
    results |= {name: metrics.wilson(sum(values), len(values)) for name, values in images.items()}
    return {name: interval._asdict() for name, interval in results.items()}
