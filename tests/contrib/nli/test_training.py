import functools
import itertools

import jax
import numpy as np
import pytest
from flax import nnx

from configs import nli as nli_config
from tests.expectations import raises
from tests.parity.harness import QUICK_COMPILATION, relative_error
from tests.tiny_encoders import make_tokenizer, write_bert, write_nli
from tests.training.toy_run import rows_of
from winobench.base import options
from winobench.checkpoints import encoder_layouts
from winobench.checkpoints import models as checkpoint_models
from winobench.contrib.nli import pair_files, training
from winobench.responders.text_encoders import NliEncoder
from winobench.runs.requests import Entailment


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nli")
    return write_bert(folder / "bert", labels=("a", "b", "c"), num_hidden_layers=1), write_nli(folder / "data")


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def make_config(sources, changes=()):
    model, data = map(str, sources)
    values = {"model": model, "data.folder": data, "data.max_tokens": 32, "optimizer.learning_rate": 0.01}
    return options.replaced(nli_config.Settings(), {**nli_config.FORMS["debug"], **values, **dict(changes)})


@pytest.fixture(scope="module")
def finished(sources, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return folder, training.run(make_config(sources), folder)


@pytest.mark.slow
def test_training_leaves_numbers_and_a_model(finished):
    folder, report = finished
    rows = rows_of(folder)
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3, 4]
    measured = [row for row in rows if training.ACCURACY in row]
    assert [row["step"] for row in measured] == [0, 2, 4]
    assert set(measured[0]) == {"step", training.ACCURACY} | {
        f"validation/{part}" for part in ("snli", "anli_r1", "anli_r2", "anli_r3")
    }
    assert all(0 <= row["accuracy"] <= 1 and row["loss"] > 0 for row in rows if "loss" in row)
    best = max(measured[1:], key=lambda row: (row[training.ACCURACY], row["step"]))
    assert f"accuracy {100 * best[training.ACCURACY]:.1f}% at step {best['step']}, the best" in report
    command = report.splitlines()[-1].split()
    assert command == ["winobench", "eval", "--config=winoviz", f"--model={folder / 'model'}"]
    assert {path.name for path in (folder / "model").iterdir()} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }


@pytest.mark.slow
def test_torch_loads_the_export(finished):
    import torch
    import transformers

    folder, _ = finished
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "model").eval()
    assert type(model).__name__ == "BertForSequenceClassification"
    assert model.config.id2label == {0: "entailment", 1: "contradiction"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    request = Entailment("the ball is red", ("a red ball", "a blue ball . a blue ball"))
    with torch.no_grad():
        batches = [tokenizer(request.premise, each, return_tensors="pt") for each in request.hypotheses]
        expected = np.concatenate([model(**batch).logits.numpy() for batch in batches])
    ((_, raw),) = NliEncoder.from_pretrained(folder / "model").ask([request])
    np.testing.assert_allclose(raw["logits"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # two hundred steps
def test_it_learns(sources, single_device, tmp_path):
    """That colors decide, on nouns that it has not seen."""
    model = write_bert(tmp_path / "bert", hidden_size=32, intermediate_size=64, num_attention_heads=4, **NO_DROPOUT)
    changes = {"model": str(model), "num_steps": 200, "batch_size": 16, "validate_every": 100, "checkpoint_every": 100}
    changes |= {"optimizer.learning_rate": 0.001, "log_every": 10, "validation.limit": None}
    assert "100.0% at step 200" in training.run(make_config(sources, changes), tmp_path / "run")
    losses = [row["loss"] for row in rows_of(tmp_path / "run") if "loss" in row]
    assert np.mean(losses[-3:]) < 0.2 < 0.6 < np.mean(losses[:3])


def test_gradients_are_those_of_torch(sources, pairs, tmp_path):
    import torch
    import transformers

    folder = write_bert(tmp_path / "bert", labels=training.LABELS, num_hidden_layers=1, **NO_DROPOUT)
    model = encoder_layouts.load_bert(folder).model
    graph, state = nnx.split(model)
    batch = next(pairs.batches(8, 0, 0))
    loss_fn = jax.jit(
        jax.value_and_grad(functools.partial(training._loss, graph), has_aux=True), compiler_options=QUICK_COMPILATION
    )
    (loss, metrics), gradients = loss_fn(nnx.to_pure_dict(state), batch, jax.random.key(0))
    nnx.update(model, gradients)

    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    rows = torch.from_numpy(batch["rows"]).long()
    places = torch.arange(rows.shape[1] - 2)
    mask = places < rows[:, 1:2]
    output = network(
        input_ids=rows[:, 2:],
        attention_mask=mask.long(),
        token_type_ids=((places >= rows[:, :1]) & mask).long(),
        labels=torch.from_numpy(batch["labels"]).long(),
    )
    output.loss.backward()
    assert relative_error(loss, output.loss) < 1e-5
    assert metrics["accuracy"] == np.mean(output.logits.argmax(dim=1).numpy() == batch["labels"])
    names = checkpoint_models.torch_names(model)
    found = dict(nnx.to_flat_state(nnx.state(model)))
    expected = {name: parameter.grad for name, parameter in network.named_parameters()}
    assert set(names) == set(expected)
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, (path, _) in names.items():
        ours = np.asarray(found[path].get_value())
        ours = ours.T if path[-1] == "kernel" else ours
        assert np.abs(ours - expected[name].numpy()).max() < 1e-5 * largest, name


@pytest.fixture(scope="module")
def pairs(sources, tmp_path_factory):
    _, data = sources
    found = pair_files.read_pairs(data, ["snli", "anli"], "train", training.LABELS)
    return training.PairSet(found, make_tokenizer(tmp_path_factory.mktemp("tokenizer")), 64)


def test_batches_depend_on_their_number_alone(pairs):
    size = 4
    whole = list(itertools.islice(pairs.batches(size, 7, 0), 40))
    for first in (1, 15, 16, 33):
        for one, two in zip(pairs.batches(size, 7, first), whole[first:], strict=False):
            for name in one:
                np.testing.assert_array_equal(one[name], two[name])
    epochs = [np.concatenate([batch["labels"] for batch in whole[start : start + 15]]) for start in (0, 15)]
    assert not np.array_equal(*epochs)
    # Every pair but those that do not fill a batch, once.
    numbers = pairs._epoch(size, 7, 0).ravel()
    assert len(set(numbers.tolist())) == len(numbers) == len(pairs) // size * size
    assert {batch["rows"].shape for batch in whole} == {(size, 34)}
    with raises("too-few-examples", "63", "config.batch_size", "64"):
        next(pairs.batches(64, 0, 0))


def test_pairs_of_a_batch_are_about_equally_long(sources, tmp_path):
    texts = ["a " * count for count in range(1, 60)] * 20
    made = [pair_files.Pair(text, "a", "entailment", "snli") for text in texts]
    pairs = training.PairSet(made, make_tokenizer(tmp_path), 64)
    lengths = [batch["rows"][:, 1] for batch in itertools.islice(pairs.batches(16, 0, 0), 60)]
    assert np.mean([np.ptp(batch) for batch in lengths]) < 4
    assert {batch["rows"].shape[1] - 2 for batch in itertools.islice(pairs.batches(16, 0, 0), 60)} == {32, 64}
    # The lengths come in any order.
    assert np.abs(np.corrcoef(np.arange(60), [batch.mean() for batch in lengths])[0, 1]) < 0.5


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("data.folder", "nowhere", ("missing-files", "nowhere", "snli_1.0_train.jsonl")),
        ("data.sets", "mnli", ("unknown-name", "NLI")),
        ("data.max_tokens", 65, ("out-of-range", "max_tokens", "65", "64")),
        ("batch_size", 64, ("too-few-examples", "63", "config.batch_size=64")),
        ("dtype", "float8", ("unsupported-dtype", "'float8'", "float32")),
        ("model", "bert", ("no-such-model", "'bert'")),
    ],
)
def test_bad_input(sources, field, value, message, tmp_path):
    with raises(*message):
        training.run(make_config(sources, {field: value}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
