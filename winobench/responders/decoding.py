"""Compiled programs of language models: log-likelihoods of options, and generation of texts.

Shapes are static, from a small set. Rows never meet each other: what fills a batch up changes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from winobench import parallel
from winobench.base import random_numbers
from winobench.models import decoder, decoder_cache, functional, t5
from winobench.models.decoder_cache import Cache
from winobench.models.vision_language import VisionLanguageNetwork

NOT_FINITE = -1
"""In place of a token where the logits are not finite."""
# Positions whose logits are in memory at once: 128 MB with a vocabulary of 128,000.
_POSITIONS_AT_ONCE = 256

# Of any type, as they also replace arrays.
_WHOLE: Any = PartitionSpec()
_ROWS: Any = PartitionSpec(parallel.DATA_AXIS)


@dataclasses.dataclass(frozen=True)
class Program:
    """Static values that programs are compiled for.

    Attributes:
      start: id of the token that the decoder of an encoder-decoder model begins with; None for a decoder alone.
      ends: ids of tokens that end a text.
      processor, before: of vision-language models: what normalises the images, and the tokens before these.
      between: the tokens between two images, where each prompt has several.
      image_token: the token in an image's place.
      penalty: by which logits above 0 of tokens are divided, and others multiplied, that a text or its prompt has
        already (Keskar et al., 2019, in the form of transformers). 1 for none.
    """

    structure: functional.Structure
    mesh: Mesh
    dtype: str
    start: int | None = None
    ends: tuple[int, ...] = ()
    processor: Any = None
    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    image_token: int = 0
    penalty: float = 1.0

    def _over_rows(self, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        return parallel.map_over_data(function, self.mesh, in_specs, out_specs)

    def _reader(self, params: list[jax.Array], prompts: Prompts | ImagePrompts) -> Any:
        model = self.structure.module(params)
        if isinstance(prompts, ImagePrompts):
            return (_ImageDecoder if self.start is None else _ImageEncoderDecoder)(model, self, prompts)
        return (
            _Decoder(model, self.dtype, prompts) if self.start is None else _EncoderDecoder(model, self.start, prompts)
        )


class Prompts(NamedTuple):
    """Prompts of a batch.

    Attributes:
      prefix: the keys and values of what all begin with, from `encode_prefix`; None where nothing is shared.
      prefix_length: int32 [], number of its tokens.
      ids: int32 [rows, width], the tokens behind the prefix, at the left.
      lengths: int32 [rows], how many of them there are, at least 1.
    """

    prefix: Any
    prefix_length: jax.Array
    ids: jax.Array
    lengths: jax.Array


class ImagePrompts(NamedTuple):
    """Prompts of a batch, each behind an image or several.

    Attributes:
      images: from the image processor, a pytree of arrays [rows, ...]: uint8 [rows, height, width, 3], or
        `winobench.data.patches.Patches`. Of several to each prompt [rows, images, ...].
      ids: int32 [rows, width], the prompt in tokens of the language model, at the left.
      lengths: int32 [rows], how many of them there are.
      question: (int32 [rows, width], int32 [rows]), the prompt in tokens of a Q-Former that reads it, and their number.
        Empty where it reads none.
    """

    images: Any
    ids: jax.Array
    lengths: jax.Array
    question: tuple[jax.Array, ...]


def _specs(prompts: Prompts | ImagePrompts) -> Any:
    if isinstance(prompts, ImagePrompts):
        return jax.tree.map(lambda _: _ROWS, prompts)
    return Prompts(_WHOLE, _WHOLE, _ROWS, _ROWS)


class Draws(NamedTuple):
    """Randomness of a batch's texts.

    Attributes:
      keys: uint32 [rows, 2]. A row's text depends on its own alone.
      temperatures: float32 [rows]; 0 for the most likely token.
    """

    keys: jax.Array
    temperatures: jax.Array


@parallel.without_mesh
@functools.partial(jax.jit, static_argnames="program")
def encode_prefix(program: Program, params: list[jax.Array], ids: jax.Array, length: jax.Array) -> Any:
    """The keys and values of what many prompts begin with: the first ``length`` tokens of ids, int32 [1, width]."""

    def run(params: list[jax.Array], ids: jax.Array, length: jax.Array) -> Any:
        model = program.structure.module(params)
        with functional.precision(program.dtype):
            cache = decoder_cache.make_cache(model.config, 1, ids.shape[1], program.dtype)
            return model(ids, _positions(jnp.zeros(1, jnp.int32), length[None], ids.shape[1]), cache)[1]

    return program._over_rows(run, (_WHOLE, _WHOLE, _WHOLE), _WHOLE)(params, ids, length)


@parallel.without_mesh
@functools.partial(jax.jit, static_argnames="program")
def score_options(
    program: Program,
    params: list[jax.Array],
    prompts: Prompts | ImagePrompts,
    options: jax.Array,
    option_lengths: jax.Array,
) -> jax.Array:
    """Log-likelihoods of options in nats, float32 [rows, number of options]. A prompt is read once for all of them.

    Args:
      options: int32 [rows, number of options, longest], at the left.
      option_lengths: int32 [rows, number of options], at least 1.
    """

    def run(params, prompts, options, option_lengths):
        _, count, longest = options.shape
        reader = program._reader(params, prompts)
        with functional.precision(program.dtype):
            logits, state, before = reader.read(longest - 1)
            scores = jnp.take_along_axis(jax.nn.log_softmax(logits), options[:, :, 0], axis=1)
            if longest > 1:
                flat, remaining = options.reshape(-1, longest), option_lengths.reshape(-1) - 1
                positions = _positions(jnp.repeat(before, count), remaining, longest - 1)
                state = reader.repeat(state, count)
                hidden, _ = reader.advance(state, flat[:, :-1], positions)
                more = _log_probabilities(reader.logits, hidden, flat[:, 1:])
                # Not a product: results for padding may be anything.
                more = jnp.where(positions >= 0, more, 0.0).sum(axis=1)
                scores += more.reshape(scores.shape)
        return scores

    return program._over_rows(run, (_WHOLE, _specs(prompts), _ROWS, _ROWS), _ROWS)(
        params, prompts, options, option_lengths
    )


@parallel.without_mesh
@functools.partial(jax.jit, static_argnames=("program", "width"))
def generate(
    program: Program,
    params: list[jax.Array],
    prompts: Prompts | ImagePrompts,
    limits: jax.Array,
    draws: Draws | None,
    *,
    width: int,
) -> tuple[jax.Array, jax.Array]:
    """Texts, token after token. A device is done when all of its rows have ended.

    Args:
      limits: int32 [rows], the most tokens of each text, up to ``width``; 0 for a row that only fills the batch.

    Returns:
      int32 [rows, width] tokens, the one that ends a text included, and int32 [rows], their numbers. A text also ends
      with ``NOT_FINITE`` where the largest logit is NaN or infinite.
    """

    def run(params, prompts, limits, draws):
        reader = program._reader(params, prompts)
        ends = jnp.asarray(program.ends, jnp.int32)

        def choose(logits: jax.Array, seen: jax.Array | None, step: jax.Array) -> jax.Array:
            if seen is not None:
                lower = jnp.where(logits < 0, logits * program.penalty, logits / program.penalty)
                logits = jnp.where(seen, lower, logits)
            return _most_likely(logits if draws is None else _perturbed(logits, draws, step))

        def record(step, token, texts, counts, done):
            texts = texts.at[:, step].set(jnp.where(done, 0, token))
            counts += ~done
            ended = (token[:, None] == ends).any(axis=1) | (token == NOT_FINITE)
            return texts, counts, done | (counts >= limits) | ended

        def unfinished(carry):
            return carry[-1]

        def write(carry):
            step, state, token, seen, texts, counts, done, _ = carry
            positions = jnp.where(done, -1, before + step)[:, None]
            hidden, state = reader.advance(state, token[:, None], positions)
            token = choose(reader.logits(hidden)[:, 0], seen, step + 1)
            texts, counts, done = record(step + 1, token, texts, counts, done)
            seen = None if seen is None else _with_tokens(seen, token[:, None])
            return step + 1, state, token, seen, texts, counts, done, going(done)

        def going(done: jax.Array) -> jax.Array:
            any_left = (~done).any()
            # Devices that share parameters talk to each other at every step, so that none may stop before the others.
            return (
                any_left
                if program.mesh.size == parallel.data_parallelism(program.mesh)
                else jax.lax.pmax(any_left.astype(jnp.int32), parallel.DATA_AXIS).astype(bool)
            )

        with functional.precision(program.dtype):
            logits, state, before = reader.read(width - 1)
            rows = len(limits)
            seen = None if program.penalty == 1 else _read_tokens(program, prompts, logits.shape[1])
            token = choose(logits, seen, jnp.int32(0))
            texts, counts, done = record(
                0, token, jnp.zeros((rows, width), jnp.int32), jnp.zeros(rows, jnp.int32), limits < 1
            )
            seen = None if seen is None else _with_tokens(seen, token[:, None])
            carry = (jnp.int32(0), state, token, seen, texts, counts, done, going(done))
            *_, texts, counts, _, _ = jax.lax.while_loop(unfinished, write, carry)
        return texts, counts

    specs = (_WHOLE, _specs(prompts), _ROWS, None if draws is None else Draws(_ROWS, _ROWS))
    return program._over_rows(run, specs, (_ROWS, _ROWS))(params, prompts, limits, draws)


class _Decoder:
    """Reads prompts and continues from them, with a decoder alone. A state is a cache."""

    def __init__(self, model: decoder.Decoder, dtype: str, prompts: Any):
        self._model, self._dtype, self._prompts = model, dtype, prompts
        self.logits = model.logits

    def read(self, more: int) -> tuple[jax.Array, Cache, jax.Array]:
        """The logits of what follows, float32 [rows, vocabulary], the state, and the next position, int32 [rows]."""
        config = self._model.config
        prefix, prefix_length, ids, lengths = self._prompts
        rows, width = ids.shape
        # Tokens beyond the length that the model can read are padding alone.
        slots = width + more if config.longest is None else min(width + more, config.longest)
        cache: Any = decoder_cache.make_cache(config, rows, slots, self._dtype, prefix)
        before = jnp.broadcast_to(prefix_length, (rows,))
        hidden, cache = self._model(ids, _positions(before, lengths, width), cache)
        last = hidden[jnp.arange(rows), lengths - 1]
        return self.logits(last), cache, before + lengths

    def advance(self, state: Cache, tokens: jax.Array, positions: jax.Array) -> tuple[jax.Array, Cache | None]:
        """Reads more tokens, int32 [rows, n] at these positions: what `logits` takes, [rows, n, ...], and the state."""
        return self._model(tokens, positions, state)

    def repeat(self, state: Cache, count: int) -> Cache:
        return state.repeat(count)


class _EncoderDecoder:
    """A `_Decoder` with an encoder for the prompts. A state is the decoder's cache, whose rows go in step."""

    def __init__(self, model: t5.T5ForConditionalGeneration, start: int, prompts: Any):
        self._model, self._start, self._prompts = model, start, prompts

    def read(self, more: int) -> tuple[jax.Array, t5.T5Cache, jax.Array]:
        """See `_Decoder`. The first position of an answer follows the token that all begin with."""
        states, mask = self._encoded()
        cache = self._model.make_cache(states, mask, 1 + more)
        rows = len(states)
        logits, cache = self._model.decode(jnp.full((rows, 1), self._start, jnp.int32), cache=cache)
        return logits[:, 0], cache, jnp.ones(rows, jnp.int32)

    def _encoded(self) -> tuple[jax.Array, jax.Array]:
        """States that the decoder attends to, and their mask without padding."""
        ids, lengths = self._prompts.ids, self._prompts.lengths
        mask = jnp.arange(ids.shape[1]) < lengths[:, None]
        return self._model.encode(ids, mask), mask

    def advance(self, state: t5.T5Cache, tokens: jax.Array, positions: jax.Array) -> tuple[jax.Array, t5.T5Cache]:
        """See `_Decoder`, but the first result is the logits. Positions follow from the state."""
        return self._model.decode(tokens, cache=state)

    def logits(self, logits: jax.Array) -> jax.Array:
        return logits

    def repeat(self, state: t5.T5Cache, count: int) -> t5.T5Cache:
        return jax.tree.map(lambda leaf: jnp.repeat(leaf, count, axis=0) if leaf.ndim else leaf, state)


class _ImageEncoderDecoder(_EncoderDecoder):
    def __init__(self, model: Any, program: Program, prompts: ImagePrompts):
        super().__init__(model.language_model, program.start or 0, prompts)
        self._network, self._program = model, program

    def _encoded(self) -> tuple[jax.Array, jax.Array]:
        return self._network.encode(*_image_and_prompts(self._network, self._program, self._prompts))


class _ImageDecoder(_Decoder):
    def __init__(self, model: Any, program: Program, prompts: ImagePrompts):
        super().__init__(model.language_model, program.dtype, prompts)
        self._network, self._program = model, program

    def read(self, more: int) -> tuple[jax.Array, Cache, jax.Array]:
        read = _image_and_prompts(self._network, self._program, self._prompts)
        last, cache, after = self._network.continue_from(*read, more)
        return self.logits(last), cache, after


def _image_and_prompts(
    model: VisionLanguageNetwork, program: Program, prompts: ImagePrompts
) -> tuple[Any, jax.Array, jax.Array]:
    """Inputs of a language model: the encoded images, prompts and their lengths."""
    pixels = program.processor.normalize(prompts.images)
    if program.between:
        image = model.encode_images(pixels, program.before, program.between)
    else:
        image = model.encode_image(pixels, program.before)
    return model.ask(image, *prompts.question), prompts.ids, prompts.lengths


def _read_tokens(program: Program, prompts: ImagePrompts, vocab_size: int) -> jax.Array:
    """Which tokens each prompt about images has, bool [rows, vocab_size]."""
    is_own = jnp.arange(prompts.ids.shape[1]) < prompts.lengths[:, None]
    shared = jnp.asarray((*program.before, *program.between, program.image_token), jnp.int32)
    seen = jnp.zeros((len(prompts.ids), vocab_size), bool).at[:, shared].set(True)
    return _with_tokens(seen, jnp.where(is_own, prompts.ids, vocab_size))


def _with_tokens(seen: jax.Array, tokens: jax.Array) -> jax.Array:
    """`_read_tokens` with more tokens of each row, int32 [rows, n]."""
    return seen.at[jnp.arange(len(tokens))[:, None], tokens].set(True, mode="drop")


def _positions(before: jax.Array, lengths: jax.Array, width: int) -> jax.Array:
    """int32 [rows, width]: the positions of tokens that follow ``before`` others; -1 if missing."""
    column = jnp.arange(width, dtype=jnp.int32)
    return jnp.where(column < lengths[:, None], before[:, None] + column, -1)


def _most_likely(logits: jax.Array) -> jax.Array:
    """int32 [rows]: the first of the largest logits, float32 [rows, vocabulary]; ``NOT_FINITE`` where they are not.

    As `jnp.argmax`, which takes ten times as long on CPUs: its values and their numbers go through one reduction.
    """
    numbers = jnp.arange(logits.shape[1], dtype=jnp.int32)
    largest = jnp.max(logits, axis=1, keepdims=True)
    best = jnp.min(jnp.where(logits == largest, numbers, logits.shape[1] - 1), axis=1)
    return jnp.where(jnp.isfinite(largest[:, 0]), best, NOT_FINITE)


def _perturbed(logits: jax.Array, draws: Draws, step: jax.Array) -> jax.Array:
    """Logits whose largest one is a sample from the softmax of logits / temperature (Gumbel's trick)."""

    def noise(key: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.wrap_key_data(key, impl=random_numbers.GENERATOR), step)
        return random_numbers.gumbel(key, logits.shape[1:])

    # Scaled noise instead of scaled logits: a temperature of 0 needs no special case.
    return logits + draws.temperatures[:, None] * jax.vmap(noise)(draws.keys)


def _log_probabilities(logits: Callable[[jax.Array], jax.Array], hidden: jax.Array, tokens: jax.Array) -> jax.Array:
    """float32 [rows, width]: each token's log-probability, without all logits in memory at once."""
    count = tokens.size
    part = min(_POSITIONS_AT_ONCE, count)
    parts = -(-count // part)

    def cut(values: jax.Array) -> jax.Array:
        values = values.reshape(count, *values.shape[2:])
        values = jnp.pad(values, [(0, parts * part - count)] + [(0, 0)] * (values.ndim - 1))
        return values.reshape(parts, part, *values.shape[1:])

    def score(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        values = logits(pair[0][None])[0]
        chosen = jnp.take_along_axis(values, pair[1][:, None], axis=1)[:, 0]
        return chosen - jax.nn.logsumexp(values, axis=1)

    return jax.lax.map(score, (cut(hidden), cut(tokens))).reshape(-1)[:count].reshape(tokens.shape)
