"""The comparison of a race among classes and a fixed budget, in its smallest form."""

import itertools
import json

import numpy as np
import pytest

from benchmarks import race_classes
from tests.expectations import raises


@pytest.mark.slow  # compiles the renderer for one scene
def test_classes_are_different_and_images_show_one_of_them():
    examples = list(race_classes.task(20, 3).load(None, None))
    assert len(examples) == 3
    for example in examples:
        assert len(set(example.texts)) == 20
        assert example.images[0].shape == (64, 64, 3)
    # Another scene of the same class has the same caption, whichever of its objects is on the left.
    scenes = list(itertools.islice(race_classes._scenes("evaluation"), 64))
    for text, _ in scenes:
        first, second = text.removeprefix("A ").removesuffix(".").split(" and a ")
        assert first < second


def test_a_schedule_by_hand():
    # The best two of four are kept after one sample, which misses the one that is best on the whole.
    errors = np.array([[1.0, 9, 9], [2, 2, 2], [3, 0, 0], [4, 4, 4]])
    assert race_classes.by_schedule(errors, [(2, 1)]) == (1, 4 * 1 + 2 * 2)
    assert race_classes.by_schedule(errors, [(3, 1)]) == (2, 4 * 1 + 3 * 2)
    # Rounds that would keep all, or take more samples than there are.
    assert race_classes.by_schedule(errors, [(4, 1), (2, 9)]) == (2, 4 * 3)


@pytest.mark.slow
def test_runs(tmp_path, capsys):
    output = tmp_path / "figures.json"
    words = ["--images", "2", "--classes", "6", "--budget", "24", "--workdir", str(tmp_path / "runs")]
    race_classes.main([*words, "--output", str(output)])
    figures = json.loads(output.read_text())
    assert figures["fixed"]["passes"] == 2 * 6 * 24
    table = capsys.readouterr().out
    for name, of in figures["rules"].items():
        assert of["passes"] <= figures["fixed"]["passes"]
        assert of["answers"]["same"] <= of["answers"]["of"] == 2
        assert of.get("computed_passes", 0) == 0
        assert f"| {name} |" in table
    assert set(figures["rules"]) == {
        *(f"race, rare_share {share}" for share in race_classes.SHARES),
        *(f"schedule, {name}" for name in race_classes.SCHEDULES),
    }


def test_bad_arguments():
    for words in (["--classes", "1"], ["--classes", "169"], ["--images", "0"]):
        with raises("out-of-range", *words):
            race_classes.main(words)
    with raises("out-of-range", "--budget", "0"):
        race_classes.main(["--budget", "0"])
