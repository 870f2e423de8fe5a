"""CLIP's tokenizer without transformers, for the files that `tokenizer_files.write_clip_tokenizer` writes.

To import transformers takes longer than everything else that a short evaluation imports.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

# Radford et al. 2021: contractions, runs of letters, single digits, and runs of other signs.
_PIECES = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"

_lock = threading.Lock()


class Encoded(NamedTuple):
    """As transformers' tokenizers return texts."""

    encodings: list[tokenizers.Encoding]


class CLIPTokenizer:
    """Gives the ids that transformers' class of this name gives, and becomes one at the first other use."""

    def __init__(self, folder: str, vocabulary: str, merges: str, special: dict[str, str], model_max_length: int):
        """Paths, the special tokens by transformers' names for them, and the length of the longest text."""
        self._folder, self._special, self.model_max_length = folder, special, model_max_length
        self.bos_token, self.eos_token = special["bos_token"], special["eos_token"]
        self.all_special_tokens = list(dict.fromkeys(special.values()))
        words = {"continuing_subword_prefix": "", "end_of_word_suffix": "</w>", "unk_token": special["unk_token"]}
        backend = tokenizers.Tokenizer(models.BPE.from_file(vocabulary, merges, **words))
        backend.normalizer = normalizers.Sequence(
            [normalizers.NFC(), normalizers.Replace(tokenizers.Regex(r"\s+"), " "), normalizers.Lowercase()]
        )
        ends = r"<\|startoftext\|>|<\|endoftext\|>|"
        split = pre_tokenizers.Split(tokenizers.Regex(ends + _PIECES), behavior="removed", invert=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens(
            [tokenizers.AddedToken(token, special=True, normalized=False) for token in self.all_special_tokens]
        )
        start, end = ((token, backend.token_to_id(token)) for token in (self.bos_token, self.eos_token))
        backend.post_processor = processors.RobertaProcessing(end, start, trim_offsets=False, add_prefix_space=False)
        self.backend_tokenizer = backend
        self.added_tokens_encoder = {token: backend.token_to_id(token) for token in self.all_special_tokens}
        self.pad_token_id = backend.token_to_id(special["pad_token"])

    def padded(self, texts: Sequence[str], length: int) -> Encoded:
        """Texts, padded and truncated."""
        backend = self.backend_tokenizer
        with _lock:  # both are states of the object
            backend.enable_truncation(length)
            backend.enable_padding(length=length, pad_id=self.pad_token_id, pad_token=self._special["pad_token"])
            return Encoded(backend.encode_batch(list(texts)))

    def get_vocab(self) -> dict[str, int]:
        return self.backend_tokenizer.get_vocab()

    def __len__(self) -> int:
        return len(self.get_vocab())

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self._become_whole()
        return self(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_folder" not in vars(self):
            raise AttributeError(name)
        self._become_whole()
        return getattr(self, name)

    def _become_whole(self) -> None:
        import transformers

        with _lock:
            if type(self) is CLIPTokenizer:  # no other thread was faster
                whole = transformers.CLIPTokenizer.from_pretrained(self._folder, local_files_only=True)
                self.__dict__, self.__class__ = vars(whole), type(whole)


def takes(settings: Sequence[dict[str, Any]], special: Sequence[str]) -> bool:
    """Whether the two files next to a vocabulary and merges say what `CLIPTokenizer` needs, and no more."""
    if len(settings) != 2 or not isinstance(settings[0].get("model_max_length"), int):
        return False
    tokens = [{name: one.get(name) for name in special} for one in settings]
    known = {"tokenizer_class", "model_max_length", *special}
    is_plain = all(isinstance(token, str) for one in tokens for token in one.values())
    return is_plain and all(one == tokens[0] for one in tokens) and all(one.keys() <= known for one in settings)
