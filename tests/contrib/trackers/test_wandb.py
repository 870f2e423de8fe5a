"""Weights & Biases in trainings: its ids, and when it is used."""

import sys
import types

import pytest

from tests.training.test_writers import fill, no_wandb_variables  # noqa: F401
from winobench.contrib.trackers import services
from winobench.training import writers


@pytest.fixture
def wandb(monkeypatch):
    told = []

    def init(**options):
        told.append(("init", options))
        return types.SimpleNamespace(
            log=lambda values, step: told.append(("log", step, values)), finish=lambda: told.append(("finish",))
        )

    module = types.ModuleType("wandb")
    module.init = init
    module.__spec__ = types.SimpleNamespace(name="wandb")
    monkeypatch.setitem(sys.modules, "wandb", module)
    return told


def test_weights_and_biases_goes_on_under_its_id(tmp_path, wandb):
    for start in (0, 2):
        fill(services.WeightsAndBiases(tmp_path / "run", "mine", {"seed": 1}), start, [start + 1])
    (_, first), log, finish, (_, second), _, _ = wandb
    assert first == second
    assert first["project"] == "mine"
    assert first["resume"] == "allow"
    assert first["config"] == {"seed": 1}
    assert log == ("log", 1, {"loss": 0.1})
    assert finish == ("finish",)
    fill(services.WeightsAndBiases(tmp_path / "other", None, {}), 0, [])
    assert wandb[-2][1]["id"] != first["id"]


def test_weights_and_biases_where_it_is_wanted(tmp_path, wandb, monkeypatch):
    def kinds(project, **more):
        made = writers.for_run(tmp_path, project=project, config={}, **more)
        return [type(writer.tracker).__name__ for writer in made]

    assert kinds(None) == ["TensorBoard"]
    assert kinds("mine") == ["TensorBoard", "WeightsAndBiases"]
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert kinds(None) == ["TensorBoard", "WeightsAndBiases"]
    assert kinds(None, log=["trackio"]) == ["Trackio"]
    assert kinds("mine", log=["wandb", "tensorboard"]) == ["WeightsAndBiases", "TensorBoard"]
    assert kinds("mine", log=["tensorboard"]) == ["TensorBoard", "WeightsAndBiases"]
