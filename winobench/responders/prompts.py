"""Conversations as token ids: chat templates, the plain format of models without one, and where an option begins.

Chat: a template that refuses or leaves out system turns gets the system's text at the head of the first user turn.
Models do not think before they answer, where the template has ``enable_thinking``, and a printed date is a fixed one.

Plain: the texts of all turns, a system's first, each followed by a blank line. The answer follows. For models without a
template, unless they stop at a token that ends a turn of a chat: these have lost theirs. Encoder-decoder models always
get this format, without the blank line at the end.

Options: an option is written behind the prompt, after a space where neither side has white space. As tokenizers may
join both, its tokens begin where the tokens of the whole differ from the prompt's. All options of a request begin at
the same token. The end of the text is not part of an option. An encoder-decoder model's decoder reads the option alone.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.checkpoints import chat_templates as templates
from winobench.runs.requests import Turn
from winobench.scorers import common

TEMPLATES = ("auto", "tokenizer", "plain")
"""How turns become a text: by the tokenizer's chat template where there is one. By it in any case. By the plain format
in any case."""

_BLANK_LINE = "\n\n"
# The date that Llama 3's templates print where none is given. Those of Llama 3.2 print today's.
_DATE = "26 Jul 2024"

_REMEMBERED = 64

# Tokens that end a turn of a chat, or begin the next one. A model that stops at one has been trained on chats.
_END_OF_TURN = re.compile(
    r"<\|?/?(?:im_end|eot_id|eom_id|eot|end|end_of_turn|end_of_turn_token|endofturn|end_turn|turn|turn_end|return|call"
    r"|user|assistant|observation|system|im_start|start_of_turn|role_end|message_end|end_of_msg|end_of_role)\|?>"
    r"|<｜(?:User|Assistant)｜>|\[/?INST\]|\[e~\[|<extra_id_1>",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class OptionTokens:
    context: tuple[int, ...]
    options: tuple[tuple[int, ...], ...]


class Prompts:
    """Token ids of conversations, and text of token ids. ``chat``: whether a chat template renders turns."""

    def __init__(self, tokenizer: Any, *, template: str = "auto", separate: bool = False, stop_ids: Sequence[int] = ()):
        common.choice("chat_template", template, TEMPLATES)
        self._tokenizer, self._separate = tokenizer, separate
        where = str(getattr(tokenizer, "name_or_path", "") or "the tokenizer")
        applies = template != "plain" and not separate
        source = _template(tokenizer, where) if applies else None
        if template == "tokenizer" and source is None:
            raise InputError(
                "chat_template is 'tokenizer', but this model's tokenizer has no chat template that applies: say"
                " 'auto' or 'plain'",
                code="no-chat-template",
            )
        if applies and source is None:
            _check_is_no_chat_model(tokenizer, stop_ids, where)
        self._template = source
        self._arguments: dict[str, Any] = {}
        self._drops_system = False
        self.chat = source is not None
        if source is not None:
            self._arguments |= {"enable_thinking": False} if "enable_thinking" in source else {}
            self._arguments |= {"date_string": _DATE} if "date_string" in source else {}
            special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
            (_, _), (whole, _), *_ = templates.try_samples(source, special | self._arguments, where)
            # Then the system's text goes where it is read.
            self._drops_system = whole is not None and templates.SYSTEM not in whole
        self._head, self._tail = _special_tokens(tokenizer)
        # Prompts are needed by themselves and as parts of others, and first turns by many requests.
        self._ids = functools.lru_cache(_REMEMBERED)(self._tokenized)

    def fingerprint(self) -> dict[str, Any]:
        """Everything that decides the token ids of a conversation, as JSON values."""
        template = None if self._template is None else hashlib.sha256(self._template.encode()).hexdigest()
        return {
            "format": "chat" if self.chat else "plain",
            "template": template,
            "template_arguments": dict(self._arguments),
            "tokenizer": tokenizer_sha256(self._tokenizer),
            # Only then, so that other records keep their identity.
            **({"system_in_user_turn": True} if self._drops_system else {}),
        }

    def text(self, turns: Sequence[Turn]) -> str:
        if not self.chat:
            systems = [turn.text for turn in turns if turn.role == "system"]
            texts = systems + [turn.text for turn in turns if turn.role != "system"]
            return _BLANK_LINE.join(texts) + ("" if self._separate else _BLANK_LINE)
        return self._render(turns, answer=True)

    def encode(self, turns: Sequence[Turn]) -> tuple[int, ...]:
        """The token ids of `text`, with the special tokens of the tokenizer where no template has put them."""
        ids = self._ids(self.text(turns))
        return ids if self.chat else (*self._head, *ids, *(self._tail if self._separate else ()))

    def encode_prefix(self, turns: Sequence[Turn], prefix_turns: int) -> tuple[int, ...]:
        """The tokens that the conversation shares with all others that have the same first turns."""
        if not 0 < prefix_turns < len(turns):
            return ()
        first = turns[:prefix_turns]
        if self.chat:
            try:
                prefix = self._ids(self._render(first, answer=False))
            except InputError:
                return ()
        else:
            prefix = self.encode(first)
        ids = self.encode(turns)
        return ids[: min(_common(prefix, ids), len(ids) - 1)]

    def encode_options(self, turns: Sequence[Turn], options: Sequence[str]) -> OptionTokens:
        for option in options:
            if not option.strip():
                raise InputError(f"an option is {option!r}, but each must be a text to be scored", code="wrong-type")
        prompt = self.encode(turns)
        if self._separate:
            return OptionTokens(prompt, tuple(self._ids(option) for option in options))
        text = self.text(turns)
        head = () if self.chat else self._head
        whole = []
        for option in options:
            gap = "" if not text or text[-1].isspace() or option[0].isspace() else " "
            whole.append((*head, *self._ids(text + gap + option)))
        start = min(_common(prompt, ids) for ids in whole)
        return OptionTokens(prompt[:start], tuple(ids[start:] for ids in whole))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of an answer's tokens, without special ones."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def _tokenized(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _render(self, turns: Sequence[Turn], *, answer: bool) -> str:
        messages = templates.messages((turn.role, turn.text) for turn in turns)
        ways = [messages]
        if messages[0]["role"] == "system" and len(messages) > 1 and messages[1]["role"] == "user":
            joined = _BLANK_LINE.join((messages[0]["content"], messages[1]["content"]))
            ways.append([{"role": "user", "content": joined}, *messages[2:]])
        if self._drops_system and len(ways) > 1:
            del ways[0]
        for way in ways:
            try:
                return self._apply(way, answer)
            # The library passes on what the template's own code raises.
            except Exception as error:
                refusal = error
        roles = ", ".join(turn.role for turn in turns)
        reason = (str(refusal).strip() or type(refusal).__name__).splitlines()[0]
        raise InputError(
            f"the tokenizer's chat template refuses a conversation of the turns {roles} ({reason}): set chat_template"
            " to 'plain'",
            code="conversation-refused",
        ) from refusal

    def _apply(self, messages: list[dict[str, str]], answer: bool) -> str:
        with templates.bounded():
            return self._tokenizer.apply_chat_template(
                messages,
                chat_template=self._template,
                tokenize=False,
                add_generation_prompt=answer,
                **self._arguments,
            )


def _template(tokenizer: Any, where: str) -> str | None:
    source = getattr(tokenizer, "chat_template", None)
    if isinstance(source, Mapping) and source:
        if "default" not in source:
            raise InputError(
                f"the chat templates of {where} are {', '.join(map(str, source))[:200]}, and none is the default:"
                " add one, or set chat_template to 'plain' (--chat_template=plain)",
                code="no-chat-template",
            )
        source = source["default"]
    if source is None or source == {}:
        return None
    if not isinstance(source, str):
        raise InputError(
            f"the chat template of {where} is {options.quote(source)}, but it must be a text: correct it, or set"
            " chat_template to 'plain' (--chat_template=plain)",
            code="wrong-type",
        )
    return source


def _check_is_no_chat_model(tokenizer: Any, stop_ids: Sequence[int], where: str) -> None:
    """Raises InputError for a model that ends its answers as chats do. Base models only have the tokens."""
    stops = [str(token) for token in tokenizer.convert_ids_to_tokens(list(stop_ids))] if stop_ids else []
    stops.append(str(getattr(tokenizer, "eos_token", "")))
    marker = next((token for token in stops if _END_OF_TURN.fullmatch(token)), None)
    if marker is not None:
        raise InputError(
            f"{where} is a chat model, as its answers end with {marker}, but it has no chat template: add its"
            " chat_template.jinja, or set chat_template to 'plain' (--chat_template=plain)",
            code="no-chat-template",
        )


def tokenizer_sha256(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    content: Any = sorted(tokenizer.get_vocab().items()) if backend is None else json_files.parse(backend.to_str())
    if isinstance(content, dict):
        # State of the last call, not of the tokenizer.
        content = {name: value for name, value in content.items() if name not in ("padding", "truncation")}
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    return hashlib.sha256(json.dumps([content, special], sort_keys=True).encode()).hexdigest()


def _special_tokens(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a", add_special_tokens=True)["input_ids"]
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            return tuple(whole[:start]), tuple(whole[start + len(plain) :])
    return (), ()


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    for position, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return position
    return min(len(first), len(second))
