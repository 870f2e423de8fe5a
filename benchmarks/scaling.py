"""How long GDBench takes, and what it costs, on 1 to 1,024 devices: a model, from what can be measured on one machine.

    python -m benchmarks.scaling                              measures this machine's share, a minute or two on a CPU
    python -m benchmarks.scaling --passes_per_second 480      with a rate measured by benchmarks.scorer --device gpu
    python -m benchmarks.scaling --measured FILE              takes the measurements of an earlier --output
    python -m benchmarks.scaling --output FILE                writes the figures as JSON, too

Every number that goes into the model is one of three: measured here, on the host (planning, decoding, records,
summaries); computed (floating-point operations); or an assumption with a name (`Assumptions`). The passes a second of
one device are none of them unless you give them: the defaults are the rate that the paper reports and the one that we
aim at, which nobody has measured. docs/scaling.md says what all of it means.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import math
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import common, machine
from winobench import json_files
from winobench.data import images as image_files
from winobench.data import prepared, preparing
from winobench.engine import sharing, tables
from winobench.errors import InputError
from winobench.evaluation import decisions, error_parts, gallery, race, records, runner, sample_groups, summary
from winobench.evaluation import plan as planning
from winobench.metrics import association, sequential
from winobench.tasks import get_task
from winobench.tasks.base import Task
from winobench.tasks.published import ImageFile, Item, PublishedData, published_task

DEVICES = (1, 8, 64, 256, 1024)
DEVICES_A_PROCESS = 8
RATES = {"the paper's A6000, measured by its authors": 25.0, "our aim on an H200-class device, not measured": 590.0}
"""Passes a second of one device: what the paper's authors measured, and 60% of the matrix rate of an H200 over the
operations of a pass, which is an aim and no measurement."""
RACES = (5.0, 10.0, 20.0)
"""Times fewer passes than with all samples."""
SAMPLES, BIAS_SAMPLES = 250, 20
# Devices whose limits are shown part by part, and with what would move them.
_LIMITS = (64, 1024)

# Of the scorer and the records: a device's batch, rows of the tables, triples a call, and the times between two parts.
_BATCH, _ENCODER_BATCH, _TABLE_ROWS, _CALL = 32, 8, 4096, 2**22
_SECONDS_A_PART, _SHARE_A_PART = 2.0, 0.01
_LOADING_THREADS = 8
# Sorts of timesteps and samples: the tasks of the benchmark, and those of bias.
_ROUNDS = 2


@dataclasses.dataclass(frozen=True)
class Counts:
    """What a task asks for.

    Attributes:
      questions: examples.
      images: distinct ones.
      texts: distinct ones, the empty one among them where it is needed.
      pairs: distinct pairs of them, each of which is scored on every sample.
    """

    questions: int
    images: int
    texts: int
    pairs: int


def count(examples: Iterable[tuple[Sequence[Hashable], Sequence[str]]], *, normalized: bool) -> Counts:
    """Counts as a plan does.

    Args:
      examples: (names of the images, texts); images of one name are one image.
      normalized: images compete, so that each needs the error under the empty text as well.
    """
    questions, images, texts, pairs = 0, set(), set(), set()
    for of_one, asked in examples:
        wanted = [*asked, planning.EMPTY_TEXT] if normalized else asked
        questions += 1
        images.update(of_one)
        texts.update(wanted)
        pairs.update((image, text) for image in of_one for text in wanted)
    return Counts(questions, len(images), len(texts), len(pairs))


@dataclasses.dataclass(frozen=True)
class TaskWork:
    """A task's work.

    Attributes:
      name: of the task or tasks.
      counts: of all of it.
      source: what the counts are from; "at most" where they are bounds.
      is_bias: takes the samples of bias tasks, and has a metric of its own.
      num_tasks: how many tasks it is.
      candidates: images that one question shows.
      repeated_images, repeated_pairs: those that tasks before it have already.
    """

    name: str
    counts: Counts
    source: str
    is_bias: bool = False
    num_tasks: int = 1
    candidates: int = 1
    repeated_images: int = 0
    repeated_pairs: int = 0

    @property
    def new_images(self) -> int:
        """Images that no task before it has."""
        return self.counts.images - self.repeated_images

    @property
    def new_pairs(self) -> int:
        """Pairs that no task before it has."""
        return self.counts.pairs - self.repeated_pairs

    def samples(self, samples: int) -> int:
        """Samples of a pair, where tasks other than those of bias take this many."""
        return min(samples, BIAS_SAMPLES) if self.is_bias else samples


_FILES, _ROWS = "counted in the published annotations", "at most: every row counted as if it repeated nothing"
# In the order in which a plan has them: that of their modules.
WORK = (
    TaskWork("aro_coco_order", Counts(25010, 5000, 125050, 125050), "5,000 images; texts and pairs at most"),
    TaskWork("aro_flickr_order", Counts(5070, 1014, 25350, 25350), "1,014 images; texts and pairs at most"),
    TaskWork("aro_vg_relation", Counts(23937, 23937, 47874, 47874), _ROWS),
    TaskWork("aro_vg_attribution", Counts(28748, 28748, 57496, 57496), _ROWS),
    TaskWork("clevr", Counts(8036, 574, 431, 12628), _FILES),
    TaskWork(
        "flickr30k_image",
        Counts(1014, 1014, 1015, 11154),
        _FILES,
        candidates=10,
        repeated_images=1014,
        repeated_pairs=1014,
    ),
    TaskWork(
        "flickr30k_text",
        Counts(1014, 1014, 3773, 10136),
        _FILES,
        repeated_images=1014,
        repeated_pairs=1014 + 1791 - 179,
    ),
    TaskWork("imagecode_static", Counts(430, 1550, 431, 5850), _FILES, candidates=10),
    TaskWork("imagecode_video", Counts(1872, 8840, 1873, 27560), f"{_FILES}; frames may repeat", candidates=10),
    TaskWork("pets", Counts(3669, 3669, 37, 135753), "3,669 images x 37 breeds"),
    TaskWork(
        "svo_subj, svo_verb, svo_obj",
        Counts(48000, 14102, 48001, 48000 + 14102),
        "at most: the 14,102 published addresses of images, many of them gone, and 48,000 image-sentence pairs",
        num_tasks=3,
        candidates=2,
    ),
    TaskWork("winoground", Counts(400, 800, 801, 2400), _FILES, candidates=2),
    TaskWork("genderbias", Counts(72, 72, 6, 144), "an assumption: six folders of 12; not published", is_bias=True),
    TaskWork("mmbias", Counts(2250, 2250, 120, 270000), "nine groups of some 250 images x 120 phrases", is_bias=True),
)
"""The tasks of the paper's tables."""

MORE_WORK = (
    TaskWork("coco_hardneg_text", Counts(4839, 4839, 9643, 9678), _FILES),
    TaskWork("coco_hardneg_image", Counts(4839, 4839, 4816, 14516), _FILES, candidates=2),
    TaskWork("pets_photo", Counts(3669, 3669, 37, 135753), "as pets, whose images are the same"),
)
"""Tasks that are beside the paper's tables, and not in the sums."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """Seconds of the host's work, on one core where nothing else is said.

    Attributes:
      start: from the start of Python to the first look at the devices, everything imported, and making a tiny scorer.
      load_a_gigabyte: reading weights and placing them.
      hash_a_gigabyte: checking files against their checksums, one thread.
      plan_a_question: reading an example and entering it into the plan, five pairs each.
      open_a_million: telling each other which of a million errors are missing, and keeping track of them.
      hash_an_image: SHA-256 of the pixels of a photograph that is a file; prepared data have no need of it.
      load_an_image: reading, decoding and resizing a photograph of 640 x 480 pixels to 512 x 512.
      prepare_a_million: a million triples in their order, cut into stretches and batches.
      write_a_million: recording a million errors.
      read_a_row: reading a record of one pair, and read_a_million: of a million errors in them.
      read_a_part: opening one file of them.
      enter_a_question: entering a question into a race.
      look_a_question: one look of a race at one question.
      summarise_a_question: its score, its row in the table of examples, its share of the metrics.
      index_a_pair: entering a pair into the table that every task's summary begins with.
      picture: one picture for the report.
      bias: effect sizes, permutations and resamples of mmbias, all together.
    """

    start: float
    load_a_gigabyte: float
    hash_a_gigabyte: float
    plan_a_question: float
    open_a_million: float
    hash_an_image: float
    load_an_image: float
    prepare_a_million: float
    write_a_million: float
    read_a_row: float
    read_a_million: float
    read_a_part: float
    enter_a_question: float
    look_a_question: float
    summarise_a_question: float
    index_a_pair: float
    picture: float
    bias: float


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """What was neither measured nor computed.

    Attributes:
      compile_seconds: compiling the step and both encoders, when nothing is kept from an earlier run.
      connect_seconds: the processes find each other.
      encoder_tflops: of the autoencoder and the text encoder, which compute in float32 without shortcuts; 40% of the
        67 that an H100 is sold with.
      weights_gigabytes: SD 2.1-base in float32.
      bytes_an_image: as stored. COCO's and ImageCoDe's archives come to 148 and 149 kB an image.
      gigabytes_a_second: that a process reads.
      storage_gigabytes_a_second: that all of them can read together.
      verify_by_all: every process reads and checks all data.
      read_by_one: the first process reads all records, once for each round.
      summarise_by_one: the first process makes all summaries; otherwise one process that of the largest task.
      table_rows: encoded images, and texts, that a device keeps; as many race at once.
    """

    compile_seconds: float = 120.0
    connect_seconds: float = 10.0
    encoder_tflops: float = 27.0
    weights_gigabytes: float = 5.2
    bytes_an_image: float = 150e3
    gigabytes_a_second: float = 1.0
    storage_gigabytes_a_second: float = 10.0
    verify_by_all: bool = True
    read_by_one: bool = True
    summarise_by_one: bool = True
    table_rows: int = _TABLE_ROWS


REMEDIES: Mapping[str, dict[str, Any]] = {
    "as it is": {},
    "compilations are kept from an earlier run (20 s)": {"compile_seconds": 20.0},
    "each process checks its share of the data": {"verify_by_all": False},
    "the first process gets mean errors, and reads no records": {"read_by_one": False},
    "each task is summarised by a process of its own": {"summarise_by_one": False},
    "encoders compute at four times the rate (TF32)": {"encoder_tflops": 108.0},
    "tables have room for 65,536 images and texts": {"table_rows": 65536},
}
"""What could be changed -> the assumptions that would change with it."""


@dataclasses.dataclass(frozen=True)
class Share:
    """The work of the process that has most of it: passes, distinct images and texts to be encoded, questions."""

    passes: float
    images: float
    texts: float
    questions: float


def largest_share(
    work: Sequence[TaskWork],
    parts: int,
    *,
    samples: float,
    seconds_a_pass: float,
    seconds_an_image: float,
    seconds_a_text: float,
) -> Share:
    """The share that takes longest when contiguous shares of equally many passes are cut from tasks side by side.

    Args:
      work: in the order of the plan. Within a task, work is taken to be spread evenly.
      parts: number of shares.
      samples: a pair, on average.
      seconds_a_pass, seconds_an_image, seconds_a_text: what the longest is judged by.
    """
    columns = np.array([(w.new_pairs * samples, w.new_images, w.counts.texts, w.counts.questions) for w in work])
    ends = np.concatenate([np.zeros((1, 4)), np.cumsum(columns, axis=0)])
    by = ends[:, 0]
    width = by[-1] / parts
    # What a share holds grows and falls evenly while it slides along a task, so one that begins or ends with a task
    # is the extreme. The true shares lie on a grid and may be less extreme.
    starts = np.clip(np.concatenate([by, by - width]), 0, by[-1] - width)
    at = np.stack([np.interp(starts + width, by, end) - np.interp(starts, by, end) for end in ends.T], axis=1)
    longest = np.argmax(at[:, :3] @ [seconds_a_pass, seconds_an_image, seconds_a_text])
    return Share(*at[longest].tolist())


def looks_of_a_question(factor: float, samples: int = SAMPLES) -> int:
    """Looks until a question is decided that takes this many times fewer samples than all; 1 where there is no race."""
    if factor == 1:
        return 1
    numbers = sequential.looks(samples, race.ALPHA)
    return min(len(numbers), 1 + sum(number < samples / factor for number in numbers))


def parts_written(seconds: float) -> int:
    """Files of records that a process writes in so many seconds of scoring, without those at the end of a call."""
    steady = _SECONDS_A_PART / _SHARE_A_PART
    if seconds <= steady:
        return int(seconds / _SECONDS_A_PART)
    return int(steady / _SECONDS_A_PART + math.log(seconds / steady) / math.log(1 + _SHARE_A_PART))


def model(
    measured: Measured,
    gigaflops: Mapping[str, float],
    assumed: Assumptions,
    *,
    passes_per_second: float,
    devices: int,
    factor: float = 1.0,
    work: Sequence[TaskWork] = WORK,
    samples: int = SAMPLES,
) -> dict[str, float]:
    """Seconds of each part of an evaluation, which add up to all of it.

    Nothing is taken to overlap but decoding with the devices' work.

    Args:
      measured: this machine's; others' hosts are taken to be as fast.
      gigaflops: of encoding an image (``vae``) and a text (``text``).
      assumed: the rest.
      passes_per_second: of one device.
      devices: at most eight of them belong to a process.
      factor: how many times fewer passes a race takes; 1 where every pair is scored on all samples.
      work: the tasks.
      samples: a pair.
    """
    processes, each = -(-devices // DEVICES_A_PROCESS), min(devices, DEVICES_A_PROCESS)
    judged, biased = ([w for w in work if w.is_bias == is_bias] for is_bias in (False, True))
    looks, is_race = looks_of_a_question(factor, samples), factor > 1
    questions, tasks = sum(w.counts.questions for w in work), sum(w.num_tasks for w in work)
    pairs = sum(w.new_pairs for w in work)
    errors = sum(w.new_pairs * w.samples(samples) for w in work)
    passes = sum(w.new_pairs * w.samples(samples) / (1 if w.is_bias else factor) for w in work)

    # On the devices: the slowest share of each round.
    a_pass = 1 / (passes_per_second * each)
    an_image, a_text = (gigaflops[kind] / 1e3 / assumed.encoder_tflops / each for kind in ("vae", "text"))
    step = _BATCH / passes_per_second
    scoring = encoding = tails = waiting = host = deciding = 0.0
    parts = 0
    for of_round in filter(None, (judged, biased)):
        raced = is_race and of_round is judged
        share = largest_share(
            of_round,
            processes,
            samples=of_round[0].samples(samples) / (factor if raced else 1),
            seconds_a_pass=a_pass,
            seconds_an_image=an_image,
            seconds_a_text=a_text,
        )
        if raced:
            # Every process enters all questions, and keeps its own.
            deciding = questions * measured.enter_a_question + share.questions * looks * measured.look_a_question
        encode = share.images * an_image + share.texts * a_text
        segments = math.ceil(max(share.images, share.texts) / assumed.table_rows)
        calls = math.ceil(share.passes / _CALL)
        ends = (len(sequential.looks(samples, race.ALPHA)) if raced else 1) * max(calls, segments)
        scoring += share.passes * a_pass
        encoding += encode
        # Each end leaves part of a batch empty, of triples and of images, and its first images are waited for.
        tails += ends * (step + _ENCODER_BATCH * an_image * each)
        tails += ends * _ENCODER_BATCH * each * measured.load_an_image / _LOADING_THREADS
        loading = share.images * measured.load_an_image / _LOADING_THREADS
        waiting += max(0.0, loading - share.passes * a_pass - encode)
        host += share.passes / 1e6 * (measured.prepare_a_million + measured.write_a_million)
        parts += parts_written(share.passes * a_pass + encode) + ends

    # On the hosts.
    gigabytes = sum(w.counts.images for w in work) * assumed.bytes_an_image / 1e9
    checked = gigabytes if assumed.verify_by_all else gigabytes / processes
    verify = max(
        checked * measured.hash_a_gigabyte / _LOADING_THREADS,
        checked / assumed.gigabytes_a_second,
        checked * processes / assumed.storage_gigabytes_a_second,
    )
    weights = assumed.weights_gigabytes * max(
        measured.load_a_gigabyte, 1 / assumed.gigabytes_a_second, processes / assumed.storage_gigabytes_a_second
    )
    planning_seconds = max(questions, pairs / _TEXTS) * measured.plan_a_question
    collect = 0.0
    if processes > 1 and assumed.read_by_one:
        # A record holds what was scored of a pair at once. Each round reads all records, as both have the same digest.
        rows = sum(w.new_pairs * (1 if w.is_bias else looks) for w in work)
        collect = rows * measured.read_a_row + passes / 1e6 * measured.read_a_million
        collect = _ROUNDS * (collect + parts * processes * measured.read_a_part)
    summarise = (
        questions * measured.summarise_a_question
        + tasks * pairs * measured.index_a_pair
        + sum(w.num_tasks * w.candidates for w in work) * 3 * gallery.EXAMPLES_A_KIND * measured.picture
        + (measured.bias if biased else 0.0)
    )
    if is_race:
        # The first process repeats all decisions.
        of_races = sum(w.counts.questions for w in judged)
        summarise += of_races * (measured.enter_a_question + looks * measured.look_a_question)
    if not assumed.summarise_by_one:
        summarise *= max(1 / processes, max(w.counts.questions for w in work) / questions)
    ideal = passes / (passes_per_second * devices)
    return {
        "passes": ideal,
        "start and weights": measured.start + (assumed.connect_seconds if processes > 1 else 0.0) + weights,
        "compiling": assumed.compile_seconds,
        "checking data": verify,
        "planning": planning_seconds + errors / 1e6 * measured.open_a_million,
        "encoding": encoding,
        "unequal shares": max(0.0, scoring - ideal),
        "tails": tails,
        "waiting for images": waiting,
        "batches and records": host,
        "deciding": deciding,
        "collecting": collect,
        "summarising": summarise,
    }


def efficiency(seconds: Mapping[str, float]) -> float:
    """The share of the time in which all devices make passes."""
    return seconds["passes"] / sum(seconds.values())


def fastest(of: Callable[[int], Mapping[str, float]]) -> int:
    """The number of devices, in powers of two up to 2^16, with which it takes least time: more make it slower."""
    return min((2**k for k in range(17)), key=lambda n: sum(of(n).values()))


def half_efficient(of: Callable[[int], Mapping[str, float]]) -> int:
    """The largest number of devices, in powers of two up to 2^16, whose efficiency is at least a half; 0 for none."""
    return max((n for n in (2**k for k in range(17)) if efficiency(of(n)) >= 0.5), default=0)


def gigaflops() -> dict[str, float]:
    """Operations of a pass, of encoding an image and of encoding a text with SD 2.1-base at 512 pixels, in 10^9."""
    import diffusers
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    from benchmarks import scorer

    size = scorer.SIZES["sd21-base"]
    # Shapes are all that is needed.
    with torch.device("meta"), torch.inference_mode():
        unet = diffusers.UNet2DConditionModel(**size.unet)
        vae = diffusers.AutoencoderKL(**size.vae)
        text_encoder = transformers.CLIPTextModel(transformers.CLIPTextConfig(**size.text_encoder))
        calls = {
            "pass": lambda: unet(torch.zeros(1, 4, 64, 64), torch.zeros(1), torch.zeros(1, 77, 1024)),
            "vae": lambda: vae.encode(torch.zeros(1, 3, 512, 512)),
            "text": lambda: text_encoder(torch.zeros(1, 77, dtype=torch.long)),
        }
        found = {}
        for name, call in calls.items():
            with FlopCounterMode(display=False) as counter:
                call()
            found[name] = round(counter.get_total_flops() / 1e9, 1)
    return found


def _best(call: Callable[[], Any], repeats: int = 3) -> float:
    """Seconds of the fastest of some calls: what disturbs only makes them longer."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _photograph(random: np.random.Generator, width: int = 640, height: int = 480) -> Image.Image:
    """Something with the detail of a photograph at several scales, which is what decoding depends on."""
    layers = []
    for scale in (1, 4, 16, 64):
        noise = random.integers(0, 256, (height // scale + 1, width // scale + 1, 3), np.uint8)
        resized = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
        layers.append(np.asarray(resized, np.float32) * scale**0.5)
    mixed = sum(layers) / sum(scale**0.5 for scale in (1, 4, 16, 64))
    return Image.fromarray(mixed.clip(0, 255).astype(np.uint8))


_QUESTIONS, _TEXTS, _PHOTOGRAPHS = 2000, 5, 40


def _order_task(folder: pathlib.Path) -> tuple[Task, int]:
    """A task like ARO's order tasks, prepared in a folder, and the bytes of its photographs."""
    random = np.random.default_rng(0)
    source = folder / "source"
    source.mkdir()
    paths = [source / f"{number}.jpg" for number in range(_PHOTOGRAPHS)]
    for path in paths:
        _photograph(random).save(path, quality=90)
    items = [
        Item(
            f"item-{number}",
            (ImageFile(paths[number * _PHOTOGRAPHS // _QUESTIONS]),),
            tuple(f"Caption {number} in the order {text} of its ten or eleven words." for text in range(_TEXTS)),
        )
        for number in range(_QUESTIONS)
    ]
    task = published_task(
        name="toy_order",
        version=1,
        description="",
        metric="accuracy",
        shape=(1, _TEXTS),
        chance={"accuracy": 1 / _TEXTS},
        images_compete=False,
        source=PublishedData(lambda folder: items, "nothing", _QUESTIONS),
    )
    preparing.prepare(
        prepared.task_folder(task.name, folder / "data"), items, task=task.name, task_version=1, root=source, workers=1
    )
    return task, sum(path.stat().st_size for path in paths)


def _start_seconds() -> float:
    code = "import launch.eval, winobench.evaluation.evaluate, winobench.scorers.diffusion_itm, jax; jax.devices()"
    root = pathlib.Path(__file__).parents[1]
    return _best(lambda: subprocess.run([sys.executable, "-c", code], cwd=root, check=True), repeats=2)


def _load_seconds(folder: pathlib.Path) -> tuple[float, float]:
    """Making a scorer of a model: seconds that even a tiny one takes, and those that each gigabyte adds."""
    from benchmarks import scorer
    from winobench.scorers.diffusion_itm import DiffusionITM

    sizes, seconds = [], []
    for name in ("tiny", "mid"):
        scorer.write_pipeline(folder / name, scorer.SIZES[name], "cpu")
        sizes.append(sum(path.stat().st_size for path in (folder / name).rglob("*.safetensors")) / 1e9)
        seconds.append(_best(lambda name=name: DiffusionITM.from_pretrained(str(folder / name))))
    return seconds[0], max(0.0, (seconds[1] - seconds[0]) / (sizes[1] - sizes[0]))


def _record_seconds(folder: pathlib.Path, plan: planning.Plan, samples: int) -> dict[str, float]:
    """Of a round over the plan: writing, and reading back what lies in few parts, in many, and in short rows."""
    found = {}
    scores = error_parts.ScoreSet("toy", tuple(range(samples)))
    hashes = plan.image_hashes, plan.text_hashes
    random = np.random.default_rng(0)

    def write(name: str, pairs: int, of_samples: int, parts: int, rows: int = 1) -> tuple[records.RunFolder, float]:
        run = records.RunFolder(folder / name)
        run.errors_path.mkdir(parents=True)
        group = sample_groups.SampleGroup(
            [], {}, scores, plan, None, None, np.full((len(plan.pairs), samples), np.nan, np.float32)
        )
        numbers = np.arange(pairs)
        seconds = 0.0
        for row in range(rows):
            for part in np.array_split(numbers, parts):
                places = (part[:, None] * samples + np.arange(row * of_samples, (row + 1) * of_samples)).reshape(-1)
                values = random.random(len(places), np.float32)

                def batches(triples, values=values):
                    size = _BATCH * DEVICES_A_PROCESS
                    order = sharing.order(triples)
                    rows = (order[first : first + size] for first in range(0, len(triples), size))
                    return ((row, values[row]) for row in rows)

                writer = error_parts.ErrorWriter(run, scores, *hashes, seconds_between_parts=1e9)
                start = time.perf_counter()
                runner._score(group, places, places, lambda triples, _: batches(triples), writer, lambda n: None)
                seconds += time.perf_counter() - start
        return run, seconds

    def read(run: records.RunFolder) -> float:
        return _best(lambda: error_parts.read_own_errors(run, scores, *hashes, plan.pairs), repeats=2)

    pairs = 4000
    few, seconds = write("few", pairs, samples, 1)
    found["write"] = seconds / (pairs * samples / 1e6)
    many, _ = write("many", pairs, samples, 50)
    short, _ = write("short", pairs, 10, 1, rows=5)
    in_few, in_many, in_short = read(few), read(many), read(short)
    found["part"] = max(0.0, (in_many - in_few) / 49)
    # Two unknowns from two layouts: rows x seconds a row + errors x seconds an error.
    row, million = np.linalg.solve([[pairs, pairs * samples / 1e6], [5 * pairs, pairs * 50 / 1e6]], [in_few, in_short])
    found["row"], found["million"] = max(0.0, float(row)), max(0.0, float(million))
    return found


def measure(log: Callable[[str], None] = lambda line: None) -> Measured:
    """Times this machine's share of an evaluation, in a minute or two."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        log("starting Python, loading weights")
        start = _start_seconds()
        made, load = _load_seconds(folder / "pipelines")
        log("planning, images")
        task, size = _order_task(folder)
        data_dir = str(folder / "data")
        options = {"data_dir": data_dir, "limit": None, "normalize": "auto"}
        block = np.random.default_rng(0).bytes(1 << 26)
        hashing = _best(lambda: hashlib.sha256(block)) / (len(block) / 1e9)
        plan = planning.make_plan([task], **options)
        planned = (_best(lambda: planning.make_plan([task], **options)) - size / 1e9 * hashing) / _QUESTIONS
        files = [folder / "source" / f"{number}.jpg" for number in range(_PHOTOGRAPHS)]
        image_hashing = _best(lambda: [image_files.image_hash(file) for file in files]) / len(files)
        image_loading = _best(lambda: [image_files.load_image(image, 512) for image in plan.images]) / len(plan.images)
        picture = _best(lambda: [gallery._jpeg(image) for image in plan.images]) / len(plan.images)

        log("records")
        flags = np.ones(10_000_000, bool)
        opening = _best(
            lambda: np.flatnonzero(runner._unpacked(runner._packed(flags), len(flags))) + np.isnan(flags).sum(), 2
        )
        number, size = 1_000_000, _BATCH * DEVICES_A_PROCESS
        triples = np.stack([np.arange(number) // 1250, np.arange(number) // 250, np.arange(number) % 250], axis=1)

        def cut():
            for column in (0, 1):
                np.unique(triples[:, column], return_inverse=True)
            texts = sharing.texts_to_share(triples)
            for begin, end in tables.segments((triples[:, 0], triples[:, 1]), (_TABLE_ROWS, _TABLE_ROWS)):
                stretch = triples[begin:end][sharing.order(triples[begin:end])]
                tables.first_uses(stretch[:, 0])
                tables.first_uses(stretch[:, 1])
                for start in range(0, len(stretch) - size, size):
                    sharing.group(stretch[start : start + size].T[[0, 2, 2]], DEVICES_A_PROCESS, texts)

        cutting = _best(cut, 2)
        recording = _record_seconds(folder / "runs", plan, SAMPLES)

        log("races, summaries, bias")
        random = np.random.default_rng(0)
        errors = random.standard_normal((len(plan.pairs), SAMPLES)).astype(np.float32)
        looks = sequential.looks(SAMPLES, race.ALPHA)
        rankings = [decisions.Ranking(np.arange(5)[:, None] + 5 * q, np.array([-1])) for q in range(200)]

        def look():
            for n in looks[:4]:
                for ranking in rankings:
                    ranking.needed()
                    ranking.look(errors, n, SAMPLES, race.ALPHA)

        entering = _best(lambda: race.Race(plan, [task], SAMPLES), 2) / _QUESTIONS
        looking = _best(look, 1) / (len(rankings) * 4)
        indexing = _best(plan.pair_index) / len(plan.pairs)

        def summarise():
            scores = summary.question_scores(plan, task.name, errors)
            summary.task_results(task, plan.questions[task.name], scores)
            summary.example_table(task, plan, scores)
            gallery.choose_examples([question.target for question in plan.questions[task.name]], scores)

        summarising = max(0.0, _best(summarise) / _QUESTIONS - indexing * _TEXTS)
        mmbias = get_task("mmbias").association
        groups = list(dict.fromkeys(group for pair in mmbias.pairs for group in (pair.group_x, pair.group_y)))
        texts = [*mmbias.pairs[0].texts_a, *mmbias.pairs[0].texts_b]
        of_images = np.repeat(groups, 250).tolist()
        bias = _best(
            lambda: association.association_results(
                random.standard_normal((len(of_images), len(texts))), texts, of_images, mmbias, partial=True
            ),
            1,
        )
    return Measured(
        start=start + made,
        load_a_gigabyte=load,
        hash_a_gigabyte=hashing,
        plan_a_question=max(0.0, planned),
        open_a_million=opening / (len(flags) / 1e6),
        hash_an_image=image_hashing,
        load_an_image=image_loading,
        prepare_a_million=cutting,
        write_a_million=recording["write"],
        read_a_row=recording["row"],
        read_a_million=recording["million"],
        read_a_part=recording["part"],
        enter_a_question=entering,
        look_a_question=looking,
        summarise_a_question=summarising,
        index_a_pair=indexing,
        picture=picture,
        bias=bias,
    )


def predict(
    measured: Measured, flops: Mapping[str, float], rates: Mapping[str, float], assumed: Assumptions = Assumptions()
) -> dict[str, Any]:
    """The model at all numbers of devices, rates and races, and what would move its limits; ready for JSON.

    Args:
      measured: the host's constants.
      flops: of `gigaflops`.
      rates: what it is called -> passes a second of one device.
      assumed: the rest.
    """

    def of(rate: float, devices: int, factor: float, **changes: Any) -> dict[str, float]:
        changed = dataclasses.replace(assumed, **changes)
        return model(measured, flops, changed, passes_per_second=rate, devices=devices, factor=factor)

    figures: dict[str, Any] = {"predictions": [], "limits": []}
    for name, rate in rates.items():
        for factor in (1.0, *RACES):
            for devices in DEVICES:
                entry = {"rate": name, "factor": factor, "devices": devices, "seconds": of(rate, devices, factor)}
                figures["predictions"].append(entry)
    quickest = max(rates, key=rates.get)
    for factor in (1.0, 10.0):
        everything: dict[str, Any] = {}
        for remedy, changes in (*REMEDIES.items(), ("all of these", None)):
            everything.update(changes or {})
            used = everything if changes is None else changes
            times = functools.partial(of, rates[quickest], factor=factor, **used)
            figures["limits"].append(
                {
                    "rate": quickest,
                    "factor": factor,
                    "remedy": remedy,
                    "seconds": {str(devices): sum(times(devices=devices).values()) for devices in _LIMITS},
                    "half_efficient": half_efficient(lambda n, times=times: times(devices=n)),
                    "fastest": fastest(lambda n, times=times: times(devices=n)),
                }
            )
    return figures


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"


def _passes(factor: float) -> str:
    return "all" if factor == 1 else f"1 / {factor:g}"


def table(figures: Mapping[str, Any]) -> str:
    """The figures as Markdown tables."""
    price = figures["dollars_an_hour"]
    lines = [common.where(figures, ("jax", "torch")), ""]
    lines += ["| | questions | images | texts | pairs | passes | counts |", "| --- |" + " ---: |" * 5 + " --- |"]
    for of in figures["work"]:
        cells = " | ".join(f"{of[name]:,}" for name in ("questions", "images", "texts", "pairs", "passes"))
        lines.append(f"| {of['name']} | {cells} | {of['source']} |")
        if of["name"] == WORK[-1].name:
            lines.append(f"| **together**, shared ones once | | | | {figures['pairs']:,} | {figures['passes']:,} | |")
    for rate, value in figures["rates"].items():
        lines += ["", f"{rate}: {value:g} passes/s a device; {price:g} USD a device and hour.", ""]
        lines += ["| passes | devices | hours | USD | efficiency | most of the rest |"]
        lines += ["| --- |" + " ---: |" * 4 + " --- |"]
        for of in figures["predictions"]:
            if of["rate"] == rate:
                seconds, devices = of["seconds"], of["devices"]
                whole = sum(seconds.values())
                name, most = max(((n, s) for n, s in seconds.items() if n != "passes"), key=lambda one: one[1])
                lines.append(
                    f"| {_passes(of['factor'])} | {devices:,} | {_hours(whole)} | {whole / 3600 * devices * price:,.0f}"
                    f" | {efficiency(seconds):.0%} | {name}, {most:,.0f} s |"
                )
    rate = figures["limits"][0]["rate"]
    shown = [
        of
        for of in figures["predictions"]
        if of["rate"] == rate and of["factor"] in (1, 10) and of["devices"] in (8, *_LIMITS)
    ]
    lines += ["", f"{rate}, seconds:", ""]
    lines.append("| | " + " | ".join(f"{_passes(of['factor'])}, {of['devices']:,}" for of in shown) + " |")
    lines.append("| --- |" + " ---: |" * len(shown))
    for name in shown[0]["seconds"]:
        lines.append(f"| {name} | " + " | ".join(f"{of['seconds'][name]:,.0f}" for of in shown) + " |")
    heads = " | ".join(f"minutes on {devices:,}" for devices in _LIMITS)
    lines += ["", f"{rate}:", "", f"| | passes | {heads} | half efficient up to | fastest on |"]
    lines.append("| --- | --- |" + " ---: |" * (2 + len(_LIMITS)))
    for of in figures["limits"]:
        minutes = " | ".join(f"{seconds / 60:.1f}" for seconds in of["seconds"].values())
        lines.append(
            f"| {of['remedy']} | {_passes(of['factor'])} | {minutes} | {of['half_efficient']:,} | {of['fastest']:,} |"
        )
    lines += ["", "| measured on this machine | seconds |", "| --- | ---: |"]
    lines += [f"| {name.replace('_', ' ')} | {value:.2g} |" for name, value in figures["measured"].items()]
    lines += ["", "| computed | GFLOP |", "| --- | ---: |"]
    lines += [f"| {name} | {value:,} |" for name, value in figures["gigaflops"].items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints tables, and writes the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--passes_per_second", type=float, help="of one device, from benchmarks.scorer; the paper's and our aim if none"
    )
    parser.add_argument("--price", type=float, default=3.0, help="US dollars for a device and an hour; an assumption")
    parser.add_argument("--measured", type=pathlib.Path, help="an earlier --output, in place of measuring")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    options = parser.parse_args(arguments)
    if options.passes_per_second is not None and not options.passes_per_second > 0:
        raise InputError(f"--passes_per_second is {options.passes_per_second:g}, but it must be above 0")
    if not options.price >= 0:
        raise InputError(f"--price is {options.price:g}, but it cannot be below 0")
    if options.measured is None:
        load_before = machine.load_average()
        measured, flops = measure(common.log), gigaflops()
        about = {"machine": machine.describe(None), "load_average": [load_before, machine.load_average()]}
    else:
        try:
            found = json_files.load(options.measured)
            measured, flops = Measured(**found["measured"]), found["gigaflops"]
            about = {name: found[name] for name in ("machine", "load_average")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"--measured {options.measured} holds no figures of this benchmark: {error}") from error
    rates = RATES if options.passes_per_second is None else {"given": options.passes_per_second}
    figures = {
        **about,
        "measured": dataclasses.asdict(measured),
        "gigaflops": flops,
        "assumed": dataclasses.asdict(Assumptions()),
        "dollars_an_hour": options.price,
        "rates": rates,
        "samples": SAMPLES,
        "bias_samples": BIAS_SAMPLES,
        "work": [
            {
                "name": w.name,
                **dataclasses.asdict(w.counts),
                "passes": w.counts.pairs * w.samples(SAMPLES),
                "source": w.source,
            }
            for w in (*WORK, *MORE_WORK)
        ],
        "pairs": sum(w.new_pairs for w in WORK),
        "passes": sum(w.new_pairs * w.samples(SAMPLES) for w in WORK),
        **predict(measured, flops, rates),
    }
    print(table(figures))
    common.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
