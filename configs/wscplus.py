"""Asks language models whom a pronoun of a WSC+ sentence means (docs/wscplus.md).

python -m launch.eval --config=wscplus --config.model=qwen3-0.6b                  # Tree-of-Experts, validation set
python -m launch.eval --config=wscplus:debug --config.model=qwen3-0.6b            # eight questions, every protocol
python -m launch.eval --config=wscplus --config.model=openai:gpt-4o-mini          # a model behind an API
python -m launch.eval --config=wscplus --config.model=recorded:GPT4_results.csv   # answers that were recorded
python -m launch.eval --config=wscplus:prompts --config.model=openai:gpt-4o-mini  # Figure 5: all protocols
python -m launch.eval --config=wscplus:test --config.model=qwen3-8b --config.dtype=bfloat16
"""

from __future__ import annotations

import ml_collections
from ml_collections import config_dict

from configs import _responder
from winobench.base import options

LAUNCHER = "eval"

FORMS = {
    # Figures 6 to 9: the paper's best prompt on all 700 questions of the validation set.
    "standard": ("wscplus", "toe", None),
    # Figure 5: all prompts on 100 questions of it.
    "prompts": ("wscplus", "all", 100),
    # Ours, for models that give no texts: probabilities of the answers.
    "options": ("wscplus", "options", None),
    "test": ("wscplus_test", "toe", None),
    "debug": ("wscplus", "all", 8),
}
"""Form -> (tasks, protocol, limit)."""

HELP = {
    "model": "a name of --list_models, a folder, a hub id, openai:MODEL, anthropic:MODEL, recorded:FILE; or several",
    "protocol": "names with commas (--list_tasks), all the model can answer, or none for the task's first such one",
    "tasks": "wscplus (validation set), wscplus_test, or both with a comma",
    "data_dir": "the folder with wscplus/WSC+.csv; none for $WINOBENCH_DATA or ~/winobench_data",
    "limit": "questions of the validation set, or pairs and single questions of the test set; none for all",
    **_responder.HELP,
}

RANGES = {
    **options.RESPONDER,
    "model": options.text(),
    "protocol": options.text(4_096).or_none(),
    "tasks": options.text(),
    "data_dir": options.PATH.or_none(),
    "limit": options.LIMIT,
}
"""Field -> what it may be."""


def get_config(form: str = "standard") -> ml_collections.ConfigDict:
    """The config in one of its ``FORMS``."""
    if form not in FORMS:
        raise ValueError(f"wscplus comes as {', '.join(FORMS)}, not {form!r}.")
    tasks, protocol, limit = FORMS[form]
    config = ml_collections.ConfigDict()
    config.kind = "ask"

    config.model = "qwen3-0.6b"
    config.protocol = config_dict.FieldReference(protocol, field_type=str)
    config.tasks = tasks
    config.data_dir = config_dict.placeholder(str)
    config.limit = config_dict.FieldReference(limit, field_type=int)

    _responder.add_fields(config)
    return config
