"""The identity of pipelines: a digest over everything that can change an error."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import jax.numpy as jnp

from winobench.checkpoints import fast_tokenizers, models, tokenizer_files
from winobench.models import lora, states
from winobench.models.any_pipeline import AnyPipeline


def fingerprint(pipeline: AnyPipeline) -> str:
    networks = pipeline.networks.values()
    description = {
        "configs": [
            {key: value for key, value in network.config.to_dict().items() if not key.startswith("_")}
            for network in networks
        ],
        "compute_dtypes": [jnp.dtype(network.dtype).name for network in networks],
        "schedule": pipeline.schedule.training,
        "weights": models.weights_sha256(*networks),
        **pipeline.own_identity(),
    }
    # The factors are among the weights. The numbers that their products are multiplied by are not.
    scales = {name: lora.scales(network) for name, network in pipeline.networks.items()}
    if any(scales.values()):
        description["lora_scales"] = scales
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def tokenizer_identity(tokenizer: Any) -> list[Any]:
    """A tokenizer's behaviour, as JSON values that do not depend on the library's version."""
    changes = states.changes_of_tokenizer(tokenizer)
    if not type(tokenizer).__name__.startswith("CLIP"):
        return [*fast_tokenizers.fast_identity(tokenizer), *changes]
    vocabulary, merges = tokenizer_files.vocabulary_and_merges(tokenizer)
    return [vocabulary, merges, tokenizer.pad_token_id, *changes]
