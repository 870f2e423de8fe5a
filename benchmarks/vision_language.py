"""Language models that see beside torch transformers: the same weights, on one machine and in the same run.

    python -m benchmarks.vision_language                               a mid-size InstructBLIP and LLaVA on the CPU
    python -m benchmarks.vision_language --family=llava --rounds=5
    python -m benchmarks.vision_language --output=FILE                 writes the figures as JSON, too

All get the same random weights of the published structure and do two things: VQAScore of all pairs of some images and
some texts, and a caption of each image, the most likely token at each place.

* winobench: `VQAScore.score` and `VisionLanguageModel.write`, from images and texts to scores and words.
* torch, published: transformers as the published evaluation has it, image and question anew for each pair, in batches.
* torch, images once: the vision tower once for each image and, of LLaVA, the language model's keys and values up to the
  question, repeated for the rows, which takes code of one's own.

Torch gets pixels and token ids that were made before, and the batch size that is fastest for it. Before anything is
timed, all must have the same scores and write the same. Rounds alternate between them; the table shows medians.
"""

from __future__ import annotations

import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks import common, machine, result_files
from benchmarks.vision_language_peer import SIZES, Inputs, Size, TorchPeer, make_work, write_model
from winobench.responders.vision_language import VisionLanguageModel
from winobench.scorers.vqa_score import VQAScore

TOLERANCE = 1e-4
"""Of scores in float32, each relative to torch's."""

_OURS, _PUBLISHED, _ONCE, _TORCH = "winobench", "torch, published", "torch, images once", "torch"
_UNITS = {"scores": "pairs/s", "captions": "images/s"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints tables, and writes the figures."""
    parser = common.argument_parser("benchmarks.vision_language", __doc__, SIZES, "of the networks: mid")
    parser.add_argument("--family", choices=("instructblip", "llava"), help="one of both; both by default")
    options = parser.parse_args(arguments)
    device = common.start(options)
    before = machine.load_average()
    name = options.size or "mid"
    figures: dict[str, Any] = {
        "families": {
            size.family: benchmark(size, device, options.rounds)
            for size in SIZES[name]
            if options.family in (None, size.family)
        }
    }
    figures["dtype"] = "float32"
    figures["rounds"] = options.rounds
    figures["torch_threads"] = torch.get_num_threads()
    figures["machine"] = machine.describe(common.accelerator_name(device), more=("tokenizers",))
    figures["load_average"] = [before, machine.load_average()]
    print(table(figures))
    result_files.write(figures, options.output)


def benchmark(size: Size, device: str, rounds: int) -> dict[str, Any]:
    """Runs everything for one network and returns the figures, ready for JSON.

    Args:
      size: the network and its work.
      device: torch's.
      rounds: number of alternating measurements.

    Raises:
      RuntimeError: the contenders do not compute the same.
    """
    images, texts = make_work(size)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "model"
        common.log(f"{size.family}: writing a network with random weights")
        write_model(folder, size)
        scorer, captioner = VQAScore.from_pretrained(folder), VisionLanguageModel.from_pretrained(folder)
        peer = TorchPeer(folder, size, device, "float32")
    inputs = Inputs.of(scorer, captioner, images, texts)
    batches = {
        _PUBLISHED: _best(size, lambda batch: peer.scores(inputs, batch, shared=False)),
        _ONCE: _best(size, lambda batch: peer.scores(inputs, batch, shared=True)),
        _TORCH: _best(size, lambda batch: peer.captions(inputs, batch)),
    }
    common.log(f"{size.family}: torch's batches: {batches}")
    works: dict[str, dict[str, Callable[[], Any]]] = {
        "scores": {
            _PUBLISHED: lambda: peer.scores(inputs, batches[_PUBLISHED], shared=False),
            _ONCE: lambda: peer.scores(inputs, batches[_ONCE], shared=True),
            _OURS: lambda: scorer.score(images, texts),
        },
        "captions": {
            _TORCH: lambda: [scorer._loaded.tokenizer.decode(row) for row in peer.captions(inputs, batches[_TORCH])],
            _OURS: lambda: captioner.write(images, max_tokens=size.new_tokens),
        },
    }
    results = {
        work: _measure(work, runs, size.pairs if work == "scores" else size.images, batches, rounds)
        for work, runs in works.items()
    }
    return {
        "network": f"{size.description}: {peer.parameters / 1e6:.0f} M parameters",
        "images": size.images,
        "texts": size.texts,
        "question_tokens": [min(map(len, inputs.questions)), max(map(len, inputs.questions))],
        "new_tokens": size.new_tokens,
        "devices": scorer.mesh.size,
        "results": results,
    }


def _measure(
    work: str, runs: dict[str, Callable[[], Any]], count: int, batches: dict[str, int], rounds: int
) -> dict[str, Any]:
    first = {who: _timed(run) for who, run in runs.items()}
    reference = next(iter(first.values()))[1]
    for who, (_, values) in first.items():
        check_agreement(work, who, values, reference)
    seconds: dict[str, list[float]] = {who: [] for who in runs}
    for number in range(rounds):
        for who, run in runs.items():
            seconds[who].append(_timed(run)[0])
            common.log(f"round {number + 1} of {rounds}, {work}, {who}: {seconds[who][-1]:.2f} s")
    results = {}
    for who, times in seconds.items():
        median = statistics.median(times)
        results[who] = {
            "per_second": count / median,
            "seconds": median,
            "seconds_of_each_round": [round(seconds_of_round, 4) for seconds_of_round in times],
            "first_call_seconds": round(first[who][0], 2),
            "batch_size": batches.get(who),
            "difference": difference(work, first[who][1], reference),
        }
    return results


def difference(work: str, results: Any, reference: Any) -> float:
    """The largest difference of scores, each relative to its own size, or the share of texts that are not the same."""
    if work == "scores":
        return float(np.max(np.abs(np.asarray(results) - reference) / np.abs(reference)))
    return sum(one != other for one, other in zip(results, reference, strict=True)) / len(reference)


def check_agreement(work: str, who: str, results: Any, reference: Any) -> None:
    """Stops the benchmark unless results are those of torch.

    Raises:
      RuntimeError: says how they differ.
    """
    gap = difference(work, results, reference)
    # Written so that what is not a number does not pass.
    if not gap <= (TOLERANCE if work == "scores" else 0.0):
        what = f"scores differ by up to {gap:.2g}" if work == "scores" else f"{gap:.0%} of the texts differ"
        raise RuntimeError(f"{who} and torch do not do the same: {what}")


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    results = run()
    return time.perf_counter() - start, results


def _best(size: Size, run: Callable[[int], Any]) -> int:
    """The batch size that is the fastest; the first call of all is not counted."""
    if len(size.batch_sizes) > 1:
        run(size.batch_sizes[0])
    return min(size.batch_sizes, key=lambda batch_size: _timed(lambda: run(batch_size))[0])


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown tables, with a head that says what was measured on what."""
    lines = [common.where(figures, ("jax", "torch", "transformers"))]
    for case in figures["families"].values():
        low, high = case["question_tokens"]
        lines += [
            "",
            f"{case['network']}, {figures['dtype']}; {case['images']} images x {case['texts']} texts, questions of"
            f" {low} to {high} tokens; captions of {case['new_tokens']} tokens.",
        ]
        for work, results in case["results"].items():
            slowest = next(iter(results.values()))["per_second"]
            lines += [
                "",
                f"| {work} | {_UNITS[work]} | | batch | first call, s | differs by |",
                "| --- | ---: | ---: | ---: | ---: | ---: |",
            ]
            lines += [
                f"| {who} | {row['per_second']:.2f} | {row['per_second'] / slowest:.2f}x"
                f" | {row['batch_size'] or 'its own'} | {row['first_call_seconds']:.1f} | {row['difference']:.0e} |"
                for who, row in results.items()
            ]
    return "\n".join(lines)


if __name__ == "__main__":
    common.run(main)
