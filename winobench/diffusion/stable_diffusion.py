"""A Stable Diffusion checkpoint as one value: text encoder, autoencoder, denoiser, tokenizer and noise schedule."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench import memory, options
from winobench.diffusion import samplers
from winobench.diffusion.schedules import NoiseSchedule
from winobench.errors import InputError
from winobench.models import lora
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.clip import CLIPTextConfig, CLIPTextModel
from winobench.models.unet_2d_condition import UNet2DConditionConfig, UNet2DConditionModel
from winobench.scorers import common
from winobench.texts import check_texts

if TYPE_CHECKING:
    import transformers

    from winobench.checkpoints.sources import Source

_log = logging.getLogger(__name__)

# A key of scheduler_config.json for what winobench alone reads. diffusers leaves keys with an underscore alone.
_OWN_KEY = "_winobench"

# Of images as floats, which are in [-1, 1] but for rounding.
_FARTHEST = 1.001

_NETWORKS = {"unet": UNet2DConditionModel, "vae": AutoencoderKL, "text_encoder": CLIPTextModel}
# What model_index.json may name for each part. The Flax classes of earlier diffusers wrote the same layout.
_CLASS_NAMES = {
    "unet": ("UNet2DConditionModel", "FlaxUNet2DConditionModel"),
    "vae": ("AutoencoderKL", "FlaxAutoencoderKL"),
    "text_encoder": ("CLIPTextModel", "FlaxCLIPTextModel"),
    "tokenizer": ("CLIPTokenizer", "CLIPTokenizerFast"),
}
# The version that model_index.json names; diffusers only compares it with versions of long ago.
_DIFFUSERS_VERSION = "0.42.0"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StableDiffusion:
    """The parts of a text-to-image model that diffuses latents, as SD 1.x and 2.x do.

    Attributes:
      unet: the denoiser.
      vae: the autoencoder.
      text_encoder: the text encoder.
      tokenizer: a ``transformers.CLIPTokenizer``.
      schedule: the noise schedule.
      timestep_range: (first, end) of the timesteps that the model is judged on unless the caller says otherwise, as its
        folder says (``"_winobench": {"timestep_range": [first, end]}`` in ``scheduler_config.json``); None for all. It
        is no part of the fingerprint: which timesteps a score rests on is recorded beside it.
    """

    unet: UNet2DConditionModel
    vae: AutoencoderKL
    text_encoder: CLIPTextModel
    tokenizer: transformers.CLIPTokenizer
    schedule: NoiseSchedule
    timestep_range: tuple[int, int] | None = None

    def __post_init__(self):
        if self.timestep_range is not None:
            chosen = options.span(self.schedule.num_train_timesteps).check("timestep_range", self.timestep_range)
            object.__setattr__(self, "timestep_range", chosen)
        _check_fit(self.unet.config, self.vae.config, self.text_encoder.config, len(self.tokenizer))

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike,
        dtype: Any = "float32",
        *,
        encoder_dtype: Any = None,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
    ) -> Self:
        """Loads a pipeline in the diffusers layout.

        Args:
          source: a name in `winobench.registry.MODELS`, a local folder, or a hub id; of a hub repository, only the
            files that are needed are downloaded.
          dtype: of the parameters and of the computation: ``float32``, ``bfloat16`` or ``float16``. An autoencoder
            that overflows in float16 by its own account (``force_upcast``) is then kept in float32.
          encoder_dtype: of the text encoder and the autoencoder; ``dtype`` when None. They run once for each text and
            image, so float32 costs little there.
          variant: suffix of the weight files, e.g. ``fp16``; a part without that variant is an error.
          revision: branch, tag or commit of a hub repository.
          allow_pickle: read ``.bin`` files where there are no safetensors files, with a restricted unpickler.

        Raises:
          InputError: if there is no pipeline, if it is of another kind, or if a file is missing or damaged.
        """
        from winobench.checkpoints import models, sources, tokenizer_files

        dtype = models.as_dtype(dtype)
        encoder_dtype = dtype if encoder_dtype is None else models.as_dtype(encoder_dtype)
        source = sources.resolve(source, revision=revision)
        # The small files first, so that what is wrong shows before gigabytes are read or downloaded.
        schedule, timestep_range, configs = read_description(source)
        tokenizer = tokenizer_files.read_clip_tokenizer(source, subfolder="tokenizer")
        _check_fit(*configs.values(), tokenizer_files.num_ids(tokenizer))
        networks = {}
        for name, network in _NETWORKS.items():
            its_dtype = dtype if name == "unet" else encoder_dtype
            if name == "vae" and configs[name].force_upcast and its_dtype == jnp.float16:
                its_dtype = jnp.float32
            networks[name] = models.load_model(
                network,
                source,
                subfolder=name,
                dtype=its_dtype,
                variant=variant,
                allow_pickle=allow_pickle,
            )
        return cls(**networks, tokenizer=tokenizer, schedule=schedule, timestep_range=timestep_range)

    def save_pretrained(self, folder: str | os.PathLike, dtype: Any = "float16") -> None:
        """Writes a folder that diffusers' ``StableDiffusionPipeline`` and :meth:`from_pretrained` load.

        Every file is written whole or not at all. ``model_index.json``, without which a folder is no pipeline, goes
        first and comes last, so that an interrupted save is never taken for a model.

        Args:
          folder: where to write; made if needed.
          dtype: of the weight files: ``float32``, ``float16`` or ``bfloat16``.

        Raises:
          InputError: if a weight is not finite, or too large for ``dtype``; or the folder cannot be written.
        """
        from winobench import files

        with files.writing(folder):
            self._save(folder, dtype)

    def _save(self, folder: str | os.PathLike, dtype: Any) -> None:
        from winobench import files
        from winobench.checkpoints import models, tokenizer_files

        index_path = os.path.join(folder, "model_index.json")
        with contextlib.suppress(FileNotFoundError):
            os.remove(index_path)
        for name in _NETWORKS:
            models.save_model(getattr(self, name), os.path.join(folder, name), dtype=dtype)
        tokenizer_files.save_clip_tokenizer(self.tokenizer, os.path.join(folder, "tokenizer"))
        os.makedirs(os.path.join(folder, "scheduler"), exist_ok=True)
        schedule = {**self.schedule.to_config(), "_diffusers_version": _DIFFUSERS_VERSION}
        if self.timestep_range is not None:
            schedule[_OWN_KEY] = {"timestep_range": list(self.timestep_range)}
        files.write_json(os.path.join(folder, "scheduler", "scheduler_config.json"), schedule)
        index = {
            "_class_name": "StableDiffusionPipeline",
            "_diffusers_version": _DIFFUSERS_VERSION,
            "feature_extractor": [None, None],
            "image_encoder": [None, None],
            "requires_safety_checker": False,
            "safety_checker": [None, None],
            "scheduler": ["diffusers", self.schedule.scheduler_class],
            "text_encoder": ["transformers", "CLIPTextModel"],
            "tokenizer": ["transformers", "CLIPTokenizer"],
            "unet": ["diffusers", "UNet2DConditionModel"],
            "vae": ["diffusers", "AutoencoderKL"],
        }
        files.write_json(index_path, index)

    @property
    def image_size(self) -> int:
        """Height and width, in pixels, of the pictures that the model was trained on.

        Raises:
          InputError: if the configs do not tell, or tell of pictures that are not square.
        """
        latent_size = self.unet.config.sample_size
        size = self.vae.config.sample_size if latent_size is None else latent_size
        height, width = size if isinstance(size, tuple) else (size, size)
        if height != width:
            raise InputError(
                f"the model was trained on {height} x {width} samples, which are not square: name an image size"
            )
        return height if latent_size is None else height * self.vae.config.downsampling

    @property
    def max_text_tokens(self) -> int:
        """Number of tokens of every text, start, end and padding included."""
        return int(min(self.tokenizer.model_max_length, self.text_encoder.config.max_position_embeddings))

    @functools.cached_property
    def fingerprint(self) -> str:
        """Identifies everything that can change an error: weights, dtypes, configs, tokenizer and noise schedule.

        64 hexadecimal digits, the same for the same model on any machine. Takes seconds for a large model, once.
        """
        from winobench.checkpoints import models, tokenizer_files

        networks = [getattr(self, name) for name in _NETWORKS]
        vocabulary, merges = tokenizer_files.vocabulary_and_merges(self.tokenizer)
        description = {
            "configs": [_without_bookkeeping(network.config.to_dict()) for network in networks],
            "compute_dtypes": [jnp.dtype(network.dtype).name for network in networks],
            "schedule": self.schedule.training,
            "tokenizer": [vocabulary, merges, self.tokenizer.pad_token_id, self.max_text_tokens],
            "weights": models.weights_sha256(*networks),
        }
        # The factors are among the weights; the numbers that their products are multiplied by are not.
        scales = {
            name: {layer: adapter.scale for layer, adapter in lora.adapters(getattr(self, name)).items()}
            for name in _NETWORKS
        }
        if any(scales.values()):
            description["lora_scales"] = scales
        return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()

    def refresh(self) -> None:
        """Forgets what was compiled for the networks and what identifies them: call it once one has been changed."""
        for name, attribute in vars(type(self)).items():
            if isinstance(attribute, functools.cached_property):
                vars(self).pop(name, None)

    def tokenize(self, texts: Sequence[str]) -> np.ndarray:
        """Turns texts into ids, padded and truncated to ``max_text_tokens``.

        How many texts had to be truncated is logged, once a call.

        Args:
          texts: strings; the empty one is a text like others.

        Returns:
          int32 ``[num_texts, max_text_tokens]``.

        Raises:
          InputError: if there are no texts, or one cannot be tokenized (`winobench.texts.check_texts`).
        """
        texts = list(texts)
        if not texts:
            raise InputError("the list of texts is empty: give at least one")
        check_texts(texts)
        length = self.max_text_tokens
        encoded = self.tokenizer(texts, padding="max_length", truncation=True, max_length=length)
        if truncated := sum(bool(encoding.overflowing) for encoding in encoded.encodings):
            _log.warning("%d of %d texts are longer than %d tokens and were truncated.", truncated, len(texts), length)
        return np.asarray(encoded["input_ids"], np.int32)

    def encode_texts(self, texts: Sequence[str], *, batch_size: int = 16) -> jax.Array:
        """Encodes texts into the states that the denoiser attends to.

        Args:
          texts: strings.
          batch_size: texts that are encoded at once.

        Returns:
          ``[num_texts, max_text_tokens, hidden_size]`` in the text encoder's dtype.

        Raises:
          InputError: an empty list, a single string, or something else that is not a list of strings.
        """
        texts = common.checked_texts(texts)
        return _in_batches(self._text_function, self.tokenize(texts), batch_size=batch_size)

    def encode_images(self, images: np.ndarray, *, noise: np.ndarray | None = None, batch_size: int = 8) -> jax.Array:
        """Encodes images into latents, scaled as in training.

        Args:
          images: uint8 ``[n, H, W, 3]``, or float in [-1, 1]; H and W multiples of the autoencoder's factor.
          noise: standard normal ``[n, h, w, c]`` to draw from the posterior; its mean is returned when None.
          batch_size: images that are encoded at once.

        Returns:
          float32 ``[n, h, w, c]``.

        Raises:
          InputError: if the images are of another form.
        """
        images = np.asarray(images)
        factor = self.vae.config.downsampling
        if images.ndim != 4 or images.shape[-1] != self.vae.config.in_channels or 0 in images.shape:
            raise InputError(f"images have the shape {list(images.shape)}, but must be [n, height, width, channels]")
        if images.shape[1] % factor or images.shape[2] % factor:
            raise InputError(
                f"images are {images.shape[1]} x {images.shape[2]}, but height and width must be multiples of {factor}"
            )
        if images.dtype != np.uint8 and not np.issubdtype(images.dtype, np.floating):
            raise InputError(f"images are {images.dtype}, but must be uint8, or float in [-1, 1]")
        # NaN compares as false; rounding may leave the range by a little.
        if images.dtype != np.uint8 and not (images.min() >= -_FARTHEST and images.max() <= _FARTHEST):
            raise InputError(
                f"images hold values from {images.min():g} to {images.max():g}, but floats must be in [-1, 1]: pass"
                " uint8 for values from 0 to 255"
            )
        return _in_batches(self._image_function, images, noise, batch_size=batch_size)

    def decode_latents(self, latents: jax.Array, *, batch_size: int = 8) -> np.ndarray:
        """Decodes latents, scaled as in training ``[n, h, w, c]``, into pictures: uint8 ``[n, H, W, 3]``.

        Raises:
          InputError: the latents are of another form, or not finite.
        """
        latents = latents if isinstance(latents, jax.Array) else np.asarray(latents)
        channels = self.vae.config.latent_channels
        is_float = jnp.issubdtype(latents.dtype, jnp.floating)
        if not is_float or latents.ndim != 4 or latents.shape[-1] != channels or 0 in latents.shape:
            raise InputError(
                f"latents are {latents.dtype} {list(latents.shape)}, but must be floats [n, height, width, {channels}]"
            )
        if not bool(jnp.isfinite(latents).all()):
            raise InputError("latents hold NaN or infinite numbers: check what they were made by")
        return np.asarray(_in_batches(self._picture_function, latents, batch_size=batch_size))

    def generate(
        self,
        texts: Sequence[str],
        *,
        num_steps: int = 50,
        guidance_scale: float = 7.5,
        seed: int = 0,
        batch_size: int = 8,
    ) -> np.ndarray:
        """Draws a picture for each text with DDIM and classifier-free guidance.

        Args:
          texts: strings.
          num_steps: number of DDIM steps.
          guidance_scale: 1 for none; finite.
          seed: the noise of picture i depends on (seed, i) alone.
          batch_size: pictures that are drawn at once.

        Returns:
          uint8 ``[n, image_size, image_size, 3]``.

        Raises:
          InputError: an argument is not as described, or a batch does not fit into memory.
        """
        texts = common.checked_texts(texts)
        options.whole(1, self.schedule.num_train_timesteps).check("num_steps", num_steps)
        guidance_scale = options.GUIDANCE.check("guidance_scale", guidance_scale)
        seed = options.SEED.check("the seed", seed)
        batch_size = options.BATCH_SIZE.check("batch_size", batch_size)
        size = check_image_size(self)
        side = size // self.vae.config.downsampling
        device = jax.local_devices()[0]
        check_encoding(self.vae.config, size, batch_size, device)
        check_denoising(self, (side, side, self.vae.config.latent_channels), batch_size, device)
        memory.check(f"{len(texts):,} pictures", 3 * size**2 * len(texts), "draw fewer at once")
        states = self.encode_texts(texts, batch_size=batch_size)
        key = jax.random.key(seed)
        shape = (side, side, self.vae.config.latent_channels)
        noise = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i), shape))(jnp.arange(len(states)))
        empty = self.encode_texts([""]) if guidance_scale != 1 else None

        def draw(noise: jax.Array, states: jax.Array) -> jax.Array:
            return self._drawing_function(noise, states, empty, guidance_scale, num_steps=num_steps)

        latents = _in_batches(draw, noise, states, batch_size=batch_size)
        return self.decode_latents(latents, batch_size=batch_size)

    @functools.cached_property
    def _text_function(self) -> Callable[..., jax.Array]:
        return _compiled(self.text_encoder, lambda text_encoder, ids: text_encoder(ids).last_hidden_state)

    @functools.cached_property
    def _image_function(self) -> Callable[..., jax.Array]:
        def encode(vae: AutoencoderKL, images: jax.Array, noise: jax.Array | None) -> jax.Array:
            if images.dtype == jnp.uint8:
                images = images.astype(jnp.float32) / 127.5 - 1.0
            mean, logvar = (part.astype(jnp.float32) for part in vae.encode(images))
            latents = mean if noise is None else mean + jnp.exp(0.5 * logvar) * noise
            return latents * vae.config.scaling_factor

        return _compiled(self.vae, encode)

    @functools.cached_property
    def _picture_function(self) -> Callable[..., jax.Array]:
        def decode(vae: AutoencoderKL, latents: jax.Array) -> jax.Array:
            pictures = vae.decode(latents / vae.config.scaling_factor).astype(jnp.float32)
            return jnp.round(jnp.clip(pictures * 127.5 + 127.5, 0, 255)).astype(jnp.uint8)

        return _compiled(self.vae, decode)

    @functools.cached_property
    def _drawing_function(self) -> Callable[..., jax.Array]:
        def draw(
            unet: UNet2DConditionModel,
            noise: jax.Array,
            states: jax.Array,
            empty: jax.Array | None,
            guidance_scale: jax.Array,
            *,
            num_steps: int,
        ) -> jax.Array:
            return samplers.ddim_sample(
                lambda _, *inputs: unet(*inputs),
                None,
                self.schedule,
                noise,
                states,
                empty,
                num_steps=num_steps,
                guidance_scale=guidance_scale,
            )

        return _compiled(self.unet, draw, static_argnames="num_steps")


def check_image_size(pipeline: Any, image_size: int | None = None) -> int:
    """The size that images are resized to: the model's own when None.

    Raises:
      InputError: it is no whole number, or no multiple of the autoencoder's factor.
    """
    size = options.IMAGE_SIZE.check("image_size", pipeline.image_size if image_size is None else image_size)
    factor = pipeline.vae.config.downsampling
    if size % factor:
        raise InputError(f"image_size is {size}, but this model needs a multiple of {factor}")
    return size


def check_encoding(config: Any, image_size: int, batch_size: int, device: jax.Device) -> None:
    """Raises InputError if a device cannot hold what an autoencoder's first layer reads and writes of a batch."""
    # Other networks than ours need not say how wide they are.
    channels = 3 + 2 * getattr(config, "block_out_channels", (0,))[0]
    memory.check(
        f"encoding an image of {image_size:,} x {image_size:,} pixels" if batch_size == 1 else f"{batch_size:,} images",
        2 * batch_size * image_size**2 * channels,  # two bytes a number, in half precision
        "lower image_size",
        device,
    )


def check_denoising(pipeline: Any, latent_shape: tuple[int, ...], batch_size: int, device: jax.Device) -> None:
    """Raises InputError if a device cannot hold what the denoiser's first layer reads and writes of a batch."""
    height, width, channels = latent_shape
    widths = getattr(getattr(pipeline.unet, "config", None), "block_out_channels", (channels,))
    memory.check(
        f"a batch of {batch_size:,} with latents of {height:,} x {width:,} x {channels:,}",
        batch_size * height * width * (channels + 2 * widths[0]) * jnp.dtype(pipeline.unet.dtype).itemsize,
        "lower batch_size",
        device,
    )


def read_description(
    source: str | os.PathLike | Source, *, revision: str | None = None
) -> tuple[NoiseSchedule, tuple[int, int] | None, dict[str, Any]]:
    """Reads what a pipeline is, without its weights: a few small files.

    Args:
      source: as of `StableDiffusion.from_pretrained`.
      revision: branch, tag or commit of a hub repository.

    Returns:
      The noise schedule, the timesteps that the model is judged on (None for all), and part -> config.

    Raises:
      InputError: it is no pipeline, or one of another kind.
    """
    from winobench.checkpoints import models, sources

    source = sources.resolve(source, revision=revision)
    index_path = source.require("model_index.json", "so it is no pipeline in the diffusers layout")
    _check_index(index_path, sources.read_json(index_path))
    schedule_path = source.require("scheduler/scheduler_config.json", "so the noise schedule is unknown")
    content = sources.read_json(schedule_path)
    try:
        schedule = NoiseSchedule.from_config(content)
        timestep_range = _own_timesteps(content, schedule)
    except InputError as error:
        raise InputError(f"{schedule_path}: {error}") from error
    configs = {name: models.read_config(network, source, name) for name, network in _NETWORKS.items()}
    return schedule, timestep_range, configs


def _own_timesteps(content: dict[str, Any], schedule: NoiseSchedule) -> tuple[int, int] | None:
    """The range of timesteps that a ``scheduler_config.json`` brings along, if it does."""
    own = content.get(_OWN_KEY, {})
    if not isinstance(own, dict) or own.keys() - {"timestep_range"}:
        raise InputError(
            f'{_OWN_KEY} is {options.shown(own)}, but it must be an object such as {{"timestep_range": [300, 800]}}'
        )
    allowed = options.span(schedule.num_train_timesteps).or_none()
    return allowed.check(f"timestep_range in {_OWN_KEY}", own.get("timestep_range"))


def _compiled(network: nnx.Module, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Returns ``function`` with its first argument, the network, filled in, under ``jax.jit``."""
    graph, state = nnx.split(network)
    # Float32 means float32: accelerators would otherwise round the factors of matrix products to 10 bits or fewer.
    exact = jnp.dtype(network.dtype) == jnp.float32

    @functools.partial(jax.jit, **options)
    def call(state: Any, *arguments: Any, **keywords: Any) -> Any:
        with jax.default_matmul_precision("highest") if exact else contextlib.nullcontext():
            return function(nnx.merge(graph, state), *arguments, **keywords)

    return functools.partial(call, state)


def _in_batches(function: Callable[..., jax.Array], *arrays: Any, batch_size: int) -> jax.Array:
    """Applies a compiled function to rows of arrays (or None), always ``batch_size`` of them: one compilation."""
    results = []
    for start in range(0, len(arrays[0]), batch_size):
        rows = [None if array is None else jnp.asarray(array[start : start + batch_size]) for array in arrays]
        count = len(rows[0])
        padded = jax.tree.map(
            lambda part: jnp.pad(part, [(0, batch_size - len(part))] + [(0, 0)] * (part.ndim - 1)), rows
        )
        results.append(function(*padded)[:count])
    return jnp.concatenate(results)


def _check_index(path: str, index: dict[str, Any]) -> None:
    """Raises InputError unless a pipeline has the parts of Stable Diffusion 1.x and 2.x and no other text encoder."""
    kind = index.get("_class_name", "pipeline")
    only = "only pipelines like Stable Diffusion 1.x and 2.x can be used"
    for part, known in _CLASS_NAMES.items():
        named = index.get(part)
        name = named[1] if isinstance(named, list) and len(named) == 2 else None
        if name not in known:
            raise InputError(f"{path} describes a {kind} whose {part} is {name or 'missing'}, not {known[0]}: {only}")
    if others := sorted({"text_encoder_2", "text_encoder_3", "transformer", "prior"} & index.keys()):
        raise InputError(f"{path} describes a {kind} with {', '.join(others)}: {only}")


def _check_fit(unet: UNet2DConditionConfig, vae: AutoencoderKLConfig, text: CLIPTextConfig, num_tokens: int) -> None:
    """Raises InputError unless the parts can work together."""
    if unet.in_channels != vae.latent_channels:
        raise InputError(
            f"the UNet takes {unet.in_channels} channels, but the autoencoder's latents have {vae.latent_channels}:"
            " models for inpainting or other inputs besides the text cannot be used"
        )
    widths = unet.cross_attention_dim
    if any(width != text.hidden_size for width in (widths if isinstance(widths, tuple) else (widths,))):
        raise InputError(
            f"the UNet attends to text states of width {widths}, but the text encoder's have {text.hidden_size}:"
            " the two are not of the same model"
        )
    if num_tokens > text.vocab_size:
        raise InputError(
            f"the tokenizer has {num_tokens} tokens, but the text encoder knows {text.vocab_size}:"
            " the two are not of the same model"
        )


def _without_bookkeeping(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if not key.startswith("_")}
