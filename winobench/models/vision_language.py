"""The interface of vision-language networks: how an image and a text go in, and how answers come out.

Scores and texts need these methods alone. `encode_image` computes the state of an image that all questions about it
share. `ask` adapts it to one question. `continue_from` (`encode` of an encoder-decoder) reads the question behind it.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from winobench import parallel
from winobench.models import decoder, decoder_cache, opt, t5
from winobench.models.base import Network
from winobench.models.decoder_cache import Cache

IMAGE_TOKEN = "<image>"
"""Text of the tokens that hold an image's place, in most families."""


@dataclasses.dataclass(frozen=True)
class TurnsForm:
    """Form of a family's turns around its prompt."""

    next: str  # between an answer and the next question
    system: str  # before all others, with the system's text for {}. A template may begin with it, too


@dataclasses.dataclass(frozen=True)
class PromptForm:
    """Form of a family's prompts."""

    question: str  # of VQAScore; {} means the text
    answer: str  # whose probability counts
    opposite: str  # for log-odds
    text_tokens: int  # longest question of VQAScore. Longer ones lose their beginning
    template: str = "{}"  # around a prompt for a text
    caption: str = ""  # instead of an empty prompt
    turns: TurnsForm | None = None  # of conversations. None where prompts have no other turns
    names_image: bool = False  # texts have image_token where the image is read. Otherwise it comes before all of them
    on_square: bool = False  # VQAScore is published with images that are filled up to squares, not cropped
    on_crop: bool = False  # VQAScore is published with the middle square of images, not with squashed ones
    own_question: str = "{}"  # around a question with its own answer, where the image comes before all texts
    before_answer: str = ""  # such as a blank that is part of the answer's token
    image_token: str = IMAGE_TOKEN  # in texts, for the tokens that hold an image's place
    tokens: tuple[str, ...] = ()  # others in these texts, which a tokenizer must have
    between: str = ""  # what stands between two images of one text. Empty where models read one image at a time
    scores_end: bool = True  # VQAScore is published with the token that ends an answer as a part of it

    def around(self, question: str) -> str:
        """The template of a question without VQAScore's ending: `own_question`, or the usual one with its beginning."""
        if not self.names_image:
            return self.own_question
        token = self.image_token
        return question.partition(token)[0] + token + self.template.partition(token)[2]


class VisionLanguageNetwork(Network):
    """Base of the vision-language models. ``language_model`` is a T5 or a decoder."""

    weights_name: ClassVar[str] = "model"
    image_processor: ClassVar[str]  # a family of `winobench.data.processors.ImageProcessor.from_config`
    form: ClassVar[PromptForm]
    reads_text: ClassVar[bool] = False  # `ask` takes the question in tokens of a second tokenizer
    # Number of leading axes that a table of images keeps of each array of `encode_image`, including `image_spec`'s.
    # What lies behind them is in one line, as it is read.
    image_axes: ClassVar[int] = 1

    @classmethod
    def form_of(cls, config: Any) -> PromptForm:
        """Prompt form of this config. It depends on `form`, not on the language model."""
        return cls.form

    @abc.abstractmethod
    def encode_image(self, pixels: Any, before: tuple[int, ...] = ()) -> Any:
        """The states of images that all questions about them share, a pytree of arrays [B, ...].

        Pixels come from the image processor: [B, height, width, 3], or the `winobench.data.patches.Patches`
        of B images of any shape.
        """

    def encode_images(self, pixels: Any, before: tuple[int, ...], between: tuple[int, ...]) -> Any:
        """As `encode_image`, of several images to each text, pixels [B, images, ...], with tokens between two of them.

        Only networks whose `form` has ``between`` can do it.
        """
        raise NotImplementedError

    def image_spec(self, parts: int) -> PartitionSpec:
        """Partition of `encode_image`'s results over devices that share the parameters: each keeps all by default."""
        return PartitionSpec()

    def ask(self, image: Any, input_ids: jax.Array | None = None, lengths: jax.Array | None = None) -> Any:
        """Inputs of a language model from images: a pytree of [B, ...]. With ``reads_text`` it depends on the question.

        The question is [B, L] int32, in tokens of the second tokenizer. Those behind ``lengths`` are padding.
        """
        return image

    @abc.abstractmethod
    def continue_from(
        self, prefix: Any, input_ids: jax.Array, lengths: jax.Array, more: int
    ) -> tuple[jax.Array, Cache, jax.Array]:
        """Has a decoder read images and questions [B, S], of ``lengths`` tokens, without the tokens before the image.

        Returns the last state of each row, [B, hidden_size], from which follow the logits of the next token, the cache,
        and that token's position, int32 [B]. A network of which the language model may be an encoder-decoder
        (`config.start` is not None) has ``encode(prefix, input_ids, lengths)`` for these: the encoder's states,
        [B, P + S, d_model], and which of them are not padding, a bool array.
        """

    def answer_log_probabilities(
        self, prefix: Any, input_ids: jax.Array, lengths: jax.Array, answers: tuple[tuple[int, ...], ...]
    ) -> tuple[jax.Array, ...]:
        """Log-probabilities of the tokens of answers to questions about images.

        Returns for each answer, float32 [B, number of its tokens], in nats.
        """
        model, rows = self.language_model, len(input_ids)
        start, longest = self.config.start, max(map(len, answers))
        if start is not None:
            cache = model.make_cache(*self.encode(prefix, input_ids, lengths), longest)
        else:
            last, cache, after = self.continue_from(prefix, input_ids, lengths, longest - 1)
        results = []
        for answer in answers:
            tokens = jnp.broadcast_to(jnp.asarray(answer, jnp.int32), (rows, len(answer)))
            if start is not None:
                before = jnp.concatenate([jnp.full((rows, 1), start, jnp.int32), tokens[:, :-1]], axis=1)
                logits, _ = model.decode(before, cache=cache)
            else:
                states = last[:, None]
                if len(answer) > 1:
                    hidden, _ = model(tokens[:, :-1], after[:, None] + jnp.arange(len(answer) - 1), cache)
                    states = jnp.concatenate([states, hidden], axis=1)
                logits = model.logits(states)
            chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
            results.append(chosen - jax.nn.logsumexp(logits, axis=-1))
        return tuple(results)


def read_images(
    model: decoder.Decoder,
    states: Sequence[jax.Array],
    texts: Sequence[tuple[int, ...]],
    own: jax.Array | None = None,
    **options: Any,
) -> Cache:
    """A decoder's cache of images' states, [B, slots, hidden_size] each, and of the tokens before each of them.

    ``own``, bool [B, all slots], is true for tokens and for states that are an image's; None for all.
    """
    count, _, width = states[0].shape
    parts: list[jax.Array] = []
    for tokens, of_image in zip(texts, states, strict=True):
        text = jnp.broadcast_to(model.embed(jnp.asarray(tokens, jnp.int32)), (count, len(tokens), width))
        parts += [text, of_image.astype(text.dtype)]
    read = jnp.concatenate(parts, axis=1)
    length = read.shape[1]
    positions = jnp.broadcast_to(jnp.arange(length), (count, length))
    if own is not None:
        positions = jnp.where(own, jnp.cumsum(own, axis=1, dtype=jnp.int32) - 1, -1)
    cache = decoder_cache.make_cache(model.config, count, length, model.dtype)
    return model(jnp.zeros((count, 0), jnp.int32), positions, cache, prefix=read, **options)[1]


def continue_reading(
    model: decoder.Decoder, read: Cache, input_ids: jax.Array, lengths: jax.Array, more: int
) -> tuple[jax.Array, Cache, jax.Array]:
    """`VisionLanguageNetwork.continue_from` of a decoder that has read beginnings and images."""
    rows, width = input_ids.shape
    decoder_cache.check_length(model.config, read.length + width)
    longest = model.config.longest
    slots = width + more if longest is None else min(width + more, longest - read.length)
    cache = decoder_cache.make_cache(model.config, rows, slots, model.dtype, read)
    before = jnp.sum(read.written, axis=1, dtype=jnp.int32)
    column = jnp.arange(width)
    positions = jnp.where(column < lengths[:, None], before[:, None] + column, -1)
    hidden, cache = model(input_ids, positions, cache)
    return hidden[jnp.arange(rows), lengths - 1], cache, before + lengths


def parameter_shardings(state: Any, mesh: Mesh | AbstractMesh) -> Any:
    """Sharding of each parameter. See `winobench.models.t5`, ``opt`` or ``decoder`` for the language model's."""
    shardings = parallel.parameter_shardings(state, mesh)
    language = state["language_model"]
    of_language = t5 if "shared" in language else opt if "embed_positions" in language else decoder
    shardings["language_model"] = of_language.parameter_shardings(language, mesh)
    return shardings
