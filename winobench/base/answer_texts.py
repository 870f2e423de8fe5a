"""Reads the answers of language models: without thoughts, the yes or no, number, mark, scores or words in them.

An answer stands alone, boxed, in tags, in JSON, or behind words such as "Answer:". What states two answers is not read.
docs/reference/answer_forms.md lists all forms.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

from winobench.base import json_files
from winobench.base.texts import readable

_Value = TypeVar("_Value", bound=Hashable)

_TAGS = (
    r"(?:ant_?|seed:)?(?:think|thinking|thoughts?|reasoning|reflection|analysis|scratchpad)"
    r"|\|(?:begin_of_)?(?:think|thought)\|"
)
_THOUGHTS = re.compile(
    rf"<({_TAGS})(?:\s[^<>]*)?>.*?(?:</\1>|<\|end_of_(?:think|thought)\|>|\Z)"
    r"|\[THINK\].*?(?:\[/THINK\]|\Z)|\u25c1think\u25b7.*?(?:\u25c1/think\u25b7|\Z)|<unused94>.*?(?:<unused95>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_END_OF_THOUGHTS = re.compile(
    rf"</(?:{_TAGS})>|<\|end_of_(?:think|thought)\|>|\[/THINK\]|\u25c1/think\u25b7|<unused95>"
    r"|\[BEGIN FINAL RESPONSE\]|<\|channel\|>final(?:\s*<\|constrain\|>\w+)?<\|message\|>",
    re.IGNORECASE,
)
# Harmony's thoughts without an answer behind them, and the marks that end a turn.
_OTHER_CHANNELS = re.compile(r"<\|channel\|>(?:analysis|commentary)\b.*", re.DOTALL)
_ENDS_OF_TURNS = re.compile(r"(?:(?:<\|(?:end|return|im_end|eot_id)\|>|</s>|\[END FINAL RESPONSE\])\s*)+\Z")

# Words that are an answer where they stand alone. Other words may follow the English ones.
_ENGLISH = {"yes": True, "yeah": True, "yep": True, "yup": True, "no": False, "nope": False}
_YES = """
y true oui sí si sì sim ja да так tak evet igen kyllä da ano ναι có vâng ya כן نعم हाँ हां ใช่ はい ええ 네 예 是 是的 对
對 对的 對的 有 有的
"""
_NO = """
n false non nein nee nej nei nem nie não nao nu ne нет ні όχι hayır hayir ei không tidak לא لا नहीं ไม่ ไม่ใช่ いいえ いえ
아니요 아니오 아뇨 否 不 不是 不是的 不对 不對 没有 沒有
"""
_ANSWERS = _ENGLISH | dict.fromkeys(_YES.split(), True) | dict.fromkeys(_NO.split(), False)
_BEGINS = re.compile(rf"({'|'.join(_ENGLISH)})\b(?![-'’]\w)", re.IGNORECASE)
_NO_ANSWER = re.compile(r"no\s+(?:doubt|idea|clue|comment|problem|worries|way|answer|image|picture|photo)\b", re.I)
_REFUSES = re.compile(
    r"\b(?:can(?:no|')?t|can not|could(?:n't| not)|won't|unable to|not able to|not comfortable)\s+(?:\w+\s+){0,2}?"
    r"(?:help|assist|answer|comply|fulfil+|respond|process|provide|discuss)\w*\b",
    re.IGNORECASE,
)
_HEDGES = re.compile(
    r"\b(?:not|cannot|can't|\w+n't|neither|nor|either|whether|if|maybe|perhaps|unsure|unclear|sorry|unable)\b", re.I
)
_SENTENCES = re.compile(r"(?:[.!?;]+(?:\s|\Z)|[\n。！？；])\s*")
_CLAUSES = re.compile(r"[,:()\[\]/|，、：—–]|\s-+\s|\b(?:and|or|but)\b", re.IGNORECASE)
_LAST_WORD = re.compile(r"\b(?:yes|no)\W*\Z", re.IGNORECASE)
_AT_LINES_BEGINNING = re.compile(r"^\s*(?:[-*+>#\u2022\u2023\u25e6]+\s+|\(?(?:\d{1,3}|[a-z])[.)]\s+)+", re.M | re.I)

_FENCE = re.compile(r"```[\w+-]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)
_TAGGED = re.compile(
    r"<(answer|final_answer|final|response|output|result)>\s*(.*?)\s*</\1>|<\|begin_of_box\|>(.*?)<\|end_of_box\|>",
    re.DOTALL | re.IGNORECASE,
)
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_LATEX = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}|\\[()\[\]]|\$")
_ANY_TAG = re.compile(r"<[^<>\n]{1,40}>")
_NAMES = "answer|response|verdict|conclusion|decision|judge?ment|prediction|result|output"
_OTHER_NAMES = "réponse|respuesta|antwort|resposta|risposta|ответ|答案|回答|答え|정답|답"
_LABEL = re.compile(
    rf"(?:\b(?:{_NAMES})\b(?:\s+to\s+[^.:\n]{{1,80}}?)?|{_OTHER_NAMES})['\"]?\s*"
    r"(?:(?:is|was|would be|should be|must be|est|es|ist|é|è|是|为|為|は)(?![a-z])\s*:?|[:=：]|-+>?(?=\s)|→)\s*"
    rf"(?!\S*\b(?:{_NAMES})\b)([^\n]+)",
    re.IGNORECASE,
)
_ECHO = re.compile(r"\AQ:.*?\bA:\s*(.+)", re.DOTALL)
_KEYS = """
answers response finalresponse result finalresult prediction verdict decision conclusion output value count
number total label choice judgment judgement
"""

_UP_TO_NINETEEN = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen
"""
_FROM_TWENTY = "twenty thirty forty fifty sixty seventy eighty ninety"
_UNITS, _TENS = _UP_TO_NINETEEN.split(), _FROM_TWENTY.split()
_WORDS = {word: number for number, word in enumerate(_UNITS)} | {
    word: 10 * number for number, word in enumerate(_TENS, 2)
}
_WORDS |= {f"{ten}-{unit}": _WORDS[ten] + _WORDS[unit] for ten in _TENS for unit in _UNITS[1:10]}
_IDEOGRAPHS, _COUNTERS = "零一二三四五六七八九十两兩", "只個个匹条條頭头本枚人つ隻台辆辆"
_NUMBER = re.compile(
    r"(?<![\w.,])(?P<digits>\d{1,3}(?:,\d{3})+|\d+)(?P<rest>\.\d+|\s*%)?(?!\w|[.,]\d)"
    rf"|\b(?P<words>{'|'.join(sorted(_WORDS, key=len, reverse=True))})\b"
    r"|\b(?P<none>none|nothing|not any|without any|no(?!\s*[,:;.!]|\s*\Z))\b|\A\W*(?P<alone>no)\W*\Z"
    rf"|(?<![第{_IDEOGRAPHS}百千])(?P<ideograph>[{_IDEOGRAPHS}])(?=\s*[{_COUNTERS}，。]|\s*\Z)",
    re.IGNORECASE,
)
_TENS_AND_UNITS = re.compile(rf"\b({'|'.join(_TENS)})\s+({'|'.join(_UNITS[1:10])})\b", re.IGNORECASE)
# Words before a number, and signs behind one, with which it is not the number itself.
_BOUNDS = re.compile(
    r"\b(?:at (?:least|most)|(?:more|less|fewer|greater|other) than|up to|over|under|not|between)\W+\Z"
    r"|(?:\A|\s)[-\u2212]\Z",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\s*(?:or|to|[-\u2013])\s*\d|\s*\+")
_OF_ALL = re.compile(r"\s+(?:out\s+)?of\s")
_LISTED = re.compile(r"(?:(?<=\s)|\A)\(?\d{1,3}[.)](?=\s)|(?<![\w.])#\d+")
# Possessive, so that a long run of blanks is read once.
_NAMED = (
    r"\b{name}['\"]?\s*+(?:score\b\s*+)?(?:(?:[:=|-]|is\b|was\b)\s*+)?['\"]?"
    r"(\d++(?:\.\d++)?)(?!\w|\.\d|\s*+(?:/|out of)(?!\s*+{most}\b))"
)
_FRACTION = re.compile(r"(\d{1,9}(?:\.\d{0,9})?)(?:\s*/\s*(\d{1,9}))?")
_SCORE_LIST = re.compile(r"\bscores?\b['\"]*\s*+[:=]\s*+\[([^\[\]]*)\]|<scores?>([^<]*)</scores?>", re.IGNORECASE)
_SCORE = re.compile(r"\bscore\b['\"*_`]*\s*[:=]\s*['\"*_`]*\s*(\d+(?:\.\d+)?)(?!\w|\.\d)", re.IGNORECASE)

# What stands around a copy of the words in an image.
_LEAD_IN = re.compile(
    r"(?:(?:sure|certainly|of course|okay)[,.!]\s*)?"
    r"(?:here(?:'s| is| are)\s+(?:the|all)\b[^\n:]{0,80}?\b(?:text|words?|transcription)\b[^\n:]{0,80}"
    r"|the\s+(?:\w+\s+)?(?:text|words?)\b[^\n:]{0,80}?\b(?:image|picture)\b[^\n:]{0,80}"
    r"|(?:图片?|图像|识别)[^\n:：]{0,12}(?:文字|文本|内容)[^\n:：]{0,8})[:：]\s*",
    re.IGNORECASE,
)
_LIST_MARK = re.compile(r"\A[-*\u2022]\s+")
_NO_WORDS = re.compile(
    r"(?:there\s+is\s+)?no\s+(?:\w+\s+)?(?:text|words?)(?:\s+(?:is|was|are|were|can be|could be))?"
    r"(?:\s+(?:recogni[sz]ed|found|detected|visible|present|seen))?(?:\s+in\s+(?:the|this)\s+(?:image|picture))?"
    r"|(?:图[片像]?[中里]?)?(?:没有|未)(?:识别|检测|发现)?[到出]?(?:任何)?文[字本]",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"(?:i'?m|i am)\s+(?:\w+\s+)?(?:sorry|unable|not able)\b|sorry\b.{0,9}\bi\b|i\s+apologi[sz]e\b"
    r"|unfortunately,?\s+i\b|as an ai\b"
    r"|i\s+(?:can(?:no|')?t|can not|could(?:n't| not)|won't)\b|(?:很|非常)?(?:抱歉|对不起|遗憾)|我(?:无法|不能)",
    re.IGNORECASE,
)
_TASK = re.compile(
    r"\b(?:images?|pictures?|photos?|text|request|content|help|assist|comply|identify|transcribe)\b|[图文帮助]",
    re.IGNORECASE,
)


def spoken(text: str) -> str:
    """A text without thoughts. Thoughts that were cut off have nothing behind them."""
    answer = _END_OF_THOUGHTS.split(_THOUGHTS.sub(" ", text))[-1]
    return _ENDS_OF_TURNS.sub("", _OTHER_CHANNELS.sub("", answer))


def begins_with_thoughts(text: str) -> bool:
    """Whether a text, or the beginning of one, begins with thoughts."""
    begun = text.lstrip()
    return (_THOUGHTS.match(begun) or _OTHER_CHANNELS.match(begun)) is not None


def yes_no(text: str | None) -> bool | None:
    """Whether an answer is yes (True) or no (False). None for any other one, and for both.

    It is the first word, a word that is a separate sentence or clause, or the last word, in this order. In English,
    words may follow the first one. A clause of the opposite makes it None, as a refusal does.
    """
    return _agreed(text, _yes_no)


def number(text: str | None) -> int | None:
    """The number in an answer, in digits or in words below one hundred. None without one, or with several.

    Several count as one where they are equal, or where the first or the last is the sum of the others. "no dogs" is 0,
    "No, two dogs" is 2. Numbers of lists, ordinals, percentages and bounds such as "at least 3" do not count.
    """
    return _agreed(text, _number)


def mark(text: str | None, marks: Sequence[str]) -> int | None:
    """The place of the mark that an answer states: yes or no, a number, a letter, or other words at its beginning."""
    names = [_folded(name) for name in marks]
    kinds = [_ENGLISH.get(name) for name in names]
    numbers = [_plain_number(name) for name in names]
    stated: Any
    for values, read in ((kinds, yes_no), (numbers, number)):
        if None not in values and len(set(values)) == len(names):
            stated = read(text)
            return values.index(stated) if stated in values and stated is not None else None
    return _agreed(text, lambda part: _mark(part, names))


def scores(text: str | None) -> list[float]:
    """All numbers behind the word score in an answer, such as ``"score": 80``."""
    return [float(digits) for digits in _SCORE.findall(_plain(text))]


def marks(text: str | None, names: Sequence[str], most: int) -> list[int] | None:
    """The whole number from 0 to ``most`` behind each of some names, such as ``**Realism**: 1/2`` or ``"realism": 1``.

    None where a name has no such number, or two different ones.
    """
    plain = re.sub(r"\([^()\n]*\)", "", _unmarked(_plain(text)))
    found = []
    for name in names:
        pattern = _NAMED.format(name=r"[\s_-]*".join(map(re.escape, name.split())), most=most)
        numbers = {float(digits) for digits in re.findall(pattern, plain, re.IGNORECASE)}
        if len(numbers) != 1 or not numbers <= {*range(most + 1)}:
            return None
        found.append(int(numbers.pop()))
    return found


def score_lists(text: str | None) -> list[list[float]]:
    """The lists of numbers behind the word score in an answer, or in tags of that name: ``"score": [1, 1/2]``."""
    lists = []
    for one, other in _SCORE_LIST.findall(_unmarked(_plain(text))):
        parts = (one or other.strip().removeprefix("[").removesuffix("]")).strip(" \n,").split(",")
        numbers = [_FRACTION.fullmatch(part.strip(" \n'\"")) for part in parts]
        if all(number and float(number[2] or 1) for number in numbers):
            lists.append([float(number[1]) / float(number[2] or 1) for number in numbers if number])
    return lists


def lines(text: str | None) -> list[bool]:
    """The yes or no of each line, of each value of JSON, or of each word between commas. Other lines are left out."""
    plain = _plain(text)
    parts = [part for value in _values(plain) for part in _texts(value, all_keys=True)] or plain.splitlines()
    if len(parts) == 1:
        words = [_word(word) for word in re.split(r"[,;\s]+", parts[0].strip(" .")) if word]
        if len(words) > 1 and None not in words:
            return [word for word in words if word is not None]
    return [answer for part in parts if (answer := _agreed(part, _yes_no)) is not None]


def copied(text: str | None) -> str:
    """The words that an answer copies from an image, a line each as there. Empty for an answer such as "no text found".

    It is the text in ``<answer>`` tags, code blocks or JSON, or the whole text. A sentence such as "Here is the text:"
    in front of it, marks of lists, bold type and quotation marks around a line do not count.
    """
    whole = "".join(letter for letter in readable(spoken(text or "")) if unicodedata.category(letter) != "Cf")
    tagged = [match[2] or match[3] for match in _TAGGED.finditer(whole)] if "</" in whole or "|>" in whole else []
    for parts in (tagged, _FENCE.findall(whole)):
        whole = "\n".join(parts) if any(part.strip() for part in parts) else whole
    whole = _json_lines(whole.strip())
    straight = whole.replace("\u2019", "'")
    lead_in = _LEAD_IN.match(straight)
    lines = [_copied_line(line) for line in whole[lead_in.end() if lead_in else 0 :].splitlines()]
    return "" if _NO_WORDS.fullmatch(" ".join(lines).strip(" .。!'")) else "\n".join(lines).strip()


def refuses(text: str | None) -> bool:
    """Whether an answer begins as a refusal does, and names its task. Words of an image may do so, too."""
    words = readable(spoken(text or "")).strip().replace("\u2019", "'")
    return _REFUSAL.match(words) is not None and _TASK.search(words) is not None


def _json_lines(text: str) -> str:
    """The texts in a text that is a list or an object of JSON, a line each. Any other text as it is."""
    try:
        value = json_files.parse(text) if text[:1] in ("[", "{") else None
    except json_files.NotJSON:
        value = None
    value = value.get("text", value) if isinstance(value, dict) else value
    return "\n".join(_texts(value, all_keys=True)) or text


def _copied_line(line: str) -> str:
    line = re.sub(r"\*\*(.+?)\*\*", r"\1", _LIST_MARK.sub("", line.strip())).strip()
    for first, last in ('""', "''", "``", "\u201c\u201d", "\u300c\u300d"):
        if len(line) > 1 and line[0] == first and line[-1] == last:
            return line[1:-1].strip()
    return line


def _agreed(text: str | None, read: Callable[[str], _Value | None]) -> _Value | None:
    """Answer that all parts of a text agree on. None if they differ."""
    values = {read(part) for part in _stated(_plain(text), 3)}
    return values.pop() if len(values) == 1 else None


def _plain(text: str | None) -> str:
    """A text without thoughts, invisible letters and forms of width, and with plain quotation marks."""
    text = unicodedata.normalize("NFKC", readable(spoken(text or "")))
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return text.replace("\u2019", "'").replace("\u201c", '"').replace("\u201d", '"').strip()


def _stated(text: str, depth: int) -> list[str]:
    """The parts of a text that state its answer: the text itself where nothing in it is set apart."""
    for parts in _apart(text) if depth else ():
        if parts := [part for part in parts if part.strip()]:
            return [inner for part in parts for inner in _stated(part, depth - 1)]
    return [_bare(text)]


def _apart(text: str) -> Iterator[list[str]]:
    """The parts of a text that are set apart in each of the known ways."""
    yield [one or other for _, one, other in _TAGGED.findall(text)]
    yield _BOXED.findall(text)
    yield [part for value in _values(text) for part in _texts(value)]
    yield [match[1] for match in _FENCE.finditer(text)]
    yield [match[1] for match in _LABEL.finditer(_unmarked(text))]
    yield [match[1] for match in _ECHO.finditer(text)]


def _values(text: str) -> Iterator[Any]:
    """The objects and lists of JSON in a text."""
    position = 0
    for _ in range(100):
        position = min((at for sign in "{[" if (at := text.find(sign, position)) >= 0), default=-1)
        if position < 0:
            return
        try:
            value, position = json_files.parse_at(text, position)
        except json_files.NotJSON:
            position += 1
            continue
        if value:
            yield value


def _texts(value: Any, *, all_keys: bool = False) -> list[str]:
    """The answers in a value of JSON: of an object under the names of answers, or its only value."""
    match value:
        case bool():
            return ["yes" if value else "no"]
        case int() | str():
            return [str(value)]
        case float():
            return [str(int(value)) if value.is_integer() else str(value)]
        case list():
            return [text for part in value for text in _texts(part, all_keys=all_keys)]
        case dict():
            by_name = {re.sub(r"\W|_", "", name).casefold(): part for name, part in value.items()}
            chosen = [part for name, part in by_name.items() if name.endswith("answer")]
            chosen = chosen or [part for name, part in by_name.items() if name in _KEYS.split()]
            chosen = chosen or (list(value.values()) if all_keys or len(value) == 1 else [])
            return [text for part in chosen for text in _texts(part, all_keys=all_keys)]
    return []


def _unmarked(text: str) -> str:
    """A text without emphasis, quotation marks around words, and code."""
    return re.sub(r"[*`\u00ab\u00bb\u300c-\u300f]|(?<!\w)_+|_+(?!\w)", "", text)


def _bare(text: str) -> str:
    """A text without marks of lists, emphasis, quotation and LaTeX."""
    text = _unmarked(_ANY_TAG.sub(" ", _LATEX.sub(r"\1", text)))
    text = re.sub(r"(?<!\w)['\"]+|['\"]+(?!\w)", "", text)
    return text.strip()


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _word(clause: str) -> bool | None:
    """Whether a clause is a word for yes or for no."""
    return _ANSWERS.get(_folded(clause.strip(string.whitespace + string.punctuation + "。！、，")))


def _yes_no(part: str) -> bool | None:
    part = _AT_LINES_BEGINNING.sub("", part)
    if _REFUSES.search(part) or _folded(part) == "n/a":
        return None
    sentences = [sentence for sentence in _SENTENCES.split(part) if sentence and sentence.strip()]
    said = {_word(clause) for sentence in sentences for clause in _CLAUSES.split(sentence)} - {None}
    if sentences and (begun := _beginning(sentences[0])) is not None:
        return None if (not begun) in said else begun
    whole = {_word(sentence) for sentence in sentences} - {None}
    if len(whole) == 1:
        return whole.pop()
    said |= {_word(word) for word in re.findall(r"\b(?:yes|no)\b", part, re.IGNORECASE)}
    is_set_apart = any(_word(clause) is not None for clause in _CLAUSES.split(part)) or _LAST_WORD.search(part)
    return said.pop() if len(said) == 1 and is_set_apart and not _HEDGES.search(part) else None


def _beginning(sentence: str) -> bool | None:
    """The answer with which a sentence begins."""
    sentence = sentence.lstrip(string.punctuation + " ")
    if (match := _BEGINS.match(sentence)) and not _NO_ANSWER.match(sentence):
        return _ENGLISH[match[1].casefold()]
    return _word(_CLAUSES.split(sentence)[0])


def _plain_number(name: str) -> int | None:
    return int(name) if re.fullmatch(r"[0-9]{1,9}", name) else _WORDS.get(name)


def _number(part: str) -> int | None:
    if not re.fullmatch(r"\W*\d+[.)]?\W*", part):
        part = _LISTED.sub(" ", _AT_LINES_BEGINNING.sub("", part))
    part = _TENS_AND_UNITS.sub(r"\1-\2", part)
    values: list[int] = []
    for match in _NUMBER.finditer(part):
        if (match["rest"] or "").endswith("%"):
            continue
        is_bound = _BOUNDS.search(part[max(0, match.start() - 20) : match.start()]) or _RANGE.match(part, match.end())
        if is_bound or (match["rest"] and float(match["rest"]) > 0):
            return None
        values.append(_value(match))
        if len(values) == 1 and _OF_ALL.match(part, match.end()):
            break
    if len(set(values)) == 1:
        return values[0]
    total = sum(values)
    return total // 2 if len(values) > 2 and total in (2 * values[0], 2 * values[-1]) else None


def _value(match: re.Match[str]) -> int:
    """The value of a match of `_NUMBER`."""
    if match["digits"]:
        return int(match["digits"].replace(",", "")[:12])
    if match["words"]:
        return _WORDS[match["words"].casefold()]
    place = _IDEOGRAPHS.index(match["ideograph"]) if match["ideograph"] else 0
    return place if place <= 10 else 2


def _mark(part: str, names: Sequence[str]) -> int | None:
    part = re.sub(r"\A(?:option|choice|letter)\s+", "", _folded(part).lstrip(string.punctuation + " "))
    begun = [place for place, name in enumerate(names) if re.match(rf"{re.escape(name)}{_end(name)}", part)]
    chosen = max(begun, key=lambda place: len(names[place]), default=None)
    clauses = {_folded(clause.strip(string.punctuation + " ")) for clause in _CLAUSES.split(part)}
    others = [name for place, name in enumerate(names) if place != chosen and name in clauses]
    return None if others else chosen


def _end(name: str) -> str:
    """Pattern of the text after a mark. After a letter, which may be a word, it is a sign or nothing."""
    return r"(?=\s*(?:\Z|[).:,;\]/|]|\s-|\b(?:and|or)\b))" if len(name) == 1 else r"(?!\w)"
