"""SigLIP and SigLIP 2 from transformers' folders and hub repositories: network, image processor and tokenizer.

They are distinguished by their tokenizers. SigLIP's has pieces of SentencePiece's unigram model: texts are put into
lower case, lose ASCII's punctuation and are padded with the end of text, as in transformers' ``SiglipTokenizer``.
SigLIP 2's is Gemma's, of byte pairs: texts are put into lower case, as in training (Tschannen et al., 2025, Sec. 2.1).
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from winobench.base.errors import InputError
from winobench.base.texts import check_texts
from winobench.checkpoints import fast_tokenizers, models, processor_files, sources, tokenizer_files, weights
from winobench.contrib.siglip.network import SiglipModel
from winobench.data.processors import ImageProcessor

_NEEDED = ("spiece.model", "tokenizer.json")
_TOKENIZER_FILES = (*_NEEDED, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
# Of a SigLIP, and of SigLIP 2, whose class is Gemma's in earlier versions of transformers.
_TOKENIZERS = ("SiglipTokenizer", "GemmaTokenizer", "Siglip2Tokenizer", *fast_tokenizers.ANY)
_BLANK = "▁"  # SentencePiece's
_PAD = "</s>"  # the end of text
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Checkpoint(NamedTuple):
    """A SigLIP that is ready for use."""

    model: SiglipModel
    processor: ImageProcessor
    tokenizer: Any  # of transformers, for `siglip_ids`


def load_siglip(
    source: str | sources.Source,
    *,
    dtype: Any = "float32",
    variant: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> Checkpoint:
    """Loads a SigLIP, or a SigLIP 2 of fixed resolution, in float32, bfloat16 or float16."""
    dtype = models.as_dtype(dtype)
    source = sources.resolve(source, revision=revision)
    _refuse_naflex(source)
    config = models.read_config(SiglipModel, source)
    processor = processor_files.read_image_processor(source, "siglip")
    processor_files.check_size(source, processor, config.vision_config.image_size)
    tokenizer = read_siglip_tokenizer(source, config.text_config.vocab_size)
    paths = weights.find_weights(source, None, "model", variant=variant, allow_pickle=allow_pickle)
    model = models.build_model(SiglipModel, config, weights.read_weights(paths), dtype=dtype)
    return Checkpoint(model, processor, tokenizer)


def _refuse_naflex(source: sources.Source) -> None:
    path = source.require("config.json", "so it does not hold a SigLIP")
    if sources.read_json(path).get("model_type") == "siglip2":
        raise InputError(
            f"{path} has the model_type 'siglip2', the NaFlex variant for images of any shape, which is not supported:"
            " take a SigLIP 2 of fixed resolution, such as google/siglip2-so400m-patch14-384",
            code="wrong-kind-of-model",
        )


def read_siglip_tokenizer(source: str | sources.Source, vocab_size: int) -> Any:
    """Reads the tokenizer of a SigLIP or a SigLIP 2."""
    source = sources.resolve(source)
    path = source.find("tokenizer_config.json")
    options = sources.read_json(path) if path is not None else {}
    fast_tokenizers.check_class(path, _TOKENIZERS)
    if str(options.get("tokenizer_class", "SiglipTokenizer")).removesuffix("Fast") == "SiglipTokenizer":
        tokenizer = _read_pieces(source, options)
    else:
        tokenizer = fast_tokenizers.read_fast_tokenizer(source)
    tokenizer_files.check_size(tokenizer, vocab_size, f"of {source}")
    return tokenizer


def _read_pieces(source: sources.Source, options: dict[str, Any]) -> Any:
    """The tokenizer of a SigLIP, whose own class needs a library besides. Its pieces are made as T5's."""
    import transformers

    folder, paths = fast_tokenizers.find_files(source, _TOKENIZER_FILES, _NEEDED, "so its texts cannot be made tokens")
    with fast_tokenizers.reading(folder):
        if paths["tokenizer.json"] is None:
            pieces = _sentencepiece(paths["spiece.model"])
            return transformers.T5TokenizerFast(**pieces, extra_ids=0, pad_token=_PAD)
        # As in SigLIP's own class, the end of text pads.
        special = {} if "pad_token" in options else {"pad_token": _PAD}
        return transformers.T5TokenizerFast.from_pretrained(folder, local_files_only=True, extra_ids=0, **special)


def _sentencepiece(path: str) -> dict[str, Any]:
    """The pieces of a SentencePiece model, and its map of characters, as arguments of a T5's tokenizer.

    From a path, transformers reads them with the library of that name, which is not needed otherwise.
    """
    from transformers.convert_slow_tokenizer import import_protobuf  # the package has a function of the module's name

    content = import_protobuf().ModelProto()
    with open(path, "rb") as file:
        content.ParseFromString(file.read())
    pieces = [(piece.piece, piece.score) for piece in content.pieces]
    return {"vocab": pieces, "_spm_precompiled_charsmap": content.normalizer_spec.precompiled_charsmap or None}


def siglip_ids(tokenizer: Any, texts: Sequence[str], length: int) -> np.ndarray:
    """Texts as ids, padded and truncated, int32 ``[num_texts, length]``. Logs truncated ones."""
    texts = list(texts)
    check_texts(texts)
    has_pieces = type(tokenizer.backend_tokenizer.model).__name__ == "Unigram"
    change = _canonical if has_pieces else str.lower
    return fast_tokenizers.fast_ids(tokenizer, [change(text) for text in texts], length)[0]


def _canonical(text: str) -> str:
    """Lower case without ASCII's punctuation, runs of blanks as one.

    Transformers puts a piece's blank in front beforehand, which keeps one that remains at the start of a text.
    """
    text = _BLANK + text.replace(_BLANK, " ").lower().translate(_PUNCTUATION)
    text = re.sub(r"\s+", " ", text).strip()
    return "" if text == _BLANK else text
