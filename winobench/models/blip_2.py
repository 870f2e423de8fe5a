"""BLIP-2 (Li et al., 2023) and InstructBLIP (Dai et al., 2023) in transformers' layout, with FLAN-T5, OPT or Vicuna.

A vision transformer encodes the image. The Q-Former, in the manner of BERT, makes a few states of it, of learned
queries. These attend to each other and, in every second layer, to the image. In InstructBLIP they attend to the tokens
of the question as well. A language model reads these states, once through a dense layer, before the question's tokens.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models import blip, decoder_cache
from winobench.models.base import KeyTable, check_pixels, embedding, layer_norm, linear, parameter
from winobench.models.bert import BertIntermediate, BertProjection, BertSelfAttention, KeysValues
from winobench.models.blip_2_config import Blip2Config, Blip2QFormerConfig, InstructBlipConfig
from winobench.models.decoder import Decoder
from winobench.models.decoder_cache import Cache
from winobench.models.decoder_config import DecoderConfig
from winobench.models.opt import OPTForCausalLM
from winobench.models.opt_config import OPTConfig
from winobench.models.t5 import T5Config, T5ForConditionalGeneration
from winobench.models.vision_language import PromptForm, VisionLanguageNetwork

# Keys and values of an image for each layer that attends to it.
ImageKeysValues = tuple[KeysValues, ...]


class QFormerAttention(nnx.Module):
    """Attention of queries and text to each other, or to an image, with its output projection. Published names."""

    def __init__(self, config: Blip2QFormerConfig, context_size: int, **kwargs: Any):
        self.attention = BertSelfAttention(config, context_size, **kwargs)
        self.output = BertProjection(config.hidden_size, config, **kwargs)

    def __call__(self, x: jax.Array, keys_values: KeysValues | None = None, lengths: jax.Array | None = None):
        """x [B, L, hidden_size], keys and values (of x itself when None), their number [B] -> [B, L, hidden_size]."""
        keys_values = self.attention.keys_values(x) if keys_values is None else keys_values
        return self.output(self.attention(x, keys_values, lengths), x)


class QFormerLayer(nnx.Module):
    """Attention of all to all, of the queries to the image, and a feed-forward layer each for queries and text."""

    def __init__(self, config: Blip2QFormerConfig, number: int, *, reads_text: bool, **kwargs: Any):
        self.attention = QFormerAttention(config, config.hidden_size, **kwargs)
        self.has_cross_attention = config.attends_to_images(number)
        if self.has_cross_attention:
            self.crossattention = QFormerAttention(config, config.encoder_hidden_size, **kwargs)
        if reads_text:
            self.intermediate = BertIntermediate(config, **kwargs)
            self.output = BertProjection(config.intermediate_size, config, **kwargs)
        self.intermediate_query = BertIntermediate(config, **kwargs)
        self.output_query = BertProjection(config.intermediate_size, config, **kwargs)

    def __call__(
        self, x: jax.Array, num_queries: int, lengths: jax.Array | None, image: KeysValues | None
    ) -> jax.Array:
        """x [B, queries + L, hidden_size], states that are not padding [B], the image's -> the shape of x."""
        x = self.attention(x, lengths=lengths)
        queries, text = x[:, :num_queries], x[:, num_queries:]
        if image is not None:
            queries = self.crossattention(queries, image)
        queries = self.output_query(self.intermediate_query(queries), queries)
        if not text.shape[1]:
            return queries
        return jnp.concatenate([queries, self.output(self.intermediate(text), text)], axis=1)


class QFormerEncoder(nnx.Module):
    """The stack of layers."""

    def __init__(self, config: Blip2QFormerConfig, *, reads_text: bool, **kwargs: Any):
        kwargs = {"reads_text": reads_text, **kwargs}
        self.layer = nnx.List([QFormerLayer(config, number, **kwargs) for number in range(config.num_hidden_layers)])

    def __call__(self, x: jax.Array, num_queries: int, lengths: jax.Array | None, image: ImageKeysValues) -> jax.Array:
        """See `QFormerLayer`, with the keys and values of each layer that has cross-attention."""
        of_image = iter(image)
        for layer in self.layer:
            x = layer(x, num_queries, lengths, next(of_image) if layer.has_cross_attention else None)
        return x


class QFormerEmbeddings(nnx.Module):
    """Token and position embeddings of the question, behind the queries, and the norm of both."""

    def __init__(self, config: Blip2QFormerConfig, **kwargs: Any):
        self.word_embeddings = embedding(config.vocab_size, config.hidden_size, **kwargs)
        self.position_embeddings = embedding(config.max_position_embeddings, config.hidden_size, **kwargs)
        self.layernorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, queries: jax.Array, input_ids: jax.Array) -> jax.Array:
        """queries [B, queries, hidden_size], input_ids [B, L] -> [B, queries + L, hidden_size]."""
        text = self.word_embeddings(input_ids) + self.position_embeddings(jnp.arange(input_ids.shape[-1]))
        return self.layernorm(jnp.concatenate([queries, text], axis=1))


class QFormer(nnx.Module):
    """Everything under ``qformer.`` in the published weights."""

    def __init__(self, config: Blip2QFormerConfig, *, reads_text: bool, **kwargs: Any):
        self.reads_text = reads_text
        if reads_text:
            self.embeddings = QFormerEmbeddings(config, **kwargs)
        else:
            self.layernorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)
        self.encoder = QFormerEncoder(config, reads_text=reads_text, **kwargs)

    def keys_values(self, image_states: jax.Array) -> ImageKeysValues:
        """Keys and values of images [B, positions, width of images]. They do not depend on a question."""
        return tuple(
            layer.crossattention.attention.keys_values(image_states)
            for layer in self.encoder.layer
            if layer.has_cross_attention
        )

    def __call__(
        self, queries: jax.Array, image: ImageKeysValues, input_ids: jax.Array | None, lengths: jax.Array | None
    ) -> jax.Array:
        """queries [1, queries, hidden_size], `keys_values`, a question [B, L], its tokens [B] -> [B, queries, ...]."""
        count = queries.shape[1]
        queries = jnp.broadcast_to(queries, (len(image[0][0]), *queries.shape[1:]))
        if not self.reads_text:
            return self.encoder(self.layernorm(queries), count, None, image)
        return self.encoder(self.embeddings(queries, input_ids), count, count + lengths, image)[:, :count]


FORM = PromptForm(
    # InstructBLIP's question in the published evaluation. BLIP-2 has no published one, and gets the same.
    question='Question: Does this figure show "{}"? Please answer yes or no.',
    answer="yes",
    opposite="no",
    # What InstructBLIP was trained and published with, in tokens of either tokenizer. Longer ones lose their beginning,
    # as there, so that the model is still told what to answer.
    text_tokens=128,
)
"""How both are spoken to."""

OPT_FORM = PromptForm(
    # Our own: no VQAScore is published of an OPT, which was trained to continue with texts and not to follow
    # instructions. Its prompts have the form that was published for questions to BLIP-2 with OPT.
    question='Question: Does this figure show "{}"? Answer:',
    answer="yes",
    opposite="no",
    text_tokens=128,
    own_question="Question: {} Answer:",
    before_answer=" ",
)
"""How BLIP-2 with OPT is spoken to."""


class Blip2ForConditionalGeneration(VisionLanguageNetwork):
    """Image encoder, Q-Former and language model. Attribute names equal the names in the published weights.

    float16 overflows in published checkpoints. Use bfloat16.
    """

    config_class: ClassVar = Blip2Config
    image_processor: ClassVar[str] = "blip"
    form: ClassVar[PromptForm] = FORM
    file_keys: ClassVar = KeyTable(
        # A decoder's layers have one level less of names here, OPT's two.
        renames=(
            (r"language_model\.model\.decoder\.final_layer_norm\.", r"language_model.norm."),
            (r"language_model\.model\.decoder\.(layers\.\d+\.self_attn\.)out_proj\.", r"language_model.\1o_proj."),
            (r"language_model\.model\.(decoder\.)?", r"language_model."),
        ),
        ignored=(
            r"qformer\.embeddings\.position_ids",  # 0, 1, 2, ...: a buffer
            r"language_model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",  # another
            # T5's ``shared.weight`` again, and what early versions made.
            r"language_model\.(encoder|decoder)\.embed_tokens\.weight",
            r"language_model\.decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
        ),
    )

    def build(self, config: Blip2Config, *, int8: bool = False, **kwargs: Any) -> None:
        qformer = config.qformer_config
        self.vision_model = blip.BlipVisionModel(config.vision_config, **kwargs)
        self.query_tokens = parameter(1, config.num_query_tokens, qformer.hidden_size, **kwargs)
        self.qformer = QFormer(qformer, reads_text=self.reads_text, **kwargs)
        self.language_projection = linear(qformer.hidden_size, config.text_width, **kwargs)
        language = {T5Config: T5ForConditionalGeneration, OPTConfig: OPTForCausalLM, DecoderConfig: Decoder}
        self.language_model = language[type(config.text_config)](config.text_config, int8=int8, **kwargs)

    @classmethod
    def form_of(cls, config: Blip2Config) -> PromptForm:
        """See `VisionLanguageNetwork`."""
        return OPT_FORM if isinstance(config.text_config, OPTConfig) else cls.form

    def image_states(self, pixels: jax.Array) -> jax.Array:
        """Normalised pixels [B, image_size, image_size, 3] -> [B, num_positions, hidden_size of images]."""
        check_pixels(self, pixels, self.config.vision_config.image_size)
        return self.vision_model(pixels)

    def image_keys_values(self, image_states: jax.Array) -> ImageKeysValues:
        """Keys and values of images for the Q-Former's layers with cross-attention. No question changes them."""
        return self.qformer.keys_values(image_states)

    def query_states(
        self, image: ImageKeysValues, input_ids: jax.Array | None = None, lengths: jax.Array | None = None
    ) -> jax.Array:
        """The Q-Former's states of images, [B, num_query_tokens, hidden_size]. See `ask`."""
        queries = self.query_tokens[...].astype(self.dtype)
        return self.qformer(queries, image, input_ids, lengths)

    def prefix(
        self, image: ImageKeysValues, input_ids: jax.Array | None = None, lengths: jax.Array | None = None
    ) -> jax.Array:
        """States of images for the language model: [B, num_query_tokens, d_model]. Arguments as in `query_states`."""
        return self.language_projection(self.query_states(image, input_ids, lengths))

    def encode_image(self, pixels: jax.Array, before: tuple[int, ...] = ()) -> Any:
        """See `VisionLanguageNetwork`. Nothing is read before an image."""
        image = self.image_keys_values(self.image_states(pixels))
        return image if self.reads_text else self.prefix(image)

    def ask(self, image: Any, input_ids: jax.Array | None = None, lengths: jax.Array | None = None) -> jax.Array:
        """See `VisionLanguageNetwork`: [B, num_query_tokens, d_model]."""
        return self.prefix(image, input_ids, lengths) if self.reads_text else image

    def encode(self, prefix: jax.Array, input_ids: jax.Array, lengths: jax.Array) -> tuple[jax.Array, jax.Array]:
        """See `VisionLanguageNetwork`: states [B, num_query_tokens + S, d_model] of a T5, and which are not padding."""
        there = _is_text(prefix, input_ids, lengths)
        return self.language_model.encode(input_ids, there, prefix), there

    def continue_from(
        self, prefix: jax.Array, input_ids: jax.Array, lengths: jax.Array, more: int
    ) -> tuple[jax.Array, Cache, jax.Array]:
        """See `VisionLanguageNetwork`."""
        model = self.language_model
        is_token = _is_text(prefix, input_ids, lengths)
        slots = is_token.shape[1] + more
        longest = model.config.longest
        cache = decoder_cache.make_cache(
            model.config, len(is_token), slots if longest is None else min(slots, longest), self.dtype
        )
        positions = jnp.where(is_token, jnp.arange(is_token.shape[1]), -1)
        hidden, cache = model(input_ids, positions, cache, prefix=prefix)
        after = prefix.shape[1] + lengths
        return hidden[jnp.arange(len(is_token)), after - 1], cache, after


def _is_text(prefix: jax.Array, input_ids: jax.Array, lengths: jax.Array) -> jax.Array:
    """Mask of the prefix's states and the tokens behind them that are not padding: bool [B, P + S]."""
    count = prefix.shape[1]
    return jnp.arange(count + input_ids.shape[1]) < count + lengths[:, None]


class InstructBlipForConditionalGeneration(Blip2ForConditionalGeneration):
    """`Blip2ForConditionalGeneration` with a Q-Former that also reads the question."""

    config_class: ClassVar = InstructBlipConfig
    form: ClassVar[PromptForm] = dataclasses.replace(FORM, on_crop=True)
    reads_text: ClassVar[bool] = True
