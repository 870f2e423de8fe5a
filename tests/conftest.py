"""Fixtures that all tests share: small random models, and the folder of reference data."""

import collections
import contextlib
import ctypes
import functools
import gc
import importlib.metadata
import json
import os
import pathlib
import signal
import sys
import tempfile
import types

# Before JAX starts: eight devices on one CPU, so that sharded code is tested wherever the tests run.
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()
# Most of the time is XLA's: networks this small compile for seconds and run for milliseconds. Both settings reach
# launched programs, too, and change no more than the last bits of a result. Jaxlib 0.11 has no such emitters. Programs
# in one piece take a sixth less than those whose pieces several threads compile.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if importlib.metadata.version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
# What one test, worker or launched program has compiled, the next one finds.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _COMPILED = tempfile.TemporaryDirectory(prefix="winobench-tests-compiled-")  # gone when the first process ends
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _COMPILED.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
# Many threads allocate: without a limit, each keeps an arena of its own. Workers and launched programs read this.
os.environ.setdefault("MALLOC_ARENA_MAX", "2")
# A shell that starts the tests in the background has them ignore interrupts, which some of them are about.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Nor look for the TPU that the compiler in libtpu is for.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# No test may depend on the network; those about the hub bring their own cache.
os.environ["HF_HUB_OFFLINE"] = "1"
# Nor on data sets that this machine happens to have prepared.
os.environ["WINOBENCH_DATA"] = os.path.join(tempfile.gettempdir(), "winobench-tests-have-no-data")
# Nor on what this user's runs have left behind.
os.environ["WINOBENCH_CACHE"] = os.path.join(tempfile.gettempdir(), "winobench-tests-have-no-cache")

import pytest

# Until all tests are imported: what a collection would look at again and again is modules, which stay.
gc.disable()

# A whole SD 1.5 in miniature: 32-pixel images, 8 x 8 x 4 latents, 77 tokens.
TINY_IMAGE_SIZE = 32
TINY_WORDS = ["a", "and", "ball", "blue", "cube", "left", "of", "photo", "red", "right", "the", "to"]


@pytest.fixture(scope="session", autouse=True)
def _single_threaded_torch():
    """The networks are too small for threads to pay, and JAX's own need the cores."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _no_waits_for_the_disk():
    """The power stays on: a file that is written to disk has to be open, but no test waits for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def _software_once():
    """The state of the repository is looked up once: every run records it, which takes longer than a small run."""
    from winobench.runs import provenance

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "software", functools.cache(provenance.software))
        yield


@pytest.fixture(scope="module", autouse=True)
def _nothing_to_free():
    """A collection after each generator takes longer than its images, and small models have little to give back."""
    with pytest.MonkeyPatch.context() as patch:
        if (generate := sys.modules.get("winobench.generation.generate")) is not None:
            patch.setattr(generate, "gc", types.SimpleNamespace(collect=lambda: None))
        yield


@pytest.fixture(scope="module", autouse=True)
def templates_tried_here():
    """Chat templates are tried in this process: to launch another takes two seconds. Returns both ways to try one."""
    if (chat_templates := sys.modules.get("winobench.checkpoints.chat_templates")) is None:
        yield None
        return

    def try_here(request):
        from transformers.utils.chat_template_utils import render_jinja_template

        return chat_templates.rendered(*json.loads(request), render_jinja_template)

    launch = chat_templates._try
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_templates, "_try", try_here)
        yield launch, try_here


@pytest.fixture(scope="module", autouse=True)
def _shapes_of_networks(_made_shapes={}):  # noqa: B006 - kept as long as the process lives
    """Loading a small network takes less time than the shapes that it must have: these are made once."""
    if (models := sys.modules.get("winobench.checkpoints.models")) is None or hasattr(models.abstract_parts, "make"):
        return
    make = models.abstract_parts

    def abstract_parts(cls, config, *, dtype="float32", **options):
        key = (cls, repr(config), str(models.as_dtype(dtype)), str(options))
        if key not in _made_shapes:
            _made_shapes[key] = make(cls, config, dtype=dtype, **options)
        return _made_shapes[key]

    abstract_parts.make = make
    models.abstract_parts = abstract_parts


# The longest files ahead of the others, so that none decides by itself when a run in two workers ends.
_LONG = """
    test_site contrib/torch_pipelines/classes/test_classes contrib/autoregressive/test_generation
    contrib/autoregressive/test_scores contrib/autoregressive/test_answering training/test_hardneg
    parity/test_whole_pipelines test_wrong_arguments launch/test_judge contrib/studies/test_embedded
    contrib/planning/test_programs contrib/torch_pipelines/test_families contrib/planning/test_training
    parity/test_qwen2_5_vl contrib/autoregressive/test_plans contrib/planning/test_generating
    contrib/bundles/test_writing contrib/autoregressive/test_understanding contrib/understanding/test_understand
    scorers/test_vqa_score scorers/test_diffusion_itm contrib/torch_pipelines/test_generation test_documents
    training/test_hard_negatives models/test_winograd models/test_attention scorers/test_changed_weights
    test_types contrib/torch_pipelines/test_devices parity/test_transformers contrib/autoregressive/test_runs
    parity/test_scorer_recorded parity/test_embedded_model report/test_page contrib/autoregressive/test_generate
    training/test_loop evaluation/test_processes benchmarks/test_hardneg responders/test_vision_language
    contrib/planning/test_few_blocks launch/test_whole_benchmark responders/test_language_model
    launch/test_generate launch/test_eval_text responders/test_prompts contrib/studies/test_clevr_verifier
    contrib/torch_pipelines/test_native launch/test_train contrib/torch_pipelines/test_changes_in_place
    scorers/test_callers_mesh engine/test_text_store launch/test_eval evaluation/test_same_bits parity/test_lora
    models/test_packed_attention test_architecture models/test_row_groups parity/test_qwen3_vl
    responders/test_hosted parity/test_hard_negative_loss parity/test_flow_lora
    contrib/autoregressive/test_clevr_tokens parity/test_lora_forms
"""


def pytest_configure(config):
    # xdist would begin with the files of the most tests, which are the quickest.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    seen = collections.Counter()
    for item in items:
        if (mark := item.get_closest_marker("quick")) is not None:
            seen[item.parent, item.originalname] += 1
            if seen[item.parent, item.originalname] > mark.args[0]:
                item.add_marker(pytest.mark.slow)
    place = {str(pathlib.Path(__file__).parent / f"{name}.py"): number for number, name in enumerate(_LONG.split())}
    items.sort(key=lambda item: place.get(str(item.path), len(place)))


@contextlib.contextmanager
def _optimizing():
    import jax

    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
    yield
    jax.config.update("jax_disable_most_optimizations", os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1")
    jax.clear_caches()


@pytest.fixture
def usual_optimizations():
    """The compiler's usual optimisations, for tests of what holds bit for bit."""
    with _optimizing():
        yield


@pytest.fixture(scope="module")
def usual_optimizations_throughout():
    """The same for files whose programs run for longer than they compile."""
    with _optimizing():
        yield


def pytest_collection_finish():
    """What the libraries have made when they were imported stays: the collector need not look at it in every test."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


# Beyond this many bytes, of which so many came since the last time, a worker drops what it has compiled before it goes
# on to another file.
_ENOUGH_MEMORY, _MUCH_MORE = 1250 << 20, 200 << 20
_kept_memory = 0


def _resident_bytes() -> int:
    try:
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux: as if it were too many
        return _ENOUGH_MEMORY


@pytest.fixture(scope="module", autouse=True)
def _bounded_memory():
    """Compiled programs stay in memory for as long as the process lives: thousands of tests would fill gigabytes."""
    global _kept_memory
    yield
    if _resident_bytes() < max(_ENOUGH_MEMORY, _kept_memory + _MUCH_MORE):
        return
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    gc.freeze()  # as at the start: what has come since is mostly libraries, and each collection would look at it
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library that is not glibc
            ctypes.CDLL(None).malloc_trim(0)
    _kept_memory = _resident_bytes()


@pytest.fixture(scope="session")
def reference_data() -> pathlib.Path:
    """The folder with recorded runs and published files, where there is one."""
    folder = os.environ.get("WINOBENCH_REFERENCE_DATA")
    if not folder:
        pytest.skip("WINOBENCH_REFERENCE_DATA names no folder of reference data")
    return pathlib.Path(folder)


@pytest.fixture(scope="session")
def tiny_pipeline(tmp_path_factory) -> pathlib.Path:
    """A small random pipeline in the layout of SD 1.5, written by torch diffusers; the same on every run.

    Every parameter is random (torch would start biases at 0 and norms at 1, which hides swapped ones), and the
    cross-attention is strong enough for the text to matter. Tests must not change the folder.
    """
    import diffusers
    import torch
    import transformers

    from tests import tiny_sd3
    from winobench.checkpoints.tokenizer_files import write_clip_tokenizer

    folder = tmp_path_factory.mktemp("tiny_pipeline")
    vocab_size = write_clip_tokenizer(folder / "tokenizer", TINY_WORDS, 77)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    unet = tiny_sd3.unet()
    vae = tiny_sd3.autoencoder(4)
    text_encoder = tiny_sd3.clip_encoder(vocab_size, 24, num_hidden_layers=2, pad_token_id=vocab_size - 1)
    with torch.no_grad():
        for network in (unet, vae, text_encoder):
            for name, parameter in network.named_parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
                if ".attn2." in name:
                    parameter.mul_(3)
    diffusers.StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=transformers.CLIPTokenizer.from_pretrained(folder / "tokenizer"),
        unet=unet,
        scheduler=tiny_sd3.pndm(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_language_model(tmp_path_factory) -> pathlib.Path:
    """A small random LLaMA in transformers' layout, without a chat template; the same on every run.

    It reads any text and answers with random pieces of some. Tests must not change the folder.
    """
    from tests.tiny_language_models import write_language_model

    return write_language_model(tmp_path_factory.mktemp("tiny_language_model"))


@pytest.fixture(scope="session")
def tiny_chat_model(tmp_path_factory) -> pathlib.Path:
    """A small random Qwen3 with a chat template; as `tiny_language_model`."""
    from tests.tiny_language_models import CHAT_TEMPLATE, write_language_model

    return write_language_model(tmp_path_factory.mktemp("tiny_chat_model"), "qwen3", chat_template=CHAT_TEMPLATE)


@pytest.fixture(scope="session")
def tiny_t5(tmp_path_factory) -> pathlib.Path:
    """A small random T5; as `tiny_language_model`."""
    from tests.tiny_language_models import write_language_model

    return write_language_model(tmp_path_factory.mktemp("tiny_t5"), "t5")


@pytest.fixture(scope="session")
def _compile_events():
    import jax

    events = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: events.append(name))
    return events


@pytest.fixture
def compilations(_compile_events):
    """``with compilations() as count``: afterwards ``count.total`` is the number of programs that XLA compiled."""

    @contextlib.contextmanager
    def counting():
        before = len(_compile_events)
        count = types.SimpleNamespace(total=None)
        yield count
        count.total = _compile_events[before:].count("/jax/core/compile/backend_compile_duration")

    return counting


@pytest.fixture
def single_device(monkeypatch):
    """As if the process had one device, for tests that are not about several: what it runs compiles sooner."""
    import jax

    devices = jax.devices()[:1]
    for name in ("devices", "local_devices"):
        monkeypatch.setattr(jax, name, lambda *_, **__: devices)


@pytest.fixture
def fake_devices():
    """The environment of a subprocess that sees this number of CPU devices, and imports from this checkout."""

    def environment(count):
        root = str(pathlib.Path(__file__).parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}".strip()
        return os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": path}

    return environment
