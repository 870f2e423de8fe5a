"""Has language models write new WSC+ items, checks them, and lets two people judge them.

winobench write_items --config=wscplus_generate --model=openai:gpt-4o-mini    # ToE, 60 pairs
winobench write_items --config=wscplus_generate:efficacy --model=...          # Figure 3: 4 templates x 2 queries
winobench write_items --config=wscplus_generate:models --model=A,B,C          # Figure 2: 300 sentences a model
winobench write_items --config=wscplus_generate:batches --model=...           # Figure 12: 1 to 5 pairs a request
winobench write_items --config=wscplus_generate:repeats --model=...           # Figure 14: 11 times 100 sentences
winobench write_items --config=wscplus_generate:debug --model=...             # a request a prompt
winobench write_items --config=wscplus_generate --model=... --offensive=true  # with a warning
"""

from __future__ import annotations

import dataclasses

from winobench.base import options
from winobench.base.options import option
from winobench.runs import model_settings

from . import forms_of

LAUNCHER = "write_items"


@dataclasses.dataclass(frozen=True)
class Checks:
    max_changed_words: int = option(5, options.whole(0, 1_000), "words in which the sentences of a pair may differ")
    similarity: float = option(90.0, options.number(0, 100), "percent from which on two sentences are near-duplicates")
    known: str | None = option(
        None,
        options.text().or_none(),
        "CSV files in the layout of WSC+ whose sentences are not new, such as WSC+.csv. None for none",
    )


@dataclasses.dataclass(frozen=True)
class Settings(model_settings.Responder):
    model: str | None = option(
        None,
        options.text().or_none(),
        "API:MODEL (openai:MODEL), a name of winobench eval --list_models, a folder, or a hub id. Or several",
    )
    templates: tuple = option(
        ("toe",),
        options.items(options.choice("cot", "tot", "coe", "toe"), 1, 4),
        "any of cot, tot, coe, toe (paper, Table 7)",
    )
    queries: tuple = option(
        ("wdq", "ambiguous"),
        options.items(options.text(255), 1, 100),
        "any of wdq, wiq (traditional pairs), ambiguous, offensive-<domain> (Tables 8 and 13)",
    )
    offensive: bool = option(
        False,
        options.flag(),
        "also ask for offensive questions, in all five domains unless queries name some. They may offend",
    )
    batch: tuple = option(
        (3,),
        options.items(options.whole(1, 1_000), 1, 100),
        "pairs, or offensive questions, a request. Several sizes make Figure 12",
    )
    requests: int = option(10, options.whole(1, 1_000_000), "requests of each template and query. May be raised later")
    repeats: int = option(1, options.whole(1, 1_000), "equal experiments of so many requests each. Two make Figure 14")
    temperature: float = option(1.0, options.number(above=0, high=100), "sampling temperature. Above 0")
    max_tokens: int = option(2_048, options.whole(1, 10_000_000), "longest answer")
    checks: Checks = options.group(Checks)


SETTINGS = Settings

FORMS = {
    "standard": {},
    # Section 2.3.3: 1,200 sentences, 25 requests of three pairs for each of the eight combinations.
    "efficacy": {"templates": ("cot", "tot", "coe", "toe"), "queries": ("wdq", "wiq"), "requests": 25},
    # Section 2.1: 300 sentences a model.
    "models": {"queries": ("wdq",), "requests": 50},
    # Figure 12. The paper names three pairs and one, and not its other sizes.
    "batches": {"queries": ("wdq",), "batch": (1, 2, 3, 4, 5), "requests": 20},
    # Section 2.2, Figure 14: eleven times 100 sentences, which are 17 requests of three pairs.
    "repeats": {"queries": ("wdq",), "requests": 17, "repeats": 11},
    "debug": {"templates": ("toe", "cot"), "queries": ("wdq", "wiq", "ambiguous"), "requests": 1},
}

get_config = forms_of("wscplus_generate", Settings, FORMS)
