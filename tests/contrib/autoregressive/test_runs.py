"""`winobench eval` of a tiny Janus on rendered scenes: records, resuming, several processes."""

import functools
import json

import numpy as np
import pytest

from tests import launching
from tests.contrib.autoregressive.tiny import CODES
from tests.evaluation.fakes import recorded
from winobench.contrib.autoregressive import loading, scorer
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.diffusion import families
from winobench.runs import error_parts

TASKS = ("clevr", "clevr_winoground")
launch = functools.partial(launching.launch, "launch.eval")


def words(folder, workdir, *more):
    return [f"--model={folder}", f"--tasks={','.join(TASKS)}", "--limit=2", f"--workdir={workdir}", *more]


def evaluate(folder, workdir, *more):
    status, out, err = launch(*words(folder, workdir, *more))
    assert status == 0, err
    return json.loads((workdir / "results.json").read_text()), out


@pytest.fixture(scope="module")
def folder(write_generator):
    return write_generator("janus")


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """A run at once: its folder, and its results."""
    workdir = tmp_path_factory.mktemp("whole") / "run"
    before = scorer._score_pairs._cache_size()
    results, _ = evaluate(folder, workdir, "--batch_size=4")
    assert {*results["tasks"]} == {*TASKS}
    assert scorer._score_pairs._cache_size() == before + 1  # one program for all pairs of both tasks
    return workdir, results


def check_same(errors, wanted):
    assert errors.keys() == wanted.keys()
    np.testing.assert_allclose([errors[key] for key in wanted], [*wanted.values()], atol=1e-4)


def test_an_evaluation(whole):
    workdir, results = whole
    fingerprint = json.loads((workdir / "config.json").read_text())["identity"]["scorer"]
    assert fingerprint["scorer"] == "image_likelihood"
    assert (fingerprint["layout"]["scored"], fingerprint["layout"]["codes"]) == (16, CODES)
    assert (fingerprint["guidance"], fingerprint["preprocessing"]) == (None, "squash")
    errors = np.asarray([*recorded(workdir).values()])
    assert results["computed_passes"] == errors.size
    # Nats more than of tokens that are drawn at random.
    assert np.all(np.isfinite(errors))
    assert np.ptp(errors) > 1


def test_a_run_that_was_interrupted_resumes(whole, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(error_parts, "_SECONDS_BETWEEN_PARTS", 0)
    step, calls = ImageLikelihood._step, []

    def interrupted(self, *arguments):
        calls.append(arguments)
        if len(calls) > 6:
            raise KeyboardInterrupt
        return step(self, *arguments)

    workdir = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(ImageLikelihood, "_step", interrupted)
        status, _, _ = launch(*words(folder, workdir, "--batch_size=1"))
    assert status == 130
    kept = recorded(workdir)
    assert 0 < len(kept) < len(recorded(whole[0]))
    results, _ = evaluate(folder, workdir, "--batch_size=1")
    assert results["computed_passes"] == len(recorded(whole[0])) - len(kept)
    assert results["tasks"] == whole[1]["tasks"]
    check_same(recorded(workdir), recorded(whole[0]))


@pytest.mark.parametrize(
    ("flag", "said"),
    [("--limit=1", "limit"), ("--tasks=clevr", "tasks.clevr_winoground"), ("--guidance=2", "scorer.guidance")],
)
def test_the_folder_of_another_run_is_refused_before_weights_are_read(whole, folder, monkeypatch, flag, said):
    monkeypatch.setattr(loading, "load", None)
    launching.refuse("launch.eval", *words(folder, whole[0], flag), named=[said, "another run"])


def test_a_diffusion_model_is_refused_in_the_folder_of_a_likelihood(whole, tiny_pipeline, monkeypatch):
    monkeypatch.setattr(families, "load_pipeline", None)
    launching.refuse("launch.eval", *words(tiny_pipeline, whole[0]), named=["scorer.scorer", "another run"])


@pytest.mark.parametrize(
    "flag",
    [
        "--normalize=none",
        *(pytest.param(flag, marks=pytest.mark.slow) for flag in ("--guidance=3", "--preprocessing=crop")),
    ],
)
def test_options(whole, folder, tmp_path, flag):
    results, _ = evaluate(folder, tmp_path / "run", "--batch_size=4", flag)
    errors, usual = recorded(tmp_path / "run"), recorded(whole[0])
    if flag == "--normalize=none":  # has no pairs with the empty text
        assert results["computed_passes"] < len(usual)
        check_same(errors, {key: usual[key] for key in errors})
        assert results["tasks"]["clevr"] == whole[1]["tasks"]["clevr"]  # texts of one image: the same order
    else:
        assert errors.keys() == usual.keys()
        # Scenes are squares, which cropping does not change.
        changes = np.asarray([errors[key] for key in usual]) - [*usual.values()]
        assert (np.abs(changes).max() > 0.1) == (flag == "--guidance=3")


@pytest.mark.slow  # starts two processes
def test_two_processes(whole, folder, tmp_path):
    workdir, address = tmp_path / "run", launching.free_address()
    started = [
        launching.start(
            "launch.eval",
            *words(folder, workdir, "--batch_size=4", f"--processes={address},2,{number}"),
            cwd=tmp_path,
            devices=1,
        )
        for number in range(2)
    ]
    launching.finish(started)
    results = json.loads((workdir / "results.json").read_text())
    assert results["tasks"] == whole[1]["tasks"]
    assert results["versions"]["device"]["processes"] == 2
    check_same(recorded(workdir), recorded(whole[0]))
