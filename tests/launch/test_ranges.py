"""Every field of every config says what it may be, and is checked before anything is loaded."""

import functools
import math
import sys
import time

import pytest

from launch import configuration
from tests.expectations import names, raises
from winobench.base import options
from winobench.base.errors import InputError
from winobench.metrics import normalization
from winobench.runs import settings

NAMES = configuration.config_names()

# What no field may take as it stands; those that are words for a text field, such as "x", are not among them.
NUMBERS = ["-1", "0", "nan", "inf", "-inf", "1e400", str(10**12), "-" + str(10**12), "1" + "0" * 400, "1" + "0" * 5000]
WORDS = ["", "²,³", "٣", "１２", "x", "[", "(" * 300_000, "1,2,3", "['a', 'b']", "{}", "true", "a\nb", "\x00"]

# Fields of numbers that may be negative, or zero, or as large as 10**12.
NEGATIVE = {"lora_scale", "guidance", "guidance_scale", "generation.guidance_scale"}
_OF_TRAINING = ("warmup_steps", "decay_steps", "ema_decay")
ZERO = {
    *NEGATIVE,
    *("seed", "lora.dropout", "optimizer.b1", "optimizer.b2", "optimizer.weight_decay", "optimizer.warmup_share"),
    *("checks.max_changed_words", "checks.similarity", "data.task_like_fraction", "data.num_hard_scenes"),
    *("quantizer.codes_decay", "decoder.replaced_rows", "decoder.empty_text_fraction"),
    *("denoiser.empty_text_fraction", "autoencoder.pixel_noise", "data.latent_noise", "ema_decay"),
    *(
        f"{part}.{name}"
        for part in ("optimizer", "training", "autoencoder", "denoiser", "quantizer", "decoder", "pixels")
        for name in _OF_TRAINING
    ),
}
LARGE = {"optimizer.clip_norm", "explosion_factor"}


@pytest.fixture(scope="module", autouse=True)
def _files_run_once():
    """Config files are run once each, and not for every one of thousands of values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(configuration, "_execute", functools.cache(configuration._execute))
        yield


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", NAMES)
def test_a_value_is_in_the_range_or_refused_in_one_sentence(name):
    before = set(sys.modules)
    defaults = options.values(configuration.load(name))
    for field, option in configuration.options_of(name).items():
        started = time.process_time()
        for text in NUMBERS + WORDS:
            try:
                value = options.values(configuration.load(name, [(field, text)]))[field]
            except InputError as error:
                said = str(error)
                assert len(said) < 700
                assert said.isprintable()
                continue
            assert option.metadata["range"].check(field, value) == value
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, bool) or not isinstance(one, int | float):
                    continue
                assert math.isfinite(one), (field, text)
                assert abs(one) < 10**12 or (field in LARGE and one == 10**12), (field, text)
                assert one >= 0 or field in NEGATIVE, (field, text)
                may_be_zero = field in ZERO or isinstance(defaults[field], tuple) or "range" in field
                assert one != 0 or may_be_zero, (field, text)
        assert time.process_time() - started < 5, field
    loaded = {module.partition(".")[0] for module in set(sys.modules) - before}
    assert not loaded & {"torch", "transformers", "grain", "datasets"}


OTHERS = (object(), float("nan"), float("-inf"), -(10**400), 10**400, {}, [], b"a", [[1]], "\ud83d", "x" * 20_000)


@pytest.mark.parametrize("name", NAMES)
def test_values_of_another_type_are_refused_by_the_range(name):
    """What a config file, rather than a command line, may put into a field."""
    for field, option in configuration.options_of(name).items():
        for value in OTHERS:
            with pytest.raises(InputError) as caught:
                option.metadata["range"].check(field, value)
            assert len(str(caught.value)) < 700


def test_a_new_field_cannot_be_forgotten(tmp_path):
    """A config file's own values are checked like those of the command line, with the ranges that its fields have."""
    content = configuration.config_files()["hardneg"].read_text()
    (tmp_path / "mine.py").write_text(content.replace('learning_rate": 3e-3', 'learning_rate": -3e-3'))
    with pytest.raises(InputError, match=names("--optimizer.learning_rate", "-0.003")):
        configuration.load(str(tmp_path / "mine.py"))


_CALLS = """
def get_config():
    from . import winoviz
    config = winoviz.get_config()
    config.limit = 5
    return config
"""
_IMPORTS = """
import ml_collections
from configs import winoviz
def get_config():
    return ml_collections.ConfigDict({"limit": 5, "generation": {"num_steps": 7}})
"""
_STATES_ITS_LAUNCHER = """
import ml_collections
LAUNCHER = "generate"
def get_config():
    return ml_collections.ConfigDict({"limit": 5})
"""


@pytest.mark.parametrize("content", [_CALLS, _IMPORTS, _STATES_ITS_LAUNCHER])
def test_a_users_config_has_the_options_of_the_config_that_it_calls_or_imports(content, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(content)
    assert configuration.launcher_of(str(path)) == ("generate" if "generate" in content.partition("def")[0] else "eval")
    assert configuration.load(str(path), [("batch_size", "3")]).batch_size == 3
    assert configuration.load(str(path)).limit == 5
    with raises("bad-value", "--limit", "-5"):
        configuration.load(str(path), [("limit", "-5")])
    with raises("config-of-another-launcher", "mine.py", "winobench train"):
        configuration.load(str(path), launcher="train")
    (tmp_path / "other.py").write_text(content.replace("limit", "limt"))
    with raises("unknown-field", "'limt'", "--limit"):
        configuration.load(str(tmp_path / "other.py"))


def test_copies_of_earlier_configs_load(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import dataclasses\nfrom winobench.runs import settings\nfrom . import _shared, forms_of\n"
        "@dataclasses.dataclass(frozen=True)\nclass Settings(settings.Asking, _shared.Responder):\n"
        "    tasks: str = 'wscplus'\n"
        "LAUNCHER, SETTINGS = 'eval', Settings\nget_config = forms_of('mine', Settings, 'ask', {'one': {'limit': 3}})\n"
    )
    assert isinstance(configuration.load(str(path), (), "eval"), settings.Asking)
    assert configuration.load(f"{path}:one").limit == 3


def test_a_config_without_options_says_where_they_come_from(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("import ml_collections\nget_config = ml_collections.ConfigDict")
    with raises("bad-settings", "mine.py", "gdbench.get_config()"):
        configuration.load(str(path))
    assert configuration.load(str(path), launcher="eval").sampling.num_samples is None


REFUSED = {
    "hardneg:debug optimizer.learning_rate=-1": ["learning_rate", "-1.0", "0"],
    "hardneg:debug ema_decay=3": ["ema_decay", "3.0", "0", "1", "none"],
    "hardneg:debug optimizer.warmup_steps=4": ["warmup_steps", "4", "cosine"],
    "hardneg:debug accumulate=3": ["4", "3"],
    "hardneg:debug loss.timestep_range=²,³": ["timestep_range", "²,³"],
    "hardneg:debug loss.timestep_range=1,2,3": ["timestep_range", "(1, 2, 3)"],
    "hardneg loss.kind=hard": ["kind", "'hard'", "random_text"],
    "hardneg loss.threshold_over=row": ["threshold_over", "'row'"],
    "hardneg loss.threshold=0": ["threshold", "0"],
    f"gdbench sampling.num_samples={10**12}": ["num_samples", "1", "1,000,000"],
    "gdbench sampling.timesteps=²,³": ["timesteps", "'²,³'", "uniform"],
    "gdbench sampling.timesteps=100,,500": ["timesteps", "'100,,500'"],
    "gdbench sampling.timesteps=published sampling.timestep_range=300,800": ["published", "300,800"],
    "gdbench sampling.timesteps=importance": ["importance", "--sampling.mode=race"],
    "winoviz api.price=1": ["price", "2"],
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_refused(command):
    refuse(command, *REFUSED[command])


def refuse(command, *words):
    """A config with fields such as ``hardneg seed=-1`` is refused by a message with words."""
    spec, *fields = command.split(" ")
    with pytest.raises(InputError, match=names(*words)):
        configuration.load(spec, [field.split("=", 1) for field in fields])


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"sampling.timesteps": "100,500,700"}, "100,500,700"),
        ({"sampling.timestep_range": "all"}, "all"),
        ({"sampling.timestep_range": "none"}, None),
        ({"batch_size": "search"}, "search"),
        ({"lora_scale": "-0.5"}, -0.5),
    ],
)
def test_what_is_allowed(fields, value):
    (field,) = fields
    assert options.values(configuration.load("gdbench", fields.items()))[field] == value


def test_choices_are_those_of_the_library():
    """The ranges import nothing large, so they repeat a few names."""
    from winobench.checkpoints import models
    from winobench.evaluation import importance
    from winobench.models import lora
    from winobench.responders import prompts
    from winobench.scorers import denoising
    from winobench.training import hard_negatives

    def accepts(name, field, *words):
        declared = configuration.options_of(name)[field].metadata["range"]
        assert declared.wanted.endswith(", ".join(words)) or all(declared.check(field, word) for word in words)
        return declared

    accepts("gdbench", "sampling.timesteps", *options.TIMESTEP_RULES, *options.LEARNED_TIMESTEPS)
    accepts("gdbench", "sampling.mode", *settings.MODES)
    for rule in (importance.RULE, *options.TIMESTEP_RULES):
        configuration.load("gdbench:race", [("sampling.timesteps", rule)])
    accepts("gdbench", "normalize", normalization.AUTO, *normalization.NORMALIZATIONS)
    accepts("gdbench", "error", *denoising.ERRORS)
    accepts("gdbench", "target", *denoising.TARGETS)
    accepts("gdbench", "dtype", *models.DTYPES)
    accepts("hardneg", "lora.targets", *lora.TARGETS)
    accepts("hardneg", "loss.kind", *hard_negatives.NEGATIVES)
    accepts("winoviz", "chat_template", *prompts.TEMPLATES)


def test_ranges_take_numpys_numbers_and_give_pythons():
    import numpy as np

    assert type(options.SEED.check("seed", np.uint32(7))) is int
    assert type(options.GUIDANCE.check("guidance_scale", np.float32(7.5))) is float
    assert options.span(10).check("range", np.array([1, 5])) == (1, 5)
    for value in (True, np.True_, "3", 3.0, None):
        with raises("bad-value", "limit"):
            options.COUNT.check("limit", value)
    assert options.items(options.COUNT).check("a", [1, 2]) == (1, 2)
