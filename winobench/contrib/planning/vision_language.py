"""Plans of VQAScore with a vision-language model (`winobench.contrib.planning.pair_scoring`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from winobench import parallel
from winobench.checkpoints import language_models, models, sources
from winobench.checkpoints import vision_language as checkpoints
from winobench.contrib.planning import asking, few_blocks, pair_scoring, released_vision_language, work
from winobench.contrib.planning.pair_scoring import Scorer
from winobench.contrib.planning.plan import Assumptions, Job, Plan
from winobench.contrib.planning.programs import bytes_there, placed
from winobench.data.patches import PatchProcessor
from winobench.data.processors import ImageProcessor
from winobench.models import functional, vision_language
from winobench.models.blip_2_config import (
    Blip2QFormerConfig,
    Blip2VisionConfig,
    InstructBlipQFormerConfig,
    InstructBlipVisionConfig,
)
from winobench.models.config import NetworkConfig
from winobench.models.decoder_config import DecoderConfig
from winobench.models.llava import LlavaVisionConfig
from winobench.models.opt_config import OPTConfig
from winobench.models.t5_config import T5Config
from winobench.models.vision_language import PromptForm, VisionLanguageNetwork
from winobench.scorers import pairs, vqa_score

_BLIPS = (Blip2VisionConfig, Blip2QFormerConfig, InstructBlipVisionConfig, InstructBlipQFormerConfig)
# Config of a part -> the fields with the number of its layers, which are all alike.
_DEPTHS: dict[type[NetworkConfig], tuple[str, ...]] = {
    **dict.fromkeys((*_BLIPS, LlavaVisionConfig, DecoderConfig, OPTConfig), ("num_hidden_layers",)),
    T5Config: ("num_layers", "num_decoder_layers"),
}
# Which tokens answer makes no difference. A word and the end are two.
_ANSWER = (0, 0)


@dataclasses.dataclass(frozen=True)
class Question:
    before: int  # tokens that the language model reads before the image
    behind: int  # tokens after it, or of the whole question where the image comes before all of it, with padding

    @classmethod
    def of(cls, form: PromptForm, characters: float, text_tokens: int) -> Question:
        """VQAScore's question, by characters for each token and the tokens of the longest text."""
        before, named, behind = form.question.rpartition(form.image_token)
        tokens = math.ceil((len(behind) - len("{}")) / characters) + text_tokens
        width = min(math.ceil(tokens / pairs.TEXT_STEP) * pairs.TEXT_STEP, form.text_tokens)
        return cls(math.ceil(len(before) / characters) if named else 0, width)

    def about(self, assumed: Assumptions) -> str:
        length = f"{assumed.characters_a_token:g} characters each around texts of {assumed.text_tokens} tokens"
        return f"questions of {self.behind} tokens, {self.before} more before the image, {length} (assumptions)"


def make_plan(job: Job, total: work.Total | None = None) -> Plan:
    """Plans VQAScore for the config's tasks or this work."""
    config, assumed = job.config, job.assumed
    network = read_config(config.model, revision=config.revision)
    question = Question.of(network_class(network).form_of(network), assumed.characters_a_token, assumed.text_tokens)
    counts = few_blocks.shallow_counts(block_counts(network)) if job.few else ()
    shallow = [(few, with_block_counts(network, few)) for few in counts]

    def make(mesh: Mesh) -> Scorer:
        return make_scorer(network, mesh, question, dtype=config.dtype, batch_size=job.batch_size, shallow=shallow)

    ways = job.ways_to_share(asking.heads_of(network.text_config))
    return pair_scoring.make_plan(job, "VQAScore", ways, make, question.about(assumed), total)


def read_config(source: str, *, revision: str | None = None) -> NetworkConfig:
    """The shape of a vision-language model, by its config alone."""
    known = released_vision_language.vision_language_config(source) if revision is None else None
    if known is not None:
        return known
    found = sources.resolve(source, revision=revision)
    return models.read_config(checkpoints.network_class(found), found)


def network_of(
    structure: functional.Structure, params: list[jax.ShapeDtypeStruct], processor: Any, question: Question, mesh: Mesh
) -> pair_scoring.Network:
    """A `VQAScore` of a structure and its parameters at their places."""
    module, function = structure.module(params), vqa_score.image_function(structure, processor, (0,) * question.before)

    def lower_pairs(*tables: Any) -> jax.stages.Lowered:
        shapes = vqa_score.image_shapes(structure, params, *function.settings)
        return vqa_score.lower_step(structure, (_ANSWER,), mesh, shapes, params, *tables)

    text = (np.zeros(question.behind + 1, np.int32),) * (1 + module.reads_text)
    spec = module.image_spec(mesh.shape.get(parallel.MODEL_AXIS, 1))
    return pair_scoring.Network(mesh, params, function, processor.blank, text, lower_pairs, spec)


def _on_mesh(config: NetworkConfig, mesh: Mesh, dtype: str) -> tuple[functional.Structure, list[jax.ShapeDtypeStruct]]:
    graph, state = nnx.split(language_models.abstract_network(network_class(config), config, dtype))
    params, tree = jax.tree.flatten(placed(state, vision_language.parameter_shardings(state, mesh)))
    return functional.Structure(graph, tree), params


def weight_bytes(config: NetworkConfig, mesh: Mesh, dtype: str) -> int:
    """Bytes of the parameters on a device."""
    return bytes_there(_on_mesh(config, mesh, dtype)[1])


def network_class(config: NetworkConfig) -> type[VisionLanguageNetwork]:
    return next(cls for cls in checkpoints.NETWORKS.values() if cls.config_class is type(config))


def block_counts(config: NetworkConfig) -> tuple[int, ...]:
    """Counts the layers of each part of a network. A Q-Former counts in periods from one cross-attention to the next.

    Empty for a network with a part whose layers are not alike.
    """
    parts = [part for _, part in _parts(config)]
    if any(type(part) not in _DEPTHS for part in parts):
        return ()
    return tuple(getattr(part, _DEPTHS[type(part)][0]) // _period(part) for part in parts)


def with_block_counts(config: NetworkConfig, counts: Sequence[int]) -> NetworkConfig:
    """The same network with other numbers of layers, as `block_counts` counts them."""
    changed = {}
    for (name, part), count in zip(_parts(config), counts, strict=True):
        depths = dict.fromkeys(_DEPTHS[type(part)], count * _period(part))
        changed[name] = dataclasses.replace(part, **depths)
    return dataclasses.replace(config, **changed)


def _parts(config: NetworkConfig) -> list[tuple[str, NetworkConfig]]:
    found = ((field.name, getattr(config, field.name)) for field in dataclasses.fields(config))
    return [(name, part) for name, part in found if isinstance(part, NetworkConfig)]


def _period(part: NetworkConfig) -> int:
    return getattr(part, "cross_attention_frequency", 1)


def make_scorer(
    config: NetworkConfig,
    mesh: Mesh,
    question: Question,
    *,
    dtype: str = "float32",
    batch_size: int | None = None,
    shallow: Sequence[tuple[tuple[int, ...], NetworkConfig]] = (),
) -> Scorer:
    """A `VQAScore` of shapes on devices that need not be available."""

    def of(config: NetworkConfig) -> pair_scoring.Network:
        return network_of(*_on_mesh(config, mesh, dtype), _processor(config.vision_config), question, mesh)

    few = [(counts, of(smaller)) for counts, smaller in shallow]
    return pair_scoring.make_scorer(of(config), batch_size or pairs.PAIRS.on(mesh), block_counts(config), few)


def _processor(tower: NetworkConfig) -> ImageProcessor | PatchProcessor:
    """A vision tower's processor: to the one size that it has positions for, or to patches of any."""
    if size := getattr(tower, "image_size", None):
        return ImageProcessor(resize=(size, size))
    return PatchProcessor(tower.patch_size, tower.temporal_patch_size, tower.spatial_merge_size)
