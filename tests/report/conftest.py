"""Runs to report: small tasks of every kind, judged by scorers that need no model."""

import csv
import hashlib
import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure

from tests.evaluation import fakes
from winobench.evaluation import evaluate
from winobench.metrics.association import Association, TargetPair
from winobench.report import panels
from winobench.tasks.base import Example

NUM_SAMPLES = 8
HOSTILE = "<script>alert(\"x\")</script> & {{ 7 * 7 }} 'quoted' <img src=http://example.org/x.png>"


def csv_rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Skilled(fakes.FakeScorer):
    """A fake whose errors fall by ``skill`` where the text names the picture's number."""

    def __init__(self, skill, **fields):
        super().__init__(**fields)
        self.skill = skill

    def error_of(self, image, text, sample, salt):
        error = super().error_of(image, text, sample, salt)
        return error + np.float32(1 - self.skill * (str(image[0, 0, 0]) in text.split()))


class WithoutSamples:
    """Scores in one go, from a hash; higher where the text names the picture's number."""

    def fingerprint(self):
        return {"scorer": "contrastive", "scoring_version": 1, "model": "2" * 64}

    def score(self, images, texts):
        return np.array([[self._score(np.asarray(image), text) for text in texts] for image in images], np.float32)

    def _score(self, image, text):
        key = f"{image[0, 0, 0]}|{text}"
        noise = int(hashlib.sha256(key.encode()).hexdigest()[:6], 16) / 2**24
        return noise + 0.4 * (str(image[0, 0, 0]) in text.split())


def many_images_task():
    """Six images, one text, recall; its texts are what no page may run."""

    def load(data_dir, limit):
        for number in range(12):
            images = tuple(fakes.image(10 * k + number, 6) for k in range(6))
            yield Example(f"{HOSTILE} {number}", images, (f"{HOSTILE} {number}",), 0, (HOSTILE,))

    return fakes.make_task(
        "retrieval", "recall", (6, 1), {"recall@1": 1 / 6, "recall@5": 5 / 6}, load, images_compete=True
    )


def macro_task():
    """One image, three texts, groups of unequal size."""

    def load(data_dir, limit):
        for number in range(10):
            texts = tuple(f"{number + k} of these" for k in range(3))
            yield Example(f"{number}", (fakes.image(number, 5),), texts, 0, ("rare" if number % 5 == 0 else "common",))

    return fakes.make_task("relations", "macro_accuracy", (1, 3), {"accuracy": 1 / 3, "macro_accuracy": 1 / 3}, load)


def bias_task():
    """Three groups, two pairs, one of them significant under most scorers."""
    kind, unkind = ("a kind word", "kindness"), ("an unkind word", "unkindness")
    pairs = (TargetPair("Even-Odd", "Even", "Odd", kind, unkind), TargetPair("Odd-Many", "Odd", "Many", kind, unkind))

    def load(data_dir, limit):
        for number in range(24):
            group = ("Even", "Odd", "Many")[number % 3]
            yield Example(f"{number}", (fakes.image(number + 30),), kind + unkind, None, (group,))

    return fakes.make_task("mmbias", "effect_size", (1, 4), {}, load, association=Association(pairs))


def tasks():
    """A task of every metric and shape."""
    clevr = fakes.text_task("clevr", 8, ("spatial", "recognition_color"))
    return [clevr, fakes.image_task(), fakes.square_task(), many_images_task(), macro_task(), bias_task()]


def make_run(scorer, folder, *, chosen=None, num_samples=NUM_SAMPLES, model="clevr-tiny", **changes):
    """Evaluates, and returns the run's folder."""
    config = {"model": model, "normalize": changes.get("normalize", "auto"), "sampling": {"num_samples": num_samples}}
    options = {"num_samples": num_samples, "num_bias_samples": 3, "progress": False, "reuse": False, "config": config}
    evaluate.evaluate(scorer, tasks() if chosen is None else chosen, folder, model=model, **options, **changes)
    return folder


def make_older(folder):
    """Takes from a run what those of earlier versions have not."""
    shutil.rmtree(folder / "gallery")
    config = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in ("rounds", "model")}
    (folder / "config.json").write_text(json.dumps({**kept, "schema": 1}))
    for path in (folder / "examples").glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["terms"]), path)
    for path in (folder / "errors").glob("*.parquet"):
        table = pq.read_table(path)
        kept = {b"winobench.scores": table.schema.metadata[b"winobench.scores"]}
        pq.write_table(table.replace_schema_metadata(kept), path)


def draw_nothing(patch):
    """Panels stay empty: drawing takes most of the time of a report, and few tests look at it."""
    patch.setattr(panels, "_figure", lambda panel: Figure((panel.width, panel.height)))


@pytest.fixture
def undrawn(monkeypatch):
    draw_nothing(monkeypatch)


@pytest.fixture(scope="session")
def run_folders(tmp_path_factory):
    """Three finished runs: two that sample, and one that does not. Tests must not change them."""
    root = tmp_path_factory.mktemp("runs")
    return [
        make_run(Skilled(0.25), root / "weak", model="clevr-tiny"),
        make_run(Skilled(0.6, weights="1"), root / "strong", model="sd21-base"),
        make_run(WithoutSamples(), root / "direct", model="clip-rn50x64"),
    ]
