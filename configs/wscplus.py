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

from winobench import options

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
        raise ValueError(f"wscplus comes as {', '.join(FORMS)}, not {form!r}.")
    tasks, protocol, limit = FORMS[form]
    config = ml_collections.ConfigDict()

    config.model = "qwen3-0.6b"
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
