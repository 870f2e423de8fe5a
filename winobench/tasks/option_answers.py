"""Reads which of two numbered options a free text chooses.

A text may state its choice ("The answer is Option 2.", "I would pick option one", "Option 1 is more likely"), be
nothing but it ("Option 2", "(1)", "2."), or repeat the option itself. The reading order:

1. Thoughts in ``<think>`` tags, an echo of both options, and everything from a made-up next question on are not answer.
2. Statements of a choice. They must agree, unless the text reasons before it answers: then the last one counts.
3. Mentions of an option by its number, without those that are denied or compared with ("not Option 1", "than
   Option 1", "Option 1 is unlikely"). They must agree. After reasoning, only the last two sentences are read.
4. A number alone, or one option's sentence alone.

Nothing, or a contradiction, is not a choice: a text that states "not Option 1" chooses nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from winobench.base.texts import readable

_DIGITS = {"1": 0, "2": 1, "one": 0, "two": 1, "first": 0, "second": 1, "1st": 0, "2nd": 1}
_MARKS = r"[#(\[\"'<]*\s*"
_NUMBERED = rf"(?:option|choice)s?\s*(?:number|no\.?|nr\.?)?\s*:?\s*{_MARKS}(?P<{{0}}a>1|2|one|two)\b"
_ORDINAL = r"(?:the\s+)?(?P<{0}b>first|second|1st|2nd)\s+(?:option|choice|hypothesis|statement|sentence|one)\b"
_NAMED = f"(?:{_NUMBERED}|{_ORDINAL})"
_BARE = rf"{_MARKS}(?P<{{0}}c>[12])(?![\w%]|[.,]\d|\s+or\b|\s*/)"
_ANY = f"(?:{_NAMED}|{_BARE})"

_NO_ALTERNATIVE = r"(?!\W*(?:or|and|/|nor)\W*(?:the\s+)?(?:option|choice|first|second|[12]\b))"
_LINK = r"(?:is|are|would\s+be|should\s+be|must\s+be|will\s+be|to\s+be)"
_BETTER = (
    r"(?:(?:therefore|thus|hence|clearly|probably|indeed|much|far|definitely|also|the|a)\s+)*"
    r"(?:more|most|correct|right|true|best|better|likelier|plausible|answer|likely)\b"
)
_WORSE = r"(?!\s+(?:to\s+be\s+)?(?:not|false|wrong|incorrect|untrue))"

_STATEMENTS = tuple(
    re.compile(pattern.format("x"))
    for pattern in (
        # "Answer: 2", "the final answer is (1)", "the more likely option to be true is Option 1"
        rf"\b(?:answer|output|option|choice|hypothesis|one|statement)\b(?!\s*{_MARKS}(?:[12]|one|two)\b)"
        rf"[^.\n12]{{{{0,40}}}}?(?:\b{_LINK}|[:=])\s*:?\s*{_ANY}{_NO_ALTERNATIVE}",
        rf"\banswer\s+{_ANY}{_NO_ALTERNATIVE}",
        # "I would go with option two"
        rf"\b(?:i|we|i'd|i'll|we'd)\s+(?:would\s+|will\s+|have\s+to\s+|must\s+)?"
        rf"(?:choose|pick|select|go\s+with|say|answer|output|opt\s+for)\s+{_ANY}{_NO_ALTERNATIVE}",
        # "Option 2 is more likely"
        rf"\b{_NAMED}[)\]\"']*(?:,\s+[^.,\n]*,)?\s+(?:is|seems|appears|sounds|must\s+be)\s+{_BETTER}{_WORSE}",
        # "Option 1 is less likely than Option 2"
        rf"\bless\s+(?:likely|plausible|probable)\s+(?:to\s+be\s+true\s+)?than\s+{_NAMED}",
    )
)
# An answer that begins with the choice and explains it afterwards.
_LEADING = re.compile(rf"^\W*{_NUMBERED}{_NO_ALTERNATIVE}\s*(?=$|[^\w\s]|\n)".format("x"))
_MENTION = re.compile(rf"\b{_NAMED}".format("x"))
_DENIED_BEFORE = re.compile(
    r"(?:\bnot|n't|\bthan|\binstead of|\bover|\bversus|\bvs\.?|\bunlike|\breject|\beliminates?|\brules? out|\bneither"
    r"|\bnor|\bexcludes?|\bagainst|\bto)\s+(?:the\s+|choose\s+|be\s+|for\s+)*$"
)
_DENIED_AFTER = re.compile(
    r"^[)\]\"']*\s+(?:(?:is|was|seems|appears|would\s+be|can\s+be|be|are)\s+)?(?:much\s+|far\s+|very\s+|also\s+)?"
    r"(?:less\b|not\b|unlikely|incorrect|wrong|false|untrue|implausible|ruled\s+out|eliminated|impossible|contradicts?\b"
    r"|(?:does|would|could|can|is|was)\s*(?:n't|not)|cannot|can't|likely\s+(?:to\s+be\s+)?(?:not|false|wrong|incorrect))"
)
_ALONE = re.compile(r"^\W*(?:answer\W*)?(1|2|one|two)\W*$")
_LISTED = re.compile(r"^\W{0,100}([12])\s*(?:$|[.):\]])", re.MULTILINE)
# The letters around a mention that may deny it: a few words. A search from the text's beginning for each mention would
# take as long as the square of its length.
_AROUND = 200
_NEXT_QUESTION = re.compile(r"(?<=\S)[^\S\n]*\n\s*(?:sentence|question)\s*:")


def read_choice(text: str | None, options: Sequence[str] = (), *, reasoning: bool = False) -> int | None:
    """The option that a text chooses."""
    text = _plain(readable(text or ""))
    sentences = [_bare_sentence(option) for option in options]
    text = _without_echo(text, sentences)
    if not text.strip():
        return None

    stated = sorted((match.end(), _number(match)) for pattern in _STATEMENTS for match in pattern.finditer(text))
    if leading := _LEADING.match(text):
        stated.insert(0, (leading.end(), _number(leading)))
    if reasoning:
        return stated[-1][1] if stated else _read_end(text, sentences)
    choice = _agreed([number for _, number in stated]) if stated else _read_mentions(text, sentences)
    return None if choice is not None and _misquoted(text, sentences, choice) else choice


def states_choice(text: str | None) -> bool:
    """Whether a text states a choice in so many words, rather than mentioning an option somewhere."""
    plain = _plain(readable(text or ""))
    return any(pattern.search(plain) for pattern in _STATEMENTS) or _LEADING.match(plain) is not None


def _read_mentions(text: str, sentences: Sequence[str]) -> int | None:
    mentions = [
        _number(match)
        for match in _MENTION.finditer(text)
        if not _DENIED_BEFORE.search(text[max(0, match.start() - _AROUND) : match.start()])
        and not _DENIED_AFTER.match(text[match.end() : match.end() + _AROUND])
    ]
    if mentions:
        return _agreed(mentions)
    if _MENTION.search(text):
        return None
    if alone := _ALONE.match(text):
        return _DIGITS[alone[1]]
    if listed := _LISTED.findall(text):
        return _agreed([_DIGITS[number] for number in listed])
    return _repeated(text, sentences)


def _read_end(text: str, sentences: Sequence[str]) -> int | None:
    parts = [part for part in re.split(r"\n|(?<=[.!?])\s+", text) if re.search(r"\w", part)]
    for part in reversed(parts[-2:]):
        choice = _read_mentions(part, sentences)
        if choice is not None or _MENTION.search(part):
            return choice
    return None


def _plain(text: str) -> str:
    """Lower case, plain quotation marks, no emphasis, boxes or thoughts, and nothing behind a next question."""
    text = unicodedata.normalize("NFKC", text).lower().translate(str.maketrans("‘’“”", "''\"\"", "*`_"))
    text = re.sub(r"\$*\\boxed\{\W*(?:\\text\{)?([^{}]*)\}+\$*", r"\1", text)
    # Thoughts that were cut off hold no answer. Text before a lone closing tag is thoughts as well.
    text = re.sub(r"<think>.*?(?:</think>|$)", " ", text, flags=re.DOTALL)
    text = text.rsplit("</think>", 1)[-1].strip()
    return _NEXT_QUESTION.split(text, maxsplit=1)[0]


def _bare_sentence(sentence: str) -> str:
    return _plain(sentence).rstrip(" .!?")


def _without_echo(text: str, sentences: Sequence[str]) -> str:
    if len(sentences) != 2:
        return text
    first, second = (rf"option\s*{n}\W*{re.escape(sentence)}\W*" for n, sentence in enumerate(sentences, start=1))
    return re.sub(rf"(?:options?\s*:\s*)?{first}(?:or\s+)?{second}", "", text, count=1)


def _repeated(text: str, sentences: Sequence[str]) -> int | None:
    """The option whose sentence the text has, where it has one of them only."""
    repeated = set()
    # One sentence may begin like the other: the longer one first, and taken away.
    for index in sorted(range(len(sentences)), key=lambda index: -len(sentences[index])):
        text, count = re.subn(rf"(?<!\w){re.escape(sentences[index])}(?!\w)", " ", text)
        repeated |= {index} if count else set()
    return repeated.pop() if len(repeated) == 1 else None


def _misquoted(text: str, sentences: Sequence[str], choice: int) -> bool:
    """Whether the number of the chosen option comes before the sentence of the other one."""
    other = sentences[1 - choice] if len(sentences) == 2 else ""
    return bool(other) and re.search(rf"option\s*{choice + 1}\W*{re.escape(other)}(?!\w)", text) is not None


def _number(match: re.Match[str]) -> int:
    return _DIGITS[next(group for group in match.groups() if group)]


def _agreed(numbers: Sequence[int]) -> int | None:
    return numbers[0] if len(set(numbers)) == 1 else None
