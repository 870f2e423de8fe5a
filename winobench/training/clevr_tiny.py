"""The embedded model's recipe: rendered scenes -> autoencoder -> latents -> denoiser and text encoder -> folder.

Each stage keeps its result in ``<workdir>`` and is skipped when that is there already:

    <workdir>/tokenizer/            CLIP tokenizer files whose vocabulary is that of the captions
              scenes/               ArrayRecord shards: pictures (PNG) and the token ids of several captions each
              autoencoder/          checkpoints, metrics.jsonl, reconstructions
              latents/              ArrayRecord shards: scaled latents and token ids
              denoiser/             checkpoints, metrics.jsonl, drawn pictures
              clevr_tiny/           the exported diffusers folder
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench import memory, registry
from winobench.diffusion import schedules
from winobench.errors import InputError
from winobench.models import autoencoder_kl, clip, unet_2d_condition
from winobench.training import autoencoder, denoiser, loop, optimizers
from winobench.training.checkpoints import Checkpoints
from winobench.training.clevr_tiny_networks import (
    autoencoder_config,
    schedule,
    text_config,
    unet_config,
    zero_output_layers,
)
from winobench.training.pictures import decode_png, encode_png, save_pictures

if TYPE_CHECKING:
    import ml_collections

_ENCODE_BATCH = 64

JUDGED_TIMESTEPS = (300, 800)
"""The timesteps that the exported model is judged on: where it tells captions apart best, on scenes that it was neither
trained nor judged on."""


def free_fields(config: ml_collections.ConfigDict) -> tuple[str, ...]:
    """The fields of the config that may change when a run goes on: the length of the denoiser's training."""
    return tuple(f"denoiser.{name}" for name in ("num_steps", "decay_steps", "checkpoint_every", "log_every"))


def default_name(config: ml_collections.ConfigDict, spec: str, digest: str) -> str:
    """What a run's folder is called when the config was named ``spec``."""
    return f"train-{registry.model_label(spec.replace(':', '-'))}"


def run(config: ml_collections.ConfigDict, workdir: str | os.PathLike, *, max_seconds: float | None = None) -> str:
    """Runs every stage that is not finished yet, and exports the averaged weights.

    Args:
      config: from ``configs/clevr_tiny.py``.
      workdir: where results and checkpoints are kept; a rerun resumes there.
      max_seconds: stop training the denoiser after this time, with a checkpoint and an export.

    Returns:
      Where the export is, and the command that evaluates it.

    Raises:
      loop.DivergenceError: a loss is not finite.
    """
    workdir = pathlib.Path(workdir)
    check(config)
    make_scenes(config, workdir)
    make_latents(config, workdir)
    state = train_denoiser(config, workdir, max_seconds=max_seconds)
    folder = export(config, workdir, state.ema)
    return f"exported {folder}: judge it with python -m launch.eval --config=gdbench --config.model={folder}"


def check(config: ml_collections.ConfigDict) -> None:
    """Refuses networks that cannot be made and data that cannot fit, before the first scene is rendered.

    Raises:
      InputError: says which option of the networks is wrong, or how much memory is needed.
    """
    vae, unet = autoencoder_config(config), unet_config(config)
    text_config(config, vocab_size=2)
    schedule(config)
    for name in ("autoencoder", "denoiser"):
        if config[name].decay_steps > config[name].num_steps:
            raise InputError(
                f"config.{name}.decay_steps is {config[name].decay_steps:,}, but must be at most the"
                f" {config[name].num_steps:,} of config.{name}.num_steps, so that the learning rate ends at zero"
            )
    settings, side = config.data, config.data.image_size // vae.downsampling
    if settings.image_size % vae.downsampling or not side:
        raise InputError(
            f"config.data.image_size is {settings.image_size}, but this autoencoder needs a multiple of"
            f" {vae.downsampling}"
        )
    memory.check(
        f"the latents of {settings.num_scenes:,} scenes, which are scaled all at once,",
        2 * 4 * settings.num_scenes * side**2 * vae.latent_channels,
        "lower config.data.num_scenes",
    )
    for name, size, width in (
        ("autoencoder", settings.image_size, vae.block_out_channels[0]),
        ("denoiser", side, unet.block_out_channels[0]),
    ):
        batch = config[name].batch_size
        memory.check(
            f"training the {name} on {batch:,} examples a step",
            2 * 4 * batch * size**2 * width // jax.device_count(),
            f"lower config.{name}.batch_size",
            jax.local_devices()[0],
        )


def _about(config: ml_collections.ConfigDict, *parts: str) -> dict[str, Any]:
    """What a stage's result depends on, to be compared when the stage is found finished."""
    values = {name: config[name].to_dict() for name in parts}
    return {"seed": config.seed, "recipe": 1, **values}


def make_scenes(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> None:
    """Writes the tokenizer and the shards of pictures with captions."""
    from winobench.checkpoints import tokenizer_files
    from winobench.data import array_records, clevr_captions

    about = _about(config, "data")
    if array_records.is_complete(workdir / "scenes", about):
        return
    tokenizer_files.write_clip_tokenizer(
        workdir / "tokenizer", clevr_captions.VOCABULARY, model_max_length=config.data.max_length
    )
    tokenizer = tokenizer_files.read_clip_tokenizer(workdir / "tokenizer")
    array_records.write_shards(
        workdir / "scenes", scene_records(config, tokenizer), num_shards=config.data.num_shards, about=about
    )


def scene_records(config: ml_collections.ConfigDict, tokenizer: Any) -> Iterator[dict[str, np.ndarray]]:
    """Renders the training scenes and says several things of each.

    Args:
      config: the recipe.
      tokenizer: a ``transformers.CLIPTokenizer``.

    Yields:
      ``image`` (the bytes of a PNG file, uint8) and ``input_ids`` (uint16 [captions_per_scene, max_length]).
    """
    from winobench.data import clevr_captions, clevr_renderer, clevr_scenes

    settings = config.data
    ids: dict[str, np.ndarray] = {}
    chunk = 8 * clevr_renderer.chunk_size(settings.image_size)
    for start in range(0, settings.num_scenes, chunk):
        count = min(chunk, settings.num_scenes - start)
        scenes = clevr_scenes.sample_free_scenes(
            count, seed=config.seed, split="train", start=start, distinct=settings.task_like_fraction
        )
        pictures = clevr_renderer.render(scenes, settings.image_size)
        generator = np.random.default_rng((config.seed, start))
        captions = clevr_captions.training_captions(scenes, generator, per_scene=settings.captions_per_scene)
        new = [text for text in dict.fromkeys(text for texts in captions for text in texts) if text not in ids]
        ids.update(zip(new, _tokenize(tokenizer, new), strict=True))
        for picture, texts in zip(pictures, captions, strict=True):
            yield {"image": encode_png(picture), "input_ids": np.stack([ids[text] for text in texts])}


def _tokenize(tokenizer: Any, texts: list[str]) -> np.ndarray:
    if not texts:
        return np.zeros((0, tokenizer.model_max_length), np.uint16)
    return tokenizer(texts, padding="max_length", truncation=False, return_tensors="np")["input_ids"].astype(np.uint16)


def _vocab_size(workdir: pathlib.Path) -> int:
    from winobench.checkpoints import tokenizer_files

    return len(tokenizer_files.read_clip_tokenizer(workdir / "tokenizer"))


def _optimizer(settings: ml_collections.ConfigDict) -> Any:
    rate = optimizers.warmup_constant_decay(
        settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        total_steps=settings.num_steps,
        decay_steps=settings.decay_steps,
    )
    return optimizers.make_optimizer(settings.optimizer, rate)


@functools.cache
def _split_model(network: type, model_config: Any, seed: int) -> tuple[Any, dict[str, Any]]:
    """A fresh network's graph definition and parameters; made in one compiled call, which is far quicker."""
    make = jax.jit(lambda key: nnx.split(network(model_config, rngs=nnx.Rngs(key))))
    graphdef, state = make(jax.random.key(seed))
    return graphdef, nnx.to_pure_dict(state)


def train_autoencoder(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> loop.Params:
    """Trains the autoencoder, or resumes; returns its averaged parameters."""
    from winobench.data import array_records

    settings = config.autoencoder
    graphdef, params = _split_model(autoencoder_kl.AutoencoderKL, autoencoder_config(config), config.seed)
    optimizer = _optimizer(settings)
    step = loop.make_step(
        autoencoder.make_loss(graphdef, pixel_noise=settings.pixel_noise),
        optimizer,
        seed=config.seed,
        ema_decay=settings.ema_decay,
    )
    folder = workdir / "autoencoder"
    source = array_records.ShardSource(workdir / "scenes")
    shown = np.stack([decode_png(source[index]["image"]) for index in range(min(16, len(source)))])
    reconstruct = jax.jit(lambda params, images: _reconstruct(nnx.merge(graphdef, params), images))

    def show(state: loop.TrainState) -> None:
        pictures = np.concatenate([shown / np.float32(127.5) - 1, np.asarray(reconstruct(state.ema, shown))])
        save_pictures(pictures, folder / f"step-{int(state.step):06d}.png")

    def batches_from(first: int) -> Iterator[loop.Batch]:
        return array_records.shuffled_batches(
            source, batch_size=settings.batch_size, seed=config.seed, transform=_only_image, first_batch=first
        )

    checkpoints = Checkpoints(folder / "checkpoints")
    state = loop.train(
        step,
        loop.create_state(params, optimizer),
        batches_from,
        num_steps=settings.num_steps,
        checkpoints=checkpoints,
        metrics_file=folder / "metrics.jsonl",
        name="autoencoder",
        log_every=settings.log_every,
        checkpoint_every=settings.checkpoint_every,
        on_checkpoint=show,
    )
    checkpoints.close()
    return state.ema


def _only_image(record: dict[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
    return {"images": decode_png(record["image"])}


def _reconstruct(model: autoencoder_kl.AutoencoderKL, images: jax.Array) -> jax.Array:
    mean, _ = model.encode(images.astype(jnp.float32) / 127.5 - 1.0)
    return model.decode(mean)


def make_latents(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> None:
    """Trains the autoencoder and encodes every training picture; the latents' scaling factor lies beside them."""
    from winobench.data import array_records

    about = _about(config, "data", "autoencoder")
    if array_records.is_complete(workdir / "latents", about):
        return
    graphdef, _ = _split_model(autoencoder_kl.AutoencoderKL, autoencoder_config(config), config.seed)
    params = _on_one_device(train_autoencoder(config, workdir))
    encode = jax.jit(lambda images: nnx.merge(graphdef, params).encode(images.astype(jnp.float32) / 127.5 - 1.0)[0])
    source = array_records.ShardSource(workdir / "scenes")
    means, ids = [], []
    for first in range(0, len(source), _ENCODE_BATCH):
        records = [source[index] for index in range(first, min(first + _ENCODE_BATCH, len(source)))]
        images = np.stack([decode_png(record["image"]) for record in records])
        padded = np.concatenate([images, np.repeat(images[-1:], _ENCODE_BATCH - len(images), axis=0)])
        means.append(np.asarray(encode(padded))[: len(images)])
        ids += [record["input_ids"] for record in records]
    latents = np.concatenate(means)
    factor = fit_scaling_factor(latents)
    (workdir / "latents").mkdir(parents=True, exist_ok=True)
    np.save(workdir / "latents" / "scaling_factor.npy", np.float32(factor))
    scaled = (latents * factor).astype(np.float16)
    records = ({"latents": row, "input_ids": its_ids} for row, its_ids in zip(scaled, ids, strict=True))
    array_records.write_shards(workdir / "latents", records, num_shards=config.data.num_shards, about=about)


def empty_ids(workdir: pathlib.Path) -> np.ndarray:
    """Token ids of the empty text, uint16 [max_length]."""
    from winobench.checkpoints import tokenizer_files

    return _tokenize(tokenizer_files.read_clip_tokenizer(workdir / "tokenizer"), [""])[0]


@dataclasses.dataclass(frozen=True)
class ChooseCaption:
    """Draws one of a record's captions, or the empty text: Grain's random transform.

    Attributes:
      empty: token ids of the empty text.
      empty_fraction: probability of the empty text, for the unconditional pass (Ho and Salimans 2022).
    """

    empty: np.ndarray
    empty_fraction: float

    def __call__(self, record: dict[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Record -> ``latents`` and ``input_ids`` int32 [max_length]."""
        drawn = record["input_ids"][generator.integers(len(record["input_ids"]))]
        ids = self.empty if generator.random() < self.empty_fraction else drawn
        return {"latents": record["latents"], "input_ids": ids.astype(np.int32)}


def denoiser_step(
    config: ml_collections.ConfigDict, vocab_size: int, noise_schedule: schedules.NoiseSchedule
) -> tuple[loop.StepFn, loop.TrainState]:
    """The jitted training step of denoiser and text encoder, and its first state."""
    settings = config.denoiser
    unet_graphdef, unet_params = _split_model(unet_2d_condition.UNet2DConditionModel, unet_config(config), config.seed)
    text_graphdef, text_params = _split_model(clip.CLIPTextModel, text_config(config, vocab_size), config.seed + 1)
    unet = nnx.merge(unet_graphdef, unet_params)
    zero_output_layers(unet)
    params = {"unet": nnx.to_pure_dict(nnx.state(unet)), "text_encoder": text_params}
    optimizer = _optimizer(settings)
    loss = denoiser.make_loss(
        unet_graphdef,
        text_graphdef,
        noise_schedule,
        timestep_range=tuple(settings.timestep_range),
        timestep_power=settings.timestep_power,
    )
    step = loop.make_step(loss, optimizer, seed=config.seed, ema_decay=settings.ema_decay)
    return step, loop.create_state(params, optimizer)


def train_denoiser(
    config: ml_collections.ConfigDict, workdir: pathlib.Path, *, max_seconds: float | None = None
) -> loop.TrainState:
    """Trains denoiser and text encoder from ``latents/``, or resumes; pictures are drawn at every checkpoint."""
    from winobench.data import array_records

    settings = config.denoiser
    step, state = denoiser_step(config, _vocab_size(workdir), schedule(config))
    transform = ChooseCaption(empty_ids(workdir), settings.empty_text_fraction)
    source = array_records.ShardSource(workdir / "latents")

    def batches_from(first: int) -> Iterator[loop.Batch]:
        return array_records.shuffled_batches(
            source, batch_size=settings.batch_size, seed=config.seed, transform=transform, first_batch=first
        )

    def show(state: loop.TrainState) -> None:
        pictures = bundle(config, workdir, state.ema).generate(SHOWN_CAPTIONS, num_steps=25, guidance_scale=3.0, seed=0)
        save_pictures(pictures / np.float32(127.5) - 1, workdir / "denoiser" / f"step-{int(state.step):06d}.png")

    checkpoints = Checkpoints(workdir / "denoiser" / "checkpoints")
    state = loop.train(
        step,
        state,
        batches_from,
        num_steps=settings.num_steps,
        checkpoints=checkpoints,
        metrics_file=workdir / "denoiser" / "metrics.jsonl",
        name="denoiser",
        log_every=settings.log_every,
        checkpoint_every=settings.checkpoint_every,
        on_checkpoint=show,
        max_seconds=max_seconds,
    )
    checkpoints.close()
    return state


SHOWN_CAPTIONS = (
    "On the left is a red cube and on the right is a blue sphere.",
    "On the left is a small green cylinder and on the right is a large purple cube.",
    "A large yellow metal sphere and a small gray rubber cylinder.",
    "On the right is a cyan cylinder.",
    "A brown sphere and a cyan cube.",
    "A small cube and a large cylinder.",
    "A yellow object.",
    "",
)


def bundle(config: ml_collections.ConfigDict, workdir: pathlib.Path, params: loop.Params) -> Any:
    """The trained networks as a ``winobench.StableDiffusion``.

    Args:
      config: the recipe.
      workdir: where the autoencoder, its scaling factor and the tokenizer are.
      params: the denoiser's and text encoder's parameters, ``{"unet": ..., "text_encoder": ...}``.
    """
    from winobench.checkpoints import tokenizer_files
    from winobench.diffusion.stable_diffusion import StableDiffusion

    factor = float(np.load(workdir / "latents" / "scaling_factor.npy"))
    vae_config = dataclasses.replace(autoencoder_config(config), scaling_factor=factor)
    vae = autoencoder_kl.AutoencoderKL(vae_config, rngs=nnx.Rngs(0))
    nnx.update(vae, _averaged_autoencoder(config, workdir))
    unet_graphdef, _ = _split_model(unet_2d_condition.UNet2DConditionModel, unet_config(config), config.seed)
    text_graphdef, _ = _split_model(clip.CLIPTextModel, text_config(config, _vocab_size(workdir)), config.seed + 1)
    params = _on_one_device(params)
    return StableDiffusion(
        unet=nnx.merge(unet_graphdef, params["unet"]),
        vae=vae,
        text_encoder=nnx.merge(text_graphdef, params["text_encoder"]),
        tokenizer=tokenizer_files.read_clip_tokenizer(workdir / "tokenizer"),
        schedule=schedule(config),
        timestep_range=JUDGED_TIMESTEPS,
    )


def _on_one_device(params: loop.Params) -> loop.Params:
    """Training leaves a copy on every device; drawing and encoding use one, as the other networks are there."""
    return jax.device_put(params, jax.local_devices()[0])


def _averaged_autoencoder(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> loop.Params:
    """The finished autoencoder's averaged parameters, from its checkpoint."""
    _, params = _split_model(autoencoder_kl.AutoencoderKL, autoencoder_config(config), config.seed)
    checkpoints = Checkpoints(workdir / "autoencoder" / "checkpoints")
    state = checkpoints.restore(loop.create_state(params, _optimizer(config.autoencoder)))
    checkpoints.close()
    return state.ema


def export(config: ml_collections.ConfigDict, workdir: str | os.PathLike, params: loop.Params) -> pathlib.Path:
    """Writes ``<workdir>/clevr_tiny``, a diffusers folder in float16 that torch diffusers loads unchanged."""
    workdir = pathlib.Path(workdir)
    folder = workdir / "clevr_tiny"
    bundle(config, workdir, params).save_pretrained(folder, dtype="float16")
    return folder


def fit_scaling_factor(latents: np.ndarray) -> float:
    """1 / standard deviation of the latents, so that scaled latents have the noise's variance (Rombach et al. 2022)."""
    return float(1.0 / np.asarray(latents, np.float64).std())
