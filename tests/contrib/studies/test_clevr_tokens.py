import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import clevr_tokens as config_file
from tests.expectations import names
from tests.training import toy_run
from winobench.base import options
from winobench.base.errors import InputError
from winobench.clevr import questions, renderer
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.contrib.studies import clevr_tokens, embedded, images, small_janus, torch_steps
from winobench.data import array_records
from winobench.runs.training_settings import Stage

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CAPTIONS = ("A cube.", "On the left is a small red metal cube and on the right is a large blue rubber sphere.")


def make_config(**changes):
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    small = {"data.num_scenes": 4, "data.num_hard_scenes": 4, "data.captions_per_scene": 4, "data.num_shards": 2}
    small |= {"decoder.hidden_size": 32, "decoder.intermediate_size": 48, "decoder.num_layers": 2}
    small |= {"quantizer.num_codes": 32, "decoder.optimizer": "adamw"}
    return options.replaced(config_file.Settings(), {**config_file.FORMS["debug"], **small, **changes})


@pytest.fixture(scope="module")
def config():
    return make_config()


@pytest.fixture(scope="module")
def processor(config):
    return small_janus.make_processor(config)


@pytest.fixture(scope="module")
def model(config, processor):
    codes = torch.nn.functional.normalize(torch.randn(32, 8), dim=-1)
    return clevr_tokens.fresh_decoder(config, processor.tokenizer, codes)


def test_each_word_of_the_captions_is_one_token(processor):
    tokenizer = processor.tokenizer
    for word in filter(str.isalpha, questions.VOCABULARY):
        for text in (word, word.upper(), f'"{word}'):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert len(ids) == 1 + text.startswith('"'), text
            assert tokenizer.decode(ids[-1:]).strip() == word
    assert tokenizer.decode(tokenizer("A zebra, ü.")["input_ids"], skip_special_tokens=True).strip() == "a zebra, ü."


def test_prompts_are_those_of_janus(processor, config):
    ids = small_janus.Prompts(processor, 32)(CAPTIONS, padding="max_length", return_tensors="np")["input_ids"]
    lengths = small_janus.lengths(torch.tensor(ids), small_janus.image_start(processor.tokenizer))
    for row, length, text in zip(ids, lengths, CAPTIONS, strict=True):
        prompt = f"<bos><|User|>: {text.lower()}\n\n<|Assistant|>:<begin_of_image>"
        assert processor.tokenizer.decode(row[:length]) == prompt
        assert set(row[length:]) <= {processor.tokenizer.pad_token_id}
    empty = small_janus.without_text(ids, processor.tokenizer)
    assert (empty == ids).sum(1).tolist() == [2 + 32 - length for length in lengths.tolist()]


def test_prompts_are_drawn_and_some_are_empty(processor):
    ids = small_janus.Prompts(processor, 32)(CAPTIONS, padding="max_length", return_tensors="np")["input_ids"]
    choose = clevr_tokens.ChoosePrompt(processor, 0.6)
    record = {"tokens": np.zeros(4, np.uint16), "input_ids": ids.astype(np.uint16)}
    generator = np.random.default_rng(0)
    drawn = np.stack([choose(record, generator)["input_ids"] for _ in range(1000)])
    empty = small_janus.Prompts(processor, 32)([""], padding="max_length", return_tensors="np")["input_ids"]
    rows = [*ids, *small_janus.without_text(np.concatenate([ids, empty]), processor.tokenizer)]
    shares = [np.mean((drawn == row).all(1)) for row in rows]
    np.testing.assert_allclose(shares, [0.2, 0.2, 0.15, 0.15, 0.3], atol=0.05)


@pytest.mark.quick(2)
def test_padding_and_other_rows_change_no_log_probability(model, processor):
    ids = torch.tensor(small_janus.Prompts(processor, 32)(CAPTIONS, padding="max_length")["input_ids"])
    lengths = small_janus.lengths(ids, small_janus.image_start(processor.tokenizer))
    tokens = torch.randint(0, 32, (2, 64))
    with torch.no_grad():
        together = small_janus.log_probabilities(model, ids, lengths, tokens)
        for row, length in enumerate(lengths):
            alone = small_janus.log_probabilities(
                model, ids[row : row + 1, :length], lengths[row : row + 1], tokens[row : row + 1]
            )
            np.testing.assert_allclose(together[row], alone[0], atol=2e-5)
        # A later token changes no earlier log-probability.
        tokens[:, 40] = (tokens[:, 40] + 1) % 32
        changed = small_janus.log_probabilities(model, ids, lengths, tokens)
    np.testing.assert_allclose(changed[:, :40], together[:, :40], atol=2e-5)
    assert (changed[:, 40:] - together[:, 40:]).abs().max() > 1e-3


def test_some_earlier_tokens_are_replaced(model, processor, monkeypatch):
    ids = small_janus.Prompts(processor, 32)(CAPTIONS * 50, padding="max_length", return_tensors="np")["input_ids"]
    tokens = torch.arange(100)[:, None].repeat(1, 64) % 32
    read = []
    monkeypatch.setattr(small_janus, "log_probabilities", lambda *given: read.append(given[-1]) or torch.zeros(1))
    for share in (0.0, 0.5):
        clevr_tokens.decoder_loss(model, {"input_ids": torch.tensor(ids), "tokens": tokens}, 3, replaced=share)
    torch.testing.assert_close(read[0], tokens)
    changed = (read[1] != tokens).float().mean(1)
    assert ((read[1] == tokens) | (read[1] == tokens.roll(1, 0))).all()
    assert 0.35 < (changed == 0).float().mean() < 0.65
    np.testing.assert_allclose(changed[changed > 0].mean(), 0.5, atol=0.15)


def test_steps_by_torch_equal_steps_by_jax():
    module = torch.nn.Linear(3, 2)
    inputs, targets = np.random.default_rng(0).normal(size=(2, 8, 3)).astype(np.float32)
    settings = Stage(optimizer="adamw", batch_size=8, num_steps=3, warmup_steps=1, decay_steps=1)

    def by_torch(module, batch, step):
        return (module(batch["inputs"]) - batch["targets"][:, :2]).square().mean(), {"number": torch.tensor(step)}

    def by_jax(params, batch, key):
        predicted = batch["inputs"] @ params["weight"].T + params["bias"]
        return jnp.square(predicted - batch["targets"][:, :2]).mean(), {}

    batch = {"inputs": inputs, "targets": targets}
    steps = [
        torch_steps.make_step(module, by_torch, settings, 0),
        embedded.make_step(by_jax, torch_steps.parameters(module), settings, 0),
    ]
    ends = []
    for step, state in steps:
        for _ in range(3):
            state, metrics = step(state, batch)
        ends.append((state.params, state.ema, metrics["loss"], metrics["gradient_norm"]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), *ends)


def test_codes_follow_their_vectors_and_unused_codes_start_again():
    params = {"sums": jnp.asarray([[1.0, 0], [0, 1], [-1, 0]]), "uses": jnp.asarray([1.0, 1.0, 0.001])}
    vectors = jnp.asarray([[0.8, 0.6], [0.6, 0.8], [0.6, 0.8]])
    moved = clevr_tokens.follow(params, vectors, jax.random.key(0), 0.5, False)
    # The first vector is nearest to the first code, the others to the second.
    np.testing.assert_allclose(moved["sums"], [[0.9, 0.3], [0.6, 1.3], [-0.5, 0]], rtol=1e-6)
    np.testing.assert_allclose(moved["uses"], [1.0, 1.5, 0.0005], rtol=1e-6)
    again = clevr_tokens.follow(params, vectors, jax.random.key(0), 0.5, True)
    np.testing.assert_array_equal(again["sums"][:2], moved["sums"][:2])
    assert again["sums"][2].tolist() in vectors.tolist()
    assert float(again["uses"][2]) == 1.0


@pytest.mark.slow
def test_whole_recipe_resumes_and_exports_a_folder_that_loads(tmp_path, monkeypatch):
    monkeypatch.setattr(renderer, "_RAYS_PER_CHUNK", 1 << 14)
    lengths = {"num_steps": 2, "warmup_steps": 1, "decay_steps": 1, "batch_size": 4}
    changes = {f"{stage}__{name}": value for stage in clevr_tokens.STAGES for name, value in lengths.items()}
    config = make_config(**changes)
    clevr_tokens.run(config, tmp_path)
    clevr_tokens.run(options.replaced(config, {"decoder.num_steps": 3}), tmp_path)
    assert [row["step"] for row in toy_run.rows_of(tmp_path / "decoder")] == [2, 3]
    scorer = ImageLikelihood.from_pretrained(tmp_path / clevr_tokens.NAME)
    scenes = array_records.ShardSource(tmp_path / "scenes")
    image = images.decode_png(scenes[0]["image"])
    scores = scorer.score([image], [*CAPTIONS, ""])

    processor = small_janus.make_processor(config)
    model = transformers.JanusForConditionalGeneration.from_pretrained(tmp_path / clevr_tokens.NAME, dtype="float32")
    ids = torch.tensor(small_janus.Prompts(processor, 32)([*CAPTIONS, ""], padding="max_length")["input_ids"])
    ids[2] = torch.tensor(small_janus.without_text(ids[2].numpy(), processor.tokenizer))
    lengths = small_janus.lengths(ids, small_janus.image_start(processor.tokenizer))
    with torch.no_grad():
        pixels = torch.tensor(image)[None].permute(0, 3, 1, 2) / 127.5 - 1
        tokens = small_janus.image_tokens(model.model.vqmodel, pixels)
        wanted = small_janus.log_probabilities(model, ids, lengths, tokens.repeat(3, 1)).sum(1)
    np.testing.assert_allclose(scores[0], wanted, rtol=1e-5)
    np.testing.assert_array_equal(array_records.ShardSource(tmp_path / "tokens")[0]["tokens"].shape, (64,))


@pytest.mark.parametrize("stage", clevr_tokens.STAGES)
def test_a_decay_that_is_longer_than_training_is_refused_at_once(tmp_path, stage):
    with pytest.raises(InputError, match=names(f"--{stage}.decay_steps", "10,000", "20")):
        clevr_tokens.run(make_config(**{f"{stage}__decay_steps": 10_000}), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "value", "factor"),
    [("data.image_size", 60, 8), ("decoder.hidden_size", 36, 8), ("decoder.num_heads", 5, 10)],
)
def test_sizes_that_do_not_fit_are_refused_at_once(tmp_path, name, value, factor):
    refused = name.replace("num_heads", "hidden_size")
    with pytest.raises(InputError, match=names(f"--{refused}", f"multiple of {factor}")):
        clevr_tokens.run(make_config(**{name.replace(".", "__"): value}), tmp_path)
    assert not list(tmp_path.iterdir())
