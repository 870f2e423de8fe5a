"""How quickly the viewer shows large runs, and how much memory it takes, in headless Chromium.

    python -m benchmarks.viewer --make FOLDER                 writes six runs of 100,000 questions: minutes
    python -m benchmarks.viewer FOLDER                        measures the viewer on these runs
    python -m benchmarks.viewer FOLDER --output FILE          writes the figures as JSON, too

The runs have two tasks. In the first, one image has two texts, as in SugarCrepe. In the second, one text has two
images. Each question is in one of 30 groups, and each pair has 16 samples. The errors are in as many parts as those of
a run of several hours.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pathlib
from collections.abc import Sequence

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq

from winobench import metrics
from winobench.base import files
from winobench.base.texts import EMPTY_TEXT, text_hash
from winobench.evaluation import gallery, summary
from winobench.evaluation.plan import Plan
from winobench.metrics import normalization
from winobench.metrics.sample_mean import PLAIN
from winobench.runs import provenance
from winobench.runs.error_parts import ErrorWriter, ScoreSet
from winobench.runs.records import SCHEMA_VERSION, RunFolder, write_json
from winobench.tasks.base import Example, Task

MODELS = ("sd15", "sd21-base", "sdxl", "sd3-medium", "flux1-dev", "clevr-tiny")
NUM_SAMPLES = 16
NUM_GROUPS = 30
NUM_PICTURES = 300
ROWS_A_GROUP = 2_000

# A part is written every two seconds, and later every hundredth of the time so far (`winobench.runs.error_parts`).
_PAIRS_A_PART = 32
_GROWTH = 1.01

_ATTRIBUTES = ("red", "green", "blue", "yellow", "wooden", "metal", "striped", "small", "large", "wet", "dusty", "old")
_THINGS = ("dog", "cat", "horse", "child", "bicycle", "bench", "umbrella", "table", "kettle", "bus", "train", "boat")
_RELATIONS = (
    "next to",
    "behind",
    "in front of",
    "on top of",
    "under",
    "to the left of",
    "to the right of",
    "inside",
    "far from",
    "above",
)
_PLACES = ("in a busy street", "on a sunny beach", "in a narrow kitchen", "at the edge of a field")
_KINDS = ("swap", "replace", "add")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How many questions each task of a run has."""

    texts: int = 100_000
    images: int = 5_000


def make_runs(folder: pathlib.Path, sizes: Sizes = Sizes(), models: Sequence[str] = MODELS) -> list[pathlib.Path]:
    """Writes a run of each model on the same questions. The first has tables of one row group, as older runs do."""
    plan, tasks = _plan(sizes)
    shots = _pictures(plan)
    skills = np.linspace(0.3, 1.5, len(models))
    return [
        _write_run(folder / f"{number + 1}-{model}", model, float(skill), plan, tasks, shots, one_group=number == 0)
        for number, (model, skill) in enumerate(zip(models, skills, strict=True))
    ]


def _plan(sizes: Sizes) -> tuple[Plan, list[Task]]:
    """Questions about images of which each has four, and others about two of these images."""
    generator = np.random.default_rng(0)
    groups = [f"{kind}_{relation.replace(' ', '_')}" for kind in _KINDS for relation in _RELATIONS]
    texts: dict[str, int] = {EMPTY_TEXT: 0}
    num_images = sizes.texts // 4

    def question(name: str, number: int, images: tuple[int, ...], captions: Sequence[str]) -> Example:
        asked = tuple(texts.setdefault(caption, len(texts)) for caption in captions)
        target, group = int(generator.integers(2)), groups[number % len(groups)]
        # The right text is the first one that is made.
        return Example(f"{name}-{number:06d}", images, asked[::-1] if target else asked, target, (group,))

    questions = {
        "captions": [question("coco", number, (number // 4,), _captions(generator)) for number in range(sizes.texts)],
        "photographs": [
            question("pair", number, tuple(generator.choice(num_images, 2, replace=False).tolist()), [caption])
            for number, (caption, _) in ((number, _captions(generator)) for number in range(sizes.images))
        ],
    }
    tasks = [_task("captions", (1, 2)), _task("photographs", (2, 1))]
    terms = {
        task.name: normalization.terms_of("auto", images_compete=task.images_compete, texts_compete=task.shape[1] > 1)
        for task in tasks
    }
    pairs = {
        (image, 0 if term.of_empty_text else text)
        for task, some in questions.items()
        for one in some
        for image in one.images
        for text in one.texts
        for term in terms[task]
    }
    plan = Plan(
        images=[],
        image_hashes=[hashlib.sha256(f"image {number}".encode()).hexdigest() for number in range(num_images)],
        texts=list(texts),
        text_hashes=[text_hash(text) for text in texts],
        pairs=np.array(sorted(pairs), np.int32),
        questions=questions,
        terms=terms,
    )
    return plan, tasks


def _captions(generator: np.random.Generator) -> tuple[str, str]:
    """A caption of some 15 words, and one in which two attributes have changed places."""
    a, b = (_ATTRIBUTES[i] for i in generator.choice(len(_ATTRIBUTES), 2, replace=False))
    x, y, z = (_THINGS[i] for i in generator.choice(len(_THINGS), 3, replace=False))
    relation, place = _RELATIONS[generator.integers(len(_RELATIONS))], _PLACES[generator.integers(len(_PLACES))]
    count = generator.integers(2, 1_000)
    form = "A {} {} stands " + relation + " a {} {} " + place + f", with {count} {z}s in the background."
    return form.format(a, x, b, y), form.format(b, x, a, y)


def _task(name: str, shape: tuple[int, int]) -> Task:
    return Task(
        name=name,
        version=1,
        description="questions that a program made up",
        metric="accuracy",
        shape=shape,
        chance={"accuracy": 0.5},
        load=lambda data_dir, limit: iter(()),
        ready=lambda data_dir: None,
        images_compete=shape[0] > 1,
        data_fingerprint=lambda data_dir, limit: name,
    )


def _pictures(plan: Plan) -> dict[str, pa.Table]:
    """Small images of the first questions of each task, as many as a report of several tasks has."""
    generator = np.random.default_rng(1)
    found = {}
    for task, questions in plan.questions.items():
        numbers = list(dict.fromkeys(image for question in questions for image in question.images))[:NUM_PICTURES]
        jpegs = []
        for _ in numbers:
            coarse = PIL.Image.fromarray(generator.integers(0, 256, (9, 12, 3), np.uint8))
            buffer = io.BytesIO()
            coarse.resize((gallery.SIZE, gallery.SIZE * 3 // 4), PIL.Image.Resampling.BICUBIC).save(buffer, "JPEG")
            jpegs.append(buffer.getvalue())
        found[task] = pa.table({"image": [plan.image_hashes[number] for number in numbers], "jpeg": jpegs})
    return found


def _errors(plan: Plan, skill: float, model: str) -> np.ndarray:
    """[pairs, samples] float32: image and timestep decide most of it. The right pair's is lower by ``skill``."""
    generator = np.random.default_rng(int(hashlib.sha256(model.encode()).hexdigest()[:8], 16))
    shared = np.random.default_rng(2)
    levels = np.geomspace(40, 400, NUM_SAMPLES, dtype=np.float32)
    of_image = shared.normal(1, 0.1, (len(plan.image_hashes), NUM_SAMPLES)).astype(np.float32)
    base = levels * of_image[plan.pairs[:, 0]]
    easy = shared.normal(0.5, 1, len(plan.texts)).astype(np.float32)
    right = {
        (one.images[one.target] if len(one.images) > 1 else one.images[0], one.texts[one.target % len(one.texts)])
        for some in plan.questions.values()
        for one in some
    }
    is_right = np.array([pair in right for pair in map(tuple, plan.pairs.tolist())])
    gain = np.where(is_right, skill * easy[plan.pairs[:, 1]], 0)[:, None] * levels * 0.02
    noise = generator.normal(0, 0.04, base.shape).astype(np.float32) * levels
    return np.maximum(base - gain + noise, 1).astype(np.float32)


def _write_run(
    path: pathlib.Path,
    model: str,
    skill: float,
    plan: Plan,
    tasks: Sequence[Task],
    shots: dict[str, pa.Table],
    *,
    one_group: bool,
) -> pathlib.Path:
    errors = _errors(plan, skill, model)
    timesteps = [int(step) for step in np.linspace(31, 968, NUM_SAMPLES)]
    scorer = {"scorer": "diffusion", "scoring_version": 1, "model": hashlib.sha256(model.encode()).hexdigest()}
    identity = {
        "limit": None,
        "normalize": "auto",
        "sampling": {"num_samples": NUM_SAMPLES, "num_bias_samples": NUM_SAMPLES, "seed": 0, "timesteps": timesteps},
        "scorer": scorer,
        "tasks": {task.name: {"version": 1, "data": task.name} for task in tasks},
    }
    folder = RunFolder(path)
    for place in (folder.errors_path, folder.examples_path, folder.gallery_path):
        place.mkdir(parents=True)
    writer = ErrorWriter(folder, ScoreSet(files.digest(scorer), tuple(timesteps)), plan.image_hashes, plan.text_hashes)
    begin, size = 0, float(_PAIRS_A_PART)
    while begin < len(errors):
        end = min(len(errors), begin + int(size))
        rows = np.repeat(plan.pairs[begin:end], NUM_SAMPLES, axis=0)
        samples = np.tile(np.arange(NUM_SAMPLES), end - begin)[:, None]
        writer.add(np.hstack([rows, samples]), errors[begin:end].ravel())
        writer.flush()
        begin, size = end, max(size, _PAIRS_A_PART, (_GROWTH - 1) * end)
    results = {}
    for task in tasks:
        scores = summary.question_scores(plan, task.name, errors, PLAIN)
        results[task.name] = summary.task_results(task, plan.questions[task.name], scores)
        table = summary.example_table(task, plan, scores)
        _write_table(folder.examples_path / f"{task.name}.parquet", table, one_group)
        _write_table(folder.gallery_path / f"{task.name}.parquet", shots[task.name], one_group)
    names = [task.name for task in tasks]
    described = {
        "schema": SCHEMA_VERSION,
        "status": "finished",
        "started": "2026-01-01T00:00:00+00:00",
        "model": model,
        "config": {"model": model, "sampling": {"num_samples": NUM_SAMPLES}},
        "identity": identity,
        "rounds": [{"tasks": names, "num_samples": NUM_SAMPLES, "timesteps": timesteps}],
        "metrics": {name: metrics.METRICS["accuracy"].described() for name in names},
        "versions": provenance.software(),
    }
    write_json(folder.config_path, described)
    passes = errors.size
    write_json(
        folder.results_path,
        {"tasks": results, "failed": {}, "config": described["config"], "seconds": passes / 250, "passes": passes,
         "computed_passes": passes},
    )  # fmt: skip
    return path


def _write_table(path: pathlib.Path, table: pa.Table, one_group: bool) -> None:
    rows = {} if one_group else {"row_group_size": ROWS_A_GROUP, "write_page_index": True}
    pq.write_table(table, path, compression="zstd", write_page_checksum=True, **rows)
