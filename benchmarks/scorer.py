"""The fused scorer beside torch on the same network, the same machine and in the same run.

    python -m benchmarks.scorer                       a mid-size network on the CPU, about ten minutes
    python -m benchmarks.scorer --device gpu          SD 2.1-base at 512 pixels in bfloat16
    python -m benchmarks.scorer --output FILE         writes the figures as JSON, too

All take the same random weights, images, texts and timesteps, and compute the same normalised scores, [images, texts]:

* fused: `winobench.DiffusionITM`.
* torch, batched: a plain loop over diffusers' networks that repeats no work: every image and text is encoded once, and
  every (image, text, sample) is one row of a batch. On a GPU also with `torch.compile`.
* torch, pair by pair: what the published code does: for each pair, encode image and text; for each sample, one pass
  with the text and one with the empty text, as a batch of two.

Each gets its best batch size of those tried (the scorer's is that of each device; the cores of a CPU are devices), and
is warmed up first; compiling is timed apart. Rounds alternate between them, and the table shows medians.
"""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import diffusers
import numpy as np
import torch
import transformers

from benchmarks import common, machine
from winobench.checkpoints import tokenizer_files
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.scorers import samples
from winobench.scorers.diffusion_itm import DiffusionITM

_WORDS = ["a", "photo", "of", "red", "green", "blue", "cube", "ball", "and", "left", "right", "the"]


@dataclasses.dataclass(frozen=True)
class Size:
    """A network and the work it is given.

    Attributes:
      description: one line for the table's head.
      unet: arguments of diffusers' UNet2DConditionModel.
      vae: arguments of diffusers' AutoencoderKL, block types aside.
      text_encoder: arguments of transformers' CLIPTextConfig.
      images: number of images.
      texts: number of texts.
      num_samples: samples of each pair.
      batch_sizes: to choose from.
    """

    description: str
    unet: dict[str, Any]
    vae: dict[str, Any]
    text_encoder: dict[str, Any]
    images: int
    texts: int
    num_samples: int
    batch_sizes: tuple[int, ...]


SIZES = {
    "tiny": Size(
        description=common.UNETS["tiny"].description,
        unet=common.UNETS["tiny"].arguments,
        vae={"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4},
        text_encoder={"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
        images=2,
        texts=2,
        num_samples=2,
        batch_sizes=(4,),
    ),
    "mid": Size(
        description=(
            f"{common.UNETS['mid'].description}; VAE 32/64/128/128 channels (a quarter of Stable Diffusion's) at 256"
            " pixels; text encoder of 6 layers, width 512"
        ),
        unet=common.UNETS["mid"].arguments,
        vae={"block_out_channels": (32, 64, 128, 128), "layers_per_block": 2},
        text_encoder={"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 8},
        images=4,
        texts=4,
        num_samples=10,
        batch_sizes=(4, 8, 16),
    ),
    "sd21-base": Size(
        description="SD 2.1-base (866 M parameters) with its VAE at 512 pixels and its text encoder",
        unet=common.UNETS["sd21-base"].arguments,
        vae={"block_out_channels": (128, 256, 512, 512), "layers_per_block": 2},
        text_encoder={
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 23,
            "num_attention_heads": 16,
            "hidden_act": "gelu",
        },
        images=8,
        texts=8,
        num_samples=10,
        batch_sizes=(16, 32, 64),
    ),
}


def write_pipeline(folder: pathlib.Path, size: Size, device: str) -> None:
    """Writes a pipeline of this size with random weights, the same at every call, in the diffusers layout."""
    vocabulary = tokenizer_files.write_clip_tokenizer(folder / "tokenizer", _WORDS, 77)
    torch.manual_seed(0)
    levels = len(size.vae["block_out_channels"])
    with torch.device(device):
        unet = diffusers.UNet2DConditionModel(**size.unet)
        vae = diffusers.AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * levels, up_block_types=("UpDecoderBlock2D",) * levels, **size.vae
        )
        text_encoder = transformers.CLIPTextModel(
            transformers.CLIPTextConfig(
                vocab_size=vocabulary,
                max_position_embeddings=77,
                bos_token_id=vocabulary - 2,
                eos_token_id=vocabulary - 1,
                pad_token_id=vocabulary - 1,
                **size.text_encoder,
            )
        )
    diffusers.StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=transformers.CLIPTokenizer.from_pretrained(folder / "tokenizer"),
        unet=unet,
        scheduler=diffusers.DDIMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, steps_offset=1
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)


@dataclasses.dataclass
class Work:
    """What is scored: uint8 images, texts, and the samples' noise [n, h, w, c] and timesteps [n]."""

    images: list[np.ndarray]
    texts: list[str]
    noise: np.ndarray
    timesteps: np.ndarray

    @property
    def passes(self) -> int:
        """Denoiser passes of an evaluation that repeats none."""
        return len(self.images) * (len(self.texts) + 1) * len(self.timesteps)


def make_work(size: Size, image_size: int, latent_shape: tuple[int, ...]) -> Work:
    """Random images and short random texts."""
    random = np.random.default_rng(0)
    return Work(
        images=[random.integers(0, 256, (image_size, image_size, 3), np.uint8) for _ in range(size.images)],
        texts=[" ".join(random.choice(_WORDS, 8)) for _ in range(size.texts)],
        noise=random.standard_normal((size.num_samples, *latent_shape), np.float32),
        timesteps=samples.choose_timesteps("even", size.num_samples),
    )


@dataclasses.dataclass
class Timing:
    """One evaluation: seconds in all and of them for the denoiser, the number of its passes, and the scores."""

    seconds: float
    denoising_seconds: float
    passes: int
    scores: np.ndarray


class TorchPeer:
    """Diffusers' networks in plain loops."""

    def __init__(self, folder: pathlib.Path, device: str, dtype: torch.dtype):
        pipeline = diffusers.StableDiffusionPipeline.from_pretrained(folder, dtype=dtype, safety_checker=None)
        self._pipeline = pipeline.to(device)
        self._device, self._dtype = device, dtype
        self._kept = torch.tensor(pipeline.scheduler.alphas_cumprod.numpy(), device=device)
        self.unet = pipeline.unet
        if device == "cuda":
            self.unet.to(memory_format=torch.channels_last)

    def gigaflops(self, work: Work) -> float:
        """Floating-point operations of one pass, in 10^9, two for a multiplication and an addition."""
        from torch.utils.flop_counter import FlopCounterMode

        states, latents = self._encode_texts(work.texts[:1]), self._encode_images(work.images[:1])
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            self.unet(latents.to(self._dtype), torch.tensor([1], device=self._device), states)
        return counter.get_total_flops() / 1e9

    def _encode_images(self, images: Sequence[np.ndarray]) -> torch.Tensor:
        pixels = torch.tensor(np.stack(images), device=self._device).permute(0, 3, 1, 2).float() / 127.5 - 1
        mean = self._pipeline.vae.encode(pixels.to(self._dtype)).latent_dist.mean
        return mean.float() * self._pipeline.vae.config.scaling_factor

    def _encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        tokens = self._pipeline.tokenizer(
            list(texts), padding="max_length", truncation=True, max_length=77, return_tensors="pt"
        )
        return self._pipeline.text_encoder(tokens.input_ids.to(self._device))[0]

    def _errors(
        self, latents: torch.Tensor, states: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor
    ) -> torch.Tensor:
        kept = self._kept[timesteps][:, None, None, None]
        noisy = kept.sqrt() * latents + (1 - kept).sqrt() * noise
        prediction = self.unet(noisy.to(self._dtype), timesteps, states, return_dict=False)[0]
        return (noise - prediction.float()).square().sum(dim=(1, 2, 3))

    def _samples(self, work: Work) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.tensor(work.noise.transpose(0, 3, 1, 2).copy(), device=self._device)
        return noise, torch.tensor(work.timesteps, device=self._device, dtype=torch.long)

    @torch.inference_mode()
    def batched(self, work: Work, batch_size: int) -> Timing:
        """Every image, text and triple once."""
        start = time.perf_counter()
        noise, timesteps = self._samples(work)
        latents = torch.cat([self._encode_images([image]) for image in work.images])
        states = self._encode_texts([*work.texts, ""])
        common.synchronize(self._device)
        encoded = time.perf_counter()
        grid = (len(latents), len(states), len(noise))
        triples = torch.tensor(np.indices(grid).reshape(3, -1), device=self._device)
        parts = []
        for i, j, s in zip(*(column.split(batch_size) for column in triples), strict=True):
            parts.append(self._errors(latents[i], states[j], noise[s], timesteps[s]))
        errors = torch.cat(parts).reshape(grid).cpu().double()
        end = time.perf_counter()
        scores = -(errors[:, :-1] - errors[:, -1:]).mean(dim=-1)
        return Timing(end - start, end - encoded, errors.numel(), scores.numpy())

    @torch.inference_mode()
    def pair_by_pair(self, work: Work) -> Timing:
        """Encodes both sides of every pair, and makes an unconditional pass beside each of its passes."""
        start = time.perf_counter()
        noise, timesteps = self._samples(work)
        scores = np.zeros((len(work.images), len(work.texts)))
        denoising, passes = 0.0, 0
        for row, image in zip(scores, work.images, strict=True):
            for column, text in enumerate(work.texts):
                latents = self._encode_images([image])
                states = self._encode_texts([text, ""])
                common.synchronize(self._device)
                begin = time.perf_counter()
                differences = []
                for eps, t in zip(noise, timesteps, strict=True):
                    with_text, without = self._errors(latents.expand(2, -1, -1, -1), states, eps[None], t[None])
                    differences.append(with_text.item() - without.item())
                    passes += 2
                row[column] = -np.mean(differences)
                denoising += time.perf_counter() - begin
        return Timing(time.perf_counter() - start, denoising, passes, scores)


def fused(scorer: DiffusionITM, work: Work) -> Timing:
    """The scorer's own evaluation; the denoiser's share is what follows the first errors, scaled to all of them."""
    texts = [*work.texts, ""]
    grid = (len(work.images), len(texts), len(work.timesteps))
    errors = np.empty(int(np.prod(grid)), np.float32)
    start = time.perf_counter()
    arrivals = []
    for first, part in scorer.iter_errors(
        work.images, texts, np.indices(grid).reshape(3, -1).T, noise=work.noise, timesteps=work.timesteps
    ):
        errors[first : first + len(part)] = part
        arrivals.append((time.perf_counter(), len(part)))
    (begin, skipped), (end, _) = arrivals[0], arrivals[-1]
    errors = errors.reshape(grid).astype(np.float64)
    scores = -(errors[:, :-1] - errors[:, -1:]).mean(axis=-1)
    # A single step has no second one to be measured by.
    denoising = (end - begin) * errors.size / (errors.size - skipped) if len(arrivals) > 1 else end - start
    return Timing(end - start, denoising, errors.size, scores)


def best_batch_size(run: Callable[[int], Timing], batch_sizes: Sequence[int]) -> tuple[int, float]:
    """The batch size with the most passes a second, and the seconds that first calls took longer than second ones."""
    rates, compiling = {}, 0.0
    for batch_size in batch_sizes:
        cold, warm = run(batch_size), run(batch_size)
        compiling += max(0.0, cold.seconds - warm.seconds)
        rates[batch_size] = warm.passes / warm.denoising_seconds
    return max(rates, key=rates.get), compiling / len(batch_sizes)


def benchmark(size: Size, device: str, rounds: int, log: Callable[[str], None] = print) -> dict[str, Any]:
    """Runs everything and returns the figures, ready for JSON.

    Args:
      size: the network and its work.
      device: ``cpu`` or ``cuda``.
      rounds: number of alternating measurements.
      log: told what is going on.
    """
    on_gpu = device == "cuda"
    dtype = "bfloat16" if on_gpu else "float32"
    load_before = machine.load_average()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        log("writing a pipeline with random weights")
        write_pipeline(folder, size, device)
        peer = TorchPeer(folder, device, getattr(torch, dtype))
        pipeline = StableDiffusion.from_pretrained(folder, dtype)
    scorers = {batch_size: DiffusionITM(pipeline, batch_size=batch_size) for batch_size in size.batch_sizes}
    scorer = scorers[size.batch_sizes[0]]
    work = make_work(size, scorer.image_size, scorer.latent_shape)
    part = dataclasses.replace(work, images=work.images[: max(1, size.images // 4)])
    gigaflops = peer.gigaflops(work)

    runs: dict[str, Callable[[], Timing]] = {}
    batch_sizes, compiling = {}, {}

    def choose(name: str, run: Callable[[Work, int], Timing]) -> None:
        log(f"{name}: choosing a batch size")
        batch_sizes[name], compiling[name] = best_batch_size(lambda batch: run(part, batch), size.batch_sizes)
        runs[name] = lambda: run(work, batch_sizes[name])

    choose("fused", lambda work, batch_size: fused(scorers[batch_size], work))
    choose("torch, batched", peer.batched)
    if on_gpu:
        plain, compiled = peer.unet, torch.compile(peer.unet, dynamic=False)

        def with_compiled(work: Work, batch_size: int) -> Timing:
            peer.unet = compiled
            try:
                return peer.batched(work, batch_size)
            finally:
                peer.unet = plain

        choose("torch.compile, batched", with_compiled)
    batch_sizes["torch, pair by pair"], compiling["torch, pair by pair"] = 2, 0.0
    runs["torch, pair by pair"] = lambda: peer.pair_by_pair(work)

    timings: dict[str, list[Timing]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            timings[name].append(run())
            log(f"round {number + 1} of {rounds}, {name}: {timings[name][-1].seconds:.2f} s")

    scores = {name: results[0].scores for name, results in timings.items()}
    reference = scores["torch, batched"]
    figures = {
        "size": size.description,
        "work": f"{size.images} images x {size.texts} texts x {size.num_samples} samples, normalised",
        "dtype": dtype,
        "gigaflops_a_pass": round(gigaflops, 2),
        "machine": machine.describe(common.accelerator_name(device)),
        "load_average": [load_before, machine.load_average()],
        "rounds": rounds,
        "devices": scorer.mesh.size,
        "results": {
            name: {
                "passes": results[0].passes,
                "passes_per_second": statistics.median(r.passes / r.denoising_seconds for r in results),
                "seconds": statistics.median(r.seconds for r in results),
                "seconds_of_each_round": [round(r.seconds, 3) for r in results],
                "batch_size": batch_sizes[name],
                "compile_seconds": round(compiling[name], 1),
                "largest_score_difference": float(np.abs(scores[name] - reference).max() / np.abs(reference).max()),
            }
            for name, results in timings.items()
        },
    }
    return figures


def table(figures: dict[str, Any]) -> str:
    """The figures as a Markdown table with a head that says what was measured on what."""
    slowest = max(result["seconds"] for result in figures["results"].values())
    lines = [
        f"{figures['size']}; {figures['work']}; {figures['dtype']}; {figures['gigaflops_a_pass']} GFLOP a pass.",
        common.where(figures, ("jax", "torch", "diffusers")),
        "",
        "| | passes | passes/s | TFLOP/s | evaluation, s | faster by | batch | compiling, s | scores differ by |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, result in figures["results"].items():
        rate = result["passes_per_second"]
        lines.append(
            f"| {name} | {result['passes']} | {rate:.1f} | {rate * figures['gigaflops_a_pass'] / 1e3:.3g}"
            f" | {result['seconds']:.2f} | {slowest / result['seconds']:.1f} x | {result['batch_size']}"
            f" | {result['compile_seconds']:.0f} | {result['largest_score_difference']:.0e} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints a table, and writes the figures."""
    parser = common.argument_parser(
        "benchmarks.scorer", __doc__, SIZES, "the network: mid on a CPU, sd21-base on a GPU"
    )
    options = parser.parse_args(arguments)
    device = common.start(options)
    size = SIZES[options.size or ("sd21-base" if device == "cuda" else "mid")]
    figures = benchmark(size, device, options.rounds, log=common.log)
    print(table(figures))
    common.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
