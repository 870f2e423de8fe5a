import json

import pytest

from launch import configuration
from tests.expectations import raises
from winobench.base import options
from winobench.training import recipes

VALUES = {"seed": 0, "range": (1, 2), "part": {"rate": 0.1, "steps": 5}}


def changed(**part):
    return {**VALUES, "part": {**VALUES["part"], **part}}


def keep(values, folder, free=("part.steps",)):
    with recipes.run_folder(values, folder, free=free):
        (folder / "metrics.jsonl").touch()


def test_a_run_goes_on_with_its_own_config_only(tmp_path):
    folder = tmp_path / "runs" / "one"
    keep(VALUES, folder)
    assert json.loads((folder / "config.json").read_text()) == {**VALUES, "range": [1, 2]}
    keep(VALUES, folder)
    keep(changed(steps=9), folder)
    assert json.loads((folder / "config.json").read_text())["part"]["steps"] == 9
    before = (folder / "config.json").read_text()
    with raises("another-run", "part.rate"):
        keep({**changed(rate=0.2), "seed": 1}, folder)
    with raises("another-run"):
        keep({**VALUES, "more": 3, "added": 1}, folder, ["added", "part.steps"])
    assert (folder / "config.json").read_text() == before


def test_a_name_is_kept_and_makes_no_other_run(tmp_path):
    def recorded(values, **more):
        with recipes.run_folder(values, tmp_path / "run", free=["part.steps"], **more):
            return json.loads((tmp_path / "run" / "config.json").read_text()).get("name")

    assert recorded(VALUES) is None
    assert [recorded(VALUES, **more) for more in ({"name": "a"}, {}, {"name": "b"}, {})] == ["a", "a", "b", "b"]
    with raises("another-run", "seed"):
        recorded({**VALUES, "seed": 1}, name="c")
    assert recorded(VALUES) == "b"
    # A recipe's own field of this name is no free one.
    with recipes.run_folder({"name": "x"}, tmp_path / "own", free=[]):
        pass
    with raises("another-run", "name"), recipes.run_folder({"name": "y"}, tmp_path / "own", free=[]):
        pass


def test_a_run_that_fails_at_once_leaves_no_folder(tmp_path):
    def attempt(folder, files):
        with recipes.run_folder(VALUES, folder, free=[]):
            for name in files:
                (folder / name).touch()
            raise ZeroDivisionError

    def fail(folder, *files):
        with pytest.raises(ZeroDivisionError):
            attempt(folder, files)

    fail(tmp_path / "runs" / "one")
    assert not list(tmp_path.iterdir())
    fail(tmp_path / "runs" / "two", "metrics.jsonl")
    fail(tmp_path / "runs" / "three")
    fail(tmp_path / "runs" / "two")  # was there before
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["config.json", "metrics.jsonl", "runs", "two"]


def test_a_folder_is_for_one_process_at_a_time(tmp_path):
    with recipes.run_folder(VALUES, tmp_path, free=[]):
        before = (tmp_path / "config.json").stat().st_mtime_ns
        with raises("in-use"):
            keep(VALUES, tmp_path)
        assert (tmp_path / "config.json").stat().st_mtime_ns == before
        with recipes.run_folder(VALUES, tmp_path, free=[], alone=False):  # one of the same program
            pass
    keep(VALUES, tmp_path)


def test_a_digest_tells_fixed_fields_apart():
    first = recipes.digest(VALUES, free=["part.steps"])
    assert len(first) == 8
    assert recipes.digest(changed(steps=9), free=["part.steps"]) == first
    assert recipes.digest(changed(rate=0.2), free=["part.steps"]) != first
    assert recipes.digest(changed(steps=9), free=[]) != recipes.digest(VALUES, free=[])


def test_every_recipe_has_a_config_and_what_the_launcher_asks_of_it():
    specs = configuration.config_names("train")
    configs = {spec: configuration.load(spec, launcher="train") for spec in specs}
    assert {config.recipe for config in configs.values()} == set(recipes.names())
    for spec, config in configs.items():
        recipe = recipes.load(config.recipe)
        fields = set(options.values(config))
        assert set(recipe.free_fields(config)) <= fields
        assert recipe.default_name(config, f"{spec}:debug", "0a1b2c3d").isascii()
        assert callable(recipe.run)
        assert set(configuration.options_of(spec)) == fields


def test_an_unknown_recipe_is_named():
    with raises("unknown-name", "'hardnet'", "hardneg"):
        recipes.load("hardnet")


@pytest.mark.parametrize("path", ["/dev/null", "/dev/null/below", "file", "file/below", "x" * 300, "circle", "/proc/x"])
def test_folders_that_cannot_be_made_are_one_sentence(tmp_path, path):
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to("circle")
    with raises("cannot-write"):
        keep(VALUES, tmp_path / path)
