"""Asks language models whom a pronoun of a WSC+ sentence means (docs/howto/wscplus.md).

winobench eval --config=wscplus --model=qwen3-0.6b                  # Tree-of-Experts, validation set
winobench eval --config=wscplus:debug --model=qwen3-0.6b            # eight questions, every protocol
winobench eval --config=wscplus --model=openai:gpt-4o-mini          # a model behind an API
winobench eval --config=wscplus --model=recorded:GPT4_results.csv   # answers that were recorded
winobench eval --config=wscplus:prompts --model=openai:gpt-4o-mini  # Figure 5: all protocols
winobench eval --config=wscplus:test --model=qwen3-8b --dtype=bfloat16
"""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.options import option
from winobench.runs import model_settings, settings

from . import forms_of

LAUNCHER = "eval"


@dataclasses.dataclass(frozen=True)
class Settings(settings.Asking, model_settings.Responder):
    tasks: str = option("wscplus", options.text(), "wscplus (validation set), wscplus_test, or both with a comma")
    data_dir: str | None = option(
        None, options.PATH.or_none(), "the folder with wscplus/WSC+.csv. None for $WINOBENCH_DATA or ~/winobench_data"
    )
    limit: int | None = option(
        None,
        options.LIMIT,
        "questions of the validation set, or pairs and single questions of the test set. None for all",
    )


SETTINGS = Settings

_MODEL = {"model": "qwen3-0.6b"}
FORMS = {
    # Figures 6 to 9: the paper's best prompt on all 700 questions of the validation set.
    "standard": {**_MODEL, "protocol": "toe"},
    # Figure 5: all prompts on 100 questions of it.
    "prompts": {**_MODEL, "protocol": "all", "limit": 100},
    # Ours, for models that give no texts: probabilities of the answers.
    "options": {**_MODEL, "protocol": "options"},
    "test": {**_MODEL, "tasks": "wscplus_test", "protocol": "toe"},
    "debug": {**_MODEL, "protocol": "all", "limit": 8},
}

get_config = forms_of("wscplus", Settings, FORMS)
