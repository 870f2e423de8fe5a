"""Learned words (textual inversion; Gal et al., 2023): files of vectors, added to tokenizers and CLIP text encoders.

- ``{"<word>": [vectors, width]}``: diffusers, ``learned_embeds.safetensors``;
- ``emb_params``: the web UI, whose word is the file's name;
- ``string_to_param`` and ``name``: its earlier pickles;
- ``clip_l``, ``clip_g``: both encoders of SDXL, whose word is the file's name.

A word of several vectors is as many tokens. As in diffusers, ``word word_1 word_2`` replaces it in a text.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from winobench.base import files, options
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.checkpoints import pickles, sources, weights
from winobench.models.any_pipeline import AnyPipeline
from winobench.models.clip import CLIPTextModel

_STEM = "learned_embeds"
_PARTS = {"clip_l": "text_encoder", "clip_g": "text_encoder_2"}
_OF_WEB_UI = "emb_params"
_PICKLES = (".bin", ".pt")


@dataclasses.dataclass(frozen=True)
class LearnedWord:
    """A word, and its vectors for each text encoder."""

    word: str
    vectors: Mapping[str, np.ndarray]  # the encoder's name in the pipeline -> float32 [vectors, width]
    file: str

    def digest(self) -> str:
        """SHA-256 of the word and its vectors, in hexadecimal."""
        parts = {part: [values.shape, values.tobytes().hex()] for part, values in self.vectors.items()}
        return files.digest([self.word, parts])


def read_word(source: str | os.PathLike, *, allow_pickle: bool = False) -> LearnedWord:
    """Reads a file of a learned word, or ``learned_embeds`` of a folder or hub id."""
    path = _locate(source)
    if path.endswith(_PICKLES) and not allow_pickle:
        raise pickles.not_allowed(path, f"{pickles.CONVERT} {shlex.quote(path)}")
    tensors = weights.read_weights([path])
    with sources.blame(path):
        name = next(iter(tensors), "")
        if tensors and tensors.keys() <= _PARTS.keys():
            named = {_PARTS[key]: tensor for key, tensor in tensors.items()}
        elif len(tensors) == 1:
            named = {"text_encoder": tensors[name]}
        else:
            content = f"it holds {sources.shorten(sorted(tensors)) or 'nothing'}"
            message = f"a file of a learned word holds one tensor, or clip_l and clip_g, but {content}: name another"
            raise InputError(message, code="not-embeddings")
        word = os.path.splitext(os.path.basename(path))[0] if name in (_OF_WEB_UI, *_PARTS) else name
        vectors = {part: np.atleast_2d(tensor.floats().astype(np.float32)) for part, tensor in named.items()}
        if len({len(values) for values in vectors.values()}) > 1 or any(vector.ndim > 2 for vector in vectors.values()):
            shapes = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in named.values())
            raise InputError(f"the tensors do not belong to one word ({shapes}): get it again", code="wrong-shape")
        if not all(np.isfinite(values).all() for values in vectors.values()):
            raise InputError(f"the vectors of {options.quote(word)} are not finite: get it again", code="not-finite")
    return LearnedWord(word, vectors, path)


def _locate(source: str | os.PathLike) -> str:
    path = user_path(source)
    if os.path.isfile(path):
        if not path.endswith((".safetensors", *_PICKLES)):
            raise InputError(f"{path} is not a .safetensors, .bin or .pt file", code="unsupported-file-format")
        return path
    if path.endswith((".safetensors", *_PICKLES)) and not os.path.exists(path):
        raise InputError(f"the file {path} of a learned word does not exist", code="no-such-file")
    resolved = sources.resolve(path)
    for end in (".safetensors", ".bin"):
        if (file := resolved.find(f"{_STEM}{end}")) is not None:
            return file
    message = f"{resolved} has no {_STEM}.safetensors: {resolved.hint() or 'name the file of the learned word itself'}"
    raise InputError(message, code="no-such-file")


def add_word(pipeline: AnyPipeline, learned: LearnedWord) -> None:
    """Adds a word to a pipeline's tokenizers and text encoders, in place. A misfit changes nothing."""
    new = {part: _tokens(pipeline, part, learned) for part in learned.vectors}
    for part, tokens in new.items():
        tokenizer, network = pipeline.tokenizers[_tokenizer(part)], pipeline.networks[part]
        tokenizer.add_tokens(tokens)
        ids = tokenizer.convert_tokens_to_ids(tokens)
        layer = network.text_model.embeddings.token_embedding
        table = layer.embedding
        rows = max(table.shape[0], 1 + max(ids))
        on_host = isinstance(table.get_value(), np.ndarray)
        values = np.zeros((rows, table.shape[1]), table.dtype)
        values[: table.shape[0]] = np.asarray(table[...])
        values[ids] = learned.vectors[part].astype(table.dtype)
        values.flags.writeable = False
        layer.embedding = table.replace(values if on_host else jnp.asarray(values))
        layer.num_embeddings = rows
        network.config = dataclasses.replace(network.config, vocab_size=rows)


def _tokenizer(part: str) -> str:
    return part.replace("text_encoder", "tokenizer")


def _tokens(pipeline: AnyPipeline, part: str, learned: LearnedWord) -> list[str]:
    """The tokens of a word's vectors. Raises InputError where a pipeline cannot have them."""
    network, tokenizer = pipeline.networks.get(part), pipeline.tokenizers.get(_tokenizer(part))
    vectors, word = learned.vectors[part], learned.word
    if not isinstance(network, CLIPTextModel) or tokenizer is None:
        message = f"a {type(pipeline).__name__} has no {part} that is a CLIP, for which this word was learned"
        raise InputError(f"{learned.file}: {message}: name a file for this model", code="embeddings-misfit")
    if vectors.shape[1] != network.config.hidden_size:
        given = f"its vectors have {vectors.shape[1]} values, but the {part} has {network.config.hidden_size}"
        raise InputError(f"{learned.file}: {given}: the word is of another model", code="embeddings-misfit")
    tokens = [word, *(f"{word}_{i}" for i in range(1, len(vectors)))]
    if not word.strip() or (known := sorted({*tokens, f"{word}_1"} & tokenizer.get_vocab().keys())):
        message = f"the word {options.quote(known[0] if word.strip() else word)} cannot be added: the tokenizer has it"
        raise InputError(f"{learned.file}: {message}, or it is empty, so rename it in the file", code="repeated-token")
    return tokens
