"""Has language models write new WSC+ items, checks them, and lets two people judge them.

python -m launch.generate --config=wscplus_generate --config.model=openai:gpt-4o-mini    # ToE, 60 pairs
python -m launch.generate --config=wscplus_generate:efficacy --config.model=...   # Figure 3: 4 templates x 2 queries
python -m launch.generate --config=wscplus_generate:models --config.model=A,B,C   # Figure 2: 300 sentences a model
python -m launch.generate --config=wscplus_generate:debug --config.model=...      # a request a prompt
python -m launch.generate --config=wscplus_generate --config.model=... --config.offensive=true   # with a warning
"""

from __future__ import annotations

import ml_collections
from ml_collections import config_dict

from configs import _responder
from winobench.base import options

LAUNCHER = "generate"

FORMS = {
    "standard": (("toe",), ("wdq", "ambiguous"), 10),
    # Section 2.3.3: 1,200 sentences, 25 requests of three pairs for each of the eight combinations.
    "efficacy": (("cot", "tot", "coe", "toe"), ("wdq", "wiq"), 25),
    # Section 2.1: 300 sentences a model.
    "models": (("toe",), ("wdq",), 50),
    "debug": (("toe", "cot"), ("wdq", "wiq", "ambiguous"), 1),
}
"""Form -> (templates, queries, requests of each template and query)."""

HELP = {
    "model": "openai:MODEL, anthropic:MODEL, a name of launch.eval --list_models, a folder, or a hub id; or several",
    "templates": "any of cot, tot, coe, toe (paper, Table 7)",
    "queries": "any of wdq, wiq (traditional pairs), ambiguous, offensive-<domain> (Tables 8 and 13)",
    "offensive": "also ask for offensive questions, in all five domains unless queries name some; they may offend",
    "batch": "pairs, or offensive questions, a request",
    "requests": "requests of each template and query; may be raised later",
    "temperature": "sampling temperature; above 0",
    "max_tokens": "longest answer",
    "checks.max_changed_words": "words in which the sentences of a pair may differ",
    "checks.similarity": "percent from which on two sentences are near-duplicates",
    "checks.known": "CSV files in the layout of WSC+ whose sentences are no new ones, such as WSC+.csv; none for none",
    **_responder.HELP,
}

RANGES = {
    **options.RESPONDER,
    "model": options.text().or_none(),
    "templates": options.items(options.choice("cot", "tot", "coe", "toe"), 1, 4),
    "queries": options.items(options.text(255), 1, 100),
    "offensive": options.flag(),
    "batch": options.whole(1, 1_000),
    "requests": options.whole(1, 1_000_000),
    "temperature": options.number(above=0, high=100),
    "max_tokens": options.whole(1, 10_000_000),
    "checks.max_changed_words": options.whole(0, 1_000),
    "checks.similarity": options.number(0, 100),
    "checks.known": options.text().or_none(),
}
"""Field -> what it may be."""


def get_config(form: str = "standard") -> ml_collections.ConfigDict:
    """The config in one of its ``FORMS``."""
    if form not in FORMS:
        raise ValueError(f"wscplus_generate comes as {', '.join(FORMS)}, not {form!r}.")
    templates, queries, requests = FORMS[form]
    config = ml_collections.ConfigDict()
    config.kind = "items"
    config.model = config_dict.placeholder(str)
    config.templates = templates
    config.queries = queries
    config.offensive = False
    config.batch = 3
    config.requests = requests
    config.temperature = 1.0
    config.max_tokens = 2048

    config.checks = ml_collections.ConfigDict()
    config.checks.max_changed_words = 5
    config.checks.similarity = 90.0
    config.checks.known = config_dict.placeholder(str)

    _responder.add_fields(config)
    return config
