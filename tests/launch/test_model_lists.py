"""What can be refused is refused before the first model is loaded; each model has its own folder."""

import shutil

import pytest
from absl import flags
from PIL import Image

from launch import configuration
from launch import eval as launcher
from launch.overrides import parted
from tests.expectations import names
from tests.scorers import tiny_models
from winobench.base import options, registry
from winobench.base.errors import InputError
from winobench.evaluation import evaluate
from winobench.report import table
from winobench.scorers import loading


@pytest.fixture
def clip(tmp_path):
    return tiny_models.write_clip(tmp_path / "clip")


@pytest.fixture
def launch(monkeypatch, tmp_path):
    """Calls the launcher's main in this process with an evaluation that only notes what it was called with."""
    calls = []

    def evaluated(scorer, tasks, workdir, sampling, settings, recording):
        calls.append({"scorer": scorer, "workdir": workdir, **vars(sampling), **vars(settings), **vars(recording)})
        if "broken" in scorer:
            raise InputError("its weights are broken")
        failed = {"pets": "its data are damaged"} if "in_part" in scorer else {}
        return {"workdir": str(workdir or f"runs/{recording.name}"), "failed": failed}

    monkeypatch.setattr(evaluate, "evaluate", evaluated)
    monkeypatch.setattr(table, "print_results", lambda results, **_: None)
    monkeypatch.setattr(loading, "load_scorer", lambda model, *_, **__: model.name)

    def call(*words):
        spec = next((word.removeprefix("--config=") for word in words if word.startswith("--config=")), "gdbench")
        rest, overrides = parted(["eval", *words], configuration.load(spec))
        flags.FLAGS(rest)
        try:
            launcher.main(configuration.load(spec, overrides, "eval"))
        finally:
            flags.FLAGS.unparse_flags()
            for flag in (launcher._WORKDIR, launcher._OVERWRITE):
                flags.FLAGS[flag.name].unparse()
            flags.FLAGS["config"].unparse()
        return calls

    call.calls = calls
    return call


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--config=gdbench:race"], ["mode", "'{clip}'"]),
        (["--normalize=gray_image"], ["normalize", "'{clip}'"]),
        (["--model=clevr-tiny,/nowhere"], ["'/nowhere'"]),
        (["--model=clevr-tiny,flan-t5-base"], ["'flan-t5-base'", "language model"]),
        (["--model=clevr-tiny", "--sampling.timestep_range=300,2000"], ["0 <= first < end <= 1,000"]),
        (["--model=clevr-tiny", "--sampling.timesteps=10,1000"], ["timesteps", "'clevr-tiny'"]),
        (["--model=clevr-tiny", "--lora=~/nothing.safetensors"], ["nothing.safetensors"]),
    ],
)
def test_what_a_later_model_cannot_do_is_said_before_the_first_runs(launch, clip, words, named):
    with pytest.raises(InputError, match=names(*(word.format(clip=clip) for word in named))):
        launch(f"--model=clevr-tiny,{clip}", *words)
    assert not launch.calls


def test_models_of_one_name_get_folders_of_their_own(launch, tiny_pipeline, tmp_path):
    names = [tmp_path / owner / "sd" for owner in ("a", "b")]
    for name in names:
        shutil.copytree(tiny_pipeline, name)
    models = [*map(str, names), "clevr-tiny", str(names[0])]  # the first one again
    calls = launch(f"--model={','.join(models)}", f"--workdir={tmp_path / 'runs'}")
    folders = [call["workdir"] for call in calls]
    assert folders == [str(tmp_path / "runs" / name) for name in ("a-sd", "b-sd", "clevr-tiny")]
    assert [call["model"] for call in calls] == ["a-sd", "b-sd", "clevr-tiny"]
    assert len({call["name"] for call in calls}) == 3


@pytest.mark.parametrize(("name", "said"), [("broken", "its weights are broken"), ("in_part", None)])
def test_a_model_or_task_that_fails_does_not_keep_the_others(launch, tiny_pipeline, tmp_path, capsys, name, said):
    folder = shutil.copytree(tiny_pipeline, tmp_path / name)
    with pytest.raises(SystemExit) as ended:
        launch(f"--model={folder},clevr-tiny")
    assert ended.value.code == 2
    assert [call["scorer"] for call in launch.calls] == [str(folder), "clevr-tiny"]
    out, err = capsys.readouterr()
    assert err == (f"error: model {folder}: {said}\n" if said else "")
    assert out.endswith(" runs/gdbench-clevr-tiny\n")


def test_listed_timesteps_set_the_number_of_samples(launch):
    (call,) = launch("--sampling.timesteps=100,500,700")
    assert (options.read_timesteps(call["timesteps"]), call["num_samples"]) == ([100, 500, 700], 3)
    assert call["config"]["sampling"]["num_samples"] == 3
    assert options.read_timesteps(".5,1.0") == [0.5, 1.0]
    launch("--sampling.timesteps=100,500,700", "--sampling.num_samples=3")
    with pytest.raises(InputError, match=names("3", "num_samples", "5")):
        launch("--sampling.timesteps=100,500,700", "--sampling.num_samples=5")


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["x/sd", "y/SD", "clip"], ["x-sd", "y-SD", "clip"]),
        (["/a/b/sd", "/c/b/sd"], ["b-sd-", "b-sd-"]),
        (["a/b", "a-b"], ["b", "a-b"]),
        (["../sd", "sd", "./sd"], None),
    ],
)
def test_labels_are_different_on_any_file_system(names, labels):
    found = registry.model_labels(names)
    assert len({label.casefold() for label in found}) == len(names)
    assert all(map(str.startswith, found, labels or found))


def test_a_long_name_is_one_short_sentence():
    for name in ("x" * 5000, "a/" + "x" * 5000, "\ud83d", "a\x00b", None, 5, ["a"]):
        for resolve, longest in ((registry.resolve, 1000), (loading.checkpoint_kind, 300)):
            with pytest.raises(InputError) as caught:
                resolve(name)
            assert len(str(caught.value)) < longest


def test_home_folders_are_expanded(monkeypatch, tmp_path, tiny_pipeline):
    from winobench.base import files
    from winobench.checkpoints import sources
    from winobench.data import images
    from winobench.runs import records

    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").symlink_to(tiny_pipeline)
    assert files.user_path("~/model") == str(tmp_path / "model")
    assert registry.resolve("~/model").source == str(tmp_path / "model")
    assert sources.resolve("~/model").find("model_index.json") == str(tmp_path / "model" / "model_index.json")
    assert loading.resolve("~/model").kind == "diffusion_itm"
    assert records.RunFolder("~/run").path == tmp_path / "run"
    assert files.user_path("a~b") == "a~b"
    Image.new("RGB", (4, 4)).save(tmp_path / "black.png")
    assert images.load_image("~/black.png", 4).shape == (4, 4, 3)
    for path in (None, 5, "a\x00b"):
        with pytest.raises(InputError):
            files.user_path(path)
