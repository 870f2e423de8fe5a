"""Asks language models what an object looks like in the state that a sentence puts it in (docs/winoviz.md).

python -m launch.eval --config=winoviz                                       # FLAN-T5-base, our small set, zero-shot
python -m launch.eval --config=winoviz:debug                                 # two items a task, every protocol
python -m launch.eval --config=winoviz --config.model=qwen3-8b --config.protocol=few_shot --config.dtype=bfloat16
python -m launch.eval --config=winoviz --config.model=openai:gpt-4o-mini --config.protocol=zero_shot_swapped
python -m launch.eval --config=winoviz --config.model=FOLDER                 # BERT after launch.train --config=nli
python -m launch.eval --config=winoviz --config.model=clip-vit-l14           # CLIP's text side, by cosine
python -m launch.eval --config=winoviz:table1 --config.model=flan-t5-xxl --config.dtype=bfloat16  # the paper's items
python -m launch.eval --config=winoviz:table2 --config.model=flan-t5-xxl --config.dtype=bfloat16
python -m launch.eval --config=winoviz:table3 --config.model=FOLDER
python -m launch.eval --config=winoviz:table4 --config.model=flan-t5-xxl --config.dtype=bfloat16
"""

from __future__ import annotations

import ml_collections
from ml_collections import config_dict

from configs import _responder
from winobench import options

LAUNCHER = "eval"

_PAPER = "winoviz_single,winoviz_multi"

FORMS = {
    "standard": ("winoviz_*", None, None),
    "debug": ("winoviz_*", "all", 2),
    # What the prompts and the order of the options do to a model.
    "protocols": ("winoviz_*", "all", None),
    # The paper's: they need its items, which are not public (docs/winoviz.md).
    "table1": (_PAPER, "zero_shot", None),
    "table2": (_PAPER, "zero_shot,few_shot,chain_of_thought", None),
    "table3": (_PAPER, "entailment", None),
    "table4": ("winoviz_decoupled", "zero_shot", None),
}
"""Form -> (tasks, protocol, limit)."""

HELP = {
    "model": "a name of --list_models, a folder, a hub id, openai:MODEL, anthropic:MODEL, recorded:FILE; or several",
    "protocol": "names with commas (--list_tasks), all the model can answer, or none for the task's first such one",
    "tasks": "names with commas (--list_tasks); winoviz_* is every one whose data are there",
    "data_dir": "the folder with winoviz/items.jsonl; none for $WINOBENCH_DATA or ~/winobench_data",
    "limit": "items a task, of which each has two questions, or six if decoupled; none for all",
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
        raise ValueError(f"winoviz comes as {', '.join(FORMS)}, not {form!r}.")
    tasks, protocol, limit = FORMS[form]
    config = ml_collections.ConfigDict()

    config.model = "flan-t5-base"
    config.protocol = config_dict.FieldReference(protocol, field_type=str)
    config.tasks = tasks
    config.data_dir = config_dict.placeholder(str)
    config.limit = config_dict.FieldReference(limit, field_type=int)

    _responder.add_fields(config)
    return config
