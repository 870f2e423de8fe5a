"""Every field of every config says what it may be, and is checked before anything is loaded."""

import dataclasses
import math
import sys
import time

import ml_collections
import pytest

from launch import configuration
from tests.expectations import names, raises
from winobench.base import options
from winobench.base.errors import InputError
from winobench.metrics import normalization
from winobench.runs import settings

NAMES = configuration.config_names()
FIELDS = [(name, field) for name in NAMES for field in configuration.flat(configuration.load(name))]

# What no field may take as it stands; those that are words for a text field, such as "x", are not among them.
NUMBERS = ["-1", "0", "nan", "inf", "-inf", "1e400", str(10**12), "-" + str(10**12), "1" + "0" * 400, "1" + "0" * 5000]
WORDS = [
    "",
    "²,³",
    "²",
    "٣",
    "１２",
    "x",
    "[",
    "(" * 300_000,
    "1,2,3",
    "[1, 2]",
    "['a', 'b']",
    "{}",
    "true",
    "a\nb",
    "\x00",
]

# Fields of numbers that may be negative, or zero, or as large as 10**12.
NEGATIVE = {"lora_scale", "guidance_scale", "drawing.guidance_scale"}
ZERO = NEGATIVE | {
    "seed",
    "lora.dropout",
    "optimizer.b1",
    "optimizer.b2",
    "optimizer.warmup_steps",
    "optimizer.weight_decay",
    "optimizer.warmup_share",
    "ema_decay",
    "checks.max_changed_words",
    "checks.similarity",
    "data.task_like_fraction",
    "denoiser.empty_text_fraction",
    "autoencoder.pixel_noise",
    "data.latent_noise",
    "training.warmup_steps",
    "training.decay_steps",
    "training.ema_decay",
    "autoencoder.warmup_steps",
    "autoencoder.decay_steps",
    "data.num_hard_scenes",
    "autoencoder.ema_decay",
    "denoiser.warmup_steps",
    "denoiser.decay_steps",
    "denoiser.ema_decay",
}
LARGE = {"optimizer.clip_norm", "explosion_factor"}


@pytest.mark.parametrize("name", NAMES)
def test_every_field_has_a_range_and_every_range_a_field(name):
    assert configuration.flat(configuration.load(name)).keys() == configuration.options_of(name).keys()


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_value_is_in_the_range_or_refused_in_one_sentence(name, field):
    before = set(sys.modules)
    declared = configuration.options_of(name)[field].metadata["range"]
    default = configuration.flat(configuration.load(name))[field]
    for text in NUMBERS + WORDS:
        started = time.process_time()
        try:
            config = configuration.load(name, [(field, text)])
        except InputError as error:
            said = str(error)
            assert "\n" not in said
            assert len(said) < 700
            assert said.isprintable()
        else:
            value = configuration.flat(config)[field]
            assert declared.check(field, value) == value
            values = value if isinstance(value, tuple) else (value,)
            for one in values:
                if isinstance(one, bool) or not isinstance(one, int | float):
                    continue
                assert math.isfinite(one), text
                assert abs(one) < 10**12 or (field in LARGE and one == 10**12), text
                assert one >= 0 or field in NEGATIVE, text
                assert one != 0 or field in ZERO or isinstance(default, tuple) or "range" in field, text
        assert time.process_time() - started < 1, text
    loaded = {module.partition(".")[0] for module in set(sys.modules) - before}
    assert not loaded & {"torch", "transformers", "grain", "datasets"}


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_values_of_another_type_are_refused_by_the_range(name, field):
    """What a config file, rather than a command line, may put into a field."""
    declared = configuration.options_of(name)[field].metadata["range"]
    for value in (
        object(),
        float("nan"),
        float("-inf"),
        -(10**400),
        10**400,
        {},
        [],
        b"a",
        [[1]],
        "\ud83d",
        "x" * 20_000,
    ):
        with pytest.raises(InputError) as caught:
            declared.check(field, value)
        assert len(str(caught.value)) < 700


def test_a_new_field_cannot_be_forgotten(tmp_path):
    """A config file's own values are checked like those of the command line, with the ranges that its fields have."""
    content = (configuration.CONFIGS / "hardneg.py").read_text()
    (tmp_path / "mine.py").write_text(content.replace('learning_rate": 3e-3', 'learning_rate": -3e-3'))
    with pytest.raises(InputError, match=names("--config.optimizer.learning_rate", "-0.003")):
        configuration.load(str(tmp_path / "mine.py"))


def test_a_users_config_without_ranges_has_those_of_the_config_that_it_stands_in_for(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from configs import gdbench\nLAUNCHER = 'eval'\ndef get_config():\n"
        "    config = gdbench.get_config()\n    config.more = 5\n    return config\n"
    )
    assert configuration.load(str(path), [("more", "-5")]).more == -5
    with pytest.raises(InputError, match=names("--config.seed", "-5", "0")):
        configuration.load(str(path), [("seed", "-5")])


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        (
            "hardneg:debug",
            {"optimizer.learning_rate": "-1"},
            "learning_rate is -1.0, but it must be a finite number above 0",
        ),
        ("hardneg:debug", {"optimizer.learning_rate": "nan"}, "learning_rate is nan"),
        ("hardneg:debug", {"optimizer.b1": "2"}, "b1 is 2.0, but it must be a finite number from 0 and below 1"),
        (
            "hardneg:debug",
            {"ema_decay": "3"},
            "ema_decay is 3.0, but it must be a finite number from 0 and below 1, or none",
        ),
        ("hardneg:debug", {"num_steps": "0"}, "num_steps is 0, but it must be a whole number from 1"),
        ("hardneg:debug", {"optimizer.name": "sgd"}, "name is 'sgd', but it must be one of adamw, muon"),
        ("hardneg:debug", {"optimizer.schedule": "step"}, "'step', but it must be one of constant, cosine, linear"),
        ("hardneg:debug", {"optimizer.warmup_steps": "4"}, "leaves nothing of 4 steps for the cosine schedule"),
        ("hardneg:debug", {"accumulate": "3"}, "a batch of 4 cannot be cut into 3 equal micro-batches"),
        ("hardneg:debug", {"loss.timestep_range": "²,³"}, "timestep_range is a list with commas"),
        ("nli", {"data.sets": "snli,snli"}, "one or more of snli, anli"),
        ("clevr_tiny", {"denoiser.timestep_range": "900,100"}, "two whole numbers"),
        ("clevr_tiny", {"denoiser.down_block_types": "DownBlock2D,UpBlock"}, "DownBlock2D"),
        ("gdbench", {"sampling.num_samples": str(10**12)}, "from 1 to 1,000,000"),
        ("gdbench", {"batch_size": str(10**11)}, "a whole number from 1 to 1,048,576, or search, or none"),
        ("gdbench", {"image_size": str(10**6)}, "image_size is 1000000"),
        ("gdbench", {"sampling.timesteps": "²,³"}, "timesteps is '²,³', but it must be one of uniform"),
        ("gdbench", {"sampling.timesteps": "100,,500"}, "timesteps is '100,,500'"),
        ("gdbench", {"sampling.timestep_range": "some"}, "or all"),
        (
            "gdbench",
            {"sampling.timesteps": "published", "sampling.timestep_range": "300,800"},
            "would do nothing: leave one of them out",
        ),
        ("gdbench", {"sampling.timesteps": "importance"}, "is for --config.sampling.mode=race"),
        ("winoviz", {"api.timeout": "nan"}, "timeout is nan"),
        ("winoviz", {"api.base_url": "http://a\nb"}, "without control characters"),
        ("winoviz", {"api.price": "1"}, "a list of 2"),
        ("wscplus_generate", {"templates": "toe,poe"}, "one of cot, tot, coe, toe"),
    ],
)
def test_what_is_refused_and_how(name, fields, message):
    with pytest.raises(InputError) as caught:
        configuration.load(name, fields.items())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"sampling.timesteps": "100,500,700"}, "100,500,700"),
        ({"sampling.timestep_range": "300,800"}, (300, 800)),
        ({"sampling.timestep_range": "all"}, "all"),
        ({"sampling.timestep_range": "none"}, None),
        ({"batch_size": "search"}, "search"),
        ({"limit": "none"}, None),
        ({"lora_scale": "-0.5"}, -0.5),
    ],
)
def test_what_is_allowed(fields, value):
    (field,) = fields
    assert configuration.flat(configuration.load("gdbench", fields.items()))[field] == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1 / 0", "cannot be loaded: ZeroDivisionError: division by zero (line 1 of bad.py)"),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
        ("def get_config():\n    return {}[1]", "get_config of config {path!r} fails: KeyError: 1 (line 2 of bad.py)"),
        ("def get_config():\n    return {'a': 1}", "returns a dict, but must return an ml_collections.ConfigDict"),
        ("def get_config():\n    return None", "returns a NoneType"),
        ("def get_config(size):\n    return 1", "get_config of config {path!r} fails: TypeError"),
    ],
)
def test_a_config_file_that_fails_is_one_sentence(tmp_path, content, message):
    path = tmp_path / "bad.py"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        configuration.load(str(path))
    assert message.format(path=str(path)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_choices_are_those_of_the_library():
    """The ranges import nothing large, so they repeat a few names."""
    from winobench.checkpoints import models
    from winobench.data import nli as nli_data
    from winobench.evaluation import importance
    from winobench.models import lora
    from winobench.responders import prompts
    from winobench.scorers import denoising
    from winobench.training import hard_negatives
    from winobench.wscplus_items import prompts as generation

    def accepts(name, field, *words):
        declared = configuration.options_of(name)[field].metadata["range"]
        assert declared.wanted.endswith(", ".join(words)) or all(declared.check(field, word) for word in words)
        return declared

    accepts("gdbench", "sampling.timesteps", *options.TIMESTEP_RULES, importance.RULE)
    accepts("gdbench", "sampling.mode", *settings.MODES)
    for rule in (importance.RULE, *options.TIMESTEP_RULES):
        configuration.load("gdbench:race", [("sampling.timesteps", rule)])
    accepts("gdbench", "normalize", normalization.AUTO, *normalization.NORMALIZATIONS)
    accepts("gdbench", "error", *denoising.ERRORS)
    accepts("gdbench", "target", *denoising.TARGETS)
    accepts("gdbench", "dtype", *models.DTYPES)
    accepts("hardneg", "lora.targets", *lora.TARGETS)
    accepts("hardneg", "loss.kind", *hard_negatives.KINDS)
    accepts("hardneg", "loss.threshold_over", *hard_negatives.THRESHOLDS_OVER)
    accepts("hardneg", "loss.objective", *hard_negatives.OBJECTIVES)
    accepts("hardneg", "loss.mixing", *hard_negatives.MIXINGS)
    accepts("hardneg", "optimizer.schedule", "constant", "cosine", "linear")
    accepts("nli", "data.sets", *nli_data.SETS)
    accepts("winoviz", "chat_template", *prompts.TEMPLATES)
    generation.make_prompts(
        ("cot", "tot", "coe", "toe"), ("wdq",), offensive=False, batch=1, requests=1, temperature=1.0, max_tokens=1
    )


def test_ranges_take_numpys_numbers_and_give_pythons():
    import numpy as np

    assert type(options.SEED.check("seed", np.uint32(7))) is int
    assert type(options.GUIDANCE.check("guidance_scale", np.float32(7.5))) is float
    assert options.span(10).check("range", np.array([1, 5])) == (1, 5)
    for value in (True, np.True_, "3", 3.0, None):
        with raises("bad-value", "limit"):
            options.COUNT.check("limit", value)
    config = ml_collections.ConfigDict({"a": [1, 2]})
    declared = dataclasses.make_dataclass("Own", [("a", tuple, options.option((), options.items(options.COUNT)))])
    assert configuration.check(config, options.declared(declared)) == {"a": (1, 2)}
