"""Text encoders from the files they are published in: BERT and what was trained from it, and T5.

BERT's layouts, each told by its keys. All come down to the names of `winobench.models.bert`:

- transformers (``google-bert/bert-large-uncased``, sentence encoders, classifiers): ``bert.embeddings...``, without the
  prefix where the encoder was saved alone. Files of 2019 and before call the parameters of norms ``gamma``, ``beta``.
- Oscar (Li et al., 2020), text side only. The layers have BERT's names under ``bert.``. What is left out: the
  projection of image regions (``bert.img_embedding``), its norm (``bert.LayerNorm``) and the codes of discretised ones
  (``bert.code_embeddings``). Without regions the network is BERT.
- VL-BERT (Su et al., 2019), text side only: ``vlbert.word_embeddings``, ``vlbert.embedding_LayerNorm``,
  ``vlbert.encoder...``, in front of it ``module.`` where several devices trained. What is left out: everything of
  images, the vector of ``[END]``, the heads of pretraining, and the visual vector that VL-BERT adds to each word, which
  there is no image for. A third kind of segments, that of images, stays in the table and is not used
  (``type_vocab_size`` 3).

The tables of Oscar and VL-BERT were made from the published code and are **not verified on the published files**, which
we did not have. VL-BERT publishes a pickle of nested dictionaries (``.model``) without a config: save the dictionary
``state_dict`` in it as ``model.safetensors`` with torch once, and put BERT's ``config.json`` (with ``type_vocab_size``
3) and ``vocab.txt`` next to it.

T5 (``google-t5/t5-base``, ``google/t5-v1_1-base``, ``google/flan-t5-xxl``): transformers' keys. Copies of the input
embeddings under other names are dropped.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from winobench import parallel
from winobench.base.errors import InputError
from winobench.base.files import write_json
from winobench.checkpoints import fast_tokenizers, language_models, models, sources, tokenizer_files, weights
from winobench.checkpoints.loaded import spread_by_default
from winobench.checkpoints.models import KeyTable
from winobench.checkpoints.weights import FileTensor
from winobench.models import t5
from winobench.models.bert import BertConfig, BertForSequenceClassification
from winobench.models.t5 import T5Config, T5ForConditionalGeneration

_OLD_NORMS = ((r"(.*)LayerNorm\.gamma$", r"\1LayerNorm.weight"), (r"(.*)LayerNorm\.beta$", r"\1LayerNorm.bias"))
_BUFFERS = (r"bert\.embeddings\.(position_ids|token_type_ids)",)
_PRETRAINING_HEADS = (r"cls\..*",)

BERT_TABLES: dict[str, KeyTable] = {
    "bert": KeyTable(
        renames=(*_OLD_NORMS, (r"(embeddings|encoder|pooler)\.", r"bert.\1.")),
        ignored=(*_BUFFERS, *_PRETRAINING_HEADS),
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

T5_TABLE = KeyTable(
    ignored=(
        r"(encoder|decoder)\.embed_tokens\.weight",  # ``shared.weight`` again
        # Made by early versions, where attention to the encoder's states has no biases.
        r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    )
)
"""T5's names are transformers'."""

_HEAD = "classifier."
_POOLER = "bert.pooler."
# Those of its descendants do the same.
_BERT_TOKENIZERS = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


class BertCheckpoint(NamedTuple):
    """A BERT that is ready for use.

    Attributes:
      model: the network.
      tokenizer: a fast BERT tokenizer of transformers.
    """

    model: Any
    tokenizer: Any


def bert_layout(names: Sequence[str]) -> str:
    """Tells the layout, a key of ``BERT_TABLES``, from the keys of a file."""
    names = [name.removeprefix("module.") for name in names]
    if any(name.startswith("vlbert.") for name in names):
        return "vl_bert"
    if any(name.startswith(("bert.img_embedding.", "bert.code_embeddings.")) for name in names):
        return "oscar"
    return "bert"


def from_bert_layouts(tensors: Mapping[str, FileTensor]) -> dict[str, FileTensor]:
    """Renames the tensors of one of BERT's layouts into those that ``BertForSequenceClassification`` names."""
    return _renamed(tensors, BERT_TABLES[bert_layout(list(tensors))])


def _renamed(tensors: Mapping[str, FileTensor], table: KeyTable) -> dict[str, FileTensor]:
    named: dict[str, FileTensor] = {}
    for key, tensor in tensors.items():
        key = key.removeprefix("module.")
        for pattern, replacement in table.renames:
            if match := re.match(pattern, key):
                key = match.expand(replacement) + key[match.end() :]
        if any(re.fullmatch(pattern, key) for pattern in table.ignored):
            continue
        if key in named:
            raise InputError(
                f"{tensor.file}: {tensor.name} and {named[key].name} are two names of the same parameter",
                code="repeated-tensor",
            )
        named[key] = tensor
    return named


def load_bert(
    source: str | os.PathLike | sources.Source,
    *,
    dtype: Any = "float32",
    variant: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> BertCheckpoint:
    """Loads a BERT with a classification head.

    Args:
      dtype: of the parameters and of the computation: float32, bfloat16 or float16.
    """
    source, config, tensors = _read_bert(source, variant, revision, allow_pickle)
    if not any(name.startswith(_HEAD) for name in tensors):
        raise InputError(
            f"{source} holds a BERT without a classification head: name a fine-tuned one, or fine-tune it with"
            " python -m launch.train --config=nli",
            code="no-task-head",
        )
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
    """Loads a BERT with a new classification head, in float32. Other arguments and errors as in `load_bert`.

    What the head and a pooler that the file lacks start from: weights drawn from a normal distribution of standard
    deviation 0.02, as in BERT, and biases of zero.
    """
    source, config, tensors = _read_bert(source, variant, revision, allow_pickle)
    config = dataclasses.replace(config, labels=tuple(labels))
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(_HEAD)}
    expected = models.torch_names(models.abstract_model(BertForSequenceClassification, config))
    new = [name for name in sorted(expected) if name.startswith((_HEAD, _POOLER)) and name not in tensors]
    rng = np.random.default_rng(seed)
    for name in new:
        shape = expected[name][1]
        values = rng.normal(0.0, 0.02, shape) if len(shape) > 1 else np.zeros(shape)
        tensors[name] = FileTensor(name, shape, "a new head", lambda values=values: values.astype(np.float32))
    model = models.build_model(BertForSequenceClassification, config, tensors, dtype="float32")
    return BertCheckpoint(model, read_bert_tokenizer(source, config.vocab_size))


def save_bert(folder: str | os.PathLike, model: BertForSequenceClassification, tokenizer: Any) -> None:
    """Writes a folder that transformers' ``AutoModelForSequenceClassification`` and `load_bert` read.

    Args:
      folder: where to write ``config.json``, ``model.safetensors`` (float32) and the tokenizer's files. Made if needed.
    """
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
    # Without torch, transformers would say at import that it has no models. We only want its tokenizers.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    import transformers

    source = sources.resolve(source)
    paths = [source.find(sources.join(subfolder, name)) for name in (*_TOKENIZER_FILES, "vocab.txt")]
    if paths[0] is None:
        source.require(sources.join(subfolder, "vocab.txt"), "so it has no BERT tokenizer")
    folder = os.path.dirname(next(path for path in paths if path is not None))
    fast_tokenizers.check_class(paths[_TOKENIZER_FILES.index("tokenizer_config.json")], _BERT_TOKENIZERS)
    with fast_tokenizers.reading(folder, "BERT tokenizer"):
        tokenizer = transformers.BertTokenizerFast.from_pretrained(folder, local_files_only=True)
    fast_tokenizers.check_kind(tokenizer, paths[_TOKENIZER_FILES.index("tokenizer.json")])
    missing = [name for name in ("cls_token", "sep_token", "pad_token") if getattr(tokenizer, f"{name}_id") is None]
    if missing:
        raise InputError(
            f"the tokenizer in {folder} has no {missing[0]}: get its files again", code="incomplete-tokenizer"
        )
    if vocab_size is not None and (count := tokenizer_files.num_ids(tokenizer)) > vocab_size:
        raise InputError(
            f"the tokenizer in {folder} has {count} tokens, but the network knows {vocab_size}: the two are"
            " not of the same model",
            code="mismatched-parts",
        )
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
    """Loads a T5, T5 1.1 or FLAN-T5, straight onto the devices.

    Args:
      dtype: ``float32`` or ``bfloat16``, of the parameters and of the computation.
      mesh: the devices, from `winobench.parallel.make_mesh`. When None, those of this process, of CPUs as many as
        there is memory for copies of the parameters for. With an axis ``model``, its devices share one copy.
      int8: the dense kernels of the layers hold numbers of 8 bits with a scale for each output channel.
    """
    dtype = language_models.language_model_dtype(dtype)
    source = sources.resolve(source, revision=revision)
    config = models.read_config(T5ForConditionalGeneration, source)
    tokenizer = language_models.load_tokenizer(source, config.vocab_size)
    paths = weights.find_weights(source, None, "model", allow_pickle=allow_pickle)
    config, network, digest = build_t5(config, weights.read_weights(paths), dtype, mesh=mesh, int8=int8)
    return language_models.LoadedLanguageModel(
        network,
        config,
        tokenizer,
        language_models.model_fingerprint(digest, config, tokenizer, dtype=dtype.name, int8=int8),
        mesh,
        language_models.find_stop_ids(source, config.eos_token_id, tokenizer),
    ).as_loaded()


def build_t5(
    config: T5Config,
    tensors: Mapping[str, FileTensor],
    dtype: Any = "float32",
    *,
    mesh: Mesh | None = None,
    int8: bool = False,
) -> tuple[T5Config, tuple[Any, Any], str]:
    """Builds a T5 and fills it with tensors. As `load_t5`, which finds config and tensors first.

    Args:
      config: the network's shape.
      int8: the dense kernels of the layers hold numbers of 8 bits.

    Returns:
      The config, in which it is now said whether there is a head besides the embeddings; (graph, state), and a digest
      of the tensors.
    """
    mesh = parallel.as_mesh(mesh)
    tensors = _renamed(tensors, T5_TABLE)
    # What the config states cannot be relied on: transformers 5 calls every head tied, and tells from the tensors.
    is_tied = _is_copy(tensors.get("lm_head.weight"), tensors.get("shared.weight"))
    if is_tied:
        tensors.pop("lm_head.weight", None)
    config = dataclasses.replace(config, tie_word_embeddings=is_tied)
    models._check_depth(T5ForConditionalGeneration.__name__, config, tensors, "config.json")
    graph, state = nnx.split(abstract_t5(config, dtype, int8=int8))
    origins = {
        path: None if path[-1] == "kernel_scale" else models._torch_key(path) for path, _ in nnx.to_flat_state(state)
    }
    shardings = t5.parameter_shardings(state, mesh)
    state, digest = language_models.fill(T5ForConditionalGeneration.__name__, state, origins, tensors, shardings)
    return config, (graph, state), digest


def abstract_t5(config: T5Config, dtype: Any = jnp.bfloat16, *, int8: bool = False) -> T5ForConditionalGeneration:
    """A T5 whose parameters are shapes and dtypes, without values."""
    dtype = language_models.language_model_dtype(dtype)
    key = models._SameKey(jax.random.key(0))
    return nnx.eval_shape(
        lambda: T5ForConditionalGeneration(config, int8=int8, dtype=dtype, param_dtype=dtype, rngs=key)
    )


def _is_copy(head: FileTensor | None, embeddings: FileTensor | None) -> bool:
    """Whether a head is left out of the file, or holds the same as the embeddings."""
    if head is None or embeddings is None:
        return head is None
    return head.shape == embeddings.shape and np.array_equal(head.read(), embeddings.read())
