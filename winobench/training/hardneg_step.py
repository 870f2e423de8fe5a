"""The step of HardNeg fine-tuning, apart from data and weights."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx
from jax.sharding import Mesh

from winobench.diffusion.pipeline import Pipeline
from winobench.models import lora
from winobench.runs.training_settings import HardNeg, HardNegOptimizer
from winobench.training import hard_negatives, loop, optimizers

if TYPE_CHECKING:
    import optax


@dataclasses.dataclass(frozen=True)
class Adapted:
    """A pipeline's networks with adapters, in the parts that a step takes."""

    names: tuple[str, ...]  # of the networks that have adapters
    graphdefs: dict[str, Any]  # of the denoiser and the text encoders
    trained: dict[str, Any]  # network -> parameters of its adapters
    frozen: dict[str, Any]  # network -> all else


def optimizer(settings: HardNegOptimizer, num_steps: int) -> optax.GradientTransformation:
    return optimizers.from_settings(settings, num_steps, warmup_steps=settings.warmup_steps)


def adapt(pipeline: Pipeline, config: HardNeg) -> Adapted:
    """Adds adapters in place: to the denoiser, and to the text encoders if the config states so."""
    names = [pipeline.DENOISER]
    if config.lora.text_encoder:
        # T5 stays as it is: it names no layers for adapters.
        names += [name for name, encoder in pipeline.text_encoders.items() if encoder.lora_targets]
    adapted = Adapted(tuple(names), {}, {}, {})
    chosen, rngs = config.lora, nnx.Rngs(config.seed)
    adapters = lora.LoRAConfig(chosen.targets, chosen.rank, chosen.alpha, dropout=chosen.dropout)
    for name in (pipeline.DENOISER, *pipeline.text_encoders):
        network = pipeline.networks[name]
        if name in names:
            lora.add_lora(network, adapters, rngs=rngs)
            adapted.graphdefs[name], trained, rest = lora.split(network)
            adapted.trained[name] = nnx.to_pure_dict(trained)
        else:
            adapted.graphdefs[name], rest = nnx.split(network)
        adapted.frozen[name] = nnx.to_pure_dict(rest)
    return adapted


def make_step(
    pipeline: Pipeline, adapted: Adapted, config: HardNeg, num_steps: int, mesh: Mesh
) -> tuple[loop.StepFn, optax.GradientTransformation]:
    loss = hard_negatives.make_loss(
        type(pipeline), adapted.graphdefs, pipeline.schedule, config.loss, remat=config.remat
    )
    chosen = optimizer(config.optimizer, num_steps)
    step = loop.make_step(
        loss, chosen, seed=config.seed, ema_decay=config.ema_decay, accumulate=config.accumulate, mesh=mesh
    )
    return step, chosen


def first_state(adapted: Adapted, chosen: optax.GradientTransformation, config: HardNeg) -> loop.TrainState:
    return loop.create_state(adapted.trained, chosen, average=config.ema_decay is not None)


def batch_shapes(pipeline: Pipeline, batch_size: int, image_size: int) -> dict[str, Any]:
    """Shapes and dtypes of what `winobench.data.hard_negatives.batches` gives, without data."""
    latents = jax.ShapeDtypeStruct((batch_size, *pipeline.latent_shape(image_size)), "float32")
    ids = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((batch_size, *leaf.shape[1:]), "int32"),
        pipeline.tokenize([""], image_size=image_size),
    )
    return {
        **dict.fromkeys(("latents", "negative_latents"), latents),
        **dict.fromkeys(("input_ids", "negative_ids", "random_ids"), ids),
    }
