"""Time and memory of the viewer with large runs, in headless Chromium.

    python -m benchmarks.viewer FOLDER --make                 writes six runs of 100,000 questions first: minutes
    python -m benchmarks.viewer FOLDER                        measures the viewer on these runs
    python -m benchmarks.viewer FOLDER --output FILE          writes the figures as JSON, too

The runs have two tasks. In the first, one image has two texts, as in SugarCrepe. In the second, one text has two
images. Each question is in one of 30 groups, and each pair has 16 samples. The errors are in as many parts as those of
a run of several hours.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import io
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import common, machine, result_files
from tests.viewer import browser
from winobench import metrics
from winobench.base import files
from winobench.base.texts import EMPTY_TEXT, text_hash
from winobench.evaluation import example_rows, gallery, summary
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
NUM_IMAGES = 300

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
    """Numbers of questions of a run's tasks."""

    texts: int = 100_000
    images: int = 5_000


def make_runs(folder: pathlib.Path, sizes: Sizes = Sizes(), models: Sequence[str] = MODELS) -> list[pathlib.Path]:
    """Writes a run of each model on the same questions. The first has tables of one row group, as older runs do."""
    plan, tasks = _plan(sizes)
    shots = _images(plan)
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
        text_numbers = tuple(texts.setdefault(caption, len(texts)) for caption in captions)
        target, group = int(generator.integers(2)), groups[number % len(groups)]
        # The right text is the first one that is made.
        return Example(f"{name}-{number:06d}", images, text_numbers[::-1] if target else text_numbers, target, (group,))

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
        for task, of_task in questions.items()
        for task_question in of_task
        for image in task_question.images
        for text in task_question.texts
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


def _images(plan: Plan) -> dict[str, pa.Table]:
    """Small images of the first questions of each task, as many as a report of several tasks has."""
    generator = np.random.default_rng(1)
    tables = {}
    for task, questions in plan.questions.items():
        numbers = list(dict.fromkeys(image for question in questions for image in question.images))[:NUM_IMAGES]
        jpegs = []
        for _ in numbers:
            coarse = PIL.Image.fromarray(generator.integers(0, 256, (9, 12, 3), np.uint8))
            buffer = io.BytesIO()
            coarse.resize((gallery.SIZE, gallery.SIZE * 3 // 4), PIL.Image.Resampling.BICUBIC).save(buffer, "JPEG")
            jpegs.append(buffer.getvalue())
        tables[task] = pa.table({"image": [plan.image_hashes[number] for number in numbers], "jpeg": jpegs})
    return tables


def _errors(plan: Plan, skill: float, model: str) -> np.ndarray:
    """[pairs, samples] float32: image and timestep decide most of it. The right pair's is lower by ``skill``."""
    generator = np.random.default_rng(int(hashlib.sha256(model.encode()).hexdigest()[:8], 16))
    shared = np.random.default_rng(2)
    levels = np.geomspace(40, 400, NUM_SAMPLES, dtype=np.float32)
    of_image = shared.normal(1, 0.1, (len(plan.image_hashes), NUM_SAMPLES)).astype(np.float32)
    base = levels * of_image[plan.pairs[:, 0]]
    easy = shared.normal(0.5, 1, len(plan.texts)).astype(np.float32)
    right = {
        (row.images[row.target] if len(row.images) > 1 else row.images[0], row.texts[row.target % len(row.texts)])
        for of_task in plan.questions.values()
        for row in of_task
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
    for part in (folder.errors_path, folder.examples_path, folder.gallery_path):
        part.mkdir(parents=True)
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
        table = example_rows.example_table(task, plan, scores)
        if one_group:
            _write_as_before(folder.examples_path / f"{task.name}.parquet", table)
            _write_as_before(folder.gallery_path / f"{task.name}.parquet", shots[task.name])
        else:
            folder.write_examples(task.name, table)
            folder.write_gallery(task.name, shots[task.name])
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


def _write_as_before(path: pathlib.Path, table: pa.Table) -> None:
    """Writes a table with one row group, as versions before the viewer did."""
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


# --- What is measured. Times are those of the page's own clock, from the start of the navigation.

_SECONDS = 120
_RUNS = "document.querySelectorAll('main tbody tr').length >= {runs}"
_FIGURE = "document.querySelector('main .figures svg') !== null"
_WHOLE = "document.querySelector('main :is(.waiting, [aria-busy=true])') === null"
# Another text than before, with rows, and no search under way.
_LISTED = (
    f"{_WHOLE} && document.querySelector('main').innerText !== window.said"
    " && document.querySelector('main :is(tbody tr, .questions li)') !== null"
    " && !document.querySelector('main').innerText.includes('Searching…')"
)
# Notes for each condition when it was first true. A question is known by its id.
_WATCH = """
window.watch = (begin, conditions) => new Promise((done) => {
  const times = {};
  const look = () => {
    for (const [name, isTrue] of Object.entries(conditions)) {
      if (times[name] === undefined && isTrue()) times[name] = performance.now() - begin;
    }
    if (Object.keys(times).length === Object.keys(conditions).length) done(times);
    else requestAnimationFrame(look);
  };
  look();
});
"""


def _watched(page: Any, begin: str, **conditions: str) -> dict[str, float]:
    """Milliseconds from ``begin`` until each condition is first true."""
    functions = ", ".join(f"{name}: () => {condition}" for name, condition in conditions.items())
    return page.evaluate(f"watch({begin}, {{ {functions} }})")


def _question(row: int) -> dict[str, str]:
    """The conditions of a question's page: its figure is drawn; nothing waits."""
    is_there = f"document.querySelector('main')?.textContent.includes('coco-{row:06}') === true"
    return {"figure": f"{is_there} && {_FIGURE}", "whole": f"{is_there} && {_FIGURE} && {_WHOLE}"}


def _new_page(chromium: Any, address: str) -> Any:
    """A page of a new context, with nothing in its caches but the cookie."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1_000 * _SECONDS)
    context.add_init_script(_WATCH)
    context.request.get(address)
    return context.new_page()


def _jump(page: Any, route: str, **conditions: str) -> dict[str, float]:
    """Changes the address within the app."""
    page.evaluate(
        "(route) => { window.said = document.querySelector('main').innerText; window.begin = performance.now();"
        " location.hash = route; }",
        route,
    )
    return _watched(page, "window.begin", **conditions)


def measure(runs: Sequence[pathlib.Path], rounds: int, pages: int) -> dict[str, Any]:
    """Times in milliseconds and memory in MiB, over new servers and new browsers."""
    slugs = [run.name for run in runs]
    first: dict[str, list[dict[str, float]]] = {name: [] for name in ("cold", "warm", "question_cold", "question_warm")}
    generator = np.random.default_rng(3)
    rows = iter(generator.permutation(Sizes().texts).tolist())
    runs_shown = {"runs": _RUNS.format(runs=len(runs))}
    for number in range(rounds):
        with browser.browser() as chromium, browser.serving(*runs) as (address, _):
            base, slug = address.partition("?")[0], slugs[number % len(slugs)]
            page = _new_page(chromium, address)
            for kind in ("cold", "warm", "warm"):
                page.goto(f"{base}#/")
                first[kind].append(_watched(page, "0", **runs_shown))
                page.goto("about:blank")
            page.context.close()
        with browser.browser() as chromium, browser.serving(*runs) as (address, _):
            base, slug = address.partition("?")[0], slugs[number % len(slugs)]
            page = _new_page(chromium, address)
            for kind in ("question_cold", "question_warm"):
                row = next(rows)
                page.goto(f"{base}#/question/{slug}/captions/{row}")
                first[kind].append(_watched(page, "0", **_question(row)))
                page.goto("about:blank")
            page.context.close()
        common.log(f"round {number + 1}: {[first[name][-1] for name in first]}")
    with browser.browser() as chromium, browser.serving(*runs) as (address, process):
        return {
            "first_page": {kind: _summary(first[kind]) for kind in ("cold", "warm")},
            "question_by_its_address": {kind: _summary(first[f"question_{kind}"]) for kind in ("cold", "warm")},
            **_walk(_new_page(chromium, address), address, process.pid, slugs, rows, pages),
        }


def _walk(page: Any, address: str, pid: int, slugs: Sequence[str], rows: Iterator[int], pages: int) -> dict[str, Any]:
    """Goes through lists and questions in one page that stays open."""
    page.goto(f"{address.partition('?')[0]}#/")
    _watched(page, "0", runs=_RUNS.format(runs=len(slugs)))
    questions, memory = [], [_memory(page, pid)]
    for number in range(pages):
        row, slug = next(rows), slugs[number % len(slugs)]
        questions.append(_jump(page, f"#/question/{slug}/captions/{row}", **_question(row)))
        if (number + 1) % (pages // 5) == 0:
            memory.append({"questions": number + 1, **_memory(page, pid)})
            common.log(f"{number + 1} questions: {questions[-1]}, {memory[-1]}")
    lists = {}
    for name, route in {
        "leaderboard": "#/leaderboard",
        "run": f"#/run/{slugs[1]}",
        "questions": f"#/questions/{slugs[1]}/captions",
        "questions_old_layout": f"#/questions/{slugs[0]}/captions",
        "filter_by_words": f"#/questions/{slugs[1]}/captions?text=striped+kettle+beach",
        "filter_by_other_words": f"#/questions/{slugs[1]}/captions?text=old+horse+kitchen",
        "wrong_by_margin": f"#/questions/{slugs[1]}/captions?right=wrong&sort=margin",
        "other_answers": f"#/questions/{slugs[1]}/captions?with={slugs[2]}",
        "flips": f"#/flips/{slugs[1]}/{slugs[5]}",
    }.items():
        lists[name] = _jump(page, route, whole=_LISTED)["whole"]
        memory.append({"after": name, **_memory(page, pid)})
        common.log(f"{name}: {lists[name]:.0f} ms, {memory[-1]}")
    return {"question_in_the_app": _summary(questions), "lists_ms": lists, "memory_mib": memory}


def _memory(page: Any, server: int) -> dict[str, float]:
    """MiB of the server, of its worker, of the page's heap after a collection, and of the browser's renderers."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    renderers = [pid for pid in _descendants(os.getpid()) if b"--type=renderer" in _proc(pid, "cmdline")]
    return {
        "server": _resident([server]),
        "worker": _resident(_descendants(server)),
        "page_heap": round(heap / 2**20, 1),
        "renderers": _resident(renderers),
    }


def _proc(pid: int, name: str) -> bytes:
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended
        return b""


def _descendants(pid: int) -> list[int]:
    children = [int(child) for child in _proc(pid, f"task/{pid}/children").split()]
    return children + [one for child in children for one in _descendants(child)]


def _resident(pids: Sequence[int]) -> float:
    pages = sum(int((_proc(pid, "statm").split() or [b"0", b"0"])[1]) for pid in pids)
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def _summary(times: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Median and range of each condition, in milliseconds."""
    return {
        name: {
            "median": round(float(np.median(values)), 1),
            "least": round(min(values), 1),
            "p95": round(float(np.quantile(values, 0.95)), 1),
            "most": round(max(values), 1),
            "n": len(values),
        }
        for name, values in ((name, [time[name] for time in times]) for name in times[0])
    }


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where the runs are")
    parser.add_argument("--make", action="store_true", help="write the runs first")
    parser.add_argument("--rounds", type=int, default=5, help="new servers and browsers")
    parser.add_argument("--pages", type=int, default=200, help="questions of a walk")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args(words)
    common.check_positive(options, "rounds", "pages")
    if options.make:
        make_runs(options.folder)
    runs = sorted(path for path in options.folder.iterdir() if (path / "config.json").is_file())
    load = machine.load_average()
    with browser.browser() as chromium:
        version = chromium.version
    figures = {
        "machine": machine.describe(more=("pyarrow", "starlette", "uvicorn")),
        "chromium": version,
        "runs": len(runs),
        "questions_a_run": dataclasses.asdict(Sizes()),
        "bytes": sum(path.stat().st_size for run in runs for path in run.rglob("*") if path.is_file()),
        **measure(runs, options.rounds, options.pages),
    }
    figures["load_average"] = [load, machine.load_average()]
    print(
        json.dumps(
            {name: figures[name] for name in ("first_page", "question_by_its_address", "question_in_the_app")}, indent=1
        )
    )
    result_files.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
