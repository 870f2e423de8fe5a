"""The annotation rules of WinoViz, as far as they can be checked by rule (appendix A.5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from winobench.data.winoviz.items import Item

MIN_PREMISE_WORDS = 10

_ENDINGS = ("ish", "ing", "ed", "es", "en", "ly", "s", "e")


def words_of(text: str) -> list[str]:
    """The words in lower case, without a possessive s."""
    return re.findall(r"[^\W_]+", re.sub(r"[’']s\b", "", text.lower()))


# Words that do not narrow the meaning of a longer expression.
SMALL_WORDS = frozenset(
    words_of(
        "a an and are as at be been being by can for from had has have he her him his in into is it its more most no"
        " not of off on onto or out over own she so than that the their them then there they this to too up very was"
        " were when with without"
    )
)


def stem(word: str) -> str:
    """The word without a common ending: enough to find "carved" in "carve", no linguistics."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:-1] + "y" if word.endswith("i") else word


def stems(text: str) -> set[str]:
    """The words that count, without their endings."""
    return {stem(word) for word in words_of(text) if word not in SMALL_WORDS}


RULES: Mapping[str, str] = {
    "labels": "the item states properties and attributes, without which most rules cannot be checked",
    "premise_length": f"a premise has at least {MIN_PREMISE_WORDS} words (not in visual items, which simplify it)",
    "premise_object": "a premise names the object",
    "premise_property": "a premise names its property, by at least one word of it",
    "premise_attribute": "a premise does not name its attribute",
    "premise_prototype": "a premise does not name the prototype of an attribute",
    "property_attribute": "a property does not mention its attribute",
    "hypothesis_object": "a hypothesis names the object",
    "hypothesis_attribute": "a hypothesis names its attribute (in a multi-hop item its prototype, and no attribute; in"
    " a pragmatic item its property, and no attribute)",
    "hypothesis_property": "a hypothesis does not mention its property (but in pragmatic items)",
    "hypotheses_equal": "the hypotheses differ in the attribute alone (but in pragmatic items)",
    "capital": "a sentence begins with a capital letter",
    "punctuation": "a sentence ends in a full stop, a question mark or an exclamation mark",
    "tense": "a hypothesis is in the tense of its premise (as far as auxiliaries and common verbs tell)",
}
"""The annotation rules of appendix A.5 that can be checked by rule, in the order in which they are reported."""

# "dome-shaped" is named by "dome", and "the shape of an igloo" does not name it.
_KIND_WORDS = stems("shape color")
_PRESENT = frozenset(words_of("is are am has does do isn aren doesn don hasn"))
_PAST_AUXILIARIES = frozenset(words_of("was were had did wasn weren didn hadn"))

# Past forms that are not participles and no other words, so that they tell the tense wherever they stand.
_PAST_VERBS = frozenset(
    words_of(
        "went took gave came began knew grew flew drank sang swam ran wrote drove rode fell ate threw blew drew spoke"
        " stole woke tore froze chose hid shook sank sprang"
    )
)


class RuleBreak(NamedTuple):
    """An annotation rule that an item breaks."""

    item: str  # its id
    rule: str  # a name in ``RULES``
    message: str


def check_item(item: Item) -> list[RuleBreak]:
    """The annotation rules that an item breaks, in the order of ``RULES``, which has the rules of each version.

    Words are compared without their endings ("carved" names "carve"), and small words ("in", "the", "not") do not
    count. A property or an attribute is mentioned where any of its other words is, an object or a prototype where all
    are. (Appendix A.5, parts 1 and 2 of Figure 7 and part 3 of Figures 6 and 8.)
    """
    breaks: dict[str, list[str]] = {rule: [] for rule in RULES}
    object_words = stems(item.object)
    if item.properties is None or item.attributes is None:
        missing = [name for name in ("properties", "attributes") if getattr(item, name) is None]
        breaks["labels"].append(f"the item states no {' and no '.join(missing)}")

    for number in (0, 1):
        premise, hypothesis = item.premises[number], item.hypotheses[number]
        of_premise, of_hypothesis = stems(premise), stems(hypothesis)
        named_property = stems(item.properties[number]) - object_words if item.properties else None
        named_attribute = stems(item.attributes[number]) - _KIND_WORDS if item.attributes else None

        for sentence in (premise, hypothesis):
            if not sentence.lstrip("\"'“‘(")[:1].isupper():
                breaks["capital"].append(f"{sentence!r} does not begin with a capital letter")
            if sentence.rstrip("\"'”’)")[-1:] not in (".", "!", "?"):
                breaks["punctuation"].append(f"{sentence!r} does not end in punctuation")
        if item.version != "visual" and len(premise.split()) < MIN_PREMISE_WORDS:
            breaks["premise_length"].append(f"{premise!r} has {len(premise.split())} words")
        if not object_words <= of_premise:
            breaks["premise_object"].append(f"{premise!r} does not name {item.object!r}")
        if not object_words <= of_hypothesis:
            breaks["hypothesis_object"].append(f"{hypothesis!r} does not name {item.object!r}")
        if item.properties is not None and named_property is not None:
            label = item.properties[number]
            if named_property and not named_property & of_premise:
                breaks["premise_property"].append(f"{premise!r} does not name {label!r}")
            if item.version == "pragmatic":
                if named_property and not named_property & of_hypothesis:
                    breaks["hypothesis_attribute"].append(f"{hypothesis!r} does not name {label!r}")
            elif (named_property - (named_attribute or set())) & of_hypothesis:
                breaks["hypothesis_property"].append(f"{hypothesis!r} mentions {label!r}")
        if item.attributes is not None and named_attribute is not None:
            label = item.attributes[number]
            if named_attribute & of_premise:
                breaks["premise_attribute"].append(f"{premise!r} names {label!r}")
            if item.properties is not None and named_attribute & (named_property or set()):
                breaks["property_attribute"].append(f"{item.properties[number]!r} mentions {label!r}")
            if item.version in ("single", "visual"):
                if not named_attribute <= of_hypothesis:
                    breaks["hypothesis_attribute"].append(f"{hypothesis!r} does not name {label!r}")
            elif named_attribute & of_hypothesis:
                breaks["hypothesis_attribute"].append(f"{hypothesis!r} names {label!r}")
        if item.prototypes is not None:
            prototype = item.prototypes[number]
            if not stems(prototype) <= of_hypothesis:
                breaks["hypothesis_attribute"].append(f"{hypothesis!r} does not name {prototype!r}")
            if any(stems(prototype) <= stems(other) for other in item.premises):
                breaks["premise_prototype"].append(f"a premise names {prototype!r}")
        tenses = _tense_of_hypothesis(hypothesis), _tense_of_premise(premise)
        if None not in tenses and tenses[0] != tenses[1]:
            breaks["tense"].append(f"{hypothesis!r} is in the {tenses[0]} and {premise!r} in the {tenses[1]}")

    if item.version != "pragmatic":
        wanted = item.prototypes if item.version == "multi" and item.prototypes else item.attributes
        problem = _difference(item.hypotheses, wanted if item.version != "multi" or item.prototypes else None)
        if problem:
            breaks["hypotheses_equal"].append(problem)
    return [RuleBreak(item.id, rule, message) for rule, messages in breaks.items() for message in messages]


def check_items(items: Iterable[Item]) -> list[RuleBreak]:
    return [problem for item in items for problem in check_item(item)]


def _difference(hypotheses: tuple[str, str], labels: tuple[str, str] | None) -> str | None:
    """The fault of the difference between two hypotheses: more than ``labels`` name, or nothing in common."""
    first, second = words_of(hypotheses[0]), words_of(hypotheses[1])
    shortest = min(len(first), len(second))
    start = next((n for n in range(shortest) if first[n] != second[n]), shortest)
    rest = shortest - start
    end = next((n for n in range(rest) if first[-1 - n] != second[-1 - n]), rest)
    if start + end == 0:
        return "the hypotheses have neither beginning nor end in common"
    if labels is None:
        return None
    for words, label in zip((first, second), labels, strict=True):
        span = words[start : len(words) - end]
        extra = {word for word in span if word not in SMALL_WORDS and stem(word) not in stems(label)}
        if extra:
            return f"the hypotheses differ in {' '.join(span)!r}, which is more than {label!r}"
    return None


def _tense_of_hypothesis(sentence: str) -> str | None:
    words = set(words_of(sentence))
    if bool(words & _PRESENT) == bool(words & _PAST_AUXILIARIES):
        return None
    return "present" if words & _PRESENT else "past"


def _tense_of_premise(sentence: str) -> str | None:
    """None where it has both or neither: a participle proves nothing. Quotations have other tenses."""
    words = words_of(re.sub('["“][^"”]*["”]', " ", sentence))
    present = any(word in _PRESENT for word in words)
    past = any(word in _PAST_AUXILIARIES or word in _PAST_VERBS for word in words)
    if present and not past:
        # "is" next to "opened" may be a past sentence with a general clause.
        return None if any(word.endswith("ed") for word in words) else "present"
    return "past" if past and not present else None
