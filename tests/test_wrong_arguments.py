"""A wrong argument of a public call ends with one sentence or is taken: no error comes from inside."""

import contextlib
import inspect
import io

import jax
import pytest

import winobench
from tests import wscplus_files
from tests.generation import fakes
from winobench import report
from winobench.base.errors import InputError
from winobench.generation.generate import Settings
from winobench.models import layers
from winobench.responders.recorded import RecordedModel

WRONG = [None, -1, 1.5, float("nan"), [], "", "x" * 300, object(), b"a\0b", [None], {"a": 1}, (1, 2), 10**30]
FUNCTIONS = ["compare", "generate_images", "evaluate", "evaluate_questions", "get_task", "get_text_task"]
FUNCTIONS += ["judge_images", "load_pipeline", "load_responder", "load_scorer", "noise_key", "read_images"]
FUNCTIONS += ["read_prompts", "read_run", "task_from_jsonl"]
CLASSES = ["Captioner", "Contrastive", "DiffusionITM", "HostedVQAScore", "ItmHead", "NoiseSchedule", "VQAScore"]
CLASSES += ["VisionLanguageModel"]
METHODS = ["model_card", "eval_results", "inspect_log", "write_report", "table", "images", "encode_texts", "generate"]
METHODS += ["from_pretrained"]
UNKNOWN_NAMES_ARE_EMPTY = ["images"]


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """One device, to which hundreds of models are copied as they are."""
    with pytest.MonkeyPatch.context() as patch:
        devices = jax.devices()[:1]
        for name in ("devices", "local_devices"):
            patch.setattr(jax, name, lambda *_, **__: devices)
        patch.setattr(layers, "arrange_for_cpus", lambda structure, arrays: arrays)
        yield


@pytest.fixture(scope="module")
def calls(tmp_path_factory, tiny_pipeline):
    """Name -> the call and right arguments, one of which at a time is replaced."""
    root, model = tmp_path_factory.mktemp("calls"), str(tiny_pipeline)
    pipeline, scorer = winobench.load_pipeline(model), winobench.load_scorer(model)
    few = {"sampling": winobench.Sampling(num_samples=1), "settings": winobench.Scoring(limit=2)}
    few["recording"] = winobench.Recording(progress=False)
    for name in ("one", "other"):
        winobench.evaluate(scorer, "clevr", root / name, **few)
    run = winobench.read_run(root / "one")
    images, prompts = fakes.draw(root / "images", "one"), list(fakes.PROMPTS)
    data = wscplus_files.write(root / "data", said=lambda number, answer: 0)
    asking = {"settings": winobench.Asking(data_dir=str(root / "data")), "recording": few["recording"]}
    (root / "own.jsonl").write_text('{"images": ["a.png"], "texts": ["a", "b"], "target": 0}\n')
    how = {"settings": Settings(num_steps=1), "progress": False}
    given = {
        "compare": {"first": root / "one", "second": root / "other", "tasks": ["clevr"]},
        "generate_images": {
            "generators": [fakes.generator(fakes.FakePipeline())],
            "prompts": prompts,
            "workdir": root / "d",
        }
        | how
        | {"seeds": (0,), "batch_size": 8, "overwrite": False, "name": "images", "config": None},
        "evaluate": {"scorer": scorer, "tasks": "clevr", "workdir": root / "third", **few},
        "evaluate_questions": {
            "responder": RecordedModel(f"recorded:{data}"),
            "tasks": "wscplus",
            "workdir": root / "q",
        }
        | asking,
        "get_task": {"name": "clevr"},
        "get_text_task": {"name": "winoviz"},
        "judge_images": {"run": images, "responder": fakes.ImageJudge(), "name": "judge", "rubric": None}
        | {"label": None, "progress": False},
        "load_pipeline": {"source": model, "dtype": "float32", "revision": None, "backend": "auto"},
        "load_responder": dict.fromkeys(inspect.signature(winobench.load_responder).parameters)
        | {"model": f"recorded:{data}", "dtype": "float32", "model_parallel": 1, "chat_template": "auto", "seed": 0}
        | {"allow_pickle": False, "int8": False, "about_images": False},
        "load_scorer": dict.fromkeys(inspect.signature(winobench.load_scorer).parameters)
        | {"model": model, "dtype": "float32", "allow_pickle": False, "model_parallel": 1},
        "noise_key": {"seed": 0},
        "read_images": {"folder": root / "images", "complete": True},
        "read_prompts": {"source": "clevr", "limit": 1, "categories": ()},
        "read_run": {"path": root / "one"},
        "task_from_jsonl": {"path": root / "own.jsonl", "name": None, "metric": None},
        "DiffusionITM": _defaults(winobench.DiffusionITM) | {"pipeline": pipeline},
        "model_card": {"run": run, "command": None},
        "eval_results": {"run": run, "dataset": None},
        "inspect_log": {"run": run, "path": root / "logs"},
        "write_report": {"paths": [root / "one"], "out": root / "report", "resamples": 10, "gallery_examples": 0}
        | {"seed": 0, "raters": (), "images": (), "command": (), "table_format": "csv"},
        "table": {"format": "text", "groups": False},
        "images": {"task": "clevr"},
        "encode_texts": {"texts": ["a"]},
        "generate": {"texts": ["a"], "num_steps": 1, "guidance_scale": 1.0, "seed": 0},
        "from_pretrained": {"source": model, "dtype": "float32"},
    }
    given |= {name: _defaults(getattr(winobench, name)) for name in CLASSES if name not in given}
    of_others = {name: getattr(report, name) for name in ("model_card", "eval_results", "inspect_log", "write_report")}
    of_others |= {"table": run.table, "images": run.images}
    of_others |= {"encode_texts": pipeline.encode_texts, "generate": pipeline.generate}
    of_others["from_pretrained"] = winobench.StableDiffusion.from_pretrained
    return {name: (of_others.get(name) or getattr(winobench, name), given[name]) for name in given}


def _defaults(of):
    parameters = inspect.signature(of).parameters.values()
    return {each.name: None if each.default is each.empty else each.default for each in parameters}


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES, *METHODS])
def test_a_wrong_argument_ends_with_a_sentence(calls, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, right = calls[name]
    ended, faults = 0, []
    for argument in right:
        for value in WRONG:
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    function(**right | {argument: value})
            except InputError:
                ended += 1
            except Exception as error:
                if "unexpected keyword argument" in str(error):  # Python's sentence names it
                    continue
                faults.append(f"{argument}={value!r:.30}: {type(error).__name__}: {error!s:.200}")
    assert not faults, "\n".join(faults)
    assert ended > len(WRONG) // 3 or name in UNKNOWN_NAMES_ARE_EMPTY
