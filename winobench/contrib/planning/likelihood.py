"""Plans of the likelihood of image tokens (`winobench.contrib.planning.pair_scoring`)."""

from __future__ import annotations

import functools
import math
from typing import Any

from jax.sharding import Mesh

from winobench.base import extensions
from winobench.base.errors import InputError
from winobench.contrib.planning import few_blocks, pair_scoring
from winobench.contrib.planning.pair_scoring import Scorer
from winobench.contrib.planning.plan import Job, Plan
from winobench.scorers import pairs

_PLANS = "token_plans"  # the part with the generators


def make_plan(job: Job) -> Plan:
    """Plans a generator that predicts tokens, for the config's tasks."""
    config = job.config
    if config.scored_by != "likelihood":
        raise InputError(
            f"scored_by is {config.scored_by}, but plans are for the likelihood: leave it out",
            code="unsupported-option",
        )
    read = functools.partial(
        extensions.find(extensions.PARTS, _PLANS).read_generator,
        config.model,
        config.dtype,
        image_size=config.image_size,
        revision=config.revision,
    )
    whole = read()
    counts = few_blocks.shallow_counts(whole.blocks) if job.few else ()
    shallow = [(few, read(blocks=few[0])) for few in counts]
    tokens = math.ceil(job.assumed.text_tokens / pairs.TEXT_STEP) * pairs.TEXT_STEP

    def skeleton(planned: Any, mesh: Mesh) -> pair_scoring.Network:
        return planned.skeleton(mesh, guidance=config.guidance, preprocessing=config.preprocessing, text_tokens=tokens)

    def make(mesh: Mesh) -> Scorer:
        few = [(count, skeleton(planned, mesh)) for count, planned in shallow]
        return pair_scoring.make_scorer(
            skeleton(whole, mesh), job.batch_size or whole.batch_size(mesh), whole.blocks, few
        )

    family = whole.network.family
    about = f"a pair has {family.length:,} tokens of its image behind a text of {tokens} (an assumption) in a prompt"
    return pair_scoring.make_plan(job, "likelihood of image tokens", job.ways_to_share(whole.heads), make, about)
