"""CLIP's tokenizer in the files that winobench writes, without transformers, whose import takes most of a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

END_OF_WORD = "</w>"
# Of CLIP: contractions, runs of letters, single digits, and runs of other signs.
_PIECES = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
# Attributes by which other modules tell networks, schedulers and tensors from tokenizers.
_OF_OTHERS = ("named_modules", "set_timesteps", "data_ptr")


class Encoded(dict[str, Any]):
    """Token ids and attention mask, with the library's own results."""

    encodings: Sequence[Any] = ()


class _Settings(NamedTuple):
    model_max_length: int
    special: Mapping[str, str]


class CLIPTokenizer:
    """Turns texts into ids. It becomes transformers' tokenizer with the same state when anything else is requested.

    Attributes:
      backend_tokenizer: of the library ``tokenizers``, equal to transformers'.
    """

    def __init__(self, vocabulary: str, merges: str, model_max_length: int, special: Mapping[str, str]):
        """Reads the files.

        Args:
          vocabulary: the path of ``vocab.json``, with all special tokens.
          merges: the path of ``merges.txt``.
          model_max_length: of texts, in tokens.
          special: name of each of ``SPECIAL_TOKENS`` -> token.
        """
        backend = _backend(vocabulary, merges, special)
        ids = {f"{name}_id": backend.token_to_id(token) for name, token in special.items()}
        sides = dict.fromkeys(("padding_side", "truncation_side"), "right")
        vars(self).update(
            _settings=_Settings(model_max_length, dict(special)),
            backend_tokenizer=backend,
            model_max_length=model_max_length,
            special_tokens_map={name: special[name] for name in SPECIAL_TOKENS},
            all_special_tokens=list(dict.fromkeys(special[name] for name in SPECIAL_TOKENS)),
            split_special_tokens=False,
            chat_template=None,
            init_kwargs={},
            **special,
            **ids,
            **sides,
        )

    def __call__(self, text: Any, *arguments: Any, **how: Any) -> Any:
        """Texts as ids, padded and truncated. Other calls are transformers'."""
        length = how.get("max_length")
        usual = {"padding": "max_length", "truncation": True, "max_length": length}
        if arguments or how != usual or length is None or not isinstance(text, list):
            return self._becoming()(text, *arguments, **how)
        backend = self.backend_tokenizer
        backend.enable_truncation(length)
        backend.enable_padding(length=length, pad_id=self.pad_token_id, pad_token=self.pad_token)
        encodings = backend.encode_batch(text)
        encoded = Encoded(
            input_ids=[encoding.ids for encoding in encodings],
            attention_mask=[encoding.attention_mask for encoding in encodings],
        )
        encoded.encodings = encodings
        return encoded

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size()

    def get_vocab(self) -> dict[str, int]:
        return self.backend_tokenizer.get_vocab()

    @property
    def added_tokens_encoder(self) -> dict[str, int]:
        """Special and added tokens -> ids, in the order of the ids."""
        decoder = self.backend_tokenizer.get_added_tokens_decoder()
        return {token.content: number for number, token in sorted(decoder.items())}

    def _becoming(self) -> Any:
        """Makes this object transformers' tokenizer, with the same backend."""
        import transformers

        backend, settings = self.backend_tokenizer, self._settings
        model = transformers.CLIPTokenizer(model_max_length=settings.model_max_length, **settings.special)
        vars(self).clear()
        vars(self).update(vars(model), _tokenizer=backend)
        object.__setattr__(self, "__class__", type(model))
        self._wrap_decode_method_backend_tokenizer()
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in _OF_OTHERS:
            raise AttributeError(name)
        return getattr(self._becoming(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._becoming(), name, value)


def _backend(vocabulary: str, merges: str, special: Mapping[str, str]) -> Any:
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    backend = tokenizers.Tokenizer(
        models.BPE(
            vocabulary,
            merges,
            continuing_subword_prefix="",
            end_of_word_suffix=END_OF_WORD,
            fuse_unk=False,
            unk_token=special["unk_token"],
        )
    )
    blanks = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), blanks, normalizers.Lowercase()])
    pieces = pre_tokenizers.Split(tokenizers.Regex(_PIECES), behavior="removed", invert=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pieces, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = decoders.ByteLevel()
    ends = [(special[name], backend.token_to_id(special[name])) for name in ("eos_token", "bos_token")]
    backend.post_processor = processors.RobertaProcessing(*ends, trim_offsets=False, add_prefix_space=False)
    tokens = dict.fromkeys(special[name] for name in SPECIAL_TOKENS)
    backend.add_tokens([tokenizers.AddedToken(token, special=True) for token in tokens])
    return backend


def settings(
    tokenizer_config: Mapping[str, Any], special_tokens: Mapping[str, Any], vocabulary: Mapping[str, Any]
) -> tuple[int, dict[str, str]] | None:
    """The last two arguments of `CLIPTokenizer`. None for other files than winobench writes."""
    special = {name: tokenizer_config.get(name) for name in SPECIAL_TOKENS}
    length = tokenizer_config.get("model_max_length")
    known = {"tokenizer_class": "CLIPTokenizer", "model_max_length": length, **special}
    is_known = dict(tokenizer_config) == known and dict(special_tokens) == special and type(length) is int
    if not is_known or not all(isinstance(token, str) and token in vocabulary for token in special.values()):
        return None
    return length, special
