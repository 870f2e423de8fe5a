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
    "dtype": "compute dtype: float32 or bfloat16",
    "int8": "keep the weights of dense layers in 8 bits",
    "model_parallel": "devices that share one copy of the model; 1 gives each its own",
    "chat_template": "auto, tokenizer, or plain",
    "revision": "the hub repository's branch, tag or commit",
    "allow_pickle": "load .bin weights through a restricted unpickler",
    "batch_size": "requests at once on each device; none chooses by their length",
    "seed": "random seed for sampled texts",
    "api.base_url": "URL of the server; none for the one in the model's name, or the provider's own",
    "api.concurrency": "calls under way at a time",
    "api.timeout": "seconds after which a call, to its last byte, is given up and tried again",
    "api.attempts": "how often a call is tried",
    "api.send_temperature": "false for models that refuse the field",
    "api.extra_body": 'further fields of every call as JSON, such as \'{"reasoning_effort": "low"}\'',
    "api.price": "dollars per million tokens read and written, such as 0.15,0.60; none for the known prices",
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

    config.dtype = "float32"
    config.int8 = False
    config.model_parallel = 1
    config.chat_template = "auto"
    config.revision = config_dict.placeholder(str)
    config.allow_pickle = False
    config.batch_size = config_dict.placeholder(int)
    config.seed = 0

    config.api = ml_collections.ConfigDict()
    config.api.base_url = config_dict.placeholder(str)
    config.api.concurrency = 8
    config.api.timeout = 300.0
    config.api.attempts = 8
    config.api.send_temperature = True
    config.api.extra_body = config_dict.placeholder(str)
    config.api.price = config_dict.placeholder(tuple)
    return config
