"""BERT (Devlin et al., 2019), as published: the encoder, its pooler, and a head that classifies pairs of sentences.

The layers follow the published code: post-norm with absolute positions. Dropout acts only where a key is given,
so that a network's state is its parameters alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.base.errors import InputError
from winobench.models import clip
from winobench.models.attention import dot_product_attention
from winobench.models.base import Network, check_length, embedding, layer_norm, linear
from winobench.models.config import NetworkConfig

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    **{name: clip.ACTIVATIONS[name] for name in ("gelu", "gelu_pytorch_tanh")},
    "gelu_new": clip.ACTIVATIONS["gelu_pytorch_tanh"],
    "relu": jax.nn.relu,
}

KeysValues = tuple[jax.Array, jax.Array]
"""Keys and values of one layer, each [B, S, heads, head_size]."""

# Options of published configs that change nothing: of generation, of TensorFlow's pooler, and of the image side of
# Oscar, which is not read.
_NO_EFFECT = clip.IDLE_OPTIONS | {
    "bos_token_id",
    "classifier",
    "cls_hidden_scale",
    "code_dim",
    "code_voc",
    "directionality",
    "eos_token_id",
    "gradient_checkpointing",
    "img_feature_dim",
    "img_feature_type",
    "img_layer_norm_eps",
    "loss_type",
    "max_img_seq_length",
    "num_contrast_classes",
    "output_past",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    "use_cache",
    "use_img_layernorm",
}
_ONLY = {
    "add_cross_attention": (False,),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "position_embedding_type": ("absolute",),
    "pruned_heads": ({}, ()),
}


@dataclasses.dataclass(frozen=True)
class BertConfig(NetworkConfig):
    """Shape of the network, with the names and defaults of the published ``config.json``."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None  # None for hidden_dropout_prob
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")  # of the head's outputs, id2label and label2id in the file

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "bert"
    _only: ClassVar = _ONLY
    _no_effect: ClassVar = _NO_EFFECT

    def __post_init__(self):
        self._require_counts()
        self._require_divisor("num_attention_heads", "hidden_size")
        self._require_choice("hidden_act", ACTIVATIONS)
        self._require_epsilon("layer_norm_eps")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            share = getattr(self, name)
            is_share = isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share < 1
            self._require(is_share or (share is None and name == "classifier_dropout"), name, "a number from 0 to 1")
        is_named = all(isinstance(label, str) for label in self.labels)
        self._require(is_named and len(set(self.labels)) == len(self.labels) > 0, "labels", "different names")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`. Labels come from ``id2label``, ``label2id`` or ``num_labels``."""
        if isinstance(values, Mapping):
            values = dict(values)
            labels = _labels(*(values.pop(key, None) for key in ("id2label", "label2id", "num_labels")))
            if labels is not None:
                values["labels"] = labels
        return super().from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """See `NetworkConfig`."""
        values = super().to_dict()
        labels = values.pop("labels")
        return values | {
            "id2label": {str(number): label for number, label in enumerate(labels)},
            "label2id": {label: number for number, label in enumerate(labels)},
        }


def _labels(id2label: Any, label2id: Any, num_labels: Any) -> tuple[str, ...] | None:
    """The labels in order, from any of three options of a file. None if it lacks all three."""
    if not id2label and isinstance(label2id, Mapping):
        id2label = {number: label for label, number in label2id.items()}
    if isinstance(id2label, Mapping) and id2label:
        try:
            numbered = {int(number): str(label) for number, label in id2label.items()}
        except (TypeError, ValueError):
            numbered = {}
        if sorted(numbered) != list(range(len(id2label))):
            raise InputError(
                f"BertConfig: id2label or label2id numbers the labels {', '.join(map(str, id2label))}, but they must be"
                f" 0 to {len(id2label) - 1}.",
                code="bad-labels",
            )
        return tuple(numbered[number] for number in range(len(numbered)))
    if isinstance(num_labels, int) and num_labels > 0:
        return tuple(f"LABEL_{number}" for number in range(num_labels))
    return None


class BertOutput(NamedTuple):
    """Results of the encoder.

    Attributes:
      last_hidden_state: [B, L, hidden_size]. Rows of padding hold anything finite.
      pooled: [B, hidden_size], the first state after a dense layer and tanh; None for a network without a pooler.
    """

    last_hidden_state: jax.Array
    pooled: jax.Array | None


def _dropped(x: jax.Array, share: float, key: jax.Array | None) -> jax.Array:
    """``x`` with a share of it at zero and the rest scaled up. As it is when ``key`` is None."""
    if key is None or not share:
        return x
    kept = jax.random.bernoulli(key, 1.0 - share, x.shape)
    return jnp.where(kept, x / (1.0 - share), 0).astype(x.dtype)


class BertEmbeddings(nnx.Module):
    """Token, position and segment embeddings and their norm."""

    def __init__(self, config: BertConfig, **kwargs: Any):
        self.dropout = config.hidden_dropout_prob

        width = config.hidden_size
        self.word_embeddings = embedding(config.vocab_size, width, **kwargs)
        self.position_embeddings = embedding(config.max_position_embeddings, width, **kwargs)
        self.token_type_embeddings = embedding(config.type_vocab_size, width, **kwargs)
        self.LayerNorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, input_ids: jax.Array, token_type_ids: jax.Array, key: jax.Array | None) -> jax.Array:
        """input_ids and token_type_ids [B, L], a key for dropout -> [B, L, hidden_size]."""
        positions = jnp.arange(input_ids.shape[-1])
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return _dropped(self.LayerNorm(x + self.position_embeddings(positions)), self.dropout, key)


class BertSelfAttention(nnx.Module):
    """The three projections and the attention, to states of width ``context_size``."""

    def __init__(self, config: Any, context_size: int, **kwargs: Any):
        self.heads = config.num_attention_heads
        self.dropout = config.attention_probs_dropout_prob
        self.query = linear(config.hidden_size, config.hidden_size, **kwargs)
        self.key, self.value = (linear(context_size, config.hidden_size, **kwargs) for _ in range(2))

    def keys_values(self, context: jax.Array) -> KeysValues:
        """context [B, S, context_size] -> keys and values, each [B, S, heads, head_size]."""
        return self._split(self.key(context)), self._split(self.value(context))

    def __call__(
        self, x: jax.Array, keys_values: KeysValues, lengths: jax.Array | None, key: jax.Array | None = None
    ) -> jax.Array:
        """x [B, L, hidden_size], their number [B] or None, a key for dropout -> [B, L, hidden_size]."""
        query = self._split(self.query(x))
        if key is None or not self.dropout:
            return dot_product_attention(query, *keys_values, lengths=lengths).reshape(x.shape)
        keys, values = keys_values
        scores = jnp.einsum("bthd,bshd->bhts", query, keys, preferred_element_type=jnp.float32)
        is_token = jnp.arange(x.shape[1]) < lengths[:, None, None, None]
        weights = jax.nn.softmax(jnp.where(is_token, scores * query.shape[-1] ** -0.5, -jnp.inf), axis=-1)
        weights = _dropped(weights, self.dropout, key).astype(x.dtype)
        return jnp.einsum("bhts,bshd->bthd", weights, values).reshape(x.shape)

    def _split(self, x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:-1], self.heads, -1)


class BertProjection(nnx.Module):
    """A dense layer with dropout, around which there is a residual with a norm after it."""

    def __init__(self, inputs: int, config: Any, **kwargs: Any):
        self.dropout = config.hidden_dropout_prob
        self.dense = linear(inputs, config.hidden_size, **kwargs)
        self.LayerNorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, x: jax.Array, residual: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """x [B, L, inputs], residual [B, L, hidden_size], a key for dropout -> [B, L, hidden_size]."""
        return self.LayerNorm(_dropped(self.dense(x), self.dropout, key) + residual)


class BertAttention(nnx.Module):
    """Self-attention and its output projection, under the published names."""

    def __init__(self, config: BertConfig, **kwargs: Any):
        self.self = BertSelfAttention(config, config.hidden_size, **kwargs)
        self.output = BertProjection(config.hidden_size, config, **kwargs)


class BertIntermediate(nnx.Module):
    """The first half of the feed-forward layer."""

    def __init__(self, config: Any, **kwargs: Any):
        self.activation = config.hidden_act
        self.dense = linear(config.hidden_size, config.intermediate_size, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, L, hidden_size] -> [B, L, intermediate_size]."""
        return ACTIVATIONS[self.activation](self.dense(x))


class BertLayer(nnx.Module):
    """Attention and feed-forward."""

    def __init__(self, config: BertConfig, **kwargs: Any):
        self.attention = BertAttention(config, **kwargs)
        self.intermediate = BertIntermediate(config, **kwargs)
        self.output = BertProjection(config.intermediate_size, config, **kwargs)

    def __call__(self, x: jax.Array, lengths: jax.Array, key: jax.Array | None) -> jax.Array:
        """x [B, L, hidden_size], tokens of each text [B], a key for dropout -> [B, L, hidden_size]."""
        keys = (None,) * 3 if key is None else jax.random.split(key, 3)
        attention = self.attention
        x = attention.output(attention.self(x, attention.self.keys_values(x), lengths, keys[0]), x, keys[1])
        return self.output(self.intermediate(x), x, keys[2])


class BertEncoder(nnx.Module):
    """The stack of layers."""

    def __init__(self, config: BertConfig, **kwargs: Any):
        self.layer = nnx.List([BertLayer(config, **kwargs) for _ in range(config.num_hidden_layers)])

    def __call__(self, x: jax.Array, lengths: jax.Array, key: jax.Array | None) -> jax.Array:
        """x [B, L, hidden_size], tokens of each text [B], a key for dropout -> [B, L, hidden_size]."""
        for number, layer in enumerate(self.layer):
            x = layer(x, lengths, None if key is None else jax.random.fold_in(key, number))
        return x


class BertPooler(nnx.Module):
    """A dense layer and tanh over the first state."""

    def __init__(self, config: BertConfig, **kwargs: Any):
        self.dense = linear(config.hidden_size, config.hidden_size, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, L, hidden_size] -> [B, hidden_size]."""
        return jnp.tanh(self.dense(x[:, 0]))


class BertModel(Network):
    """The encoder. Attribute names equal the names in the published weights (``encoder.layer.0.attention.self...``).

    Checkpoints of sentence encoders may lack a pooler.
    """

    config_class: ClassVar = BertConfig
    weights_name: ClassVar[str] = "model"

    def build(self, config: BertConfig, *, pooler: bool = True, **kwargs: Any) -> None:
        self.embeddings = BertEmbeddings(config, **kwargs)
        self.encoder = BertEncoder(config, **kwargs)
        self.pooler = BertPooler(config, **kwargs) if pooler else None

    def __call__(
        self,
        input_ids: jax.Array,
        lengths: jax.Array,
        token_type_ids: jax.Array | None = None,
        *,
        key: jax.Array | None = None,
    ) -> BertOutput:
        """Encodes texts [B, L], of ``lengths`` tokens each and no padding attended to. Segments are 0 by default."""
        check_length(self, input_ids, self.config.max_position_embeddings)
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        keys = (None, None) if key is None else jax.random.split(key)
        states = self.encoder(self.embeddings(input_ids, token_type_ids, keys[0]), lengths, keys[1])
        return BertOutput(states, None if self.pooler is None else self.pooler(states))


class BertForSequenceClassification(Network):
    """The encoder, its pooler and a linear head, under the published names (``bert.``, ``classifier.``)."""

    config_class: ClassVar = BertConfig
    weights_name: ClassVar[str] = "model"

    def build(self, config: BertConfig, **kwargs: Any) -> None:
        self.bert = BertModel(config, **kwargs)
        # Logits of different pairs are equal in the 8 bits of bfloat16 too often: the head computes in float32 always.
        self.classifier = linear(config.hidden_size, len(config.labels), **{**kwargs, "dtype": jnp.float32})

    def __call__(
        self,
        input_ids: jax.Array,
        lengths: jax.Array,
        token_type_ids: jax.Array | None = None,
        *,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Classifies texts or pairs of texts. Returns float32 [B, number of labels], the logits."""
        keys = (None, None) if key is None else jax.random.split(key)
        pooled = self.bert(input_ids, lengths, token_type_ids, key=keys[0]).pooled
        share = self.config.classifier_dropout
        share = self.config.hidden_dropout_prob if share is None else share
        return self.classifier(_dropped(pooled, share, keys[1]))
