"""The interface of text-to-image models that diffuse latents: `Pipeline`.

A family of models is one file: a frozen dataclass with its networks, its tokenizers and its schedule, and four pure
functions (`encode_conditions`, `denoise`, `encode_latents`, `decode_images`). `families.py` lists the families.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import memory, options
from winobench.base.errors import InputError
from winobench.base.texts import checked_texts
from winobench.diffusion import folders, generation, identity, pure_functions, samplers
from winobench.diffusion.pure_functions import Denoising, ImageDecoding, ImageEncoding, TextEncoding, Tree
from winobench.diffusion.schedules import NoiseSchedule, Schedule
from winobench.models import snapshots, states
from winobench.models.base import Network

if TYPE_CHECKING:
    from winobench.checkpoints.sources import Source
    from winobench.diffusion.folders import Description

# Of images as floats, which are in [-1, 1] but for rounding.
_FARTHEST = 1.001


class Pipeline(generation.ImageGeneration, abc.ABC):
    """A text-to-image model that diffuses latents.

    A family is a frozen dataclass (``eq=False``) whose fields are the networks of ``NETWORKS`` and the tokenizers of
    ``TOKENIZERS`` under their names in the folder, ``schedule``, ``timestep_range``, and one field with a default for
    each of ``SETTINGS``. Everything below works from these tables.

    Attributes:
      schedule: the noise schedule.
      timestep_range: (first, end) of the timesteps that the model is judged on unless the caller says otherwise, as its
        folder states (``"_winobench": {"timestep_range": [first, end]}`` in ``scheduler_config.json``); None for all.
        It is not part of the fingerprint: which timesteps a score rests on is recorded next to it.
    """

    CLASS_NAME: ClassVar[str]
    """The family's name in ``model_index.json``."""
    NETWORKS: ClassVar[Mapping[str, type[Network]]]
    """Folder -> network. The order decides the fingerprint."""
    TOKENIZERS: ClassVar[tuple[str, ...]] = ("tokenizer",)
    """Folders of tokenizers."""
    PARTS: ClassVar[Mapping[str, tuple[str, str]]]
    """Part -> (library, class), as ``model_index.json`` names the networks and tokenizers."""
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """Parts that a folder may leave out. Their fields are then None."""
    INDEX: ClassVar[Mapping[str, Any]] = {}
    """Further entries of ``model_index.json``."""
    INDEX_FIELDS: ClassVar[Mapping[str, options.Range]] = {}
    """Field in ``model_index.json`` -> its allowed values."""
    DENOISER: ClassVar[str] = "unet"
    AUTOENCODER: ClassVar[str] = "vae"
    LATENT_MULTIPLE: ClassVar[int] = 1
    """The divisor of the latents' height and width that the autoencoder's scaling needs."""
    LARGE_ENCODERS: ClassVar[tuple[str, ...]] = ()
    """Text encoders as large as the denoiser, which are loaded in its dtype."""
    RELEASED: ClassVar[Mapping[str, Callable[[], Description]]] = {}
    """Name in `winobench.base.registry.MODELS` -> the published model, from its sizes in code."""
    SETTINGS: ClassVar[Mapping[str, options.Range]] = {}
    """Option that only this family has -> its allowed values."""

    SCHEDULE: ClassVar[type[Schedule]] = NoiseSchedule
    LATENTS_A_SIDE: ClassVar[int | None] = None
    """Latents along one side of a denoiser's position, where its config has no ``patch_size``."""
    LATENT_SIZE: ClassVar[int | None] = None
    """Latents along one side of images of the usual size, where it is in no file but diffusers' code."""

    schedule: Schedule
    timestep_range: tuple[int, int] | None

    PUBLISHED_LEFT_OUT: ClassVar[int] = 20
    """The levels of a flow model at either end that published scoring code leaves out."""
    EVEN_LEVELS: ClassVar[bool] = False
    """For flow models: ``evenly`` of `FlowSchedule.sampling_levels`."""

    # Of each family -----------------------------------------------------------------------------------------------

    @staticmethod
    @abc.abstractmethod
    def check_fit(configs: Mapping[str, Any], num_tokens: Mapping[str, int]) -> None:
        """Raises InputError unless networks with these configs and tokenizers of these sizes can work together."""

    @abc.abstractmethod
    def tokenize(self, texts: Sequence[str], *, image_size: int | None = None) -> Tree:
        """Texts as a tree of int32 arrays ``[num_texts, ...]``: token ids, and what else conditions the denoiser.

        Args:
          texts: strings. The empty one is the unconditional text, and otherwise a text like others.
          image_size: height and width of the images, in pixels. The model's own when None. Most families ignore it.

        Raises:
          InputError: ``texts`` is empty, or one cannot be tokenized (`winobench.base.texts.check_texts`).
        """

    @staticmethod
    @abc.abstractmethod
    def encode_conditions(networks: Mapping[str, Network], ids: Tree) -> Tree:
        """The denoiser's inputs from texts: a tree of arrays ``[n, ...]``. Pure.

        Args:
          networks: the text encoders, by their names in ``NETWORKS``.
          ids: from `tokenize`.
        """

    @staticmethod
    def denoise(denoiser: Network, noisy: jax.Array, times: jax.Array, conditions: Tree, **keywords: Any) -> jax.Array:
        """The denoiser's answer. Pure.

        Args:
          denoiser: the network.
          noisy: noisy latents ``[n, h, w, c]``.
          times: float32 ``[n]``, from `Schedule.model_time`.
          conditions: from `encode_conditions`.
          **keywords: ``sample_rows`` where the network shares rows (`Network.shares_rows`), ``remat`` in training.
        """
        return denoiser(noisy, times, conditions, **keywords)

    @classmethod
    def latents_a_side(cls, denoiser: Any) -> int:
        """Latents along one side of a denoiser's position, of which an image must have a whole number.

        Args:
          denoiser: the config.
        """
        return cls.LATENTS_A_SIDE or getattr(denoiser, "patch_size", 1)

    @staticmethod
    def encode_latents(autoencoder: Network, images: jax.Array, noise: jax.Array | None = None) -> jax.Array:
        """Images in [-1, 1] as latents, float32, scaled as in training. The posterior's mean, or a sample. Pure."""
        mean, logvar = (part.astype(jnp.float32) for part in autoencoder.encode(images))
        latents = mean if noise is None else mean + jnp.exp(0.5 * logvar) * noise
        shift = _shift(autoencoder)
        latents = latents if shift is None else latents - shift
        return latents * autoencoder.config.scaling_factor

    @staticmethod
    def decode_images(autoencoder: Network, latents: jax.Array) -> jax.Array:
        """Latents, scaled as in training, as images in [-1, 1]. Pure."""
        latents, shift = latents / autoencoder.config.scaling_factor, _shift(autoencoder)
        return autoencoder.decode(latents if shift is None else latents + shift)

    def guided(self, guidance_scale: float) -> tuple[Self, float]:
        """A pipeline that generates with this guidance, and the scale of guidance by the empty text.

        Scales of 1 and below mean no guidance, as in diffusers: SDXL-Turbo is published with 0.
        """
        return self, max(guidance_scale, 1.0)

    def unconditional(self) -> Self:
        """A pipeline that encodes the empty text as guidance needs it."""
        return self

    def generation_identity(self, guidance_scale: float, sampler: str | None, image_size: int) -> dict[str, Any]:
        """The values, besides the fingerprint and the arguments, that decide generated images. As JSON values."""
        of_sampler = samplers.find_sampler(sampler, self.schedule).identity(self.schedule)
        # Where the scale counts from 1, earlier versions guided below it, too.
        counts_from_one = self.guided(2.0)[1] == 2.0
        return {**of_sampler, **({"guided": False} if counts_from_one and guidance_scale < 1 else {})}

    # Of all families ----------------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        if self.timestep_range is not None:
            chosen = options.span(self.schedule.num_train_timesteps).check("timestep_range", self.timestep_range)
            object.__setattr__(self, "timestep_range", chosen)
        for name, value in self.check_settings({name: getattr(self, name) for name in self.SETTINGS}).items():
            object.__setattr__(self, name, value)
        for name, network in self.networks.items():
            if missing := [attribute for attribute in ("config", "dtype") if not hasattr(network, attribute)]:
                raise InputError(
                    f"{name} is a {type(network).__name__} without {' and '.join(missing)}: give it these attributes,"
                    " as Pipeline.replace describes",
                    code="wrong-type",
                )
        states.see(self.tokenizers)
        self._check_fit()

    def _check_fit(self) -> None:
        configs = {name: network.config for name, network in self.networks.items()}
        self.check_fit(configs, {name: len(tokenizer) for name, tokenizer in self.tokenizers.items()})

    @property
    def networks(self) -> dict[str, Network]:
        """The networks that are there, by their names in ``NETWORKS``."""
        return {name: net for name in self.NETWORKS if (net := getattr(self, name)) is not None}

    @property
    def tokenizers(self) -> dict[str, Any]:
        """The tokenizers that are there, by their names in ``TOKENIZERS``."""
        return {name: tokenizer for name in self.TOKENIZERS if (tokenizer := getattr(self, name)) is not None}

    @property
    def denoiser(self) -> Network:
        """The network that predicts noise or velocity."""
        return getattr(self, self.DENOISER)

    @property
    def autoencoder(self) -> Network:
        """The network between images and latents."""
        return getattr(self, self.AUTOENCODER)

    @property
    def text_encoders(self) -> dict[str, Network]:
        """The other networks."""
        return {name: net for name, net in self.networks.items() if name not in (self.DENOISER, self.AUTOENCODER)}

    def replace(self, **fields: Any) -> Self:
        """The same pipeline with other networks, or with other values of ``SETTINGS``.

        Any `flax.nnx.Module` can be the denoiser. It is called as ``module(noisy, times, conditions)``, with arrays
        ``[n, h, w, c]``, float32 ``[n]`` and what `encode_conditions` gives, and returns ``[n, h, w, c]``. It has two
        attributes: ``config``, as in the earlier network, and ``dtype``, of its computation.

        Raises:
          InputError: the family has no such field, or a network lacks an attribute or does not fit the others.
        """
        known = {field.name for field in dataclasses.fields(self)}
        self.check_settings({name: value for name, value in fields.items() if name not in known})
        return dataclasses.replace(self, **fields)

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Returns values of ``SETTINGS`` as they are used.

        Raises:
          InputError: the family has no such setting, or it cannot be this.
        """
        for name in settings.keys() - cls.SETTINGS.keys():
            has = f"the settings {', '.join(cls.SETTINGS)}" if cls.SETTINGS else "no settings"
            raise InputError(f"{cls.__name__} has no setting {name!r}: it has {has}", code="unknown-name")
        return {name: cls.SETTINGS[name].check(name, value) for name, value in settings.items()}

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        dtype: Any = "float32",
        *,
        encoder_dtype: Any = None,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
        on_host: bool = False,
        **settings: Any,
    ) -> Self:
        """Loads a pipeline in the diffusers layout.

        Args:
          source: a name in `winobench.base.registry.MODELS`, a local folder, a hub id, or a single file in the original
            layout (``FILE.safetensors`` or ``BASE+FILE.safetensors``), which diffusers converts once. Of a hub
            repository, only the files that are needed are downloaded.
          dtype: of the parameters and of the computation: ``float32``, ``bfloat16`` or ``float16``. An autoencoder
            that overflows in float16 by its own account (``force_upcast``) is then kept in float32.
          encoder_dtype: of the autoencoder and the text encoders but for ``LARGE_ENCODERS``; ``dtype`` when None. They
            run once for each text and image, so float32 costs little there.
          variant: suffix of the weight files, e.g. ``fp16``. Parts without that variant have their usual files.
          revision: branch, tag or commit of a hub repository.
          allow_pickle: read ``.bin`` files where safetensors files are missing, with a restricted unpickler.
          on_host: leave all parameters but the autoencoder's in the host's memory, as NumPy arrays.
          **settings: options that only this family has.

        Raises:
          InputError: the pipeline is missing or of another kind, or a file is missing or damaged.
        """
        from winobench.checkpoints import sources

        return folders.load(
            cls,
            sources.resolve(source, revision=revision),
            dtype,
            encoder_dtype=encoder_dtype,
            variant=variant,
            allow_pickle=allow_pickle,
            on_host=on_host,
            settings=settings,
        )

    @classmethod
    def read_lora(cls, source: str | os.PathLike[str], *, allow_pickle: bool = False) -> Any:
        """Reads a LoRA for `load_with_lora`, so that an error in a small file shows before gigabytes are read.

        Args:
          source: a file, or a folder or hub id that holds one (`winobench.checkpoints.read_lora`).
          allow_pickle: whether it may be a ``.bin`` file.

        Raises:
          InputError: it cannot be read, or is in no form that this family takes.
        """
        from winobench.checkpoints import read_lora

        return read_lora(source, allow_pickle=allow_pickle)

    @classmethod
    def load_with_lora(
        cls,
        source: str | os.PathLike[str],
        dtype: Any,
        adapters: Any,
        *,
        scale: float = 1.0,
        fuse: bool = True,
        **keywords: Any,
    ) -> tuple[Self, Any]:
        """`from_pretrained`, with a LoRA.

        Args:
          source: as there.
          dtype: as there.
          adapters: from `read_lora`.
          scale: what the adapters' effect is multiplied by.
          fuse: add the adapters to the weights.
          **keywords: of `from_pretrained`.

        Returns:
          The pipeline, and the adapters as it uses them.

        Raises:
          InputError: in addition, the LoRA is of another model.
        """
        from winobench.checkpoints import load_lora

        pipeline = cls.from_pretrained(source, dtype, **keywords)
        return pipeline, load_lora(pipeline, adapters, scale=scale, fuse=fuse)

    def save_pretrained(self, folder: str | os.PathLike[str], dtype: Any = "float16") -> None:
        """Writes a folder that diffusers' pipeline of this name and :meth:`from_pretrained` load.

        Every file is written whole or not at all. ``model_index.json``, without which a folder is not a pipeline, goes
        first and comes last, so that an interrupted save is never taken for a model.

        Args:
          folder: where to write. Made if needed.
          dtype: of the weight files: ``float32``, ``float16`` or ``bfloat16``.

        Raises:
          InputError: if a weight is not finite, or too large for ``dtype``. Or the folder cannot be written.
        """
        folders.save(self, folder, dtype)

    @classmethod
    def left_out(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Parts of ``OPTIONAL`` that these settings leave out although the folder has them."""
        return ()

    @classmethod
    def read_description(
        cls,
        source: str | os.PathLike[str] | Source,
        *,
        revision: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Description:
        """Reads what a pipeline is, without its weights: a few small files.

        Args:
          source: see `from_pretrained`.
          revision: branch, tag or commit of a hub repository.
          settings: of ``SETTINGS``, instead of what the folder states. Parts that they leave out are not looked at.

        Raises:
          InputError: it is not a pipeline, or one of another family.
        """
        return folders.read_description(cls, source, revision=revision, settings=settings)

    def schedule_at(self, image_size: int) -> Schedule:
        """The noise schedule of images of this height and width, in pixels."""
        height, width, _ = self.latent_shape(image_size)
        return self.schedule.for_positions(height * width // self.latents_a_side(self.denoiser.config) ** 2)

    @classmethod
    def read_schedule(cls, content: Mapping[str, Any]) -> Schedule:
        """The schedule that a ``scheduler_config.json`` describes."""
        return cls.SCHEDULE.from_config(content)

    @property
    def fingerprint(self) -> str:
        """Identifies everything that can change an error: weights, dtypes, configs, tokenizers and noise schedule.

        64 hexadecimal digits, the same for the same model on any machine. Takes seconds for a large model, once for
        the same weights.
        """
        return identity.fingerprint(self)

    def snapshot(self) -> Self:
        """A pipeline with the same arrays and tokenizers, which later changes do not reach.

        The same object while nothing has changed and a reference to it exists.
        """
        networks: dict[str, Any] = {
            name: snapshots.network_snapshot(network) for name, network in self.networks.items()
        }
        networks |= states.copied(self, self.tokenizers)
        others = [getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in networks]
        parts = [*others, *networks.values()]
        before, reference = vars(self).get("_last_snapshot", ((), None))
        snapshot = None if reference is None else reference()
        kept = () if snapshot is None else (*before, *(getattr(snapshot, name) for name in networks))
        if snapshot is None or list(map(id, parts)) != list(map(id, kept)):
            snapshot = self.replace(**networks)
            vars(snapshot)["_copies"] = self._copies
            vars(self)["_last_snapshot"] = others, weakref.ref(snapshot)
        return snapshot

    def refresh(self) -> None:
        """Does nothing, for programs that call it: changed networks are seen without it."""

    @property
    def backend(self) -> str | None:
        """The code that runs the pipeline, with its versions. None for families in Flax."""
        return None

    def own_identity(self) -> dict[str, Any]:
        """The parts of the fingerprint on tokenizers, family and settings."""
        return {
            "family": self.CLASS_NAME,
            "tokenizers": {name: identity.tokenizer_identity(tokenizer) for name, tokenizer in self.tokenizers.items()},
            "settings": {name: getattr(self, name) for name in self.SETTINGS},
        }

    @property
    def image_size(self) -> int:
        """Height and width, in pixels, of the images that the model was trained on.

        Raises:
          InputError: if the configs do not tell, or tell of images that are not square.
        """
        latent_size = self.LATENT_SIZE or self.denoiser.config.sample_size
        size = self.autoencoder.config.sample_size if latent_size is None else latent_size
        height, width = size if isinstance(size, tuple) else (size, size)
        if height != width:
            raise InputError(f"samples of {height} x {width} are not square: name an image size", code="not-square")
        return height if latent_size is None else height * self.autoencoder.config.downsampling

    # Pure functions with their parameters -------------------------------------------------------------------------

    def text_function(self, dtype: Any = None) -> tuple[TextEncoding, dict[str, list[jax.Array]]]:
        """(token ids from `tokenize` -> conditions, parameters). Floats are rounded to ``dtype`` unless it is None."""
        parts = {name: snapshots.split(network) for name, network in self.text_encoders.items()}
        structures = tuple((name, structure) for name, (structure, _) in parts.items())
        named = None if dtype is None else jnp.dtype(dtype).name
        return TextEncoding(type(self), structures, named), {name: params for name, (_, params) in parts.items()}

    def host_texts(self, dtype: Any) -> tuple[Callable[..., Any], Tree, Any, int] | None:
        """Arguments of `winobench.engine.text_store.HostTexts`. None for a pipeline with a `text_function`.

        They are (mesh, make_room -> context with texts -> conditions), the shapes of one text's conditions, an identity
        and the batch size. Floats are rounded to ``dtype``.
        """
        return None

    def image_function(self) -> tuple[ImageEncoding, list[jax.Array]]:
        """(uint8 images ``[n, H, W, 3]`` -> latents, parameters)."""
        structure, params = snapshots.split(self.autoencoder)
        return ImageEncoding(type(self), structure), params

    def denoiser_function(self) -> tuple[Denoising, list[jax.Array]]:
        """(noisy latents, times, conditions -> prediction, parameters)."""
        structure, params = snapshots.split(self.denoiser)
        return Denoising(type(self), structure), params

    # For users ----------------------------------------------------------------------------------------------------

    def encode_texts(self, texts: Sequence[str], *, image_size: int | None = None, batch_size: int = 16) -> Tree:
        """Encodes texts into what the denoiser is given of them.

        Args:
          texts: strings.
          image_size: height and width of the images, in pixels. The model's own when None. SDXL's UNet takes it as a
            condition. Other families ignore it.
          batch_size: texts that are encoded at once.

        Returns:
          A tree of arrays ``[num_texts, ...]`` in the text encoders' dtype. Of Stable Diffusion 1.x and 2.x the states
          alone, ``[num_texts, length, width]``.

        Raises:
          InputError: an empty list, a single string, or something else that is not a list of strings.
        """
        self._check_fit()  # tokens may have been added
        function, params = self.text_function()
        params = jax.device_put(params)  # once for all batches, where they are in the host's memory
        ids = self.tokenize(checked_texts(texts), image_size=image_size)
        encode = functools.partial(pure_functions.call, function, params)
        return pure_functions.in_batches(encode, ids, batch_size=batch_size)

    def encode_images(self, images: np.ndarray, *, noise: np.ndarray | None = None, batch_size: int = 8) -> jax.Array:
        """Encodes images into latents, scaled as in training.

        Args:
          images: uint8 ``[n, H, W, 3]``, or float in [-1, 1]; H and W multiples of the autoencoder's factor.
          noise: standard normal ``[n, h, w, c]`` to sample from the posterior. Its mean is returned when None.
          batch_size: images that are encoded at once.

        Returns:
          float32 ``[n, h, w, c]``.

        Raises:
          InputError: if the images are of another form, or the latents are not finite.
        """
        images = np.asarray(images)
        config = self.autoencoder.config
        factor = config.downsampling * self.LATENT_MULTIPLE
        if images.ndim != 4 or images.shape[-1] != config.in_channels or 0 in images.shape:
            raise InputError(f"images are {list(images.shape)}, not [n, height, width, channels]", code="wrong-shape")
        if images.shape[1] % factor or images.shape[2] % factor:
            raise InputError(
                f"images are {images.shape[1]} x {images.shape[2]}, but height and width must be multiples of {factor}",
                code="not-a-multiple",
            )
        if images.dtype != np.uint8 and not np.issubdtype(images.dtype, np.floating):
            raise InputError(f"images are {images.dtype}, but must be uint8, or float in [-1, 1]", code="wrong-dtype")
        # NaN compares as false. Rounding may leave the range by a little.
        if images.dtype != np.uint8 and not (images.min() >= -_FARTHEST and images.max() <= _FARTHEST):
            raise InputError(
                f"images hold {images.min():g} to {images.max():g}, but floats are in [-1, 1]: pass uint8 for 0 to 255",
                code="out-of-range",
            )
        function, params = self.image_function()
        encode = functools.partial(pure_functions.call, function, params)
        latents = pure_functions.in_batches(encode, images, noise, batch_size=batch_size)
        names = [f"images[{row}]" for row in range(len(images))]
        generation.check_finite(jnp.isfinite(latents).all(axis=(1, 2, 3)), "the encoding of", names, [self.autoencoder])
        return latents

    def decode_latents(self, latents: jax.Array, *, batch_size: int = 8) -> np.ndarray:
        """Decodes latents, scaled as in training ``[n, h, w, c]``, into images: uint8 ``[n, H, W, 3]``.

        Raises:
          InputError: the latents are of another form, or they or the images of them are not finite.
        """
        latents = latents if isinstance(latents, jax.Array) else np.asarray(latents)
        channels = self.autoencoder.config.latent_channels
        is_float = jnp.issubdtype(latents.dtype, jnp.floating)
        uneven = any(side % self.LATENT_MULTIPLE for side in latents.shape[1:3])
        if not is_float or latents.ndim != 4 or latents.shape[-1] != channels or 0 in latents.shape or uneven:
            raise InputError(
                f"latents are {latents.dtype} {list(latents.shape)}, but must be floats [n, height, width, {channels}],"
                f" height and width multiples of {self.LATENT_MULTIPLE}",
                code="wrong-shape",
            )
        if not bool(jnp.isfinite(latents).all()):
            raise InputError("latents hold NaN or infinite numbers: check the code that made them", code="not-finite")
        structure, params = snapshots.split(self.autoencoder)
        decode = functools.partial(pure_functions.call, ImageDecoding(type(self), structure), params)
        decoded = pure_functions.in_batches(decode, latents, batch_size=batch_size)
        names = [f"latents[{row}]" for row in range(len(latents))]
        generation.check_finite(decoded.finite, "the image of", names, [self.autoencoder])
        return np.asarray(decoded.images)

    # Sizes --------------------------------------------------------------------------------------------------------

    def latent_shape(self, image_size: int) -> tuple[int, int, int]:
        """(h, w, c) of the latents of an image of this many pixels, height and width."""
        side = image_size // self.autoencoder.config.downsampling
        return side, side, self.autoencoder.config.latent_channels

    def check_image_size(self, image_size: int | None = None) -> int:
        """The size that images are resized to: the model's own when None.

        Raises:
          InputError: it is not a whole number, or no multiple of the autoencoder's factor.
        """
        size = options.IMAGE_SIZE.check("image_size", self.image_size if image_size is None else image_size)
        factor = self.autoencoder.config.downsampling * self.latents_a_side(getattr(self.denoiser, "config", None))
        if size % factor:
            raise InputError(
                f"image_size is {size}, but this model needs a multiple of {factor}", code="not-a-multiple"
            )
        return size

    def check_memory(self, image_size: int, batch_size: int, device: jax.Device) -> None:
        """Raises InputError if a device cannot hold what encoding a batch of images takes."""
        folders.check_encoding(self.autoencoder.config, image_size, batch_size, device)

    def check_denoising(self, latent_shape: tuple[int, ...], batch_size: int, device: jax.Device) -> None:
        """Raises InputError if a device cannot hold what the denoiser's first layer reads and writes of a batch."""
        height, width, channels = latent_shape
        width_of_first = getattr(getattr(self.denoiser, "config", None), "width_per_position", channels)
        memory.check(
            f"a batch of {batch_size:,} with latents of {height:,} x {width:,} x {channels:,}",
            batch_size * height * width * (channels + 2 * width_of_first) * jnp.dtype(self.denoiser.dtype).itemsize,
            "lower batch_size",
            device,
        )


def _shift(autoencoder: Network) -> float | None:
    # Other networks than ours need not know of it.
    return getattr(autoencoder.config, "shift_factor", None)
