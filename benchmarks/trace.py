"""Does a device ever wait for images? An evaluation is recorded with JAX's profiler, and its idle times are counted.

    python -m benchmarks.trace                           clevr-tiny on the CPU, about a minute
    python -m benchmarks.trace --size mid                a mid-size network with random weights
    python -m benchmarks.trace --device gpu              SD 2.1-base at 512 pixels, random weights in bfloat16
    python -m benchmarks.trace --output FILE.json --image FILE.png
    python -m benchmarks.trace --keep FOLDER             keeps the traces, for Perfetto or TensorBoard

JPEG files of photographs' size are written to a temporary folder, and `winobench.DiffusionITM` scores them as it scores
any others: its own threads read them. In the trace, every operation names its program, its run and its device. A
program's run lasts from its first operation to its last. What is left of the evaluation's time is idle: with a step
that was queued and has not begun, or without. Of the latter, what the scorer's Python thread spends waiting for images
counts as waiting for input.

The same evaluation is then recorded with images that take their time on purpose (--slow_loading seconds each), which
has to show as idle time. If it does not, the figures of the first run mean nothing.

On a CPU the devices are cores, on which images are decoded, too: a step that is interrupted by that takes longer and is
counted as busy.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import math
import pathlib
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from PIL import Image

from benchmarks import common, machine, result_files, scorer
from winobench import parallel
from winobench.base.errors import InputError
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.engine import tables
from winobench.report import figures as drawing
from winobench.report.panels import to_png
from winobench.scorers.diffusion_itm import DiffusionITM

EMBEDDED = "clevr-tiny"
EVALUATION = "benchmark: evaluation"
"""Name of the event that lasts as long as the evaluation."""

# Name of a program in the trace -> what it is, in the order of precedence where two run on a device at once.
KINDS = {"jit_fused_step": "steps", "jit__encode": "encoding", "jit__write": "writing tables"}
OTHER = "other programs"
QUEUED, WAITING, IDLE = "idle, step queued", "waiting for input", "idle otherwise"
# What JAX calls the moment in which Python queues a step.
_QUEUEING = "PjitFunction(fused_step)"
# What the figure calls the host's work. Waiting for results is as it should be: the devices have enough to do.
LOADING, AHEAD = "loading an image", "waiting for results"

# Operations of one program that are closer than this belong to one run, where a trace does not number the runs.
_SECONDS_WITHIN_A_RUN = 1e-3
_IMAGE_SECONDS = 3.0
_PHOTO = (640, 480)


@dataclasses.dataclass(frozen=True)
class Work:
    """Images and texts, all pairs of which are scored.

    Attributes:
      images: number of images.
      texts: number of texts, the empty one included.
      num_samples: samples of each pair.
    """

    images: int
    texts: int
    num_samples: int

    @property
    def passes(self) -> int:
        """Denoiser passes."""
        return self.images * self.texts * self.num_samples


WORK = {
    "tiny": Work(images=12, texts=2, num_samples=2),
    # With so few passes an image, images come up often: an evaluation of GDBench makes 32 and more.
    EMBEDDED: Work(images=160, texts=2, num_samples=8),
    "mid": Work(images=32, texts=2, num_samples=2),
    "sd21-base": Work(images=512, texts=2, num_samples=8),
}


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that a trace says happened, in seconds since the trace began.

    Attributes:
      line: where: a thread of the host, or a stream of a device.
      name: what.
      start: first moment.
      end: last moment.
      module: of an operation on a device: its program.
      device: of an operation on a device: which one.
      run: of an operation on a device: a number of the program's run, if it is known.
    """

    line: str
    name: str
    start: float
    end: float
    module: str | None = None
    device: str | None = None
    run: int | None = None


@dataclasses.dataclass(frozen=True)
class Program:
    """One run of a program on one device."""

    device: str
    kind: str
    start: float
    end: float


Intervals = list[tuple[float, float]]


def union(intervals: Iterable[tuple[float, float]]) -> Intervals:
    """The same times as disjoint intervals in order."""
    merged: Intervals = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def intersection(first: Intervals, second: Intervals) -> Intervals:
    """The times that are in both; arguments and result as `union` gives them."""
    common_times, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if end > start:
            common_times.append((start, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return common_times


def without(one: Intervals, other: Intervals) -> Intervals:
    """The times of the first that are not in the second; arguments and result as `union` gives them."""
    edges = [-math.inf, *(edge for interval in other for edge in interval), math.inf]
    return intersection(one, list(zip(edges[::2], edges[1::2], strict=True)))


def length(intervals: Intervals) -> float:
    """Seconds in all."""
    return sum(end - start for start, end in intervals)


def longest(intervals: Intervals) -> float:
    """Seconds of the longest one; 0 if there is none."""
    return max((end - start for start, end in intervals), default=0.0)


def programs(events: Iterable[Event]) -> list[Program]:
    """The runs of programs, by their first starts."""
    operations = collections.defaultdict(list)
    for event in events:
        if event.module is not None:
            operations[event.device, event.module, event.run].append((event.start, event.end))
    runs = []
    for (device, module, run), times in operations.items():
        kind = KINDS.get(module, OTHER)
        if run is not None:
            runs.append(Program(device, kind, min(times)[0], max(end for _, end in times)))
            continue
        # Widened, those that are close to each other overlap.
        for start, end in union((start, end + _SECONDS_WITHIN_A_RUN) for start, end in times):
            runs.append(Program(device, kind, start, end - _SECONDS_WITHIN_A_RUN))
    return sorted(runs, key=lambda program: (program.start, program.device))


def device_figures(events: Sequence[Event]) -> dict[str, dict[str, Any]]:
    """Work of each device during the evaluation, in shares of its time, and its gaps, in seconds.

    Raises:
      InputError: the trace tells of no evaluation, or of no program.
    """
    begin, end = _evaluation(events)
    waits = union((event.start, event.end) for event in events if event.name == tables.WAITING_FOR_ITEMS)
    by_device = collections.defaultdict(list)
    for program in programs(events):
        by_device[program.device].append(program)
    if not by_device:
        raise InputError(
            "the trace tells of no program on a device: this version of JAX writes it another way", code="empty-trace"
        )
    figures = {}
    for device, runs in sorted(by_device.items()):
        left: Intervals = [(begin, end)]
        shares, counts = {}, {}
        for kind in (*KINDS.values(), OTHER):
            times = union((run.start, run.end) for run in runs if run.kind == kind)
            shares[kind] = length(intersection(left, times)) / (end - begin)
            counts[kind] = sum(run.kind == kind and begin <= run.start < end for run in runs)
            left = without(left, times)
        queued, leads = _queued(events, runs)
        starved = without(left, queued)
        waiting = intersection(starved, waits)
        shares[QUEUED] = length(intersection(left, queued)) / (end - begin)
        shares[WAITING] = length(waiting) / (end - begin)
        shares[IDLE] = length(without(starved, waits)) / (end - begin)
        first, last = min(run.start for run in runs), max(run.end for run in runs)
        between = intersection(left, [(first, last)])
        figures[device] = {
            "shares": {kind: round(share, 4) for kind, share in shares.items()},
            "programs": counts,
            "first_step_after": round(_first_step(runs) - begin, 4),
            "steps_queued_ahead_by": round(float(np.median(leads)), 4) if leads else None,
            "idle_between_programs": round(length(between) / (end - begin), 4),
            "longest_gap": round(longest(between), 4),
            "longest_wait_for_input": round(longest(waiting), 4),
            "longest_wait_for_input_after_first_step": round(
                longest(intersection(waiting, [(_first_step(runs), math.inf)])), 4
            ),
        }
    return figures


def host_figures(events: Sequence[Event]) -> dict[str, Any]:
    """Work of the host during the evaluation: loading images, and waiting."""
    begin, end = _evaluation(events)
    loads = [event for event in events if event.name == tables.LOADING]
    threads = {event.line for event in loads}
    shares = {}
    for name, what in ((tables.WAITING_FOR_ITEMS, "waiting_for_images"), (tables.WAITING_FOR_RESULTS, "for_results")):
        shares[what] = round(length(union((e.start, e.end) for e in events if e.name == name)) / (end - begin), 4)
    return {
        "seconds": round(end - begin, 3),
        "images_loaded": len(loads),
        "images_per_second": round(len(loads) / (end - begin), 1),
        "milliseconds_an_image": round(1e3 * float(np.median([e.end - e.start for e in loads])), 2) if loads else None,
        "loading_threads": len(threads),
        "loading_threads_busy": round(sum(e.end - e.start for e in loads) / (end - begin) / max(1, len(threads)), 4),
        "python_waits": shares,
    }


def _evaluation(events: Iterable[Event]) -> tuple[float, float]:
    for event in events:
        if event.name == EVALUATION:
            return event.start, event.end
    raise InputError("the trace tells of no evaluation: this version of JAX writes it another way", code="empty-trace")


def _queued(events: Iterable[Event], runs: Iterable[Program]) -> tuple[Intervals, list[float]]:
    """When a step was queued that had not begun, and how long each step was; they begin in the order of queueing."""
    # JAX notes some calls twice, one within the other.
    queued = [start for start, _ in union((event.start, event.end) for event in events if event.name == _QUEUEING)]
    begun = sorted(run.start for run in runs if run.kind == "steps")
    pairs = [(start, max(start, end)) for start, end in zip(queued, begun, strict=False)]
    return union(pairs), [end - start for start, end in pairs]


def _first_step(runs: Iterable[Program]) -> float:
    return min((run.start for run in runs if run.kind == "steps"), default=math.inf)


def read_trace(folder: pathlib.Path) -> list[Event]:
    """Reads the relevant events of the trace that `jax.profiler.trace` has written into a folder.

    It is read from the profiler's own file. The JSON beside it, which browsers show, is cut off after a million events.

    Raises:
      InputError: there is no trace.
    """
    files = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
    if not files:
        raise InputError(f"JAX has written no trace into {folder}", code="empty-trace")
    return list(_events(jax.profiler.ProfileData.from_file(str(files[-1]))))


def _events(data: Any) -> Iterator[Event]:
    annotations = (EVALUATION, _QUEUEING, tables.LOADING, tables.WAITING_FOR_ITEMS, tables.WAITING_FOR_RESULTS)
    for plane in data.planes:
        accelerator = plane.name.startswith("/device:")
        for number, line in enumerate(plane.lines):
            # Threads may share a name.
            where = f"{plane.name} {line.name} {number}"
            runs_programs = line.name.startswith("Stream") if accelerator else "XLA" in line.name
            for event in line.events:
                start, end = event.start_ns / 1e9, (event.start_ns + event.duration_ns) / 1e9
                if event.name in annotations:
                    yield Event(where, event.name, start, end)
                elif runs_programs and event.duration_ns > 0:
                    stats = dict(event.stats)
                    if "hlo_module" not in stats:
                        continue
                    if accelerator:
                        device, run = plane.name.removeprefix("/device:"), None
                    else:
                        device, run = f"core {stats['device_ordinal']}", stats.get("run_id")
                    yield Event(where, event.name, start, end, stats["hlo_module"], device, run)


@dataclasses.dataclass(frozen=True)
class SlowFile:
    """An image file that takes its time, as an image that a scorer takes."""

    path: pathlib.Path
    seconds: float

    @property
    def content_hash(self) -> str:
        """Tells it from others."""
        return self.path.name

    def open(self) -> Image.Image:
        """Waits, and reads the file."""
        time.sleep(self.seconds)
        return Image.open(self.path)


def write_photos(folder: pathlib.Path, number: int) -> list[pathlib.Path]:
    """Writes JPEG files that take as long to decode as photographs: coarse shapes, and noise."""
    random = np.random.default_rng(0)
    width, height = _PHOTO
    grain = random.normal(0, 6, (height, width, 3))
    paths = []
    for index in range(number):
        coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), np.uint8))
        pixels = np.asarray(coarse.resize(_PHOTO, Image.Resampling.BICUBIC)) + np.roll(grain, index, axis=1)
        paths.append(folder / f"{index:05d}.jpg")
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    return paths


def make_scorer(size: str, device: str) -> DiffusionITM:
    """The embedded model, or a network of `benchmarks.scorer` with random weights."""
    if size == EMBEDDED:
        return DiffusionITM.from_pretrained(EMBEDDED)
    with tempfile.TemporaryDirectory() as folder:
        scorer.write_pipeline(pathlib.Path(folder), scorer.SIZES[size], "cpu")
        dtype = "bfloat16" if device == "gpu" else "float32"
        return DiffusionITM(StableDiffusion.from_pretrained(folder, dtype))


def evaluate(judge: DiffusionITM, images: Sequence[Any], work: Work) -> float:
    """Scores the images with the work's texts and samples; returns the seconds that it took."""
    texts = [*(f"a photo of {number} red cubes" for number in range(work.texts - 1)), ""]
    triples = np.indices((len(images), len(texts), work.num_samples)).reshape(3, -1).T
    begin = time.perf_counter()
    with jax.profiler.TraceAnnotation(EVALUATION):
        for _ in judge.iter_errors(images, texts, triples, num_samples=work.num_samples):
            pass
    return time.perf_counter() - begin


def traced(judge: DiffusionITM, images: Sequence[Any], work: Work, folder: pathlib.Path) -> list[Event]:
    """The events of one evaluation, whose trace is written into a folder."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # an event for every Python function would slow Python down
    with jax.profiler.trace(folder, profiler_options=options):
        evaluate(judge, images, work)
    return read_trace(folder)


def benchmark(
    size: str, device: str, work: Work, slow_loading: float, keep: pathlib.Path | None
) -> tuple[dict[str, Any], dict[str, list[Event]]]:
    """Records the evaluations.

    Args:
      size: the network.
      device: ``cpu`` or ``gpu``.
      work: what is scored.
      slow_loading: seconds that each image of the second evaluation takes; 0 leaves that out.
      keep: a folder for the traces, if they are to be kept.

    Returns:
      The figures, ready for JSON, and the events of each evaluation.
    """
    load_before = machine.load_average()
    judge = make_scorer(size, device)
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        common.log(f"writing {work.images} JPEG files")
        photos = write_photos(temporary, work.images)
        common.log("compiling")
        evaluate(judge, photos[: 2 * judge.batch_size], dataclasses.replace(work, num_samples=1))
        seconds = evaluate(judge, photos, work)
        common.log(f"{seconds:.2f} s without the profiler")
        sources: dict[str, list[Any]] = {"as it is": photos}
        if slow_loading:
            sources[f"images take {slow_loading:g} s longer"] = [SlowFile(path, slow_loading) for path in photos]
        timelines = {}
        for number, (name, images) in enumerate(sources.items()):
            folder = (keep or temporary / "traces") / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            timelines[name] = traced(judge, images, work, folder)
            common.log(f"recorded: {name}")
    figures = {
        "size": size,
        "work": f"{work.images} JPEG files of {_PHOTO[0]} x {_PHOTO[1]} pixels, {work.texts} texts,"
        f" {work.num_samples} samples: {work.passes} passes",
        "image_size": judge.image_size,
        "batch_size": judge.batch_size,
        "devices": judge.mesh.size,
        "machine": machine.describe(jax.devices()[0].device_kind if device == "gpu" else None),
        "load_average": [load_before, machine.load_average()],
        "seconds_without_profiler": round(seconds, 3),
        "passes_per_second_without_profiler": round(work.passes / seconds, 1),
        "results": {
            name: {"host": host_figures(events), "devices": device_figures(events)}
            for name, events in timelines.items()
        },
    }
    return figures, timelines


def table(figures: Mapping[str, Any]) -> str:
    """The figures as a Markdown table with a head that says what was recorded on what."""
    lines = [
        f"{figures['size']}, images of {figures['image_size']} pixels; {figures['work']}.",
        common.where(figures, ("jax",)),
        f"Without the profiler: {figures['seconds_without_profiler']:.2f} s,"
        f" {figures['passes_per_second_without_profiler']:g} passes/s.",
        "",
        f"| images/s | device | steps | encoding | writing | other | {QUEUED} | {WAITING} | {IDLE}"
        " | longest gap, ms | steps queued ahead by, ms |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, result in figures["results"].items():
        for device, row in result["devices"].items():
            shares = " | ".join(f"{100 * share:.1f}%" for share in row["shares"].values())
            lines.append(
                f"| {name}: {result['host']['images_per_second']:g} | {device} | {shares}"
                f" | {1e3 * row['longest_gap']:.0f} | {1e3 * (row['steps_queued_ahead_by'] or 0):.0f} |"
            )
    return "\n".join(lines)


_COLOURS = {
    "steps": drawing.COLOURS[0],
    "encoding": drawing.COLOURS[4],
    "writing tables": drawing.COLOURS[2],
    OTHER: drawing.COLOURS[3],
    LOADING: drawing.COLOURS[5],
    AHEAD: drawing.GRID,
    WAITING: drawing.COLOURS[1],
}


def draw(timelines: Mapping[str, Sequence[Event]], path: pathlib.Path) -> None:
    """Draws what devices and threads did, evaluation below evaluation, from the beginning."""
    panels = []
    for name, events in timelines.items():
        begin, end = _evaluation(events)
        rows = _rows(events)
        seconds = min(_IMAGE_SECONDS, end - begin)
        panels.append(
            drawing.Panel(
                f"Loading: {name}",
                functools.partial(_draw_rows, rows=rows, begin=begin, seconds=seconds),
                width=9.0,
                height=0.62 + 0.3 * len(rows),
                margins=drawing.Margins(left=1.35, right=0.15, top=0.06, bottom=0.46),
            )
        )
    used = {what for events in timelines.values() for _, row in _rows(events) for what in row}
    legend = [drawing.Mark(what, colour, "s", drawing.NO_LINE) for what, colour in _COLOURS.items() if what in used]
    path.parent.mkdir(parents=True, exist_ok=True)
    to_png(panels, path, legend=legend, columns=1)


def _rows(events: Sequence[Event]) -> list[tuple[str, dict[str, Intervals]]]:
    """The lines of a timeline from top to bottom: a label, and the times of each kind of work."""
    begin, end = _evaluation(events)
    waits = union((event.start, event.end) for event in events if event.name == tables.WAITING_FOR_ITEMS)
    rows = []
    loads = collections.defaultdict(list)
    for event in events:
        if event.name == tables.LOADING:
            loads[event.line].append((event.start, event.end))
    for number, times in enumerate(sorted(loads.values())):
        rows.append((f"loading thread {number}", {LOADING: sorted(times)}))
    ahead = union((event.start, event.end) for event in events if event.name == tables.WAITING_FOR_RESULTS)
    rows.append(("Python", {AHEAD: ahead, WAITING: waits}))
    by_device: dict[str, dict[str, Intervals]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for program in programs(events):
        by_device[program.device][program.kind].append((program.start, program.end))
    for device, kinds in sorted(by_device.items()):
        idle = without([(begin, end)], union(times for spans in kinds.values() for times in spans))
        runs = [Program(device, kind, *times) for kind, spans in kinds.items() for times in spans]
        waiting = intersection(without(idle, _queued(events, runs)[0]), waits)
        rows.append((f"device: {device}", dict(kinds) | ({WAITING: waiting} if waiting else {})))
    return rows


def _draw_rows(axes: Axes, rows: Sequence[tuple[str, Mapping[str, Intervals]]], begin: float, seconds: float) -> None:
    for height_of_row, (_, work) in enumerate(rows):
        for what, times in work.items():
            # What a device lacks is lower than what it does: the figure can be read without its colours.
            height = 0.3 if what == WAITING else 0.74
            for start, end in times:
                if start - begin < seconds and end > begin:
                    axes.add_patch(
                        Rectangle(
                            (start - begin, height_of_row - height / 2),
                            end - start,
                            height,
                            facecolor=_COLOURS[what],
                            edgecolor="white" if what != WAITING else "none",
                            linewidth=0.3,
                        )
                    )
    axes.set_xlim(0, seconds)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("seconds since the evaluation began")


def start(options: argparse.Namespace) -> None:
    """Checks the options and prepares the devices, before JAX has looked for them.

    Raises:
      InputError: there is no such device, or the options cannot be used.
    """
    if options.slow_loading < 0:
        raise InputError(f"--slow_loading is {options.slow_loading:g}, but it must be at least 0", code="out-of-range")
    common.check_positive(options, *(name for name in ("images", "samples") if getattr(options, name) is not None))
    if options.device == "cpu":
        parallel.one_device_per_core()
    elif jax.default_backend() != "gpu":
        raise InputError("--device gpu needs a jax that sees a GPU: install winobench[cuda]", code="missing-package")


def main(arguments: Sequence[str] | None = None) -> None:
    """Records, prints a table, and writes the figures and their chart."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trace", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="where everything runs")
    parser.add_argument("--size", choices=sorted(WORK), help="the network: clevr-tiny on a CPU, sd21-base on a GPU")
    parser.add_argument("--images", type=int, help="their number")
    parser.add_argument("--samples", type=int, help="of each pair")
    parser.add_argument(
        "--slow_loading", type=float, default=0.15, help="seconds an image of the second evaluation takes; 0: none"
    )
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    parser.add_argument("--image", type=pathlib.Path, help="a file for the timelines, as PNG")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the traces")
    options = parser.parse_args(arguments)
    start(options)
    size = options.size or (EMBEDDED if options.device == "cpu" else "sd21-base")
    work = WORK[size]
    work = dataclasses.replace(
        work, images=options.images or work.images, num_samples=options.samples or work.num_samples
    )
    figures, timelines = benchmark(size, options.device, work, options.slow_loading, options.keep)
    print(table(figures))
    result_files.write(figures, options.output)
    if options.image:
        draw(timelines, options.image)


if __name__ == "__main__":
    common.run(main)
