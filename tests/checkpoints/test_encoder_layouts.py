"""BERT, what was trained from it, and T5 from folders: names of several vintages, and refusals."""

import re
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

from tests.changed_files import edit
from tests.expectations import raises
from tests.tiny_encoders import bert_config, write_bert
from winobench import checkpoints, parallel
from winobench.checkpoints import encoder_layouts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def arrays(folder):
    return safetensors.numpy.load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def fingerprint(folder):
    return checkpoints.weights_sha256(encoder_layouts.load_bert(folder).model)


def copy_with(folder, target, arrays, **options):
    shutil.copytree(folder, target)
    safetensors.numpy.save_file(arrays, target / "model.safetensors", metadata={"format": "pt"})
    edit(target / "config.json", **options)
    return target


def expect(folder, *words):
    with raises(*words):
        encoder_layouts.load_bert(folder)


def renamed(arrays, *rules):
    for pattern, replacement in rules:
        arrays = {re.sub(pattern, replacement, name): array for name, array in arrays.items()}
    return arrays


EXTRA = np.zeros((2, 16), np.float32)
OLD = ((r"LayerNorm\.weight", "LayerNorm.gamma"), (r"LayerNorm\.bias", "LayerNorm.beta"))
LAYOUTS = {
    "old norms": (OLD, {"cls.predictions.bias": EXTRA, "bert.embeddings.position_ids": EXTRA}),
    "without prefix": (((r"^bert\.", ""),), {}),
    "oscar": (
        (),
        {"bert.img_embedding.weight": EXTRA, "bert.LayerNorm.weight": EXTRA, "cls.seq_relationship.bias": EXTRA},
    ),
    "vl-bert": (
        (
            (r"^bert\.embeddings\.LayerNorm", "vlbert.embedding_LayerNorm"),
            (r"^bert\.embeddings\.", "vlbert."),
            (r"^bert\.", "vlbert."),
            ("^", "module."),
        ),
        {
            "module.vlbert.end_embedding.weight": EXTRA,
            "module.vlbert.visual_ln_text.weight": EXTRA,
            "module.vlbert.mlm_head.predictions.bias": EXTRA,
            "module.image_feature_extractor.conv.weight": EXTRA,
        },
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name, folder, arrays, fingerprint, tmp_path):
    rules, extra = LAYOUTS[name]
    other = copy_with(folder, tmp_path / "other", renamed(arrays, *rules) | extra)
    assert checkpoints.weights_sha256(encoder_layouts.load_bert(other).model) == fingerprint


def test_a_file_without_pooler_and_head(folder, arrays, tmp_path):
    assert encoder_layouts.load_bert(folder).tokenizer("a ball")["input_ids"] == [2, 5, 10, 3]
    rest = {name: array for name, array in arrays.items() if not name.startswith(("bert.pooler", "classifier"))}
    other = copy_with(folder, tmp_path / "other", rest)
    expect(other, "no-task-head", "BERT")
    # The missing parts are drawn, the same for the same seed.
    first, again, two = (encoder_layouts.load_bert_for_tuning(other, ("yes", "no"), seed=n).model for n in (0, 0, 1))
    assert checkpoints.weights_sha256(first) == checkpoints.weights_sha256(again) != checkpoints.weights_sha256(two)
    assert first.config.labels == ("yes", "no")
    assert first.classifier.kernel.shape == (16, 2)
    assert 0.01 < np.std(first.bert.pooler.dense.kernel) < 0.03
    np.testing.assert_array_equal(
        first.bert.encoder.layer[1].output.dense.kernel, arrays["bert.encoder.layer.1.output.dense.weight"].T
    )


def test_a_head_of_other_labels_is_replaced(folder):
    model, _ = encoder_layouts.load_bert_for_tuning(folder, ("yes", "no"), seed=0)
    assert not model.classifier.bias[...].any()


def test_what_does_not_fit(folder, arrays, tmp_path):
    twice = arrays | {"bert.embeddings.LayerNorm.gamma": EXTRA[0]}
    expect(copy_with(folder, tmp_path / "twice", twice), "repeated-tensor")
    frozen = {name: array for name, array in arrays.items() if name.startswith("classifier")}
    frozen |= {f"vlbert.{name}": EXTRA for name in ("word_embeddings.weight", "special_word_embeddings.weight")}
    expect(copy_with(folder, tmp_path / "frozen", frozen), "mismatched-parts", "vlbert.special_word_embeddings.weight")
    expect(copy_with(folder, tmp_path / "small", arrays, vocab_size=12), "mismatched-parts")


def test_tokenizers(folder, tmp_path):
    with raises("no-such-file", "vocab.txt", "BERT"):
        encoder_layouts.read_bert_tokenizer(tmp_path, 100)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with raises("mismatched-parts", "1"):
        encoder_layouts.read_bert_tokenizer(tmp_path, 1)
    with raises("mismatched-parts", "19"):
        encoder_layouts.read_bert_tokenizer(folder, bert_config().vocab_size - 1)


def test_t5_from_a_folder(tiny_t5):
    loaded = encoder_layouts.load_t5(tiny_t5, mesh=parallel.make_mesh(jax.devices()[:1]))
    assert loaded.config.tie_word_embeddings
    assert not loaded.config.scale_decoder_outputs
    assert loaded.stop_ids == (loaded.tokenizer.eos_token_id,)
    split = encoder_layouts.load_t5(tiny_t5, mesh=parallel.make_mesh(jax.devices()[:4], model_parallel=4))
    assert split.fingerprint == loaded.fingerprint
    for whole, two in zip(jax.tree.leaves(loaded.network[1]), jax.tree.leaves(split.network[1]), strict=True):
        np.testing.assert_array_equal(whole, two)
    kernel = split.module().encoder.block[0].layer[1].DenseReluDense.wi_0.kernel[...]
    assert kernel.sharding.shard_shape(kernel.shape) == (32, 12)
    rounded = encoder_layouts.load_t5(tiny_t5, "bfloat16", int8=True, mesh=parallel.make_mesh(jax.devices()[:1]))
    assert rounded.fingerprint != loaded.fingerprint
    dtypes = {path[-1]: leaf.dtype.name for path, leaf in nnx.to_flat_state(rounded.network[1])}
    assert dtypes == {"kernel": "int8", "kernel_scale": "float32", "embedding": "bfloat16", "scale": "bfloat16"}


def test_t5_heads(tiny_t5, tmp_path):
    arrays = safetensors.numpy.load_file(tiny_t5 / "model.safetensors")
    shared = arrays["shared.weight"]
    copies = {f"{name}.weight": shared.copy() for name in ("lm_head", "encoder.embed_tokens", "decoder.embed_tokens")}
    tied = copy_with(tiny_t5, tmp_path / "tied", arrays | copies, tie_word_embeddings=True, scale_decoder_outputs=None)
    config = encoder_layouts.load_t5(tied).config
    assert (config.tie_word_embeddings, config.scale_decoder_outputs) == (True, True)
    untied = copy_with(tiny_t5, tmp_path / "untied", arrays | copies | {"lm_head.weight": shared + 1})
    loaded = encoder_layouts.load_t5(untied)
    assert not loaded.config.tie_word_embeddings
    np.testing.assert_array_equal(loaded.module().lm_head.kernel, (shared + 1).T)
    arrays["encoder.embed_tokens.weight"] = arrays.pop("shared.weight")
    renamed = encoder_layouts.load_t5(copy_with(tiny_t5, tmp_path / "renamed", arrays))
    np.testing.assert_array_equal(renamed.module().shared.embedding, shared)
    arrays.pop("encoder.final_layer_norm.weight")
    with raises("mismatched-parts", "1", "encoder.final_layer_norm.weight"):
        encoder_layouts.load_t5(copy_with(tiny_t5, tmp_path / "cut", arrays))
