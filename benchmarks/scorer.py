"""The fused scorer beside torch on the same network, the same machine and in the same run.

    python -m benchmarks.scorer                       a mid-size network on the CPU, about ten minutes
    python -m benchmarks.scorer --device gpu          SD 2.1-base at 512 pixels in bfloat16
    python -m benchmarks.scorer --output FILE         writes the figures as JSON, too

Two kinds of evaluation are timed, those of GDBench in small:

* winoground: questions of two images and two texts, whose scores are normalised by the error under the empty text.
* retrieval: questions of one image and ten texts, as in Flickr30K's text retrieval, whose scores are not.

All take the same random weights, images, texts and timesteps, and compute the same score for each pair:

* fused: `winobench.DiffusionITM`, where the texts of an image and a sample also share what the network does ahead of
  them.
* torch, batched: a plain loop over diffusers' networks that repeats no work: every image and text is encoded once, and
  every (image, text, sample) is one row of a batch; channels last.
* torch.compile, batched: the same with a compiled denoiser.
* torch, pair by pair: what the published code does: for each pair, encode image and text; for each sample, one pass
  with the text and, where scores are normalised, one with the empty text, as a batch of two.

Each gets its best batch size of those tried for each kind of evaluation (the scorer's is that of each device; the cores
of a CPU are devices), and is warmed up first; compiling is timed apart. Rounds alternate between them, and the table
shows medians.
"""

from __future__ import annotations

import copy
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

from benchmarks import common, machine, result_files
from winobench.checkpoints import tokenizer_files
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.models.autoencoder_kl import AutoencoderKLConfig
from winobench.models.clip import CLIPTextConfig
from winobench.scorers import samples
from winobench.scorers.diffusion_itm import DiffusionITM

_WORDS = ["a", "photo", "of", "red", "green", "blue", "cube", "ball", "and", "left", "right", "the"]


@dataclasses.dataclass(frozen=True)
class Size:
    """A network and the work it is given.

    Attributes:
      description: one line for the table's head.
      unet: arguments of diffusers' UNet2DConditionModel.
      vae: arguments of diffusers' AutoencoderKL.
      text_encoder: arguments of transformers' CLIPTextConfig.
      questions: style of evaluation -> number of questions.
      num_samples: samples of each pair.
      batch_sizes: to choose from.
      compiled_batch_sizes: the same for torch.compile, which compiles each length of a batch; none to leave it out.
    """

    description: str
    unet: dict[str, Any]
    vae: dict[str, Any]
    text_encoder: dict[str, Any]
    questions: dict[str, int]
    num_samples: int
    batch_sizes: tuple[int, ...]
    compiled_batch_sizes: tuple[int, ...]


def _autoencoder(*channels: int, **options: Any) -> dict[str, Any]:
    levels = len(channels)
    return {
        "block_out_channels": channels,
        "down_block_types": ("DownEncoderBlock2D",) * levels,
        "up_block_types": ("UpDecoderBlock2D",) * levels,
        **options,
    }


SIZES = {
    "tiny": Size(
        description=common.UNETS["tiny"].description,
        unet=common.UNETS["tiny"].arguments,
        vae=_autoencoder(8, 16, layers_per_block=1, norm_num_groups=4),
        text_encoder={"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
        questions={"winoground": 1, "retrieval": 1},
        num_samples=2,
        batch_sizes=(4,),
        compiled_batch_sizes=(),
    ),
    "mid": Size(
        description=(
            f"{common.UNETS['mid'].description}; VAE 32/64/128/128 channels (a quarter of Stable Diffusion's) at 256"
            " pixels; text encoder of 6 layers, width 512"
        ),
        unet=common.UNETS["mid"].arguments,
        vae=_autoencoder(32, 64, 128, 128, layers_per_block=2),
        text_encoder={"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 8},
        questions={"winoground": 4, "retrieval": 2},
        num_samples=10,
        batch_sizes=(2, 4, 8, 16),
        compiled_batch_sizes=(4, 10),
    ),
    "sd21-base": Size(
        description="SD 2.1-base (866 M parameters) with its VAE at 512 pixels and its text encoder",
        unet=common.UNETS["sd21-base"].arguments,
        vae=dataclasses.asdict(AutoencoderKLConfig.sd()),
        text_encoder=dataclasses.asdict(CLIPTextConfig.sd21()),
        questions={"winoground": 16, "retrieval": 16},
        num_samples=10,
        batch_sizes=(16, 32, 64),
        compiled_batch_sizes=(16, 32),
    ),
}


def write_pipeline(folder: pathlib.Path, size: Size, device: str) -> None:
    """Writes a pipeline of this size with random weights, the same at every call, in the diffusers layout."""
    vocabulary = tokenizer_files.write_clip_tokenizer(folder / "tokenizer", _WORDS, 77)
    torch.manual_seed(0)
    # The benchmark's tokenizer has a few words only.
    text = size.text_encoder | {
        "vocab_size": vocabulary,
        "max_position_embeddings": 77,
        "bos_token_id": vocabulary - 2,
        "eos_token_id": vocabulary - 1,
        "pad_token_id": vocabulary - 1,
    }
    with torch.device(device):
        unet = diffusers.UNet2DConditionModel(**size.unet)
        vae = diffusers.AutoencoderKL(**size.vae)
        text_encoder = transformers.CLIPTextModel(transformers.CLIPTextConfig(**text))
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


FLICKR30K_TEXT = 101_400
"""Passes of Flickr30K's text retrieval with ten samples, which took the paper's authors 68 minutes on an A6000."""

# Style of evaluation -> images and texts of a question, and whether its scores are normalised.
STYLES = {"winoground": (2, 2, True), "retrieval": (1, 10, False)}


@dataclasses.dataclass
class Work:
    """Questions that are scored.

    Attributes:
      images: uint8 [size, size, 3] each.
      texts: those of the questions.
      pairs: int [n, 2], (image, text) of each score that is asked for.
      normalized: whether the error under the empty text is subtracted.
      noise: float32 [num_samples, h, w, c].
      timesteps: int [num_samples].
    """

    images: list[np.ndarray]
    texts: list[str]
    pairs: np.ndarray
    normalized: bool
    noise: np.ndarray
    timesteps: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """Pairs to be scored so that none is repeated, by image; the number of texts stands for the empty text."""
        if not self.normalized:
            return self.pairs
        empty = [(image, len(self.texts)) for image in range(len(self.images))]
        rows = np.concatenate([self.pairs, empty])
        return rows[np.argsort(rows[:, 0], kind="stable")]

    @property
    def triples(self) -> np.ndarray:
        """Int32 [rows x samples, 3]."""
        count = len(self.timesteps)
        rows = np.repeat(self.rows, count, axis=0)
        return np.column_stack([rows, np.tile(np.arange(count), len(self.rows))]).astype(np.int32)

    def scores(self, errors: np.ndarray) -> np.ndarray:
        """Float64 [pairs] from the errors of `triples`, lower errors = higher scores."""
        means = errors.astype(np.float64).reshape(len(self.rows), -1).mean(axis=1)
        table = {tuple(row): mean for row, mean in zip(self.rows.tolist(), means, strict=True)}
        empty = len(self.texts)
        return -np.array(
            [table[image, text] - (table[image, empty] if self.normalized else 0.0) for image, text in self.pairs]
        )


def make_work(size: Size, style: str, image_size: int, latent_shape: tuple[int, ...], questions: int) -> Work:
    """Questions of random images and short random texts."""
    random = np.random.default_rng(0)
    images, texts, normalized = STYLES[style]
    pairs = [
        (question * images + image, question * texts + text)
        for question in range(questions)
        for image in range(images)
        for text in range(texts)
    ]
    return Work(
        images=[random.integers(0, 256, (image_size, image_size, 3), np.uint8) for _ in range(questions * images)],
        # Numbered, so that no two are the same.
        texts=[" ".join([*random.choice(_WORDS, 8), *_WORDS[: 1 + n]]) for n in range(questions * texts)],
        pairs=np.array(pairs),
        normalized=normalized,
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
        self._unet = pipeline.unet
        self._batched_unet = copy.deepcopy(pipeline.unet).to(memory_format=torch.channels_last)
        self._compiled_unet: Any = None

    def gigaflops(self, work: Work) -> float:
        """Floating-point operations of one pass, in 10^9, two for a multiplication and an addition."""
        from torch.utils.flop_counter import FlopCounterMode

        states, latents = self._encode_texts(work.texts[:1]), self._encode_images(work.images[:1])
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            self._unet(latents.to(self._dtype), torch.tensor([1], device=self._device), states)
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
        self, unet: Any, latents: torch.Tensor, states: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor
    ) -> torch.Tensor:
        kept = self._kept[timesteps][:, None, None, None]
        noisy = kept.sqrt() * latents + (1 - kept).sqrt() * noise
        prediction = unet(noisy.to(self._dtype), timesteps, states, return_dict=False)[0]
        return (noise - prediction.float()).square().sum(dim=(1, 2, 3))

    def _samples(self, work: Work) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.tensor(work.noise.transpose(0, 3, 1, 2).copy(), device=self._device)
        return noise, torch.tensor(work.timesteps, device=self._device, dtype=torch.long)

    def batched(self, work: Work, batch_size: int) -> Timing:
        """Every image, text and triple once."""
        return self._batched(self._batched_unet, work, batch_size)

    def compiled(self, work: Work, batch_size: int) -> Timing:
        """The same with the denoiser compiled, for each length of a batch by itself."""
        if self._compiled_unet is None:
            # Trying out kernels for every product takes a GPU minutes, and a CPU very much longer.
            mode = "max-autotune" if self._device == "cuda" else "default"
            self._compiled_unet = torch.compile(self._batched_unet, dynamic=False, mode=mode)
        return self._batched(self._compiled_unet, work, batch_size)

    @torch.inference_mode()
    def _batched(self, unet: Any, work: Work, batch_size: int) -> Timing:
        start = time.perf_counter()
        noise, timesteps = self._samples(work)
        latents = torch.cat([self._encode_images([image]) for image in work.images])
        states = self._encode_texts([*work.texts, ""])
        common.synchronize(self._device)
        encoded = time.perf_counter()
        triples = torch.tensor(work.triples.T.astype(np.int64), device=self._device)
        parts = []
        for i, j, s in zip(*(column.split(batch_size) for column in triples), strict=True):
            parts.append(self._errors(unet, latents[i], states[j], noise[s], timesteps[s]))
        errors = torch.cat(parts).cpu().numpy()
        end = time.perf_counter()
        return Timing(end - start, end - encoded, len(errors), work.scores(errors))

    @torch.inference_mode()
    def pair_by_pair(self, work: Work) -> Timing:
        """Encodes both sides of every pair, and makes an unconditional pass beside each pass that is normalised."""
        start = time.perf_counter()
        noise, timesteps = self._samples(work)
        scores, denoising, passes = [], 0.0, 0
        for image, text in work.pairs.tolist():
            latents = self._encode_images([work.images[image]])
            states = self._encode_texts([work.texts[text], ""] if work.normalized else [work.texts[text]])
            common.synchronize(self._device)
            begin = time.perf_counter()
            differences = []
            for eps, t in zip(noise, timesteps, strict=True):
                errors = self._errors(self._unet, latents.expand(len(states), -1, -1, -1), states, eps[None], t[None])
                with_text, *without = errors.tolist()
                differences.append(with_text - sum(without))
                passes += len(states)
            scores.append(-np.mean(differences))
            denoising += time.perf_counter() - begin
        return Timing(time.perf_counter() - start, denoising, passes, np.array(scores))


def fused(scorer: DiffusionITM, work: Work) -> Timing:
    """The scorer's own evaluation; the denoiser's share is what follows the first errors, scaled to all of them."""
    triples = work.triples
    errors = np.empty(len(triples), np.float32)
    start = time.perf_counter()
    arrivals = []
    for rows, part in scorer.iter_errors(
        work.images, [*work.texts, ""], triples, noise=work.noise, timesteps=work.timesteps
    ):
        errors[rows] = part
        arrivals.append((time.perf_counter(), len(part)))
    (begin, skipped), (end, _) = arrivals[0], arrivals[-1]
    # A single step has no second one to be measured by.
    denoising = (end - begin) * errors.size / (errors.size - skipped) if len(arrivals) > 1 else end - start
    return Timing(end - start, denoising, errors.size, work.scores(errors))


def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """The ceiling: floating-point operations a second of large matrix products, in 10^12."""
    length = 16_384 if device == "cuda" else 2_048
    left, right = (torch.randn((length, length), device=device).to(dtype) for _ in range(2))
    rates = []
    for _ in range(5):
        common.synchronize(device)
        start = time.perf_counter()
        left @ right
        common.synchronize(device)
        rates.append(2 * length**3 / (time.perf_counter() - start) / 1e12)
    return max(rates)


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
    works = {
        style: make_work(size, style, scorer.image_size, scorer.latent_shape, questions)
        for style, questions in size.questions.items()
    }
    parts = {
        style: make_work(size, style, scorer.image_size, scorer.latent_shape, max(1, questions // 4))
        for style, questions in size.questions.items()
    }
    gigaflops = peer.gigaflops(parts["winoground"])
    ceiling = matrix_rate(device, getattr(torch, dtype))

    runs: dict[str, Callable[[str], Timing]] = {}
    batch_sizes: dict[tuple[str, str], int] = {}
    compiling: dict[tuple[str, str], float] = {}

    def choose(name: str, run: Callable[[Work, int], Timing], sizes: Sequence[int] = size.batch_sizes) -> None:
        for style, part in parts.items():
            log(f"{name}: choosing a batch size, {style}")
            batch_sizes[style, name], compiling[style, name] = best_batch_size(
                lambda batch, part=part: run(part, batch), sizes
            )
        runs[name] = lambda style: run(works[style], batch_sizes[style, name])

    choose("fused", lambda work, batch_size: fused(scorers[batch_size], work))
    choose("torch, batched", peer.batched)
    if size.compiled_batch_sizes:
        choose("torch.compile, batched", peer.compiled, size.compiled_batch_sizes)
    runs["torch, pair by pair"] = lambda style: peer.pair_by_pair(works[style])
    for style, work in works.items():
        batch_sizes[style, "torch, pair by pair"] = 2 if work.normalized else 1
        compiling[style, "torch, pair by pair"] = 0.0

    timings: dict[str, dict[str, list[Timing]]] = {style: {name: [] for name in runs} for style in works}
    for style in works:
        for number in range(rounds):
            for name, run in runs.items():
                timings[style][name].append(run(style))
                log(f"{style}, round {number + 1} of {rounds}, {name}: {timings[style][name][-1].seconds:.2f} s")

    results = {
        style: {
            name: _result(of_contender, of_style["torch, batched"][0].scores)
            | {"batch_size": batch_sizes[style, name], "compile_seconds": round(compiling[style, name], 1)}
            for name, of_contender in of_style.items()
        }
        for style, of_style in timings.items()
    }
    return {
        "size": size.description,
        "work": {
            style: f"{size.questions[style]} questions of {STYLES[style][0]} x {STYLES[style][1]}, {size.num_samples}"
            f" samples, {'' if work.normalized else 'not '}normalised"
            for style, work in works.items()
        },
        "dtype": dtype,
        "gigaflops_a_pass": round(gigaflops, 2),
        "matrix_teraflops": round(ceiling, 4),
        "machine": machine.describe(common.accelerator_name(device)),
        "load_average": [load_before, machine.load_average()],
        "rounds": rounds,
        "devices": scorer.mesh.size,
        "results": results,
    }


def _result(timings: Sequence[Timing], reference: np.ndarray) -> dict[str, Any]:
    """A contender's figures over all rounds, next to the reference's scores."""
    return {
        "passes": timings[0].passes,
        "passes_per_second": statistics.median(timing.passes / timing.denoising_seconds for timing in timings),
        "seconds": statistics.median(timing.seconds for timing in timings),
        "seconds_of_each_round": [round(timing.seconds, 3) for timing in timings],
        "largest_score_difference": float(np.abs(timings[0].scores - reference).max() / np.abs(reference).max()),
    }


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown tables with a head that says what was measured on what."""
    lines = [
        f"{figures['size']}; {figures['dtype']}; {figures['gigaflops_a_pass']} GFLOP a pass; matrix products run at"
        f" {figures['matrix_teraflops']:.3g} TFLOP/s.",
        common.where(figures, ("jax", "torch", "diffusers")),
    ]
    for style, results in figures["results"].items():
        slowest = max(result["seconds"] for result in results.values())
        lines += [
            "",
            f"{style}: {figures['work'][style]}",
            "",
            "| | passes | passes/s | of ceiling | 101,400 passes, h | evaluation, s | faster by | batch | compiling, s"
            " | scores differ by |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for name, result in results.items():
            rate = result["passes_per_second"]
            lines.append(
                f"| {name} | {result['passes']} | {rate:.1f}"
                f" | {rate * figures['gigaflops_a_pass'] / 1e3 / figures['matrix_teraflops']:.0%}"
                f" | {FLICKR30K_TEXT / rate / 3600:.2f} | {result['seconds']:.2f}"
                f" | {slowest / result['seconds']:.1f} x | {result['batch_size']}"
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
    result_files.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
