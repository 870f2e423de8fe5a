"""Generating images next to torch diffusers: the same model, sampler, steps and noise, on one machine in the same run.

    python -m benchmarks.images                       clevr-tiny, 32 images of 25 steps with guidance, on the CPU
    python -m benchmarks.images --model=FOLDER --device=gpu --batch_size=8 --steps=50
    python -m benchmarks.images --size=sd21-base --device=gpu      random weights in place of a model
    python -m benchmarks.images --output=FILE         writes the figures as JSON, too

Both generate the images in batches of one size, from texts to uint8: text encoder, DDIM with classifier-free guidance
as one batch of both halves, decoder. Before anything is timed, latents from the same noise must agree. Rounds
alternate, and the table shows medians. The first call of winobench, which compiles, has its own row. The model is any
Stable Diffusion 1 or 2 that both read.
"""

from __future__ import annotations

import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import diffusers
import jax
import numpy as np
import torch

from benchmarks import common, machine, result_files, scorer
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.diffusion import families
from winobench.prompts import grammar

TOLERANCE = 1e-3
"""Of latents in float32, relative to the largest; errors grow from step to step."""

_LIBRARIES = ("jax", "diffusers", "torch")
_GUIDANCE = 3.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = common.argument_parser("benchmarks.images", __doc__, scorer.SIZES, "random weights in place of --model")
    parser.add_argument("--model", default="clevr-tiny", help="name or folder of a Stable Diffusion 1 or 2")
    parser.add_argument("--images", type=int, default=32, help="drawn in a round by each")
    parser.add_argument("--batch_size", type=int, default=8, help="images at once")
    parser.add_argument("--steps", type=int, default=25, help="of DDIM")
    options = parser.parse_args(arguments)
    device = common.start(options)
    common.check_positive(options, "images", "batch_size", "steps")
    before = machine.load_average()
    work = {name: getattr(options, name) for name in ("images", "batch_size", "steps", "rounds")}
    if options.size:
        with tempfile.TemporaryDirectory() as folder:
            scorer.write_pipeline(pathlib.Path(folder), scorer.SIZES[options.size], device)
            figures = measure(folder, device, **work) | {"model": f"{options.size}, random weights"}
    else:
        figures = measure(options.model, device, **work)
    figures["machine"] = machine.describe(common.accelerator_name(device))
    figures["load_average"] = [before, machine.load_average()]
    print(table(figures))
    result_files.write(figures, options.output)


def measure(model: str, device: str, *, images: int, batch_size: int, steps: int, rounds: int) -> dict[str, Any]:
    """Images per second of both.

    Args:
      model: name or folder.
      device: torch's.
      images: of a round.
      batch_size: images at once.
      steps: of DDIM.
      rounds: alternating measurements.

    Raises:
      InputError: there is no such model, it is of another family, or the two do not draw the same.
    """
    ours = families.load_pipeline(registry.resolve(model).checkpoint)
    if ours.CLASS_NAME != "StableDiffusionPipeline":
        raise InputError(
            f"{model} is a {ours.CLASS_NAME}, but Stable Diffusion 1 or 2 is needed", code="unknown-family"
        )
    theirs = diffusers.StableDiffusionPipeline.from_pretrained(registry.resolve(model).source, safety_checker=None)
    theirs.scheduler = diffusers.DDIMScheduler.from_config(theirs.scheduler.config, clip_sample=False)
    theirs = theirs.to(device, torch.float32)
    theirs.set_progress_bar_config(disable=True)
    texts = [prompt.text for prompt in grammar.make_prompts(images)]
    settings = {"batch_size": batch_size, "steps": steps}
    difference = _difference(ours, theirs, texts[:batch_size], steps)
    if not difference <= TOLERANCE:
        raise InputError(
            f"latents differ by {difference:.1e} of the largest: the two do not draw the same", code="misfit"
        )
    calls: dict[str, Callable[[], Any]] = {
        "winobench": lambda: draw(ours, texts, **settings),
        "torch diffusers": lambda: draw_with_torch(theirs, texts, device, **settings),
    }
    start = time.perf_counter()
    calls["winobench"]()
    first = time.perf_counter() - start
    calls["torch diffusers"]()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
            common.log(f"round {number + 1}, {name}: {images / seconds[name][-1]:.2f} images/s")
    return {
        "model": model,
        "images": images,
        **settings,
        "guidance_scale": _GUIDANCE,
        "difference": difference,
        "first_call_seconds": first,
        "devices": jax.local_device_count(),
        "torch_threads": torch.get_num_threads(),
        "images_per_second": {name: images / statistics.median(times) for name, times in seconds.items()},
        "seconds": seconds,
    }


def draw(pipeline: Any, texts: list[str], *, batch_size: int, steps: int) -> np.ndarray:
    """Images of ours, uint8."""
    return pipeline.generate(texts, num_steps=steps, guidance_scale=_GUIDANCE, batch_size=batch_size)


def draw_with_torch(pipeline: Any, texts: list[str], device: str, *, batch_size: int, steps: int) -> np.ndarray:
    """Images of diffusers, float."""
    found = []
    with torch.inference_mode():
        for first in range(0, len(texts), batch_size):
            some = texts[first : first + batch_size]
            drawn = pipeline(some, num_inference_steps=steps, guidance_scale=_GUIDANCE, output_type="np").images
            found.append(drawn)
    common.synchronize(device)
    return np.concatenate(found)


def _difference(ours: Any, theirs: Any, texts: list[str], steps: int) -> float:
    """Difference between latents from the same noise, relative to the largest."""
    shape = ours.latent_shape(ours.image_size)
    noise = np.random.default_rng(0).standard_normal((len(texts), *shape)).astype(np.float32)
    options = {"num_steps": steps, "guidance_scale": _GUIDANCE, "batch_size": len(texts)}
    latents = ours.generate(texts, latents=noise, return_latents=True, **options)
    given = torch.from_numpy(noise.transpose(0, 3, 1, 2).copy()).to(theirs.device)
    with torch.inference_mode():
        expected = theirs(
            texts, latents=given, num_inference_steps=steps, guidance_scale=_GUIDANCE, output_type="latent"
        ).images
    expected = expected.float().cpu().numpy().transpose(0, 2, 3, 1)
    return float(np.abs(np.asarray(latents) - expected).max() / np.abs(expected).max())


def table(figures: dict[str, Any]) -> str:
    """The figures for people, in Markdown."""
    rates = figures["images_per_second"]
    lines = ["| | images/s | |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {rate:.2f} | {rate / rates['torch diffusers']:.2f}x |" for name, rate in rates.items()]
    return "\n".join(
        [
            f"{figures['model']}, {figures['images']} images of {figures['steps']} steps with guidance, batches of"
            f" {figures['batch_size']}, float32; latents agree to {figures['difference']:.0e} of the largest.",
            "",
            *lines,
            "",
            f"Our first call, which compiles: {figures['first_call_seconds']:.1f} s.",
            common.where(figures, _LIBRARIES),
        ]
    )


if __name__ == "__main__":
    common.run(main)
