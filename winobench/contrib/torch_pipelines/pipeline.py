"""`TorchPipeline`: any checked pipeline of diffusers, by its own torch code under JAX."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import options
from winobench.base.errors import InputError
from winobench.base.texts import checked_texts
from winobench.checkpoints import sources
from winobench.checkpoints.sources import Source
from winobench.contrib.torch_pipelines import adapters as adapters_of
from winobench.contrib.torch_pipelines import loading
from winobench.contrib.torch_pipelines.families import Family, family_of
from winobench.contrib.torch_pipelines.torch_parts import TorchParts
from winobench.diffusion import folders, pure_functions
from winobench.diffusion.folders import Description
from winobench.diffusion.generation import Run, check_finite
from winobench.diffusion.pure_functions import Decoded, Denoising, ImageEncoding, Tree
from winobench.diffusion.pure_functions import TextEncoding as PureTextEncoding
from winobench.diffusion.schedules import Schedule
from winobench.models.base import Network
from winobench.torch_modules import comparison
from winobench.torch_modules.network import TorchConfig, TorchNetwork

if TYPE_CHECKING:
    pass


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TorchPipeline(TorchParts):
    """A text-to-image pipeline of diffusers whose torch modules run under JAX, by torchax. Experimental.

    `docs/reference/diffusers_classes.md` lists the supported classes. The extra ``winobench[torch]`` installs the
    packages.

    Attributes:
      network: the denoiser, called as diffusers' pipeline calls it.
      vae: the autoencoder.
      texts: the text encoders. They stay on the host. GPUs and TPUs have a copy while they encode texts.
      schedule: the noise schedule.
      timestep_range: see `Pipeline`.
      guidance_embedding: the guidance that a denoiser takes as a number. None for the default of diffusers' pipeline.
      text_tokens: the most tokens of a text. None for the default of diffusers' pipeline.
    """

    CLASS_NAME: ClassVar = "TorchPipeline"
    NETWORKS: ClassVar = {"network": TorchNetwork, "vae": TorchNetwork}
    TOKENIZERS: ClassVar = ()
    PARTS: ClassVar = {}
    _is_snapshot: ClassVar = False
    DENOISER: ClassVar = "network"
    SETTINGS: ClassVar = {
        "guidance_embedding": options.number(0, 100).or_none(),
        "text_tokens": options.whole(1, 4096).or_none(),
    }

    @classmethod
    def from_pretrained(
        cls,
        source: Any,
        dtype: Any = "float32",
        *,
        encoder_dtype: Any = None,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
        on_host: bool = False,
        **settings: Any,
    ) -> Self:
        """See `Pipeline`. diffusers itself loads the pipeline, from safetensors files alone.

        A prediction and an encoded image are compared with torch's own once for each model and kind of device.

        Raises:
          InputError: in addition, a pipeline outside the checked families, code in the repository, or a prediction
            that differs from torch's.
        """
        settings = cls.check_settings(settings)
        source = sources.resolve(source, revision=revision)
        pipe = loading.load(source, dtype, variant=variant)
        return cls._checked(source, pipe, on_host, settings)

    @classmethod
    def read_lora(cls, source: str | os.PathLike[str], *, allow_pickle: bool = False) -> Any:
        """See `Pipeline`. Reads a safetensors file in a form that diffusers supports."""
        return adapters_of.read(source)

    @classmethod
    def load_with_lora(
        cls,
        source: Any,
        dtype: Any,
        adapters: Any,
        *,
        scale: float = 1.0,
        fuse: bool = True,
        encoder_dtype: Any = None,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
        on_host: bool = False,
        **settings: Any,
    ) -> tuple[Self, Any]:
        """See `Pipeline`. diffusers itself adds the adapters to the weights, text encoders' as well."""
        if not fuse:
            raise InputError(
                "diffusers adds a LoRA to the weights of this model, so that it cannot be kept apart: leave out"
                " fuse_lora",
                code="unsupported-option",
            )
        settings = cls.check_settings(settings)
        source = sources.resolve(source, revision=revision)
        pipe = loading.load(source, dtype, variant=variant, lora=adapters, lora_scale=scale)
        return cls._checked(source, pipe, on_host, settings), adapters

    @classmethod
    def _checked(cls, source: Source, pipe: Any, on_host: bool, settings: Mapping[str, Any]) -> Self:
        schedule = loading.schedule_of(pipe, family_of(type(pipe).__name__))
        timestep_range, of_folder = folders.own_values(cls, loading.read_scheduler(source), schedule)
        pipeline = cls.from_diffusers(pipe, **{**of_folder, **settings}).replace(timestep_range=timestep_range)
        for network in (pipeline.vae,) if on_host else (pipeline.vae, pipeline.network):
            network.to_devices()
        loading.check_against_torch(pipeline)
        return pipeline

    @classmethod
    def from_diffusers(cls, pipe: Any, **settings: Any) -> Self:
        """Wraps a pipeline of diffusers, which loses the weights of its denoiser and autoencoder.

        Args:
          pipe: on the host, of a class in `docs/reference/diffusers_classes.md`.
          **settings: of ``SETTINGS``.

        Raises:
          InputError: the class is not supported, or lacks a setting.
        """
        from winobench.contrib.torch_pipelines.autoencoders import TorchAutoencoder
        from winobench.contrib.torch_pipelines.prediction import TorchDenoiser
        from winobench.contrib.torch_pipelines.texts import TextEncoding

        if not hasattr(type(pipe), "set_progress_bar_config"):
            message = f"pipe is {options.quote(pipe)}, but it must be a pipeline of diffusers"
            raise InputError(message, code="wrong-type")
        pipe.set_progress_bar_config(disable=True)
        family = family_of(type(pipe).__name__)
        call = _call(type(pipe).__name__, family, cls.check_settings(settings))
        schedule = loading.schedule_of(pipe, family)
        configs = loading.configs_of(pipe, family)
        texts = TextEncoding(pipe, family, call)
        network = TorchDenoiser(pipe, family, configs["network"], call, texts.constants)
        vae = TorchAutoencoder(getattr(pipe, family.autoencoder), configs["vae"], family)
        texts.take_state()
        return cls(network, vae, texts, schedule, **settings)

    def _follow(self) -> None:
        """Takes over changes of diffusers' pipeline. A snapshot refuses them."""
        from winobench.contrib.torch_pipelines.texts import TextEncoding, read_state

        texts = self.texts
        if self._is_snapshot:
            texts.check_unchanged()
            return
        pipe, family, before = texts.pipe, self.family, texts.state
        now = read_state(pipe, family)
        if now == before:
            return
        for part in (family.denoiser, family.autoencoder):
            if now.of(part)[0] != before.of(part)[0]:
                raise InputError(
                    f"new weights for the {part} of this {self.diffusers_class} are lost: winobench has taken its"
                    " weights out. Change the arrays of the pipeline's networks, or wrap a pipeline that has the new"
                    " weights",
                    code="deleted-weights",
                )
        configs, schedule = loading.configs_of(pipe, family), self.schedule
        # A schedule that was replaced stays for as long as these do.
        if any(now.of(part) != before.of(part) for part in ("scheduler", "pipeline", family.denoiser)):
            schedule = loading.schedule_of(pipe, family)
        new = TextEncoding(pipe, family, texts.call, before=texts)
        self.network.follow_pipeline(configs["network"], new.constants)
        self.vae.follow(configs["vae"], family.scale)
        new.take_state(texts)
        object.__setattr__(self, "texts", new)
        object.__setattr__(self, "schedule", schedule)

    def _follow_unless_snapshot(self) -> None:
        # Programs of a snapshot compare options themselves when they are traced.
        if not self._is_snapshot:
            self._follow()

    def snapshot(self) -> Self:
        """See `Pipeline`. A snapshot refuses to continue once a part of diffusers has changed."""
        self._follow()
        if self._is_snapshot:
            return self
        snapshot = super().snapshot()
        vars(snapshot)["_is_snapshot"] = True
        return snapshot

    @property
    def fingerprint(self) -> str:
        """See `Pipeline`."""
        self._follow_unless_snapshot()
        return super().fingerprint

    @classmethod
    def read_description(
        cls, source: Any, *, revision: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> Description:
        """See `Pipeline`."""
        source = sources.resolve(source, revision=revision)
        pipe = loading.skeleton(source)
        family = family_of(type(pipe).__name__)
        schedule = loading.schedule_of(pipe, family)
        timestep_range, of_folder = folders.own_values(cls, loading.read_scheduler(source), schedule)
        _call(type(pipe).__name__, family, {**of_folder, **cls.check_settings(settings or {})})
        return Description(cls, schedule, timestep_range, loading.configs_of(pipe, family), of_folder)

    @property
    def backend(self) -> str:
        """See `Pipeline`."""
        versions = ", ".join(f"{name} {version}" for name, version in comparison.versions().items())
        return f"torch (experimental): {self.diffusers_class}, {versions}"

    @staticmethod
    def check_fit(configs: Mapping[str, Any], num_tokens: Mapping[str, int]) -> None:
        """See `Pipeline`. diffusers has put the parts together."""

    @classmethod
    def latents_a_side(cls, denoiser: Any) -> int:
        """See `Pipeline`."""
        return denoiser.latents_a_side

    # Texts ----------------------------------------------------------------------------------------------------------

    def tokenize(self, texts: Sequence[str], *, image_size: int | None = None) -> Tree:
        """Unlike in `Pipeline`, the conditions by the text encoders: a dictionary of arrays ``[num_texts, ...]``."""
        self._follow()
        return self.texts.encode_all(checked_texts(texts))

    @staticmethod
    def encode_conditions(networks: Mapping[str, Network], ids: Tree) -> Tree:
        """See `Pipeline`. Returns the conditions of `tokenize` as they are."""
        return ids

    def text_function(self, dtype: Any = None) -> tuple[PureTextEncoding, Any]:
        """Raises InputError: diffusers' own code encodes texts, and no pure function does (`host_texts`)."""
        raise InputError(
            f"texts of a {self.diffusers_class} are encoded by diffusers' own code: call encode_texts",
            code="unsupported-option",
        )

    def host_texts(self, dtype: Any) -> tuple[Callable[..., Any], Tree, Any, int]:
        """See `Pipeline`."""
        self._follow()
        texts = self.texts
        encode = functools.partial(texts.encode_all, dtype=jnp.dtype(dtype))

        @contextlib.contextmanager
        def encoding(mesh: Mesh, make_room: Callable[[], None]) -> Iterator[Callable[[Sequence[str]], Tree]]:
            texts.check_unchanged()
            with texts.placed(mesh, make_room):
                yield encode

        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), texts.example(dtype))
        identity = {"class": self.diffusers_class, "dtype": jnp.dtype(dtype).name, "texts": self._texts_identity}
        return encoding, shapes, identity, texts.batch_size

    def encode_texts(self, texts: Sequence[str], *, image_size: int | None = None, batch_size: int = 16) -> Tree:
        """See `Pipeline`. ``image_size`` and ``batch_size`` have no effect."""
        return jax.tree.map(jnp.asarray, self.tokenize(texts))

    @property
    def _texts_identity(self) -> dict[str, Any]:
        return {**self.texts.identity, "versions": comparison.versions()}

    # Images ---------------------------------------------------------------------------------------------------------

    def denoiser_function(self) -> tuple[Denoising, list[jax.Array]]:
        """See `Pipeline`."""
        self._follow_unless_snapshot()
        return super().denoiser_function()

    def image_function(self) -> tuple[ImageEncoding, list[jax.Array]]:
        """See `Pipeline`."""
        self._follow_unless_snapshot()
        return super().image_function()

    @staticmethod
    def encode_latents(autoencoder: Any, images: jax.Array, noise: jax.Array | None = None) -> jax.Array:
        """See `Pipeline`."""
        return autoencoder.encode_latents(images, noise)

    @property
    def image_size(self) -> int:
        """See `Pipeline`."""
        size = self.network.config.image_size
        if size is None:
            raise InputError(
                f"the configs of this {self.diffusers_class} name no size of images: name one (image_size)",
                code="missing-value",
            )
        return size

    def latent_shape(self, image_size: int) -> tuple[int, int, int]:
        """See `Pipeline`."""
        function, params = self.image_function()
        image = jax.ShapeDtypeStruct((1, image_size, image_size, 3), np.uint8)
        _, height, width, channels = pure_functions.shapes(function, params, image).shape
        return height, width, channels

    @staticmethod
    def check_sampler(name: str | None, schedule: Schedule) -> None:
        """See `Pipeline`."""
        if name is not None:
            raise InputError(
                f"sampler is {options.quote(name)}, but this pipeline generates by diffusers' own scheduler: leave it"
                " out",
                code="unsupported-option",
            )

    def check_negative_prompt(self, negative_prompt: str | None, guidance_scale: float) -> None:
        """See `ImageGeneration`. Encoders of diffusers' code get negative texts in too many ways."""
        if negative_prompt is not None:
            raise InputError(
                f"negative_prompt is not available for {self.diffusers_class}, which runs by torch: leave it out",
                code="unsupported-option",
            )

    def generation_identity(self, guidance_scale: float, sampler: str | None, image_size: int) -> dict[str, Any]:
        """See `Pipeline`. Has the scheduler and its options instead of a sampler."""
        from winobench.contrib.torch_pipelines import generation

        self._follow()
        generation.check(self)
        self.check_sampler(sampler, self.schedule)
        scheduler = self.diffusers.scheduler
        config = {
            name: str(value) if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in scheduler.config.items()
            if not name.startswith("_")
        }
        return {"sampler": type(scheduler).__name__, "scheduler": TorchConfig(config).to_dict()}

    def _run(
        self, run: Run, texts: Sequence[str], noise: jax.Array, keys: jax.Array
    ) -> tuple[np.ndarray, Decoded | None]:
        from winobench.contrib.torch_pipelines import generation

        return generation.draw(self, run, texts, noise, keys)

    def decode_latents(self, latents: Any, *, batch_size: int = 8) -> np.ndarray:
        """See `Pipeline`."""
        from winobench.contrib.torch_pipelines import generation

        self._follow()
        latents = np.asarray(latents)
        channels = self.latent_shape(self.vae.config.downsampling * self.latents_a_side(self.network.config))[2]
        if not jnp.issubdtype(latents.dtype, jnp.floating) or latents.ndim != 4 or latents.shape[-1] != channels:
            raise InputError(
                f"latents are {latents.dtype} {list(latents.shape)}, but must be floats [n, height, width, {channels}]",
                code="wrong-shape",
            )
        batch_size = options.BATCH_SIZE.check("batch_size", batch_size)
        mesh = parallel.make_mesh(jax.local_devices()[:1])
        decoded = generation.decode(self, latents.astype(np.float32), batch_size, mesh)
        names = [f"latents[{row}]" for row in range(len(latents))]
        check_finite(decoded.finite, "the image of", names, [self.vae])
        return decoded.images

    # Identity -------------------------------------------------------------------------------------------------------

    def own_identity(self) -> dict[str, Any]:
        """See `Pipeline`. Includes the versions of the packages whose code determines a prediction."""
        return {
            "family": self.diffusers_class,
            "pipeline": self._options,
            "texts": self._texts_identity,
            "settings": {name: getattr(self, name) for name in self.SETTINGS},
        }

    @property
    def _options(self) -> dict[str, str]:
        """The options in ``model_index.json``, without the parts."""
        pipe = self.diffusers
        named = inspect.signature(type(pipe).__init__).parameters.keys() - pipe.components.keys()
        return {name: str(value) for name, value in sorted(pipe.config.items()) if name in named}


def _call(name: str, family: Family, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of ``__call__`` that settings determine."""
    keywords = {"guidance_embedding": family.embedded, "text_tokens": family.tokens}
    chosen = {}
    for setting, value in settings.items():
        if value is None:
            continue
        if keywords[setting] is None:
            raise InputError(f"{name} has no setting {setting!r}: leave it out", code="unknown-name")
        chosen[keywords[setting]] = value
    return chosen
