"""What every config has that asks a model which answers in text: how it is loaded, or called."""

from __future__ import annotations

import ml_collections
from ml_collections import config_dict

HELP = {
    "dtype": "compute dtype: float32 or bfloat16",
    "int8": "keep the weights of dense layers in 8 bits",
    "model_parallel": "devices that share one copy of the model; 1 gives each its own",
    "chat_template": "auto, tokenizer, or plain",
    "revision": "the hub repository's branch, tag or commit",
    "allow_pickle": "load .bin weights through a restricted unpickler",
    "batch_size": "requests at once on each device; none chooses by their length",
    "seed": "random seed for sampled texts, and for the noise of a diffusion model that judges",
    "api.base_url": "URL of the server; none for the one in the model's name, or the provider's own",
    "api.concurrency": "calls under way at a time",
    "api.timeout": "seconds after which a call, to its last byte, is given up and tried again",
    "api.attempts": "how often a call is tried",
    "api.send_temperature": "false for models that refuse the field",
    "api.max_tokens_field": "max_tokens, max_completion_tokens, or auto for the one that the server takes",
    "api.extra_body": 'further fields of every call as JSON, such as \'{"reasoning_effort": "low"}\'',
    "api.logprobs": "options about pictures: by log-probabilities (true) or by votes (false); none goes by the name",
    "api.votes": "options about pictures: answers that vote where there are no log-probabilities; none for 5",
    "api.price": "dollars per million tokens read and written, such as 0.15,0.60; none for the known prices",
}

API_HELP = {name: text for name, text in HELP.items() if name.startswith("api.")}
"""Of hosted models alone."""


def add_fields(config: ml_collections.ConfigDict) -> None:
    """Adds the fields that ``HELP`` explains and `winobench.base.options.RESPONDER` limits, with their usual values."""
    config.dtype = "float32"
    config.int8 = False
    config.model_parallel = 1
    config.chat_template = "auto"
    config.revision = config_dict.placeholder(str)
    config.allow_pickle = False
    config.batch_size = config_dict.placeholder(int)
    config.seed = 0
    add_api(config)


def add_api(config: ml_collections.ConfigDict) -> None:
    """Adds the fields that ``API_HELP`` explains and `winobench.base.options.API` limits, with their usual values."""
    config.api = ml_collections.ConfigDict()
    config.api.base_url = config_dict.placeholder(str)
    config.api.concurrency = 8
    config.api.timeout = 300.0
    config.api.attempts = 8
    config.api.send_temperature = True
    config.api.max_tokens_field = "auto"
    config.api.extra_body = config_dict.placeholder(str)
    config.api.logprobs = config_dict.placeholder(bool)
    config.api.votes = config_dict.placeholder(int)
    config.api.price = config_dict.placeholder(tuple)
