"""Shared by the recipes of the embedded models: rendered scenes -> autoencoder -> latents -> denoiser -> folder.

Each stage keeps its result in ``<workdir>`` and is skipped when that is there already:

    <workdir>/tokenizer/            CLIP tokenizer files with the words of the captions
              scenes/               ArrayRecord shards: images (PNG) and the token ids of several captions each
              autoencoder/          checkpoints, metrics.jsonl, reconstructions
              latents/              ArrayRecord shards: scaled latents and token ids
              denoiser/             checkpoints, metrics.jsonl, generated images
              <name>/               the exported diffusers folder
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from winobench.base import memory, options, random_numbers, registry, trackers
from winobench.base.errors import InputError
from winobench.checkpoints import tokenizer_files
from winobench.contrib.studies.images import decode_png, encode_png, save_images
from winobench.data import array_records
from winobench.diffusion.pipeline import Pipeline
from winobench.diffusion.schedules import Schedule
from winobench.models import autoencoder_kl
from winobench.models.base import Network
from winobench.runs.training_settings import Stage
from winobench.training import loop, losses, optimizers
from winobench.training.checkpoints import Checkpoints

if TYPE_CHECKING:
    from configs.clevr_tiny import Settings, TextEncoder

_ENCODE_BATCH = 64


class Recipe(abc.ABC):
    """The recipe of one embedded model: its own parts, and the stages that all recipes share."""

    NAME: ClassVar[str]  # of the exported folder
    SHOWN: ClassVar[tuple[str, ...]]  # captions of the images that are generated at every checkpoint
    AUTOENCODER: ClassVar[Mapping[str, Any]] = {}  # fields of its config that no option decides

    VOCABULARY: ClassVar[Sequence[str]]  # every word and mark of the captions

    # Of each recipe -----------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def scenes(self, config: Settings) -> Iterator[tuple[np.ndarray, list[list[str]]]]:
        """Images uint8 [n, size, size, 3] with ``captions_per_scene`` true captions each, some at a time."""

    @abc.abstractmethod
    def networks(self, config: Settings, vocab_size: int) -> dict[str, tuple[type[Network], Any]]:
        """Denoiser first, then the text encoders: name -> class and config."""

    @abc.abstractmethod
    def schedule(self, config: Settings) -> Schedule:
        """The noise schedule."""

    @abc.abstractmethod
    def start(self, denoiser: Network) -> None:
        """Changes a fresh denoiser in place, so that its residual branches start at zero."""

    @abc.abstractmethod
    def predict(
        self, networks: Mapping[str, Network], noisy: jax.Array, times: jax.Array, input_ids: jax.Array
    ) -> jax.Array:
        """The denoiser's answer to noisy latents [batch, h, w, c] and token ids int32 [batch, length]. Pure."""

    @abc.abstractmethod
    def assemble(self, config: Settings, tokenizer: Any, networks: Mapping[str, Network]) -> Pipeline:
        """The pipeline of trained networks, the autoencoder ``vae`` among them."""

    # For winobench train ---------------------------------------------------------------------------------------------

    def free_fields(self, config: Settings) -> tuple[str, ...]:
        return free_fields("denoiser")

    def default_name(self, config: Settings, spec: str, digest: str) -> str:
        return default_name(config, spec, digest)

    def run(
        self,
        config: Settings,
        workdir: str | os.PathLike,
        *,
        max_seconds: float | None = None,
        log: Sequence[str] = (),
    ) -> str:
        workdir = pathlib.Path(workdir)
        self.check(config)
        self.make_scenes(config, workdir)
        self.make_latents(config, workdir, log=log)
        state = self.train_denoiser(config, workdir, max_seconds=max_seconds, log=log)
        folder = self.export(config, workdir, state.ema)
        return f"exported {folder}: judge it with winobench eval --config=gdbench --model={folder}"

    def check(self, config: Settings) -> None:
        """Refuses networks that cannot be made and data that cannot fit, before the first scene is rendered."""
        vae = self.autoencoder_config(config)
        _, denoiser = next(iter(self.networks(config, vocab_size=2).values()))
        width = getattr(denoiser, "width", None) or denoiser.block_out_channels[0]
        self.schedule(config)
        for name in ("autoencoder", "denoiser"):
            check_decay(config, name)
        settings, side = config.data, config.data.image_size // vae.downsampling
        if settings.image_size % vae.downsampling or not side:
            raise InputError(
                f"--data.image_size is {settings.image_size}, but this autoencoder needs a multiple of"
                f" {vae.downsampling}"
            )
        count = settings.num_scenes + getattr(settings, "num_hard_scenes", 0)
        memory.check(
            f"the latents of {count:,} scenes, which are scaled all at once,",
            2 * 4 * count * side**2 * vae.latent_channels,
            "lower config.data.num_scenes",
        )
        for name, size, channels in (
            ("autoencoder", settings.image_size, vae.block_out_channels[0]),
            ("denoiser", side, width),
        ):
            batch = getattr(config, name).batch_size
            memory.check(
                f"training the {name} on {batch:,} examples a step",
                2 * 4 * batch * size**2 * channels // jax.device_count(),
                f"lower --{name}.batch_size",
                jax.local_devices()[0],
            )

    # Scenes -------------------------------------------------------------------------------------------------------

    def make_scenes(self, config: Settings, workdir: pathlib.Path) -> None:
        about = about_stage(config, "data")
        if array_records.is_complete(workdir / "scenes", about):
            return
        tokenizer_files.write_clip_tokenizer(
            workdir / "tokenizer", self.VOCABULARY, model_max_length=config.data.max_length
        )
        records = self.scene_records(config, _tokenizer(workdir))
        array_records.write_shards(workdir / "scenes", records, num_shards=config.data.num_shards, about=about)

    def scene_records(self, config: Settings, tokenizer: Any) -> Iterator[dict[str, np.ndarray]]:
        """Yields ``image`` (a PNG file as uint8) and ``input_ids`` (uint16 [captions_per_scene, max_length])."""
        ids: dict[str, np.ndarray] = {}
        for rendered, captions in self.scenes(config):
            new = [text for text in dict.fromkeys(text for texts in captions for text in texts) if text not in ids]
            ids.update(zip(new, _tokenize(tokenizer, new), strict=True))
            for image, texts in zip(rendered, captions, strict=True):
                yield {"image": encode_png(image), "input_ids": np.stack([ids[text] for text in texts])}

    # Autoencoder --------------------------------------------------------------------------------------------------

    def autoencoder_config(self, config: Settings) -> autoencoder_kl.AutoencoderKLConfig:
        """The architecture, with a scaling factor of 1 that ``fit_scaling_factor`` replaces."""
        settings = config.autoencoder
        levels = len(settings.block_out_channels)
        return autoencoder_kl.AutoencoderKLConfig.from_dict(
            {
                "block_out_channels": tuple(settings.block_out_channels),
                "down_block_types": ("DownEncoderBlock2D",) * levels,
                "up_block_types": ("UpDecoderBlock2D",) * levels,
                "layers_per_block": settings.layers_per_block,
                "latent_channels": settings.latent_channels,
                "norm_num_groups": settings.norm_num_groups,
                "sample_size": config.data.image_size,
                "scaling_factor": 1.0,
                **self.AUTOENCODER,
            }
        )

    def train_autoencoder(self, config: Settings, workdir: pathlib.Path, *, log: Sequence[str] = ()) -> loop.Params:
        """Trains, or resumes. Returns the averaged parameters."""
        settings = config.autoencoder
        graphdef, params = split_model(autoencoder_kl.AutoencoderKL, self.autoencoder_config(config), config.seed)
        step, state = make_step(
            losses.of_autoencoder(graphdef, pixel_noise=settings.pixel_noise), params, settings, config.seed
        )
        folder = workdir / "autoencoder"
        source = array_records.ShardSource(workdir / "scenes")
        shown = np.stack([decode_png(source[index]["image"]) for index in range(min(16, len(source)))])

        @jax.jit
        def reconstruct(params: loop.Params, images: jax.Array) -> jax.Array:
            model = nnx.merge(graphdef, params)
            return model.decode(model.encode(images.astype(jnp.float32) / 127.5 - 1.0)[0])

        def show(state: loop.TrainState) -> None:
            sheet = np.concatenate([shown / np.float32(127.5) - 1, np.asarray(reconstruct(state.ema, shown))])
            save_images(sheet, folder / f"step-{int(state.step):06d}.png")

        batches = shuffled(source, _only_image, settings, config.seed)
        return train_stage(step, state, batches, settings, folder, log=log, on_checkpoint=show).ema

    def make_latents(self, config: Settings, workdir: pathlib.Path, *, log: Sequence[str] = ()) -> None:
        """Trains the autoencoder and encodes every training image, with the scaling factor in a separate file."""
        about = about_stage(config, "data", "autoencoder")
        if array_records.is_complete(workdir / "latents", about):
            return
        graphdef, _ = split_model(autoencoder_kl.AutoencoderKL, self.autoencoder_config(config), config.seed)
        params = on_one_device(self.train_autoencoder(config, workdir, log=log))
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

    # Denoiser -----------------------------------------------------------------------------------------------------

    def fresh(self, config: Settings, vocab_size: int) -> tuple[dict[str, Any], loop.Params]:
        """Graph definitions and first parameters of denoiser and text encoders, by name."""
        graphdefs, params = {}, {}
        for index, (name, (network, network_config)) in enumerate(self.networks(config, vocab_size).items()):
            graphdefs[name], params[name] = split_model(network, network_config, config.seed + index)
            if index == 0:
                model = nnx.merge(graphdefs[name], params[name])
                self.start(model)
                params[name] = nnx.to_pure_dict(nnx.state(model))
        return graphdefs, params

    def denoiser_step(self, config: Settings, vocab_size: int) -> tuple[loop.StepFn, loop.TrainState]:
        settings = config.denoiser
        graphdefs, params = self.fresh(config, vocab_size)

        def predict(params: loop.Params, noisy: jax.Array, times: jax.Array, input_ids: jax.Array) -> jax.Array:
            networks = {name: nnx.merge(graphdef, params[name]) for name, graphdef in graphdefs.items()}
            return self.predict(networks, noisy, times, input_ids)

        loss = losses.of_denoiser(
            predict,
            self.schedule(config),
            timestep_range=tuple(settings.timestep_range),
            timestep_power=settings.timestep_power,
        )
        return make_step(loss, params, settings, config.seed)

    def train_denoiser(
        self,
        config: Settings,
        workdir: pathlib.Path,
        *,
        max_seconds: float | None = None,
        log: Sequence[str] = (),
    ) -> loop.TrainState:
        """Trains denoiser and text encoders from ``latents/``, or resumes. Generates images at checkpoints."""
        settings = config.denoiser
        step, state = self.denoiser_step(config, len(_tokenizer(workdir)))
        transform = ChooseCaption(_tokenize(_tokenizer(workdir), [""])[0], settings.empty_text_fraction)
        source, folder = array_records.ShardSource(workdir / "latents"), workdir / "denoiser"

        def show(state: loop.TrainState) -> None:
            pipeline = self.bundle(config, workdir, state.ema)
            generated = pipeline.generate(self.SHOWN, num_steps=25, guidance_scale=3.0, seed=0)
            save_images(generated / np.float32(127.5) - 1, folder / f"step-{int(state.step):06d}.png")

        batches = shuffled(source, transform, settings, config.seed)
        how = {"on_checkpoint": show, "max_seconds": max_seconds, "log": log}
        return train_stage(step, state, batches, settings, folder, **how)

    def bundle(self, config: Settings, workdir: pathlib.Path, params: loop.Params) -> Pipeline:
        factor = float(np.load(workdir / "latents" / "scaling_factor.npy"))
        vae_config = dataclasses.replace(self.autoencoder_config(config), scaling_factor=factor)
        vae = autoencoder_kl.AutoencoderKL(vae_config, rngs=nnx.Rngs(0))
        nnx.update(vae, self._averaged_autoencoder(config, workdir))
        tokenizer = _tokenizer(workdir)
        graphdefs, _ = self.fresh(config, len(tokenizer))
        params = on_one_device(params)
        networks = {name: nnx.merge(graphdef, params[name]) for name, graphdef in graphdefs.items()}
        return self.assemble(config, tokenizer, {**networks, "vae": vae})

    def _averaged_autoencoder(self, config: Settings, workdir: pathlib.Path) -> loop.Params:
        _, params = split_model(autoencoder_kl.AutoencoderKL, self.autoencoder_config(config), config.seed)
        checkpoints = Checkpoints(workdir / "autoencoder" / "checkpoints")
        state = checkpoints.restore(loop.create_state(params, _optimizer(config.autoencoder)))
        checkpoints.close()
        return state.ema

    def export(self, config: Settings, workdir: str | os.PathLike, params: loop.Params) -> pathlib.Path:
        """Writes ``<workdir>/<name>``, a diffusers folder in float16."""
        workdir = pathlib.Path(workdir)
        folder = workdir / self.NAME
        self.bundle(config, workdir, params).save_pretrained(folder, dtype="float16")
        return folder


@dataclasses.dataclass(frozen=True)
class ChooseCaption:
    """Samples one of a record's captions, or the empty text: Grain's random transform."""

    empty: np.ndarray  # token ids of the empty text
    empty_fraction: float  # its probability, for the unconditional pass (Ho and Salimans 2022)

    def __call__(self, record: dict[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Record -> ``latents`` and ``input_ids`` int32 [max_length]."""
        drawn = record["input_ids"][generator.integers(len(record["input_ids"]))]
        ids = self.empty if generator.random() < self.empty_fraction else drawn
        return {"latents": record["latents"], "input_ids": ids.astype(np.int32)}


def fit_scaling_factor(latents: np.ndarray) -> float:
    """1 / standard deviation of the latents, so that scaled latents have the noise's variance (Rombach et al. 2022)."""
    return float(1.0 / np.asarray(latents, np.float64).std())


def zero(module: Any) -> None:
    for parameter in (module.kernel, module.bias):
        if parameter is not None:
            parameter[...] = jnp.zeros_like(parameter[...])


def text_config(settings: TextEncoder, vocab_size: int, max_length: int, **more: Any) -> dict[str, Any]:
    """The config of a CLIP text encoder. The end token is the last id of the vocabulary and also pads."""
    return {
        "vocab_size": vocab_size,
        "hidden_size": settings.hidden_size,
        "intermediate_size": 4 * settings.hidden_size,
        "num_hidden_layers": settings.num_hidden_layers,
        "num_attention_heads": settings.num_attention_heads,
        "max_position_embeddings": max_length,
        "hidden_act": "quick_gelu",
        "bos_token_id": vocab_size - 2,
        "eos_token_id": vocab_size - 1,
        "pad_token_id": vocab_size - 1,
        **more,
    }


def free_fields(stage: str) -> tuple[str, ...]:
    """The fields of a config that may change when a run continues: the length of the training."""
    return tuple(f"{stage}.{name}" for name in ("num_steps", "decay_steps", "checkpoint_every", "log_every"))


def default_name(config: Settings, spec: str, digest: str) -> str:
    """The name of a run's folder, where the config was named ``spec``."""
    return f"train-{registry.model_label(spec.replace(':', '-'))}"


def check_decay(config: Settings, stage: str) -> None:
    """Refuses a decay of the learning rate that is longer than the training."""
    settings = getattr(config, stage)
    if settings.decay_steps > settings.num_steps:
        raise InputError(
            f"--{stage}.decay_steps is {settings.decay_steps:,}, but must be at most the"
            f" {settings.num_steps:,} of --{stage}.num_steps, so that the learning rate ends at zero"
        )


def about_stage(config: Settings, *parts: str) -> dict[str, Any]:
    """All that a stage's result depends on."""
    return {
        "seed": config.seed,
        "recipe": 1,
        **{name: options.nested(options.values(getattr(config, name))) for name in parts},
    }


def _tokenizer(workdir: pathlib.Path) -> Any:
    return tokenizer_files.read_clip_tokenizer(workdir / "tokenizer")


def _tokenize(tokenizer: Any, texts: list[str]) -> np.ndarray:
    if not texts:
        return np.zeros((0, tokenizer.model_max_length), np.uint16)
    return tokenizer(texts, padding="max_length", truncation=False, return_tensors="np")["input_ids"].astype(np.uint16)


def _optimizer(settings: Stage) -> Any:
    rate = optimizers.warmup_constant_decay(
        settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        total_steps=settings.num_steps,
        decay_steps=settings.decay_steps,
    )
    return optimizers.make_optimizer(settings.optimizer, rate)


def make_step(
    loss_fn: loop.LossFn, params: loop.Params, settings: Stage, seed: int
) -> tuple[loop.StepFn, loop.TrainState]:
    """The jitted training step of a stage, and its first state."""
    optimizer = _optimizer(settings)
    step = loop.make_step(loss_fn, optimizer, seed=seed, ema_decay=settings.ema_decay)
    return step, loop.create_state(params, optimizer)


@functools.cache
def split_model(network: type, model_config: Any, seed: int) -> tuple[Any, dict[str, Any]]:
    """A fresh network's graph definition and parameters. Made in one compiled call, which is far quicker."""
    make = jax.jit(lambda key: nnx.split(network(model_config, rngs=nnx.Rngs(key))))
    graphdef, state = make(random_numbers.seed_key(seed))
    return graphdef, nnx.to_pure_dict(state)


def shuffled(source: Any, transform: Any, settings: Stage, seed: int) -> Callable[[int], Iterator[loop.Batch]]:
    """The batches of a `ShardSource` from a number on."""
    how = {"batch_size": settings.batch_size, "seed": seed, "transform": transform}
    return lambda first: array_records.shuffled_batches(source, **how, first_batch=first)


def train_stage(
    step: loop.StepFn,
    state: loop.TrainState,
    batches: Callable[[int], Iterator[loop.Batch]],
    settings: Stage,
    folder: pathlib.Path,
    *,
    log: Sequence[str] = (),
    on_checkpoint: Callable[[loop.TrainState], None] | None = None,
    max_seconds: float | None = None,
    mesh: Mesh | None = None,
) -> loop.TrainState:
    """Trains one stage, or resumes. The folder is named after it. Trackers have a run a stage."""
    name = f"{folder.resolve().parent.name}-{folder.name}"
    checkpoints = Checkpoints(folder / "checkpoints")
    writers = trackers.make_trackers(log, folder, options.nested(options.values(settings)), name=name)
    pace = loop.Pace(settings.num_steps, settings.log_every, settings.checkpoint_every, max_seconds=max_seconds)
    outputs = loop.Outputs(folder.name, folder / "metrics.jsonl", checkpoints, writers, on_checkpoint)
    state = loop.train(step, state, batches, pace, outputs, mesh=mesh)
    checkpoints.close()
    return state


def _only_image(record: dict[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
    return {"images": decode_png(record["image"])}


def on_one_device(params: loop.Params) -> loop.Params:
    """Training leaves a copy on every device. Generating and encoding use one, as the other networks are there."""
    return jax.device_put(params, jax.local_devices()[0])
