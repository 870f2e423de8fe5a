"""Images by generators that predict tokens: one token after the other, then the decoder.

A token's step is one pass of the language model, whose keys and values of earlier tokens are arrays. An image's random
numbers depend on its seed and its number alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from numpy.typing import ArrayLike

from winobench import parallel
from winobench.base import files, memory, options, random_numbers
from winobench.base.errors import InputError
from winobench.base.texts import checked_texts
from winobench.checkpoints import models, sources
from winobench.contrib.autoregressive import loading
from winobench.contrib.autoregressive.loading import Generator
from winobench.contrib.autoregressive.network import TokenNetwork
from winobench.diffusion import pure_functions
from winobench.diffusion.generation import check_finite, check_has_effect, image_keys, names_of
from winobench.diffusion.pure_functions import Decoded
from winobench.models import functional
from winobench.models.snapshots import HasSnapshots
from winobench.scorers import common, networks, pairs
from winobench.torch_modules import bridge, comparison

# Raised whenever images of the same seed could change by more than rounding.
GENERATION_VERSION = 1

SAMPLER = "tokens"
"""The name in records of images, where diffusion models have a sampler."""

# Prompts are padded to a multiple of this: most runs need one program.
PROMPT_STEP = 64
# Largest difference of a decoded pixel from torch's, of values in [-1, 1]: one step of a byte.
_PIXEL = 2 / 255


class Rows(NamedTuple):
    """What each image is generated from."""

    prompts: Any  # int32 [n, 1 or 2, width + 1], ids and their number. With guidance, the second is without its text
    keys: Any  # uint32 [n, 2], the data of a key


class Sampled(NamedTuple):
    codes: jax.Array  # int32 [n, codes of an image]
    finite: jax.Array  # bool [n], whether all logits are numbers


class _Cache:
    """Keys and values of all layers, each [rows, width, heads, size]: of the prompts, or written at a place a row."""

    def __init__(self, layers: Sequence[tuple[jax.Array, ...]] = (), places: jax.Array | None = None):
        self.layers, self.places = list(layers), places

    def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        new = tuple(bridge.as_jax(array).swapaxes(1, 2) for array in (keys, values))
        if self.places is None:
            self.layers.append(new)
            return keys, values
        rows, both = jnp.arange(len(self.places)), zip(self.layers[layer], new, strict=True)
        self.layers[layer] = tuple(old.at[rows, self.places].set(part[:, 0]) for old, part in both)
        keys, values = (bridge.as_torch(array.swapaxes(1, 2)) for array in self.layers[layer])
        return keys, values


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Parameters and `Rows` -> `Sampled`. Temperature 0 takes the most likely code.

    The image's keys and values directly follow its prompt's, and replace the padding there.
    """

    structure: functional.Structure
    guidance: float
    temperature: float
    top_k: int | None
    sharing: int  # devices that share one copy of the parameters, and divide the heads

    def __call__(self, params: list[jax.Array], rows: Rows) -> Sampled:
        network = self.structure.module(params)
        family, number = network.family, len(rows.keys)
        prompts = jnp.concatenate(list(rows.prompts.swapaxes(0, 1)))
        ids, lengths = prompts[:, :-1], prompts[:, -1]
        is_guided, width = len(ids) > number, ids.shape[1]
        keys = jax.random.wrap_key_data(rows.keys, impl=random_numbers.GENERATOR)
        with functional.precision(network.dtype), network.traced() as m:
            decoder, head = family.language_model(m), network.head(m)
            words, of_prompts = decoder.embed_tokens(bridge.as_torch(ids)), _Cache()
            first = {"inputs_embeds": words, "position_ids": bridge.as_torch(jnp.arange(width)[None])}
            states = bridge.as_jax(decoder(**first, past_key_values=of_prompts).last_hidden_state)

            def step(carry: Any, token: Any) -> Any:
                (layers, state, finite), (place, is_scored) = carry, token
                logits = head(state)
                if is_guided:
                    logits = logits[number:] + self.guidance * (logits[:number] - logits[number:])
                codes = self._chosen(logits, jax.vmap(jax.random.fold_in, (0, None))(keys, place))
                codes_of_rows = bridge.as_torch(jnp.tile(codes, 2) if is_guided else codes)
                inputs = family.embedded_next(m, codes_of_rows, bridge.as_torch(is_scored)).to(words.dtype)
                places = lengths + place
                cache, ends = _Cache(layers, places), bridge.as_torch(places[:, None, None, None] + 1)
                given = {"inputs_embeds": inputs, "attention_mask": ends, "past_key_values": cache}
                result = decoder(**given, position_ids=bridge.as_torch(places[:, None])).last_hidden_state
                finite &= jnp.isfinite(logits).all(axis=-1)
                return (self._divided(cache.layers), bridge.as_jax(result)[:, 0], finite), codes

            scored, last = family.scored_places(), states[jnp.arange(len(ids)), lengths - 1]
            more = ((0, 0), (0, family.length), (0, 0), (0, 0))
            caches = jax.tree.map(lambda array: jnp.pad(array, more), of_prompts.layers)
            start = (self._divided(caches), last, jnp.ones(number, bool))
            tokens = jnp.arange(family.length), jnp.isin(jnp.arange(family.length), scored)
            (_, _, finite), codes = jax.lax.scan(step, start, tokens)
        return Sampled(codes[scored].T, finite)

    def _chosen(self, logits: jax.Array, keys: jax.Array) -> jax.Array:
        """Codes [n] of logits [n, codes]. Random numbers are of the keys [n]."""
        if self.temperature == 0:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)
        logits = logits / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = jax.lax.top_k(logits, self.top_k)[0][:, -1:]
            logits = jnp.where(logits < least, -jnp.inf, logits)
        noise = jax.vmap(lambda key: random_numbers.gumbel(key, logits.shape[1:]))(keys)
        return jnp.argmax(logits + noise, axis=-1).astype(jnp.int32)

    def _divided(self, layers: list[tuple[jax.Array, ...]]) -> list[tuple[jax.Array, ...]]:
        """Keys and values, of which each device keeps its heads where these can be divided."""
        if self.sharing == 1 or layers[0][0].shape[2] % self.sharing:
            return layers
        return jax.lax.with_sharding_constraint(layers, PartitionSpec(None, None, parallel.MODEL_AXIS))


@dataclasses.dataclass(frozen=True)
class Decoding:
    """Parameters and codes [n, codes] -> their images."""

    structure: functional.Structure

    def __call__(self, params: list[jax.Array], codes: jax.Array) -> Decoded:
        network = self.structure.module(params)
        std, mean = (np.asarray(values, np.float32) for values in (network.family.std, network.family.mean))

        def of_one_image(codes: jax.Array) -> Decoded:
            pixels = network.pixels(codes[None])[0]
            image = jnp.round(jnp.clip((pixels * std + mean) * 255, 0, 255)).astype(jnp.uint8)
            return Decoded(image, jnp.isfinite(pixels).all())

        # One after the other: the arrays of the decoder are large, and the tokens take most of the time.
        return jax.lax.map(of_one_image, codes)


class TokenGeneration(loading.FromPretrained, HasSnapshots):
    """Generates images with a model that predicts their tokens, such as Janus-Pro.

    A code is sampled from the softmax of (u + g (c - u)) / temperature, of logits c under the text and u without it, as
    in the published code of Janus (Wu et al., 2410.13848) and Emu3 (Wang et al., 2409.18869). Values that the
    folder's generation_config.json lacks are the published ones.

    Attributes:
      model: the network.
      mesh: the devices.
      guidance_scale: g, where `generate` is given none.
      temperature, top_k: of the distribution.
    """

    def __init__(
        self,
        generator: Generator,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        mesh: Mesh | None = None,
    ):
        """Puts a model on the devices.

        Args:
          generator: from `winobench.contrib.autoregressive.loading.load`.
          temperature: what logits are divided by. The folder's, or 1, when None. 0 takes the most likely code.
          top_k: codes of the largest logits that can be sampled, 0 for all. The folder's or the published number when
            None.
          mesh: the devices, as in `ImageLikelihood`.

        Raises:
          InputError: the model's tokens give no image, or an option is not as described.
        """
        networks.check_made("generator", generator, "network", "processor")
        self.model, self.tokenizing = generator.network, generator.processor
        family = self.model.family
        check_images(type(family), "this model")
        config = self.model.program.module.generation_config
        if _chosen("top_p", options.number(0, 1), None, config, 1.0) < 1:
            message = f"generation_config.json names top_p {config.top_p}, which is not supported here: remove it there"
            raise InputError(message, code="unsupported-checkpoint")
        self.guidance_scale = float(_chosen("guidance_scale", options.GUIDANCE, None, config, family.GUIDANCE))
        self.temperature = float(_chosen("temperature", options.number(0, 100), temperature, config, 1.0))
        self.top_k = _chosen("top_k", options.whole(0, 2**31), top_k, config, family.TOP_K) or None
        self.mesh = common.mesh_for(functional.split(self.model)[1], mesh)
        self._sharing = self.mesh.size // parallel.data_parallelism(self.mesh)
        self.snapshot()

    @classmethod
    def _check_files(cls, source: sources.Source, dtype: str, others: dict[str, Any]) -> None:
        cls.check_source(source)

    @classmethod
    def _made(cls, *how: Any) -> TokenGeneration:
        """The model, whose decoded images have to equal torch's."""
        made = super()._made(*how)
        network = made.model
        identity = files.digest([models.weights_sha256(network), str(network.family), comparison.versions(), "pixels"])
        comparison.check_once(identity, network.family.MODEL, made._pixel_difference)
        return made

    @staticmethod
    def check_source(source: Any, revision: str | None = None, *, negative_prompt: str | None = None) -> None:
        """Raises InputError, by small files, for a model that makes no images, or not with such a prompt."""
        found = sources.resolve(source, revision=revision)
        family = loading.family_of(found)
        check_images(family, str(source))
        _check_negative_prompt(family, negative_prompt)
        if (path := found.find("generation_config.json")) is not None:
            sources.read_json(path)  # transformers passes over a damaged one

    @property
    def fingerprint(self) -> str:
        """Of weights and config, as `ImageLikelihood.fingerprint` has it for the model."""
        return networks.fingerprint(self.snapshot().model)

    def check_image_size(self, image_size: int | None = None) -> int:
        """Height and width of images in pixels. They are chosen when the model is loaded."""
        (side,) = self.model.family.sides
        if image_size not in (None, side):
            message = f"image_size is {image_size}, but this model is loaded for {side}: load it for another"
            raise InputError(message, code="unsupported-option")
        return side

    def check_negative_prompt(self, negative_prompt: str | None, guidance_scale: float | None) -> None:
        """Raises InputError unless this model can lead images away from a text with this guidance."""
        if negative_prompt is not None:
            _check_negative_prompt(self.model.family, negative_prompt)
            guidance = self._guidance(guidance_scale)
            check_has_effect(negative_prompt, self, guidance, guidance > 1)

    def generation_identity(
        self, guidance_scale: float | None, sampler: str | None, image_size: int | None
    ) -> dict[str, Any]:
        """The values, besides the fingerprint and the arguments, that decide generated images. As JSON values."""
        _check_sampler(None, sampler)
        guidance, family = self._guidance(guidance_scale), self.model.family
        negative = {} if family.NEGATIVE is None or guidance <= 1 else {"usual_negative_prompt": family.NEGATIVE}
        return {
            "sampler": SAMPLER,
            "guidance_scale": guidance,
            "temperature": self.temperature,
            "top_k": self.top_k,
            **negative,
            "prompts": files.digest(loading.prompt_identity(self.model, self.tokenizing)),
            "generation_version": GENERATION_VERSION,
            "versions": comparison.versions(),
        }

    def generate(
        self,
        texts: Sequence[str],
        *,
        num_steps: None = None,
        guidance_scale: float | None = None,
        seed: int | Sequence[int] = 0,
        numbers: Sequence[int] | None = None,
        sampler: None = None,
        batch_size: int = 8,
        image_size: int | None = None,
        negative_prompt: str | None = None,
    ) -> np.ndarray:
        """Generates an image for each text.

        Args:
          texts: strings.
          num_steps, sampler: None. There is one step for each token.
          guidance_scale: g. 1 or less for none. The model's own when None.
          seed: of all images, or of each.
          numbers: of the images within their run, ``[n]``; 0, 1, ... when None. All that is random of an image depends
            on its seed and its number alone. A difference in rounding can still change a token, and those behind it.
          batch_size: images that are generated at once, by all devices together.
          image_size: None, or the size that the model is loaded for.
          negative_prompt: the text from which guidance leads away, of Emu3. The published one when None.

        Returns: uint8 ``[n, image_size, image_size, 3]``.

        Raises:
          InputError: an argument is not as described, a text is too long, a batch does not fit into memory, or a
            network gives NaN or infinite numbers.
        """
        _check_sampler(num_steps, sampler)
        self.check_image_size(image_size)
        self.check_negative_prompt(negative_prompt, guidance_scale)
        made = self.snapshot()
        keywords = {"guidance_scale": guidance_scale, "seed": seed, "numbers": numbers, "batch_size": batch_size}
        codes = made.sample_codes(texts, negative_prompt=negative_prompt, **keywords)
        decoded = made.decode(codes, batch_size=batch_size)
        check_finite(decoded.finite, "the image of", names_of(texts, seed), [made.model])
        return decoded.images

    @parallel.without_mesh
    def sample_codes(
        self,
        texts: Sequence[str],
        *,
        guidance_scale: float | None = None,
        seed: int | Sequence[int] = 0,
        numbers: Sequence[int] | None = None,
        batch_size: int = 8,
        negative_prompt: str | None = None,
    ) -> np.ndarray:
        """The codes of the images of `generate`, int32 ``[n, codes]``."""
        made, guidance = self.snapshot(), self._guidance(guidance_scale)
        texts = checked_texts(texts)
        keys = np.asarray(jax.random.key_data(image_keys(seed, numbers, len(texts))[0]))
        negative = made.model.family.NEGATIVE if negative_prompt is None else negative_prompt
        rows = Rows(made._prompt_rows(texts, negative, guidance > 1), keys)
        made._check_memory(rows.prompts, made._at_once(batch_size))
        sampling = Sampling(made._structure, guidance, self.temperature, self.top_k, self._sharing)
        sampled = made._in_batches(sampling, batch_size, rows)
        check_finite(sampled.finite, "the logits of", names_of(texts, seed), [made.model])
        return sampled.codes

    @parallel.without_mesh
    def decode(self, codes: ArrayLike, *, batch_size: int = 8) -> Decoded:
        """Codes ``[n, codes]`` as images, uint8 ``[n, side, side, 3]``, and whether they are of numbers, bool [n].

        Raises:
          InputError: there are no codes, or they are not whole numbers that the sampler may choose.
        """
        made, codes = self.snapshot(), np.asarray(codes)
        family, is_whole = made.model.family, np.issubdtype(codes.dtype, np.integer)
        if codes.ndim != 2 or codes.shape[1] != family.scored or not len(codes):
            message = (
                f"codes have the shape {[*codes.shape]}, but an image has {family.scored}: give [n, {family.scored}]"
            )
            raise InputError(message, code="wrong-shape")
        if not is_whole or codes.min() < 0 or codes.max() >= family.codes:
            message = f"codes must be whole numbers from 0 to {family.codes - 1:,}: sample_codes gives such numbers"
            raise InputError(message, code="bad-value")
        return made._in_batches(Decoding(made._structure), batch_size, codes.astype(np.int32))

    def _place(self, model: TokenNetwork) -> None:
        self._params: Any = None  # frees memory for the new ones
        self._structure, self._params = networks.place(model, self.mesh)

    def _guidance(self, guidance_scale: float | None) -> float:
        chosen = self.guidance_scale if guidance_scale is None else guidance_scale
        return max(float(options.GUIDANCE.check("guidance_scale", chosen)), 1.0)

    def _at_once(self, batch_size: int) -> int:
        devices = parallel.data_parallelism(self.mesh)
        return -(-options.BATCH_SIZE.check("batch_size", batch_size) // devices) * devices

    def _prompt_rows(self, texts: Sequence[str], negative: str | None, is_guided: bool) -> np.ndarray:
        """Token ids and their number: int32 [n, 1 or 2, width + 1]. The second of a row is without its text."""
        prompts, without = loading.prompts(self.model, self.tokenizing, texts)
        if negative is not None:
            without = loading.prompts(self.model, self.tokenizing, [negative])[0] * len(texts)
        longest = self.model.longest_prompt
        rows = pairs.token_rows([*prompts, *(without if is_guided else ())], 0, longest, step=PROMPT_STEP)
        return rows.reshape(-1, len(texts), rows.shape[1]).swapaxes(0, 1)

    def _check_memory(self, prompts: np.ndarray, at_once: int) -> None:
        """Raises InputError where the keys and values of a batch cannot fit."""
        config, device = self.model.program.module.config.get_text_config(), self.mesh.devices.flat[0]
        heads = config.num_key_value_heads * (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        places = at_once * prompts.shape[1] * (prompts.shape[2] - 1 + self.model.family.length)
        caches = 2 * config.num_hidden_layers * heads * places * self.model.dtype.itemsize
        # The devices of a CPU have one memory.
        devices, sharing = (1, 1) if device.platform == "cpu" else (self.mesh.size, self._sharing)
        needed = caches // devices + memory.array_bytes(self._params) // sharing
        memory.check(f"generating {at_once:,} images at once", needed, "lower batch_size", device)

    def _in_batches(self, function: Any, batch_size: int, rows: Any) -> Any:
        """Results of all rows, so many at a time. The last row fills the last batch."""
        total, at_once, split = len(jax.tree.leaves(rows)[0]), self._at_once(batch_size), parallel.split_axis(self.mesh)
        results = []
        for start in range(0, total, at_once):
            numbers = np.minimum(np.arange(start, start + at_once), total - 1)
            batch = jax.tree.map(lambda leaf, numbers=numbers: parallel.put(leaf[numbers], split), rows)
            result = pure_functions.call_on_rows(function, self.mesh, self._params, batch)
            results.append(parallel.wait_if_cpu(self.mesh, result))
        return jax.tree.map(lambda *parts: np.concatenate([np.asarray(part) for part in parts])[:total], *results)

    def _pixel_difference(self) -> dict[str, tuple[float, float]]:
        """As `winobench.torch_modules.comparison.check_once` takes it."""
        network = self.model
        codes = np.random.default_rng(0).integers(0, network.family.codes, (1, network.family.scored), np.int32)
        structure, params = self._structure, self._params
        computed = jax.jit(lambda params, codes: structure.module(params).pixels(codes))(params, codes)
        wanted = np.moveaxis(network.apply_in_torch(network.family.pixels, codes), 1, -1)
        return {"pixels of images": (float(np.abs(np.asarray(computed) - wanted).max()), _PIXEL)}


def _chosen(name: str, allowed: options.Range, given: Any, config: Any, usual: Any) -> Any:
    """A checked option: the given one, the folder's, or the published one."""
    if given is not None:
        return allowed.check(name, given)
    value = getattr(config, name)
    return usual if value is None else allowed.check(f"{name} of generation_config.json", value)


def check_images(family: Any, name: Any) -> None:
    """Raises InputError for a layout of models that make no images."""
    if not family.IMAGES:
        raise InputError(
            f"{name} predicts tokens from which another model, a diffusion decoder, makes the image: it can be scored"
            " here (winobench eval), but generates no images",
            code="wrong-kind-of-model",
        )


def _check_negative_prompt(family: Any, negative_prompt: str | None) -> None:
    if negative_prompt is not None and family.NEGATIVE is None:
        message = f"negative_prompt is not available for {family.MODEL}: leave it out"
        raise InputError(message, code="unsupported-option")


def _check_sampler(num_steps: int | None, sampler: str | None) -> None:
    for name, value in (("num_steps", num_steps), ("sampler", sampler)):
        if value is not None:
            message = f"{name} is {options.quote(value)}, but this model has one step for each token: leave it out"
            raise InputError(message, code="option-of-others")
