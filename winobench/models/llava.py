"""LLaVA 1.5 (Liu et al., 2023, arXiv:2310.03744) in the layout of transformers.

CLIP's vision transformer encodes the image. Two dense layers make its patches what a LLaMA (Vicuna) reads in the place
of ``<image>`` in a text. That place is behind the text's beginning, which is the same for all questions. So the decoder
reads beginning and image once, and what questions share of an image are its keys and values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec

from winobench import parallel
from winobench.base import options
from winobench.base.errors import InputError
from winobench.models import clip, vision_language
from winobench.models.base import KeyTable, check_pixels, linear
from winobench.models.clip_vision import CLIPVisionConfig, CLIPVisionTransformer
from winobench.models.config import NetworkConfig, is_count
from winobench.models.decoder import Decoder
from winobench.models.decoder_cache import Cache
from winobench.models.decoder_config import DecoderConfig
from winobench.models.vision_language import PromptForm, VisionLanguageNetwork

# Keys and values of the layers, as a cache holds them.
KeysValues = tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]

_PATCHES, _ALL_STATES = "default", "full"

# The beginning of the conversations that Vicuna and LLaVA 1.5 were trained on.
_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant."
    " The assistant gives helpful, detailed, and polite answers to the user's questions."
)


@dataclasses.dataclass(frozen=True)
class LlavaVisionConfig(CLIPVisionConfig):
    """Shape of the vision tower, CLIP's ViT-L/14 for 336 pixels by default."""

    hidden_size: int = 1024
    intermediate_size: int = 4096
    projection_dim: int | None = 768
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    image_size: int = 336
    patch_size: int = 14

    _no_effect: ClassVar = CLIPVisionConfig._no_effect | {"vocab_size"}  # of the text tower that it was trained with


@dataclasses.dataclass(frozen=True)
class LlavaConfig(NetworkConfig):
    """Shape of the whole network, with the names and defaults of the published ``config.json``."""

    vision_config: LlavaVisionConfig = LlavaVisionConfig()
    text_config: DecoderConfig = dataclasses.field(default_factory=DecoderConfig)
    image_token_index: int = 32000  # token that holds an image's place
    projector_hidden_act: str = "gelu"
    vision_feature_select_strategy: str = _PATCHES  # "full" also takes the state of the whole image
    vision_feature_layer: int | tuple[int, ...] = -2  # of the tower, from the end if negative. Several are side by side
    multimodal_projector_bias: bool = True

    architecture: ClassVar[str] = "LlavaForConditionalGeneration"
    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "llava"
    _parts: ClassVar = {"vision_config": LlavaVisionConfig}
    # ``image_seq_length`` follows from the rest.
    _no_effect: ClassVar = clip.IDLE_OPTIONS | {
        "bos_token_id",
        "eos_token_id",
        "ignore_index",
        "image_seq_length",
        "pad_token_id",
        "use_cache",
        "vocab_size",
    }

    def __post_init__(self):
        token, vocab_size = self.image_token_index, self.text_config.vocab_size
        self._require(is_count(token) and token < vocab_size, "image_token_index", f"a token id below {vocab_size}")
        self._require_choice("projector_hidden_act", clip.ACTIVATIONS)
        self._require_choice("vision_feature_select_strategy", (_PATCHES, _ALL_STATES))
        depth = self.vision_config.num_hidden_layers
        chosen = self.vision_feature_layer
        chosen = chosen if isinstance(chosen, tuple) else (chosen,)
        self._require(
            bool(chosen) and all(type(layer) is int and -depth - 1 <= layer <= depth for layer in chosen),
            "vision_feature_layer",
            f"whole numbers from {-depth - 1} to {depth}",
        )
        self._require_bool("multimodal_projector_bias")

    @property
    def start(self) -> None:
        """An answer continues from the question, without a first token."""
        return None

    @property
    def vision_layers(self) -> tuple[int, ...]:
        """After how many layers states are taken, counted from the first one."""
        layers = self.vision_feature_layer
        layers = layers if isinstance(layers, tuple) else (layers,)
        return tuple(layer % (self.vision_config.num_hidden_layers + 1) for layer in layers)

    @property
    def image_states(self) -> int:
        """Number of states that the language model reads of an image."""
        patches = (self.vision_config.image_size // self.vision_config.patch_size) ** 2
        return patches + (self.vision_feature_select_strategy == _ALL_STATES)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`."""
        if isinstance(values, Mapping) and values.get("model_type", cls._class_value) == cls._class_value:
            named = values.get("architectures") or [cls.architecture]
            if not isinstance(named, list | tuple) or cls.architecture not in named:
                first = named[0] if isinstance(named, list | tuple) else options.quote(named)
                raise InputError(
                    f"{cls.__name__}: the config describes {first}. Take a checkpoint of {cls.architecture},"
                    " such as llava-hf/llava-1.5-7b-hf.",
                    code="unsupported-checkpoint",
                )
            values = {**values, "text_config": DecoderConfig.from_dict({"model_type": cls._class_value, **values})}
        return super().from_dict(values)


class LlavaProjector(nnx.Module):
    """Maps states of the vision tower to states of the language model. Published names."""

    def __init__(self, config: LlavaConfig, **kwargs: Any):
        kwargs = {"bias": config.multimodal_projector_bias, **kwargs}
        inputs, width = config.vision_config.hidden_size * len(config.vision_layers), config.text_config.hidden_size
        self.activation = config.projector_hidden_act
        self.linear_1 = linear(inputs, width, **kwargs)
        self.linear_2 = linear(width, width, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., width of the tower's states] -> [..., hidden_size of the language model]."""
        return self.linear_2(clip.ACTIVATIONS[self.activation](self.linear_1(x)))


class LlavaForConditionalGeneration(VisionLanguageNetwork):
    """Vision tower, projector and language model. Attribute names equal the names in the published weights."""

    config_class: ClassVar = LlavaConfig
    image_processor: ClassVar[str] = "clip"
    image_axes: ClassVar[int] = 2  # images and heads
    # Question, answer and squares are from LLaVA 1.5's published VQAScore. The template is from its checkpoints
    # for transformers. What asks for a caption is in the manner of the brief descriptions that it was trained on.
    form: ClassVar[PromptForm] = PromptForm(
        question=f'{_SYSTEM} USER: <image>\nDoes this figure show "{{}}"? Please answer yes or no. ASSISTANT:',
        answer="Yes",
        opposite="No",
        text_tokens=512,
        template="USER: <image>\n{} ASSISTANT:",
        caption="Provide a brief description of the given image.",
        names_image=True,
        on_square=True,
    )
    file_keys: ClassVar = KeyTable(
        # Names of transformers 5, and those before 4.52. The head is part of the language model here.
        renames=(
            (r"model\.(vision_tower|multi_modal_projector|language_model)\.", r"\1."),
            (r"vision_tower\.vision_model\.", r"vision_tower."),
            (r"language_model\.model\.", r"language_model."),
            (r"lm_head\.", r"language_model.lm_head."),
        ),
        ignored=(
            r"vision_tower\.embeddings\.position_ids",  # 0, 1, 2, ...: a buffer
            r"language_model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",  # another
        ),
    )

    def build(self, config: LlavaConfig, *, int8: bool = False, **kwargs: Any) -> None:
        self.vision_tower = CLIPVisionTransformer(config.vision_config, **kwargs)
        self.multi_modal_projector = LlavaProjector(config, **kwargs)
        self.language_model = Decoder(config.text_config, int8=int8, **kwargs)

    def image_states(self, pixels: jax.Array) -> jax.Array:
        """Normalised pixels [B, image_size, image_size, 3] -> the chosen states, of several layers side by side."""
        check_pixels(self, pixels, self.config.vision_config.image_size)
        states = jnp.concatenate(self.vision_tower.states_after(self.config.vision_layers, pixels), axis=-1)
        return states[:, 1:] if self.config.vision_feature_select_strategy == _PATCHES else states

    def prefix(self, image_states: jax.Array) -> jax.Array:
        """Image states for the language model: results of `image_states` -> [B, states, hidden_size]."""
        return self.multi_modal_projector(image_states)

    def encode_image(self, pixels: jax.Array, before: tuple[int, ...] = ()) -> KeysValues:
        """See `VisionLanguageNetwork`: keys and values of the tokens before the images and of the images' states."""
        states = self.prefix(self.image_states(pixels))
        cache = vision_language.read_images(self.language_model, [states], [before])
        return cache.keys, cache.values

    def image_spec(self, parts: int) -> PartitionSpec:
        """See `VisionLanguageNetwork`: each device keeps the heads that it reads."""
        divisible = self.config.text_config.num_key_value_heads % parts == 0
        return PartitionSpec(None, parallel.MODEL_AXIS) if parts > 1 and divisible else PartitionSpec()

    def continue_from(
        self, prefix: KeysValues, input_ids: jax.Array, lengths: jax.Array, more: int
    ) -> tuple[jax.Array, Cache, jax.Array]:
        """See `VisionLanguageNetwork`. A question has a token at least."""
        keys, values = prefix
        read = Cache(keys, values, jnp.ones((len(input_ids), keys[0].shape[-1]), bool))
        return vision_language.continue_reading(self.language_model, read, input_ids, lengths, more)
