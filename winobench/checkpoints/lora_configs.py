"""Peft's configs of adapters: ``adapter_config.json`` next to a file, or in a file's metadata, as diffusers has them.

A config states how strong an adapter is: alpha over the rank, or over its root (rsLoRA), with other values for layers
that match a pattern. All other options that change an adapter's results are refused by name. Other programs' statements
of an alpha in the metadata are read as well (`stated`).
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import regex

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.checkpoints import lora_keys, sources, weights
from winobench.checkpoints.sources import ADAPTER_CONFIG
from winobench.models.config import is_count

_log = logging.getLogger(__name__)

# Where safetensors files of diffusers 0.34 and later may keep peft's config, as JSON.
_METADATA_KEY = "lora_adapter_metadata"
# Names of alpha and rank in the metadata of other programs, such as kohya's and SimpleTuner.
_ALPHAS = ("lora_alpha", "network_alpha", "ss_network_alpha", "alpha")
_RANKS = ("r", "rank", "lora_r", "lora_rank", "lora_dim", "network_rank", "network_dim", "ss_network_dim", "dim")
_PATTERNS = ("rank_pattern", "alpha_pattern", "use_rslora")
# Entries of the metadata whose values, as JSON, may have these names.
_CONFIG = re.compile("lora|adapter|peft|network|config")
# Names of other statements of a strength.
_STRENGTH = re.compile(
    r"(?:ss_)?(?:(?:lora|network|adapter|lycoris|conv)_?)?(?:alpha|scale|scaling|strength|multiplier|weight)s?|use_rslora"
)

# How adapters begin without a change of the base weights. PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA change them.
_PLAIN_STARTS = (True, False, None, "true", "false", "gaussian", "eva", "orthogonal", "mica")
# Options that are read here, and options without effect on a saved adapter. Of dense layers and convolutions peft
# itself ignores fan_in_fan_out.
_READ = {
    *("peft_type", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "bias", "init_lora_weights"),
    *("use_dora", "lora_bias", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
}
_WITHOUT_EFFECT = {
    *("auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode", "peft_version"),
    *("lora_dropout", "fan_in_fan_out", "megatron_core", "qalora_group_size", "runtime_config"),
    *("loftq_config", "eva_config", "corda_config", "lora_ga_config"),
}
# Kind of adapter -> the option of its alpha, and options without effect, since shapes of tensors show them.
_OF_LYCORIS = ("init_weights", "rank_dropout", "module_dropout", "rank_dropout_scale", "use_effective_conv2d")
_KINDS = {
    "LORA": ("lora_alpha", ()),
    "LOHA": ("alpha", ("alpha", *_OF_LYCORIS)),
    "LOKR": ("alpha", ("alpha", *_OF_LYCORIS, "decompose_both", "decompose_factor")),
}
# Characters of a pattern, and the time for all of a config's patterns: some expressions take for ever.
_LONGEST_PATTERN = 1000
_SECONDS = 10.0


@dataclasses.dataclass
class PeftConfig:
    """Peft's config of one network's adapters."""

    place: str  # for messages
    kind: str | None  # peft's name. None for any
    extras: Mapping[str, bool]  # option -> whether each layer has the tensor that belongs to it
    rank: int | None  # of layers that match none of `ranks`. None for any
    alpha: float
    ranks: list[tuple[regex.Pattern, int]]  # by a pattern of layers' names: the first that matches counts
    alphas: list[tuple[regex.Pattern, float]]
    by_root: bool  # divide alpha by the root of the rank (rsLoRA; Kalajdzievski, 2023, Eq. 4)
    targets: Mapping[str, Any] | None  # the options that name the adapted layers, or None where the tensors decide
    seconds: float = _SECONDS  # left for patterns

    def check_form(self, layer: str, kind: str | None, roles: Collection[str]) -> None:
        """Raises InputError unless a layer's tensors are of the kind that the config states."""
        if self.kind is not None and kind != self.kind:
            message = f"{self.place} is for {self.kind}, but the file has a {kind or 'difference'} of {layer}"
            raise InputError(f"{message}: get both again", code="mismatched-parts")
        for option, role in (("use_dora", "magnitude"), ("lora_bias", "up_bias")):
            if self.extras.get(option, role in roles) != (role in roles):
                message = f"{self.place} has {option}={self.extras[option]}, which the tensors of {layer} contradict"
                raise InputError(f"{message}: get both again", code="mismatched-parts")

    def alpha_of(self, layer: str, rank: int | None) -> float:
        """The layer's alpha: alpha / rank scales the product of its factors, or alpha if the tensors have no rank."""
        configured = self._first(self.ranks, layer, self.rank)
        if configured is not None and rank not in (None, configured):
            message = f"{self.place} gives {layer} the rank {configured}, but its tensors have {rank}: get both again"
            raise InputError(message, code="mismatched-parts")
        if self.targets is not None and not self._is_target(layer):
            message = f"{self.place} does not adapt {layer} (target_modules), but the file does: get both again"
            raise InputError(message, code="mismatched-parts")
        alpha = self._first(self.alphas, layer, self.alpha)
        if rank is None:
            return alpha / configured if self.kind else 1.0
        return alpha * math.sqrt(rank) if self.by_root else float(alpha)

    def _first(self, patterns: list[tuple[regex.Pattern, Any]], name: str, default: Any) -> Any:
        return next((value for pattern, value in patterns if self._match(pattern.match, name)), default)

    def _is_target(self, name: str) -> bool:
        targets, excluded = self.targets["target_modules"], self.targets["exclude_modules"]
        if excluded is not None and self._is_named(excluded, name):
            return False
        if targets is None or not self._is_named(targets, name):
            return targets is None
        chosen = self.targets["layers_to_transform"]
        if isinstance(targets, regex.Pattern) or name in targets or not chosen:
            return True
        matches = (self._match(pattern.match, name) for pattern in self.targets["layers_pattern"])
        return next((int(match["index"]) in chosen for match in matches if match), False)

    def _is_named(self, which: regex.Pattern | list[str], name: str) -> bool:
        if isinstance(which, regex.Pattern):
            return bool(self._match(which.fullmatch, name))
        return any(name == one or name.endswith(f".{one}") for one in which)

    def _match(self, match: Callable[..., Any], name: str) -> Any:
        """Match of a pattern in a name, within the time that is left for all patterns."""
        start = time.monotonic()
        try:
            return match(name, timeout=self.seconds)
        except (TimeoutError, MemoryError, RecursionError) as error:
            raise InputError(
                f"{self.place} has patterns of layers that need more than {_SECONDS:g} s or too much memory to match:"
                " write the layers' names in their place",
                code="bad-name",
            ) from error
        finally:
            self.seconds = max(self.seconds - (time.monotonic() - start), 1e-3)


def next_to(path: str) -> PeftConfig | None:
    """The config in the folder of a file."""
    place = os.path.join(os.path.dirname(path), ADAPTER_CONFIG)
    if not os.path.lexists(place):
        return None
    content = json_files.read_object(place, "get it again")
    with sources.blame(place):
        if not isinstance(content.get("peft_type"), str):
            raise InputError("has no peft_type, which each config of an adapter has: get it again", code="not-a-lora")
    return _checked(place, content, targets=True)


def within(path: str) -> dict[str | None, PeftConfig]:
    """The configs in a file's metadata. Returns name of the network, or None for the whole file -> its config."""
    if not (text := weights.metadata(path).get(_METADATA_KEY)):
        return {}
    origin = f"{path}: its metadata {_METADATA_KEY}"
    try:
        values = json_files.parse(text)
        named = {key: lora_keys.split_prefix(key) for key in values.keys()}  # noqa: SIM118  # refuses a list
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{origin} is not a JSON object: get it again", code="not-json") from error
    contents: dict[str | None, dict[str, Any]] = {}
    for key, split in named.items():
        part, option = split or (None, key)
        contents.setdefault(part, {})[option] = values[key]
    return {part: _checked(origin, content, targets=False) for part, content in contents.items()}


def stated(path: str) -> dict[str | None, PeftConfig]:
    """The alphas in a file's metadata by other names than diffusers': network, or None for all -> its config.

    Logs one line about statements that are not used.
    """
    contents: dict[str | None, dict[str, Any]] = {}
    unused = []
    for key, value in _statements(weights.metadata(path)):
        part, option = lora_keys.split_prefix(key) or (None, key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if option in _RANKS and is_number:
            option = "r"
        elif option in _ALPHAS and is_number:
            option = "lora_alpha"
        elif option not in _PATTERNS or not value:
            if _STRENGTH.fullmatch(option) and value not in (None, False, "", "None"):
                unused.append(f"{key}={value}")
            continue
        content = contents.setdefault(part, {})
        if content.setdefault(option, value) != value:
            name = "rank" if option == "r" else option
            message = f"{path}: its metadata has the {name} {content[option]} and also {value} ({key}): get it again"
            raise InputError(message, code="mismatched-parts")
    if unused:
        _log.warning("%s: its metadata has %s, which is not used.", path, ", ".join(unused))
    origin = f"{path}: its metadata"
    return {
        part: dataclasses.replace(
            _checked(origin, {"r": 1} | content, targets=False), kind=None, extras={}, rank=content.get("r")
        )
        for part, content in contents.items()
        if "lora_alpha" in content
    }


def _statements(metadata: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """All entries of a file's metadata, and of configs in JSON among them, with networks' names in front."""
    for key, text in metadata.items():
        value = _value(text)
        if not isinstance(value, Mapping) or key.rpartition(".")[2] in _PATTERNS:
            yield key, value
        elif _CONFIG.search(key):
            split = lora_keys.split_prefix(key)
            for name, inner in value.items():
                if isinstance(inner, Mapping) and name not in _PATTERNS:
                    yield from ((f"{name}.{option}", _value(item)) for option, item in inner.items())
                else:
                    yield f"{split[0]}.{name}" if split else name, _value(inner)


def _value(text: Any) -> Any:
    """The value of a text that is JSON, and all others as they are."""
    try:
        return json_files.parse(text) if isinstance(text, str) else text
    except ValueError:
        return text


def _checked(origin: str, content: Mapping[str, Any], *, targets: bool) -> PeftConfig:
    """A config of supported options. Raises InputError for all others."""
    with sources.blame(origin):
        kind = _refuse_unsupported(content)
        alpha = _KINDS[kind][0]
        flags = {name: content.get(name) or False for name in ("use_rslora", "use_dora", "lora_bias")}
        for name, value in flags.items():
            _checked_as(name, value, isinstance(value, bool), "a bool")
        by_root = flags.pop("use_rslora")
        return PeftConfig(
            origin,
            kind,
            flags,
            _check_rank("r", content.get("r", 8)),  # defaults are peft's
            options.SCALE.check(alpha, content.get(alpha, 8)),
            _patterns(content, "rank_pattern", _check_rank),
            _patterns(content, "alpha_pattern", options.SCALE.check),
            by_root,
            _targets(content) if targets else None,
        )


def _refuse_unsupported(content: Mapping[str, Any]) -> str:
    """The kind of adapter, all of whose options are supported."""
    kind = content.get("peft_type", "LORA")
    if kind not in _KINDS:
        message = f"the adapter is of the kind {options.quote(kind)}, but only {', '.join(_KINDS)} are supported"
        raise InputError(message, code="unsupported-option")
    unsupported = {
        name: value
        for name, value in content.items()
        if name not in _READ.union(_WITHOUT_EFFECT, _KINDS[kind][1]) and value not in (None, False, 0, "", [], {})
    }
    if content.get("bias", "none") != "none":
        unsupported["bias"] = content["bias"]
    start = content.get("init_lora_weights", True)
    if (start.lower() if isinstance(start, str) else start) not in _PLAIN_STARTS:
        unsupported["init_lora_weights"] = start
    if unsupported:
        name, value = next(iter(unsupported.items()))
        advice = "save it in peft's converted form" if name == "init_lora_weights" else "merge it into the model"
        message = f"the adapter was made with {name}={options.quote(value)}, which is not supported: {advice}"
        raise InputError(message, code="unsupported-option")
    return kind


def _checked_as(name: str, value: Any, is_right: bool, expected: str, code: str = "wrong-type") -> Any:
    if not is_right:
        raise InputError(f"{name} is {options.quote(value)}, but must be {expected}", code=code)
    return value


def _check_rank(name: str, value: Any) -> int:
    return _checked_as(name, value, is_count(value), "a whole number of at least 1", "out-of-range")


def _patterns(
    content: Mapping[str, Any], name: str, check: Callable[[str, Any], Any]
) -> list[tuple[regex.Pattern, Any]]:
    """Patterns match ends of names that begin behind a dot, as in peft. ``^`` ties them to the beginning."""
    patterns = content.get(name) or {}
    _checked_as(name, patterns, isinstance(patterns, Mapping), "an object", "not-an-object")
    return [
        (_compiled(name, rf"(.*\.)?({pattern})$", pattern), check(f"{name} of {pattern}", value))
        for pattern, value in patterns.items()
    ]


def _targets(content: Mapping[str, Any]) -> dict[str, Any]:
    """The options that choose layers, ready to be matched. None or an empty list chooses all."""
    checked: dict[str, Any] = {}
    for name in ("target_modules", "exclude_modules", "layers_pattern"):
        value = content.get(name) or None
        is_right = value is None or isinstance(value, str) or _is_list(value, str)
        checked[name] = _checked_as(name, value, is_right, "a text or a list of texts")
    numbers = content.get("layers_to_transform")
    numbers = [] if numbers is None else numbers if isinstance(numbers, list) else [numbers]
    name = "layers_to_transform"
    checked[name] = _checked_as(name, numbers, _is_list(numbers, int), "whole numbers")
    if checked["target_modules"] == "all-linear":
        checked["target_modules"] = None
    for name in ("target_modules", "exclude_modules"):
        if isinstance(checked[name], str):
            checked[name] = _compiled(name, checked[name])
    layers = checked["layers_pattern"]
    named = [layers] if isinstance(layers, str) else layers
    starts = [r".*?\.[^.]*"] if named is None else [rf"(?:^|.*?\.){part}" for part in named]
    checked["layers_pattern"] = [_compiled("layers_pattern", rf"{start}\.(?P<index>\d+)\.", start) for start in starts]
    return checked


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(one, kind) for one in value)


def _compiled(name: str, pattern: str, shown: str | None = None) -> regex.Pattern:
    try:
        if len(pattern) > _LONGEST_PATTERN:
            raise ValueError
        return regex.compile(pattern)
    except (regex.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        expected = f"a name of a layer or a regular expression of at most {_LONGEST_PATTERN:,} characters"
        raise InputError(f"{name} has {options.quote(shown or pattern)}, not {expected}", code="bad-name") from error
