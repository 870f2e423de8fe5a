"""Objects of torch libraries as they are at one moment: tensors, options and the tables of tokenizers.

Such objects change in place, and nothing reports it. A `State` reads enough of them to see a change at each call.
"""

from __future__ import annotations

import copy
import hashlib
import math
import sys
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from winobench.base.errors import InputError

# Numbers of a network that a state reads. They are spaced, so that a changed row of a matrix shows.
_NUMBERS = 2**21
_FEWEST_OF_A_TENSOR = 64
# Larger containers are compared by a hash that only this process knows.
_LARGE = 4096
# A state reads objects of these packages. It knows others by their class and their place in memory.
_PACKAGES = ("diffusers", "peft", "transformers")
_CONFIGS = ("config", "_internal_dict")
# Other private attributes of modules keep results of earlier calls.
_ADAPTERS = ("_active_adapter", "_disable_adapters", "merged_adapters", "scaling")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# Attributes without an effect on results: places, messages, and records of earlier calls.
_IDLE = frozenset(
    {
        *("name_or_path", "_name_or_path", "_commit_hash", "transformers_version", "_merges", "_vocab", "vocab_file"),
        *("verbose", "files_loaded", "deprecation_warnings", "_in_target_context_manager", "folder"),
        *("_should_update_post_processor", "max_seq_len_cached", "peft_config", "num_timesteps"),
    }
)
# Of a scheduler. Its other attributes are of one run.
_SHIFT, _OF_SCHEDULERS = "_shift", ("_internal_dict", "betas", "alphas_cumprod")

Entry = tuple[Any, Any]
"""A value, which is the same in all processes, and a mark, which means something in this one alone."""


class State:
    """State of objects at one moment. Equal if nothing has changed.

    Attributes:
      tensors: the weights in a ``state_dict``. Each attribute has names with entries.
      saved: configs, and what the files of a tokenizer hold.
      options: attributes of objects and of their modules, hooks, and tensors that no file holds.
      adapters: scales of LoRA layers, and which of them are used.
    """

    def __init__(self, *, with_tensors: bool = True) -> None:
        self._with_tensors = with_tensors
        self.tensors: dict[str, Entry] = {}
        self.saved: dict[str, Entry] = {}
        self.options: dict[str, Entry] = {}
        self.adapters: dict[str, Entry] = {}
        self._seen: set[int] = set()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._parts == other._parts

    __hash__ = None  # type: ignore[assignment]

    @property
    def _parts(self) -> tuple[dict[str, Entry], ...]:
        return self.tensors, self.saved, self.options, self.adapters

    @property
    def values(self) -> list[dict[str, Any]]:
        """All values, without the marks."""
        return [{name: value for name, (value, _) in part.items()} for part in self._parts]

    def of(self, name: str) -> list[dict[str, Entry]]:
        """The entries of one object."""
        return [
            {one: entry for one, entry in part.items() if one == name or one.startswith(f"{name}.")}
            for part in self._parts
        ]

    def changed(self, before: State) -> dict[str, str]:
        """Digests of the adapters, and of the options that are others than before."""
        values = {name: value for name, (value, _) in self.adapters.items()}
        for name, (value, _) in self.options.items():
            if name in before.options and before.options[name][0] != value:
                values[name] = value
        return {name: hashlib.sha256(repr(value).encode()).hexdigest() for name, value in sorted(values.items())}

    def read(self, name: str, thing: Any) -> None:
        """Adds a network, a tokenizer, a scheduler or another object."""
        if _is_module(thing):
            self._read_module(name, thing)
        elif getattr(thing, "special_tokens_map", None) is not None:
            self._read_tokenizer(name, thing)
        elif getattr(thing, "set_timesteps", None) is not None:
            own = {field: value for field, value in vars(thing).items() if field in _OF_SCHEDULERS}
            self.saved[name] = self._entry([type(thing), own])
            self.options[name] = self._entry(vars(thing).get(_SHIFT))
        else:
            self.options[name] = self._entry(thing)

    def _read_module(self, name: str, module: Any) -> None:
        if self._with_tensors:
            kept = {field: tensor for field, tensor in module.state_dict(keep_vars=True).items() if _is_tensor(tensor)}
            step = _step(sum(tensor.numel() for tensor in kept.values()))
            self.tensors |= {f"{name}.{field}": _tensor(tensor, step) for field, tensor in kept.items()}
            self.tensors[name] = type(module).__qualname__, id(module)
        for prefix, part in module.named_modules():
            path, own = f"{name}.{prefix}", vars(part)
            self.saved |= {f"{path}.{field}": self._entry(own[field]) for field in _CONFIGS if field in own}
            if type(part).__module__.startswith("peft"):
                self.adapters[path] = self._entry([own.get(field) for field in _ADAPTERS])
                continue
            options = {field: value for field, value in own.items() if field[0] != "_" and field not in _CONFIGS}
            options |= {field: list(own[field].values()) for field in _HOOKS}
            # Sorted: a copy of a set can have another order, and so can another process.
            options |= {
                field: part._buffers[field]
                for field in sorted(part._non_persistent_buffers_set)
                if field in part._buffers
            }
            self.options[path] = self._entry([type(part), options])

    def _read_tokenizer(self, name: str, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        own = {key: value for key, value in vars(tokenizer).items() if value is not backend}
        saved = {*getattr(tokenizer, "init_kwargs", ()), "init_kwargs", "model_max_length", "chat_template"}
        saved |= {"_special_tokens_map", "_extra_special_tokens", "_add_bos_token", "_add_eos_token"}
        self.options[name] = self._entry({key: value for key, value in own.items() if key not in saved})
        content = [type(tokenizer), {key: value for key, value in own.items() if key in saved}]
        if backend is not None:
            # The tables of a model never change in place. Its short text shows another model.
            content += [repr(backend.model), backend.get_vocab_size(), backend.encode_special_tokens]
            content += [
                repr(sorted((number, repr(token)) for number, token in backend.get_added_tokens_decoder().items()))
            ]
            content += _steps(backend)
        self.saved[name] = self._entry(content)

    def _entry(self, value: Any) -> Entry:
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return repr(value), None
        if _is_tensor(value):
            return _tensor(value) if self._with_tensors else ("tensor", None)
        if isinstance(value, np.ndarray):
            return hashlib.sha256(repr((value.dtype, value.shape)).encode() + value.tobytes()).hexdigest(), None
        if isinstance(value, Mapping):
            named = {str(name): item for name, item in value.items() if name not in _IDLE}
            return self._entries(list(named), list(named.values()))
        if isinstance(value, set | frozenset):
            return repr(sorted(map(repr, value))), None
        if isinstance(value, list | tuple):
            return self._entries([], value)
        if getattr(value, "__qualname__", None) is not None:  # a class or a function
            return f"{value.__module__}.{value.__qualname__}", id(value)
        package = type(value).__module__.partition(".")[0]
        if package in ("tokenizers", "torch") and not _is_module(value):
            return repr(value), None
        name = type(value).__qualname__
        if package not in _PACKAGES or not hasattr(value, "__dict__") or _is_module(value):
            return name, id(value)
        if id(value) in self._seen:
            return name, None
        self._seen.add(id(value))
        values, marks = self._entry(vars(value))
        return (name, values), marks

    def _entries(self, names: list[str], values: Iterable[Any]) -> Entry:
        values = list(values)
        if len(values) > _LARGE:
            return (len(values),), hash((*names, *map(repr, values)))
        entries = [self._entry(value) for value in values]
        marks = [mark for _, mark in entries if mark is not None]
        return (*names, *(value for value, _ in entries)), tuple(marks) or None


def _is_module(value: Any) -> bool:
    return hasattr(value, "named_modules")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "_version") and hasattr(value, "data_ptr")


def _step(total: int) -> int:
    step = max(1, total // _NUMBERS)
    while math.gcd(step, 210) > 1:  # widths of matrices are products of small numbers
        step += 1
    return step


def _tensor(tensor: Any, step: int = 1) -> Entry:
    """A digest of spaced numbers: the version does not count writes by ``.data`` or by NumPy."""
    form = repr((tuple(tensor.shape), str(tensor.dtype)))
    if tensor.is_meta:
        return form, (id(tensor), tensor._version)
    torch = sys.modules["torch"]
    every = min(step, max(1, tensor.numel() // _FEWEST_OF_A_TENSOR))
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
    numbers = tensor.detach().reshape(-1).view(whole[tensor.element_size()]).numpy()[::every].tobytes()
    return hashlib.sha256(form.encode() + numbers).hexdigest(), (id(tensor), tensor._version, tensor.data_ptr())


def options_digest(*things: Any) -> str:
    """A digest of configs and attributes: what a trace depends on, next to shapes."""
    state = State(with_tensors=False)
    for number, thing in enumerate(things):
        state.read(str(number), thing)
    return hashlib.sha256(repr(state.values).encode()).hexdigest()


def check_same(before: Any, now: Any, name: str) -> None:
    """Raises InputError unless a part is as it was."""
    if now != before:
        raise InputError(
            f"parts of this {name} changed while it was in use: change them before a call or an evaluation begins, or"
            " after it",
            code="scorer-changed",
        )


def tokenizer_values(tokenizers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Values of tokenizers. Copies of them have the same ones."""
    state = State()
    for name, tokenizer in tokenizers.items():
        state.read(name, tokenizer)
    return state.values


# Tokenizer -> its `_how` at first sight. A copy has the original's.
_first: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _steps(backend: Any) -> list[Any]:
    parts = (backend.normalizer, backend.pre_tokenizer, backend.post_processor, backend.decoder)
    return [None if part is None else part.__getstate__() for part in parts]


def _how(tokenizer: Any) -> str:
    """A digest of what a tokenizer does around its vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    sides = [getattr(tokenizer, name, None) for name in ("padding_side", "truncation_side", "split_special_tokens")]
    special = {name: str(token) for name, token in getattr(tokenizer, "special_tokens_map", {}).items()}
    content: list[Any] = [sides, special]
    if backend is not None:
        added = backend.get_added_tokens_decoder().values()
        # Other added tokens are in the vocabulary that an identity has.
        content += [sorted(repr(entry) for entry in added if backend.model.token_to_id(entry.content) is not None)]
        content += _steps(backend)
    return hashlib.sha256(repr(content).encode()).hexdigest()


def see(tokenizers: Mapping[str, Any]) -> None:
    """Remembers tokenizers as they are, unless they were seen before."""
    for tokenizer in tokenizers.values():
        _first.setdefault(tokenizer, _how(tokenizer))


def changes_of_tokenizer(tokenizer: Any) -> list[str]:
    """A digest for a tokenizer that was changed around its vocabulary. Empty for others, whose identities stay."""
    now = _how(tokenizer)
    return [] if _first.get(tokenizer, now) == now else [now]


def copied(owner: Any, tokenizers: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of an owner's tokenizers that nobody changes. The same ones again while the tokenizers stay the same."""
    see(tokenizers)
    values = tokenizer_values(tokenizers)
    before, copies = vars(owner).get("_copied_parts", (None, {}))
    if before != values:
        copies = copy.deepcopy(dict(tokenizers))
        for name, tokenizer in copies.items():
            _first[tokenizer] = _first[tokenizers[name]]
        vars(owner)["_copied_parts"] = values, copies
    return copies
