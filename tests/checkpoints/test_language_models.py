"""Language models from folders: shards, dtypes, 8-bit weights, several devices, tokenizers; and refusals."""

import contextlib
import functools
import json
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tokenizers
import transformers
from flax import nnx
from huggingface_hub import constants

from tests.changed_files import edit
from tests.expectations import raises
from tests.parity.harness import QUICK_COMPILATION
from winobench import parallel
from winobench.base.errors import InputError
from winobench.checkpoints import encoder_layouts, language_models, models, weights
from winobench.models import decoder
from winobench.models.decoder import Decoder
from winobench.models.decoder_config import DecoderConfig
from winobench.models.t5 import T5Config

HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
CONFIG = DecoderConfig(
    vocab_size=24, hidden_size=32, intermediate_size=32, num_hidden_layers=2, bos_token_id=1, eos_token_id=2, **HEADS
)
WORDS = ["<unk>", "<s>", "</s>", "a", "cup", "of", "cold", "tea", "on", "the", "table", "is", "not", "hot", "at", "all"]
IDS = np.random.default_rng(0).integers(0, 20, (2, 8)).astype(np.int32)
POSITIONS = np.broadcast_to(np.arange(8, dtype=np.int32), IDS.shape)
QUERY = "model.layers.1.self_attn.q_proj.weight"


def write_tokenizer(folder, words=WORDS, **options):
    words = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", **options
    ).save_pretrained(folder)


@pytest.fixture(scope="module")
def tensors():
    """Keys and layouts of torch's files, made from shapes alone."""
    state = nnx.state(language_models.abstract_decoder(CONFIG, "float32"))
    rng = np.random.default_rng(0)
    result = {}
    for path, leaf in nnx.to_flat_state(state):
        shape = models._torch_shape(path, leaf.shape)
        spread = 1.0 if len(shape) == 1 else shape[-1] ** -0.5
        values = (rng.standard_normal(shape) * spread + (len(shape) == 1)).astype(np.float32)
        key = models._torch_key(path)
        result[key if path[0] == "lm_head" else f"model.{key}"] = values
    return result


def write_config(folder, **changes):
    (folder / "config.json").write_text(json.dumps({**CONFIG.to_dict(), **changes}))


@pytest.fixture(scope="module")
def published(tensors, tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoder")
    write_config(folder)
    weights.write_weights(folder / "model.safetensors", tensors)
    write_tokenizer(folder)
    return folder


@pytest.fixture
def folder(published, tmp_path):
    return shutil.copytree(published, tmp_path / "decoder")


@pytest.fixture(scope="module")
def loaded(published):
    return load(published)


def one_device():
    return parallel.make_mesh(jax.devices()[:1])


def load(folder, *args, **options):
    return language_models.load_decoder(folder, *args, mesh=one_device(), **options)


def expect(folder, *words, **options):
    with raises(*words):
        load(folder, **options)


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK_COMPILATION)
def _logits(graph, state, ids, positions):
    model = nnx.merge(graph, state)
    return model.logits(model(ids, positions)[0])


def logits(loaded):
    ids, positions = (parallel.put(array, parallel.split_axis(loaded.mesh)) for array in (IDS, POSITIONS))
    return np.asarray(_logits(*loaded.network, ids, positions))


@pytest.fixture(scope="module")
def expected(loaded):
    return logits(loaded)


def test_values_are_those_of_the_files(loaded, tensors):
    model = loaded.module()
    assert isinstance(model, Decoder)
    assert model.config == loaded.config == CONFIG
    np.testing.assert_array_equal(model.layers[1].self_attn.q_proj.kernel[...], tensors[QUERY].T)
    np.testing.assert_array_equal(model.embed_tokens.embedding[...], tensors["model.embed_tokens.weight"])
    np.testing.assert_array_equal(model.lm_head.kernel[...], tensors["lm_head.weight"].T)
    for number in range(2):
        key = f"model.layers.{number}.post_attention_layernorm.weight"
        np.testing.assert_array_equal(model.layers[number].post_attention_layernorm.scale[...], tensors[key])
    assert loaded.tokenizer("a cup").input_ids == [3, 4]
    assert loaded.stop_ids == (2,)


@pytest.mark.parametrize("int8", [False, True])
def test_devices_share_one_copy(published, tensors, expected, int8):
    mesh = parallel.make_mesh(model_parallel=4)
    shared = language_models.load_decoder(published, mesh=mesh, int8=int8)
    kernel = shared.module().layers[1].mlp.down_proj.kernel[...]
    assert {shard.data.shape for shard in kernel.addressable_shards} == {(8, 32)}
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(shared.network[1]))
    # Each device has a quarter of all but the norms and the scales of 8-bit numbers.
    assert held < 0.3 * sum(leaf.nbytes for leaf in jax.tree.leaves(shared.network[1]))
    if int8:
        alone = load(published, int8=True)
        # Scales and kernels come from one tensor.
        projection = alone.module().layers[1].self_attn.q_proj
        rounded, scale = decoder.quantise(tensors[QUERY].T)
        np.testing.assert_array_equal(projection.kernel[...], rounded)
        np.testing.assert_allclose(projection.kernel_scale[...], scale, rtol=1e-6)
        assert alone.module().embed_tokens.embedding.dtype == alone.module().lm_head.kernel.dtype == jnp.float32
        assert kernel.dtype == jnp.int8
        np.testing.assert_array_equal(kernel, alone.module().layers[1].mlp.down_proj.kernel[...])
        expected_here = logits(alone)
        # The price of 8 bits, stated in `load_decoder`.
        error = np.sqrt(np.mean(np.square(expected_here - expected)) / np.mean(np.square(expected)))
        assert 5e-3 < error < 4e-2
        assert shared.fingerprint == alone.fingerprint
    else:
        expected_here = expected
    np.testing.assert_allclose(logits(shared), expected_here, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_hub_ids_are_read_from_one_commit(published, loaded, tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(published, repository / "snapshots" / commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert language_models.language_model_kind("owner/name") == "decoder"
    assert load("owner/name").fingerprint == loaded.fingerprint
    with raises("hub-not-reached", "HF_HUB_OFFLINE"):
        language_models.language_model_kind("owner/other")


def test_shards_and_vintages(published, loaded, tensors, tmp_path):
    folder = shutil.copytree(published, tmp_path / "shards")
    (folder / "model.safetensors").unlink()
    old = {**tensors, "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)}
    names = sorted(old)
    files = {name: f"model-0000{1 + (name in names[7:])}-of-00002.safetensors" for name in names}
    for file in sorted(set(files.values())):
        weights.write_weights(folder / file, {name: old[name] for name in names if files[name] == file})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    again = load(folder)
    assert jax.tree.all(jax.tree.map(np.array_equal, again.network[1], loaded.network[1]))
    assert again.fingerprint == loaded.fingerprint
    half = {name: values.astype(jnp.bfloat16) for name, values in tensors.items()}
    for file in folder.glob("model*"):
        file.unlink()
    weights.write_weights(folder / "model.safetensors", half)
    model = load(folder, "bfloat16").module()
    assert model.dtype == model.layers[0].mlp.up_proj.kernel.dtype == model.norm.scale.dtype == jnp.bfloat16
    np.testing.assert_array_equal(model.layers[1].self_attn.q_proj.kernel[...], half[QUERY].T)


def test_fingerprint_names_all_that_answers_depend_on(folder, loaded):
    result = {loaded.fingerprint, load(folder, "bfloat16").fingerprint, load(folder, int8=True).fingerprint}
    write_config(folder, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    result.add(load(folder).fingerprint)
    write_tokenizer(folder, sorted(WORDS))
    result.add(load(folder).fingerprint)
    changed = {name: tensor.read() for name, tensor in weights.read_weights([f"{folder}/model.safetensors"]).items()}
    changed[QUERY] = changed[QUERY] + 1e-3
    weights.write_weights(folder / "model.safetensors", changed)
    result.add(load(folder).fingerprint)
    assert len(result) == 6


def test_stop_ids_are_those_of_all_files(folder):
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9], "temperature": 0.6}))
    write_config(folder, eos_token_id=[2, 8])
    assert load(folder).stop_ids == (2, 7, 8, 9)


@pytest.mark.parametrize("ids", ["</s>", {}, [2, True], -1, [[2]]])
def test_stop_ids_that_are_no_tokens_are_refused(folder, ids):
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    expect(folder, "wrong-type", "eos_token_id", "generation_config.json")


def test_nobody_is_asked_to_run_code_of_a_folder(folder, monkeypatch):
    prompts = []
    monkeypatch.setattr("builtins.input", lambda *words: prompts.append(words) or "y")
    (folder / "own.py").write_text("raise SystemExit")

    def name_code(content):
        content.pop("tokenizer_class", None)
        content["auto_map"] = {"AutoTokenizer": [None, "own.Tokenizer"]}

    edit(folder / "tokenizer_config.json", name_code)
    with contextlib.suppress(InputError):
        load(folder)
    assert not prompts


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("tokenizer_config.json", {"tokenizer_class": "FooTokenizer"}, ("wrong-kind-of-tokenizer", "'FooTokenizer'")),
        ("tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer"}, ("wrong-kind-of-tokenizer", "GPT2Tokenizer")),
        # The library's part in Rust panics at this.
        ("tokenizer.json", {"added_tokens": [{"id": 2**63}]}, ("unreadable-tokenizer",)),
    ],
)
def test_tokenizers_of_other_kinds(folder, name, change, words):
    edit(folder / name, **change)
    expect(folder, *words)


def test_tied_output_may_be_in_the_file(folder, tensors):
    write_config(folder, tie_word_embeddings=True)
    path = folder / "model.safetensors"
    weights.write_weights(path, {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]})
    assert load(folder).module().lm_head is None
    weights.write_weights(path, tensors)
    expect(folder, "mismatched-parts", "lm_head.weight", "model.embed_tokens.weight", "tie_word_embeddings")


def test_weights_and_configs_that_cannot_be_used(folder, tensors):
    for value in (np.nan, np.inf):
        odd = np.full((32, 32), value, np.float32)
        weights.write_weights(folder / "model.safetensors", tensors | {QUERY: odd})
        expect(folder, "not-finite", QUERY)
    weights.write_weights(folder / "model.safetensors", {key: tensors[key] for key in tensors if key != QUERY})
    expect(folder, "mismatched-parts", QUERY)
    write_config(folder, num_hidden_layers=10**6)
    expect(folder, "mismatched-parts", "Decoder", "num_hidden_layers=1000000")
    write_config(folder, vocab_size=14)
    expect(folder, "mismatched-parts", "2", "all, at", "14")


def test_more_layers_of_a_t5_than_tensors_are_refused_before_they_are_made():
    t5 = T5Config(vocab_size=24, d_model=8, d_kv=4, d_ff=8, num_layers=10**6, num_heads=2)
    with raises("mismatched-parts"):
        encoder_layouts.build_t5(t5, {}, mesh=one_device())


def test_files_that_cannot_be_used(folder):
    expect(folder, "unsupported-dtype", "float32", "float16", dtype="float16")
    (folder / "tokenizer.json").write_text("{}")
    expect(folder, "unreadable-tokenizer")
    (folder / "tokenizer.json").unlink()
    expect(folder, "no-such-file", "tokenizer.json")


def test_padding_token_needs_no_row(folder):
    words = [*WORDS, *(f"extra {number}" for number in range(8)), "<pad>"]
    write_tokenizer(folder, words, pad_token="<pad>")
    assert load(folder).tokenizer.pad_token_id == 24


def test_too_little_memory_is_one_sentence(folder, monkeypatch):
    def place(*args):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 5 bytes")

    monkeypatch.setattr(language_models, "_place", place)
    expect(folder, "out-of-memory", "GiB", "model_parallel")


KINDS = {"llama": "decoder", "llava": "decoder", "t5": "t5", "bert": "bert", "clip": "clip"}


@pytest.mark.parametrize(("model_type", "kind"), KINDS.items())
def test_kinds(tmp_path, model_type, kind):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert language_models.language_model_kind(tmp_path) == kind


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ("no-such-file", "config.json")),
        ({}, ("wrong-kind-of-model", "model_type")),
        ({"model_type": "vit"}, ("wrong-kind-of-model", "model_type", "'vit'")),
        ({"model_type": ["llama"]}, ("wrong-kind-of-model", "model_type", "'llama'")),
    ],
)
def test_folders_of_other_kinds(tmp_path, content, words):
    if content is not None:
        (tmp_path / "config.json").write_text(json.dumps(content))
    with raises(*words):
        language_models.language_model_kind(tmp_path)


def test_kinds_of_other_places(tmp_path):
    (tmp_path / "config.json").write_text('{"architecture": "vit_base_patch32_clip_224"}')
    (tmp_path / "open_clip_config.json").write_text("{}")
    assert language_models.language_model_kind(tmp_path) == "clip"
    with raises("no-such-model"):
        language_models.language_model_kind(str(tmp_path / "nothing"))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_finite_values_of_every_type(dtype, monkeypatch):
    monkeypatch.setattr(weights, "_AT_ONCE", 5)
    largest = ml_dtypes.finfo(dtype)
    values = np.asarray([0.0, -0.0, largest.max, largest.min, largest.tiny, largest.smallest_subnormal] * 2, dtype)
    assert weights.are_finite(values.reshape(3, 4))
    assert weights.are_finite(values[:0])
    for value in (np.nan, np.inf, -np.inf):
        for index in (0, 5, 11):
            odd = values.copy()
            odd[index] = value
            assert not weights.are_finite(odd.reshape(3, 4))
