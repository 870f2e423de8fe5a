"""Image-text matching with a diffusion model: how much does a text help to predict the noise added to an image?

Scores are means, or differences of means, of the errors of `winobench.scorers.denoising`.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike

from winobench import parallel
from winobench.base import extensions, files, memory, options
from winobench.base.errors import InputError
from winobench.base.texts import checked_list, checked_texts
from winobench.base.version import __version__
from winobench.data import images as image_files
from winobench.diffusion import families
from winobench.diffusion.pipeline import Pipeline
from winobench.engine import batch_size as batch_sizes
from winobench.engine.staging import StagedParameters
from winobench.metrics import normalization
from winobench.metrics import timestep_weights as weighting
from winobench.models import layers
from winobench.models.snapshots import HasSnapshots
from winobench.scorers import common, denoising, samples
from winobench.scorers.pipeline_tables import ImageTables, TextTables, encodes_images_in, with_autoencoder_in
from winobench.scorers.session import Session

# Raised whenever an error that is computed here could change by more than rounding.
SCORING_VERSION = 1

ENCODERS = ("resident", "staged")
AUTOENCODER_DTYPE = options.choice("float32", "bfloat16")  # float16 overflows in many

# Bytes of the three numbers of a triple, twice, and of its error.
_BYTES_OF_A_TRIPLE = 2 * 3 * 4 + 4


class DiffusionITM(HasSnapshots):
    """Scores how well texts fit images with a text-to-image diffusion model.

    Each call uses the weights that the model has when the call begins.

    Attributes:
      pipeline: the model.
      mesh: the devices.
      image_size: height and width, in pixels, that images are resized to.
      latent_shape: (h, w, c) of an image's latents and of a sample's noise.
      error: ``squared_l2`` or ``l2``.
      target: ``own`` or ``epsilon``.
      timestep_range: (first, end) of the sampled timesteps, or None for all.
      float8: whether products of the denoiser have factors of 8 bits.
      autoencoder_dtype: of the autoencoder's parameters and of its computation.
    """

    MODEL: ClassVar = "pipeline"

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        error: str = "squared_l2",
        target: str = "own",
        image_size: int | None = None,
        timestep_range: tuple[int, int] | str | None = None,
        batch_size: int | str | None = None,
        table_rows: int | None = None,
        mesh: Mesh | None = None,
        encoders: str = "resident",
        float8: bool = False,
        autoencoder_dtype: str | None = None,
    ):
        """Puts a model on the devices.

        Args:
          pipeline: the model, of any family (`winobench.diffusion.families`). It computes in the dtype that it was
            loaded in.
          error: ``squared_l2`` is the squared Euclidean distance (the paper's error), ``l2`` the distance (what the
            published code computes).
          target: ``own`` compares in what the network predicts, noise or velocity; ``epsilon`` always in noise.
          image_size: images are resized to this many pixels, height and width. The model's own size when None.
          timestep_range: (first, end) of the timesteps that may be sampled; ``all`` for all of the schedule's; None for
            those that the model's folder names (``pipeline.timestep_range``), or else all.
          batch_size: triples that each device works on at once. Chosen for the kind of device when None. ``search``
            measures some sizes, which compiles each of them, and remembers the fastest for the next time
            (`winobench.engine.batch_size`). Halved when a device's memory does not hold as many.
          table_rows: how many encoded images, and how many encoded texts, are kept on the device. As many as fit into
            a fixed amount of memory when None. An evaluation may have more of both.
          mesh: the devices, from `winobench.parallel.make_mesh`. All devices when None, or those CPU devices among
            them that there is memory for copies of the parameters for.
          encoders: ``resident`` keeps the text encoders on the devices and encodes texts while it scores; ``staged``
            encodes all texts of a session first, and takes the encoders off the devices before it puts the denoiser
            there. The results are kept on disk (`winobench.engine.text_store`). While a later session encodes texts
            that are not there, the denoiser is off the devices again. Errors are the same. What the pipeline itself
            holds on a device stays: load it with ``on_host``, as `from_pretrained` does.
          float8: round both factors of the products in the denoiser's attention and feed-forward layers to 8 bits
            (float8_e4m3fn). This changes errors by more than rounding in bfloat16 does. It is meant for GPUs that
            multiply such numbers, and for large transformers.
          autoencoder_dtype: ``float32`` or ``bfloat16``, in which images are encoded; as the pipeline does when None.
            Latents are float32 in either case. bfloat16 changes errors by more than rounding.

        Raises:
          InputError: when an option is not one of its choices, or the denoiser has no layers that ``float8`` rounds, or
            the autoencoder is torch's and has another dtype.
        """
        if not isinstance(pipeline, Pipeline):
            raise InputError(
                f"{options.quote(pipeline)} is not a pipeline: pass one of StableDiffusion.from_pretrained, or call"
                " DiffusionITM.from_pretrained with a model's name",
                code="wrong-type",
            )
        common.choice("encoders", encoders, ENCODERS)
        self.error = common.choice("error", error, denoising.ERRORS)
        self.target = common.choice("target", target, denoising.TARGETS)
        if table_rows is not None:
            options.COUNT.check("table_rows", table_rows)
        self.float8 = options.flag().check("float8", float8)
        self.autoencoder_dtype = AUTOENCODER_DTYPE.or_none().check("autoencoder_dtype", autoencoder_dtype)
        self._encoders, self._table_rows = encoders, table_rows
        self.pipeline = pipeline
        self.timestep_range = _timestep_range(pipeline, timestep_range)
        denoiser, params = pipeline.denoiser_function()
        # Each core of a CPU holds the transformed kernels, which are larger.
        on_cpus = jax.eval_shape(functools.partial(layers.arrange_for_cpus, denoiser.structure), params)
        self.mesh = common.mesh_for(on_cpus, mesh)
        self.image_size = pipeline.check_image_size(image_size)
        pipeline.check_memory(self.image_size, 1, self.mesh.devices.flat[0])
        self._images: Any = None
        self._texts: Any = None
        self.snapshot()
        self._choose_batch_size(batch_size)

    def _place(self, pipeline: Pipeline) -> None:
        pipeline.check_image_size(self.image_size)
        sizes = [table and table.encoder.size for table in (self._images, self._texts)]
        self._images = self._texts = None  # frees memory for the new ones
        self._params: Any = None
        self._lora: dict[str, Any] | None = None
        computed = denoising.in_8_bits(pipeline) if self.float8 else pipeline
        self._denoiser, params = computed.denoiser_function()
        self._schedule = pipeline.schedule_at(self.image_size)
        self._dtype = jnp.dtype(pipeline.denoiser.dtype).name
        of_cpus = functools.partial(layers.arrange_for_cpus, self._denoiser.structure)
        self._params = StagedParameters(params, self.mesh, of_cpus)
        is_staged = self._encoders == "staged"
        of_tables = (self.image_size, self.mesh, self._table_rows)
        self._images = ImageTables(with_autoencoder_in(pipeline, self.autoencoder_dtype), *of_tables)
        self._texts = TextTables(pipeline, self._dtype, *of_tables, is_staged=is_staged, make_room=self._params.release)
        if not is_staged:
            self._params.on_devices()
        for table, size in zip((self._images, self._texts), sizes, strict=True):
            table.encoder.size = size or table.encoder.size  # it may have been halved
        self.latent_shape = self._images.latent_shape

    @property
    def lora(self) -> dict[str, Any] | None:
        """The LoRA that `from_pretrained` loaded: ``sha256`` of its values, ``scale``, ``fused``.

        None without one, and once the model has other weights.
        """
        return self.snapshot()._lora

    @parallel.without_mesh
    def _choose_batch_size(self, batch_size: int | str | None) -> None:
        weights = memory.array_bytes((self._params.given, self._images.encoder.params, self._texts.encoder.params))
        resident = weights // self.mesh.shape.get(parallel.MODEL_AXIS, 1)
        resident += self._images.table_bytes + self._texts.table_bytes
        chosen = denoising.usual_batch_size(self.pipeline, self.latent_shape, self.mesh, resident)
        if isinstance(batch_size, str) and batch_size != batch_sizes.SEARCH:
            raise InputError(
                f"batch_size is {batch_size!r}, but it must be a whole number of at least 1, or {batch_sizes.SEARCH}",
                code="out-of-range",
            )
        if batch_size not in (None, batch_sizes.SEARCH):
            chosen = options.BATCH_SIZE.check("batch_size", batch_size)
            self.pipeline.check_denoising(self.latent_shape, chosen, self.mesh.devices.flat[0])
        self._size = batch_sizes.BatchSize(chosen, self.mesh, "triple")
        if batch_size == batch_sizes.SEARCH:
            self._size.per_device = batch_sizes.searched(self._timed_steps(), chosen, self.mesh, self._speed_key())

    @property
    def batch_size(self) -> int:
        """Triples that each device works on at once. Less than at first if its memory did not hold that many."""
        return self._size.per_device

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        dtype: str = "float32",
        *,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
        lora: str | os.PathLike[str] | None = None,
        lora_scale: float = 1.0,
        fuse_lora: bool = True,
        embeddings: Sequence[str | os.PathLike[str]] = (),
        pipeline_options: Mapping[str, Any] | None = None,
        backend: str = families.AUTO,
        **keywords: Any,
    ) -> DiffusionITM:
        """Loads a model and makes it a scorer.

        Args:
          source: a name in `winobench.base.registry.MODELS`, a folder in the diffusers layout, a hub id, or a single
            file (``FILE.safetensors`` or ``BASE+FILE.safetensors``).
          dtype: ``float32`` or ``bfloat16``, of the denoiser's parameters and of its computation. Images and texts are
            encoded, noise is added, and differences are summed in float32 in either case.
          variant: of the weight files, such as ``fp16``.
          revision: branch, tag or commit of a hub id.
          allow_pickle: whether ``.bin`` files may be read, by a restricted unpickler.
          lora: a LoRA file for this model, or a folder or hub id that holds ``pytorch_lora_weights.safetensors`` or
            peft's files (`winobench.checkpoints.read_lora`); None for the model as it is.
          lora_scale: what the adapters' effect is multiplied by.
          fuse_lora: add the adapters to the weights, so that they cost nothing. Kept apart, they are computed next to
            each layer, and bfloat16 weights do not round them.
          embeddings: files of learned words (textual inversion), or folders or hub ids that hold
            ``learned_embeds.safetensors``. Texts use the word in the file, or else the file's name
            (docs/howto/fine_tune.md).
          pipeline_options: options that only the model's family has (``SETTINGS`` of its class).
          backend: ``auto``, ``native`` or ``torch`` (`winobench.load_pipeline`).
          **keywords: of `DiffusionITM`.

        Raises:
          InputError: when the source is not a pipeline, an option is not one of its choices, or the LoRA or a learned
            word is of another model or cannot be read.
        """
        lora_scale = options.SCALE.check("lora_scale", lora_scale)
        if lora is None and lora_scale != 1:
            raise InputError(
                f"lora_scale is {lora_scale!r}, but no LoRA is named: name one (lora), or leave it out", code="no-lora"
            )
        # Before the model: a fault of the small file shows before gigabytes are read.
        where: dict[str, Any] = {"revision": revision, "backend": backend}
        adapters = None if lora is None else families.read_lora(source, lora, **where, allow_pickle=allow_pickle)
        learned: Any = extensions.find(extensions.PARTS, "textual_inversions") if embeddings else None
        words = [learned.read_word(path, allow_pickle=allow_pickle) for path in embeddings]
        how = {
            # Most of what bfloat16 changes in an error would come from the text encoder, and each text is encoded once.
            "encoder_dtype": "float32",
            "variant": variant,
            "allow_pickle": allow_pickle,
            "on_host": keywords.get("encoders") == "staged" or bool(keywords.get("float8")),
            **where,
            **dict(pipeline_options or {}),
        }
        if adapters is None:
            pipeline = families.load_pipeline(source, dtype, **how)
        else:
            of_lora: dict[str, Any] = {"scale": lora_scale, "fuse": fuse_lora}
            pipeline, adapters = families.load_with_lora(source, dtype, adapters, **of_lora, **how)
        for word in words:
            learned.add_word(pipeline, word)
        scorer = cls(pipeline, **keywords)
        if adapters is None:
            return scorer
        scorer._lora = {"sha256": adapters.sha256, "scale": float(lora_scale), "fused": bool(fuse_lora)}
        if adapters.negatives is not None:
            scorer._lora["negatives"] = adapters.negatives
        return scorer

    def score(
        self,
        images: Sequence[Any],
        texts: Sequence[str],
        *,
        num_samples: int | None = None,
        normalize: str = "unconditional",
        seed: int = 0,
        timesteps: str | ArrayLike = "uniform",
        timestep_weights: str | os.PathLike[str] | Mapping[str, Any] = weighting.UNIFORM,
        noise: ArrayLike | str | None = None,
    ) -> np.ndarray:
        """Scores every text for every image.

        Args:
          images: paths, PIL images, or uint8 arrays [height, width, 3].
          texts: strings. The empty string is the unconditional text, and otherwise a text like others.
          num_samples: samples of noise and timestep that each score is a mean over; 32 when None.
          normalize: ``unconditional`` takes each error from that for the empty text (Eq. 5), as published. Scores of
            different images are then comparable. ``none`` does not (the Diffusion Classifier), and ranks texts of one
            image alike. ``gray_image`` also compares each error with a gray image's under the same text
            (appendix F), for ranking texts. A score depends on its own image and text alone.
          seed: of noise and timesteps. An integer from 0 to 2**32 - 1.
          timesteps: ``uniform``, ``low_discrepancy``, ``antithetic``, ``stratified``, ``even`` or ``published``
            (see `winobench.scorers.samples.choose_timesteps`), or an array [num_samples]: integers, or noise levels
            above 0 and up to 1 of a flow model. ``timestep_range`` does not change the last two.
          timestep_weights: how much each timestep counts (`winobench.metrics.timestep_weights`).
          noise: float array [num_samples, h, w, c] (`latent_shape`), instead of noise from the seed. It is used as it
            is, also with ``antithetic`` timesteps. Or ``antithetic``, for any timesteps: sample 2k + 1 has minus the
            noise of sample 2k.

        Returns:
          float64 [num_images, num_texts], higher = better match.

        Raises:
          InputError: for an empty list, an image that cannot be read, or an argument that is not as described.
        """
        if normalize == normalization.AUTO:
            raise InputError(
                f"normalize is {normalize!r}, which only an evaluation knows, by what its tasks rank: give one of"
                f" {', '.join(normalization.NORMALIZATIONS)}",
                code="bad-value",
            )
        terms = normalization.NORMALIZATIONS[common.choice("normalize", normalize, (*normalization.NORMALIZATIONS,))]
        images, texts = checked_list("images", images), checked_texts(texts)
        rule, weights = weighting.parse(timestep_weights), None
        if rule != weighting.UNIFORM:
            weights = weighting.sample_weights(rule, self._samples(num_samples, seed, timesteps, noise)[0])
        with_gray = any(term.of_gray_image for term in terms)
        with_empty = any(term.of_empty_text for term in terms)
        errors = self.errors(
            [*images, image_files.GRAY_IMAGE] if with_gray else images,
            [*texts, ""] if with_empty else texts,
            num_samples=num_samples,
            seed=seed,
            timesteps=timesteps,
            noise=noise,
        ).astype(np.float64)
        # Sample by sample: the errors' common part is large, and goes before anything is added up.
        errors = np.moveaxis(errors, -1, 0)
        num_images, num_texts = len(images), len(texts)
        of_terms = {
            term.name: errors[
                :,
                slice(num_images, None) if term.of_gray_image else slice(num_images),
                slice(num_texts, None) if term.of_empty_text else slice(num_texts),
            ]
            for term in terms
        }
        scores = normalization.scores(terms, of_terms)
        return (scores if weights is None else scores * weights[:, None, None]).mean(axis=0)

    def errors(
        self,
        images: Sequence[Any],
        texts: Sequence[str],
        *,
        num_samples: int | None = None,
        seed: int = 0,
        timesteps: str | ArrayLike = "uniform",
        noise: ArrayLike | str | None = None,
    ) -> np.ndarray:
        """The error of every (image, text, sample) triple. Arguments as in `score`. Images and texts that are given
        more than once are scored once.

        Returns:
          float32 [num_images, num_texts, num_samples], lower = better match, not normalised. The last axis is as long
          as the list of timesteps (``published`` may choose another number than num_samples).

        Raises:
          InputError: for an empty list, an image that cannot be read, or an argument that is not as described.
        """
        images, texts = checked_list("images", images), checked_texts(texts)
        first_image, image_of = common.distinct([common.image_key(image) for image in images])
        first_text, text_of = common.distinct(texts)
        chosen, _ = self._samples(num_samples, seed, timesteps, noise)
        grid = (len(first_image), len(first_text), len(chosen))
        memory.check(
            "errors of {:,} images x {:,} texts x {:,} samples".format(*grid),
            math.prod(grid) * _BYTES_OF_A_TRIPLE,
            "lower num_samples, or give fewer images or texts at once",
        )
        distinct = [images[i] for i in first_image], [texts[i] for i in first_text]
        sampling: dict[str, Any] = {"num_samples": num_samples, "seed": seed, "timesteps": timesteps, "noise": noise}
        errors = common.over_grid(grid, lambda triples: self.iter_errors(*distinct, triples, **sampling))
        finite = np.isfinite(errors)
        if not finite.all():
            image, text, sample = np.unravel_index(np.argmin(finite), grid)
            said = options.quote(texts[first_text[text]])
            raise InputError(
                f"the error of images[{int(first_image[image])}] under the text {said},"
                f" sample {sample}, is not a number: try dtype='float32', or check the weights, the LoRA and the noise",
                code="not-finite",
            )
        return errors[np.ix_(image_of, text_of)]

    def iter_errors(
        self,
        images: Sequence[Any],
        texts: Sequence[str],
        triples: ArrayLike,
        *,
        num_samples: int | None = None,
        seed: int = 0,
        timesteps: str | ArrayLike = "uniform",
        noise: ArrayLike | str | None = None,
        among: ArrayLike | None = None,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The errors of chosen triples, as the devices return them.

        Each image and each text is encoded once, shortly before its first triple, and again only if it comes back
        after more others than a table has rows. Images are read in the background and let go once encoded. Order
        triples by image, then by text, to keep the tables small. Among those whose images and texts fit into the
        tables, the texts of one image and sample are scored together.

        Args:
          images: as in `score`.
          texts: as in `score`.
          triples: int [n, 3], rows (number of the image, number of the text, number of the sample). Every row is
            computed, so leave out repeated ones.
          num_samples: as in `score`. Sample numbers are below it, or below the length of the list of timesteps.
          seed: as in `score`.
          timesteps: as in `score`.
          noise: as in `score`.
          among: int [m, 3], all triples of which these are some, such as an evaluation's, of which these are not
            yet computed. With them, an error has the same bits for any other requests, on devices of one kind
            and with one batch size.

        Returns:
          An iterator over (int [b], rows of ``triples``, their float32 errors [b]), each row once, in an order of its
          own.

        Raises:
          InputError: at once for an empty list, or an argument that is not as described. While iterating for an image
            that cannot be read, or a device whose memory does not hold even one triple.
        """
        session = self.session(images, texts, num_samples=num_samples, seed=seed, timesteps=timesteps, noise=noise)
        return session.iter_errors(triples, among)

    def session(
        self,
        images: Sequence[Any],
        texts: Sequence[str],
        *,
        num_samples: int | None = None,
        seed: int = 0,
        timesteps: str | ArrayLike = "uniform",
        noise: ArrayLike | str | None = None,
    ) -> Session:
        """Starts a session for errors that are requested in parts. It keeps encoded images and texts.

        Arguments and errors are the ones in `iter_errors`.
        """
        snapshot, images, texts = self.snapshot(), checked_list("images", images), checked_texts(texts)
        chosen, noise = snapshot._samples(num_samples, seed, timesteps, noise)
        text_table = snapshot._texts.table(texts)  # first: staged text encoders need the memory
        where = parallel.replicated(self.mesh)
        key_or_table: Any = jax.tree.map(lambda array: parallel.put(array, where), noise)
        return Session(
            snapshot._step,
            snapshot._images.table(images),
            text_table,
            snapshot._schedule.as_whole_numbers(chosen),
            key_or_table,
            size=self._size,
            # Networks of other packages need not know of it.
            shares_texts=getattr(snapshot.pipeline.denoiser, "shares_rows", False),
        )

    def choose_timesteps(
        self, num_samples: int | None = None, seed: int = 0, timesteps: str | ArrayLike = "uniform"
    ) -> np.ndarray:
        """The timestep of each sample [number of samples]: int32, or the noise level, float32, of a flow model.

        Arguments and errors are the ones in `score`.
        """
        return self._samples(num_samples, seed, timesteps, None)[0]

    def fingerprint(self) -> dict[str, Any]:
        """Everything about this scorer that can change an error by more than rounding, ready for JSON.

        Not in it: the arguments of `iter_errors`, and the number of devices and the batch size, which change
        the last bits only.
        """
        snapshot, dtype = self.snapshot(), self.autoencoder_dtype
        return {
            "scorer": "diffusion_itm",
            "scoring_version": SCORING_VERSION,
            "model": snapshot.pipeline.fingerprint,
            "dtype": snapshot._dtype,
            "error": self.error,
            "target": self.target,
            "image_size": self.image_size,
            "timestep_range": None if self.timestep_range is None else list(self.timestep_range),
            # Models without one keep the fingerprint that their records have.
            **({} if snapshot._lora is None else {"lora": snapshot._lora}),
            **({} if snapshot.pipeline.backend is None else {"backend": snapshot.pipeline.backend}),
            **({"float8": True} if self.float8 else {}),
            **({} if encodes_images_in(snapshot.pipeline, dtype) else {"autoencoder_dtype": dtype}),
        }

    @parallel.without_mesh
    def _samples(
        self, num_samples: int | None, seed: int, timesteps: str | ArrayLike, noise: ArrayLike | str | None
    ) -> tuple[np.ndarray, Any]:
        """The timestep of each sample [num_samples], and what `denoising_errors` takes as noise."""
        source = samples.noise_source(seed, timesteps, noise)
        if isinstance(noise, str):
            common.choice("noise", noise, (options.ANTITHETIC,))
            noise = None
        if noise is not None:
            noise = samples.check_noise(noise, self.latent_shape)
            if num_samples is None and isinstance(timesteps, str):
                num_samples = len(noise)
        chosen = samples.choose_of_schedule(
            self._schedule,
            timesteps,
            num_samples,
            seed=seed,
            timestep_range=self.timestep_range,
            left_out=self.pipeline.PUBLISHED_LEFT_OUT,
        )
        if noise is None:
            return chosen, source
        return chosen, samples.padded_noise(noise, len(chosen))

    def _step(self, texts: int) -> Callable[[jax.Array, jax.Array, jax.Array, np.ndarray], jax.Array]:
        """The fused step with this scorer's network (`denoising.make_step`)."""
        how = denoising.Step(self._denoiser, self._schedule, self.mesh, self.error, self.target, self._dtype)
        return denoising.make_step(how, self._params.on_devices, texts)

    def _timed_steps(self) -> Callable[[int, int], None]:
        """The steps of an evaluation, without images and texts, for `batch_sizes.searched`."""
        latents, states = self._images.empty(), self._texts.empty()
        noise = parallel.put(samples.noise_key(0), parallel.replicated(self.mesh))
        step = self._step(1)

        def run(size: int, steps: int) -> None:
            sample = np.arange(size * parallel.data_parallelism(self.mesh))
            middle = self._schedule.timesteps_at(np.full_like(sample, self._schedule.num_train_timesteps // 2))
            timesteps = self._schedule.as_whole_numbers(middle)
            index = np.stack([np.zeros_like(sample), np.zeros_like(sample), sample, timesteps])
            jax.block_until_ready([step(latents, states, noise, index) for _ in range(steps)])

        return run

    def _speed_key(self) -> dict[str, Any]:
        """Everything that the speed of a step depends on, next to the devices and JAX."""
        denoiser = self.pipeline.denoiser
        parameters = [[list(array.shape), array.dtype.name] for array in self._params.given]
        network = [type(denoiser).__name__, repr(getattr(denoiser, "config", None)), parameters]
        return {
            "winobench": __version__,
            "network": files.digest(network),
            "dtype": self._dtype,
            "latent_shape": list(self.latent_shape),
        }


def _timestep_range(pipeline: Pipeline, chosen: tuple[int, int] | str | None) -> tuple[int, int] | None:
    if chosen is None:
        chosen = pipeline.timestep_range
    elif isinstance(chosen, str):
        common.choice("timestep_range", chosen, (options.ALL,))
        chosen = None
    if chosen is None:
        return None
    return samples.check_timestep_range(chosen, pipeline.schedule.num_train_timesteps)
