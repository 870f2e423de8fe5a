"""Text encoders from their published files: BERT and models trained from it, and T5.

BERT's layouts are distinguished by their keys:

- transformers: ``bert.embeddings...``, without the prefix where the encoder was saved alone. Files of 2019 and before
  call the parameters of norms ``gamma`` and ``beta``.
- Oscar (Li et al., 2020), text side: without regions the network is BERT.
- VL-BERT (Su et al., 2019), text side: images, ``[END]``, pretraining heads and the visual vector of each word are left
  out. Its pickle (``.model``) has no config: save its ``state_dict`` as ``model.safetensors`` with torch, next to
  BERT's ``config.json`` (with ``type_vocab_size`` 3) and ``vocab.txt``.

The tables of Oscar and VL-BERT follow the published code and are **not verified on the published files**.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from winobench.base.errors import InputError
from winobench.base.files import write_json
from winobench.checkpoints import fast_tokenizers, language_models, models, sources, tokenizer_files, weights
from winobench.checkpoints.loaded import spread_by_default
from winobench.checkpoints.tensors import FileTensor
from winobench.models import t5
from winobench.models.base import KeyTable
from winobench.models.bert import BertConfig, BertForSequenceClassification
from winobench.models.t5 import T5Config, T5ForConditionalGeneration

_OLD_NORMS = ((r"(.*)LayerNorm\.gamma$", r"\1LayerNorm.weight"), (r"(.*)LayerNorm\.beta$", r"\1LayerNorm.bias"))
_BUFFERS = (r"bert\.embeddings\.(position_ids|token_type_ids)",)
_PRETRAINING_HEADS = (r"cls\..*",)

BERT_TABLES: dict[str, KeyTable] = {
    "bert": KeyTable(
        renames=(*_OLD_NORMS, (r"(embeddings|encoder|pooler)\.", r"bert.\1.")), ignored=(*_BUFFERS, *_PRETRAINING_HEADS)
    ),
    "oscar": KeyTable(
        renames=_OLD_NORMS,
        ignored=(
            *_BUFFERS,
            *_PRETRAINING_HEADS,
            r"bert\.img_embedding\..*",
            r"bert\.LayerNorm\..*",
            r"bert\.code_embeddings\..*",
        ),
    ),
    "vl_bert": KeyTable(
        renames=(
            *_OLD_NORMS,
            (r"vlbert\.embedding_LayerNorm\.", r"bert.embeddings.LayerNorm."),
            (r"vlbert\.(word|position|token_type)_embeddings\.", r"bert.embeddings.\1_embeddings."),
            (r"vlbert\.(encoder|pooler)\.", r"bert.\1."),
        ),
        ignored=(
            r"(?!vlbert\.|bert\.|classifier\.).*",
            r"vlbert\.(end_embedding|visual_1x1_text|visual_1x1_object|visual_ln_text|visual_ln_object)\..*",
            r"vlbert\.visual_scale_(text|object)",
            # The first of these is spelled so.
            r"vlbert\.(relationsip_head|mlm_head|mvrc_head)\..*",
        ),
    ),
}
"""Layout -> its names in the ones in ``BertForSequenceClassification``."""

_HEAD = "classifier."
# The tokenizers of BERT's descendants do the same.
_TOKENIZERS = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
_NEEDED = ("tokenizer.json", "vocab.txt")
_TOKENIZER_FILES = (*_NEEDED, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


class BertCheckpoint(NamedTuple):
    """A BERT that is ready for use, with a fast BERT tokenizer of transformers."""

    model: Any
    tokenizer: Any


def from_bert_layouts(tensors: Mapping[str, FileTensor]) -> dict[str, FileTensor]:
    """Renames the tensors of one of BERT's layouts into the names of ``BertForSequenceClassification``."""
    names = [name.removeprefix("module.") for name in tensors]
    is_oscar = any(name.startswith(("bert.img_embedding.", "bert.code_embeddings.")) for name in names)
    layout = "vl_bert" if any(name.startswith("vlbert.") for name in names) else "oscar" if is_oscar else "bert"
    return models.rename("BERT", tensors, BERT_TABLES[layout], prefix="module.")


def load_bert(
    source: str | os.PathLike | sources.Source,
    *,
    dtype: Any = "float32",
    variant: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> BertCheckpoint:
    """Loads a BERT with a classification head, in float32, bfloat16 or float16."""
    source, config, tensors = _read_bert(source, variant, revision, allow_pickle)
    if not any(name.startswith(_HEAD) for name in tensors):
        message = f"{source} holds a BERT without a classification head: fine-tune it with winobench train --config=nli"
        raise InputError(message, code="no-task-head")
    model = models.build_model(BertForSequenceClassification, config, tensors, dtype=dtype)
    return BertCheckpoint(model, read_bert_tokenizer(source, config.vocab_size))


def load_bert_for_tuning(
    source: str | os.PathLike | sources.Source,
    labels: Sequence[str],
    *,
    seed: int,
    variant: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> BertCheckpoint:
    """Loads a BERT with a new classification head, in float32.

    The head, and a pooler that the file lacks, start from weights of a normal distribution of standard
    deviation 0.02, as in BERT, and biases of zero.
    """
    source, config, tensors = _read_bert(source, variant, revision, allow_pickle)
    config = dataclasses.replace(config, labels=tuple(labels))
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(_HEAD)}
    expected = models.torch_names(models.abstract_model(BertForSequenceClassification, config))
    new = [name for name in sorted(expected) if name.startswith((_HEAD, "bert.pooler.")) and name not in tensors]
    rng = np.random.default_rng(seed)
    for name in new:
        shape = expected[name][1]
        values = rng.normal(0.0, 0.02, shape) if len(shape) > 1 else np.zeros(shape)
        tensors[name] = FileTensor(name, shape, "a new head", lambda values=values: values.astype(np.float32))
    model = models.build_model(BertForSequenceClassification, config, tensors, dtype="float32")
    return BertCheckpoint(model, read_bert_tokenizer(source, config.vocab_size))


def save_bert(folder: str | os.PathLike, model: BertForSequenceClassification, tokenizer: Any) -> None:
    """Writes a folder that transformers' ``AutoModelForSequenceClassification`` and `load_bert` read."""
    models.save_model(model, folder)
    architecture = {"architectures": [type(model).__name__]}
    write_json(os.path.join(folder, "config.json"), architecture | model.config.to_dict())
    tokenizer.save_pretrained(folder)


def _read_bert(
    source: str | os.PathLike | sources.Source, variant: str | None, revision: str | None, allow_pickle: bool
) -> tuple[sources.Source, BertConfig, dict[str, FileTensor]]:
    source = sources.resolve(source, revision=revision)
    config = models.read_config(BertForSequenceClassification, source)
    paths = weights.find_weights(source, None, "model", variant=variant, allow_pickle=allow_pickle)
    return source, config, from_bert_layouts(weights.read_weights(paths))


def read_bert_tokenizer(
    source: str | os.PathLike | sources.Source, vocab_size: int | None = None, *, subfolder: str | None = None
) -> Any:
    """Reads BERT's tokenizer."""
    import transformers

    kind = "BERT tokenizer"
    folder, paths = fast_tokenizers.find_files(source, _TOKENIZER_FILES, _NEEDED, f"so it has no {kind}", subfolder)
    fast_tokenizers.check_class(paths["tokenizer_config.json"], _TOKENIZERS)
    with fast_tokenizers.reading(folder, kind):
        tokenizer = transformers.BertTokenizerFast.from_pretrained(folder, local_files_only=True)
    fast_tokenizers.check_kind(tokenizer, paths["tokenizer.json"])
    for name in ("cls_token", "sep_token", "pad_token"):
        if getattr(tokenizer, f"{name}_id") is None:
            message = f"the tokenizer in {folder} has no {name}: get its files again"
            raise InputError(message, code="incomplete-tokenizer")
    if vocab_size is not None:
        tokenizer_files.check_size(tokenizer, vocab_size, f"in {folder}")
    return tokenizer


@spread_by_default
def load_t5(
    source: str | os.PathLike | sources.Source,
    dtype: Any = "float32",
    *,
    mesh: Mesh | None = None,
    int8: bool = False,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> language_models.LoadedLanguageModel:
    """Loads a T5, T5 1.1 or FLAN-T5. Arguments as in `language_models.load_decoder`."""
    cls, options = T5ForConditionalGeneration, {"revision": revision, "allow_pickle": allow_pickle}
    return language_models.load(cls, build_t5, source, dtype, mesh=mesh, int8=int8, **options)


def build_t5(
    config: T5Config,
    tensors: Mapping[str, FileTensor],
    dtype: Any = "float32",
    *,
    mesh: Mesh | None = None,
    int8: bool = False,
) -> tuple[T5Config, tuple[Any, Any], str]:
    """Builds a T5 and fills it with tensors.

    Returns the config, which now states whether a head exists besides the embeddings, (graph, state), and a digest of
    the tensors.
    """
    cls = T5ForConditionalGeneration
    tensors = models.rename(cls.__name__, tensors, cls.file_keys, prefix="module.")
    # What the config states cannot be relied on: transformers 5 calls every head tied, and tells from the tensors.
    is_tied = language_models.is_copy(tensors.get("lm_head.weight"), tensors.get("shared.weight"))
    if is_tied:
        tensors.pop("lm_head.weight", None)
    config = dataclasses.replace(config, tie_word_embeddings=is_tied)
    models._check_depth(cls.__name__, config, tensors, "config.json")
    network, digest = language_models.build_network(
        cls, config, tensors, t5.parameter_shardings, dtype, mesh=mesh, int8=int8
    )
    return config, network, digest


def abstract_t5(config: T5Config, dtype: Any = jnp.bfloat16, *, int8: bool = False) -> T5ForConditionalGeneration:
    """A T5 whose parameters are shapes and dtypes, without values."""
    return language_models.abstract_network(T5ForConditionalGeneration, config, dtype, int8=int8)
