"""Plans of scores by models that predict the tokens of an image: by their likelihoods, or their answers."""

from __future__ import annotations

import functools
import math
from typing import Any

from jax.sharding import Mesh

from winobench.base import extensions
from winobench.contrib.planning import few_blocks, pair_scoring, vision_language
from winobench.contrib.planning.pair_scoring import Network, Scorer
from winobench.contrib.planning.plan import Job, Plan
from winobench.scorers import pairs

_PLANS = "token_plans"  # the part with the models


def read(job: Job, source: str, revision: str | None) -> tuple[Any, list[tuple[tuple[int, ...], Any]]]:
    """A model of shapes. Numbers of blocks and models that have them, where few are planned."""
    by_name = extensions.find(extensions.PARTS, _PLANS).read_generator
    of = functools.partial(by_name, source, job.config.dtype, image_size=job.config.image_size, revision=revision)
    whole = of()
    counts = few_blocks.shallow_counts(whole.blocks) if job.few else ()
    return whole, [(few, of(blocks=few[0])) for few in counts]


def make_plan(job: Job) -> Plan:
    """Plans the scores of the config's tasks."""
    config, assumed = job.config, job.assumed
    whole, shallow = read(job, config.model, config.revision)
    by_answers, tokens = (
        config.scored_by == "answers",
        math.ceil(assumed.text_tokens / pairs.TEXT_STEP) * pairs.TEXT_STEP,
    )
    if by_answers:
        question = vision_language.Question.of(whole.form(), assumed.characters_a_token, assumed.text_tokens)
        title, about = "VQAScore", question.about(assumed)
    else:
        title, length = "likelihood of image tokens", whole.network.family.length
        about = f"a pair has {length:,} tokens of its image behind a text of {tokens} (an assumption) in a prompt"

    def network(model: Any, mesh: Mesh) -> Network:
        if by_answers:
            return vision_language.network_of(*model.answering(mesh), question, mesh)
        return Network(mesh, *model.scoring(mesh, config.guidance, config.preprocessing, tokens))

    def make(mesh: Mesh) -> Scorer:
        few = [(counts, network(model, mesh)) for counts, model in shallow]
        batch = job.batch_size or (pairs.PAIRS.on(mesh) if by_answers else whole.batch_size(mesh))
        return pair_scoring.make_scorer(network(whole, mesh), batch, whole.blocks, few)

    return pair_scoring.make_plan(job, title, job.ways_to_share(whole.heads), make, about)
