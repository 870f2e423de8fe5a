"""Training with hard negatives beside torch on the same network, the same machine and in the same run.

    python -m benchmarks.hardneg                                    a mid-size network on the CPU, some minutes
    python -m benchmarks.hardneg --size=sd21 --device=gpu --dtype=bfloat16 --compile      SD 2.1-base's shapes
    python -m benchmarks.hardneg --output=FILE                      writes the figures as JSON, too

All train adapters of rank 4 on the attention to the text, with the same random weights, batch, loss (hinged, a hard
text as the negative) and optimizer (AdamW, gradients clipped to norm 1), from latents and text states encoded before:

* winobench: the step of `winobench.training.hardneg`: positives and negatives in one compiled pass.
* torch, one after the other: diffusers and peft, as the published training does it: a pass for the positives, then one
  for the negatives.
* torch, batched: the same with both in one pass, and without waiting for the device within a step.

With ``--compile`` there are torch's two with ``torch.compile`` as well. ``--dtype=bfloat16`` is that of the frozen
weights and of the computation; adapters, optimizer and loss are float32 (in torch by autocast). An image is a positive
with its negative: two rows of a pass.

Before anything is timed, the first steps of torch's two must have the errors, the loss and the norm of the gradient of
ours, in float32, and compiled ones those of their plain form. With ``--dtype=bfloat16`` this compiles a second program
of ours: ``--unchecked`` leaves it out. Rounds alternate between them, and the table shows medians.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import diffusers
import jax
import numpy as np
import peft
import torch
import torch.nn.functional as F
from flax import nnx
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import common, machine, result_files
from winobench import parallel
from winobench.base import memory
from winobench.base.errors import InputError
from winobench.checkpoints import models, sources
from winobench.diffusion.schedules import NoiseSchedule
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.models import lora
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.runs.training_settings import Loss
from winobench.training import hard_negatives, loop, optimizers

LORA = lora.LoRAConfig("cross", rank=4)
LOSS = Loss("hard_text", threshold=1.0, threshold_over="batch", timestep_range=None)
TOLERANCE = 1e-4
"""Of errors and loss, in float32, relative to the positives' error; the loss is a small difference of two errors."""
GRADIENT_TOLERANCE = 1e-3
"""Of the gradient's norm, relative; it is a sum of many products that partly cancel."""
COARSENESS = 100.0
"""How many times these tolerances two first steps in bfloat16 may differ by."""

_SEED = 0
_LEARNING_RATE, _WEIGHT_DECAY, _CLIP_NORM = 1e-4, 1e-2, 1.0
_TOKENS = 77
_OURS = "winobench"
# peft takes a string for a regular expression that the whole name must match.
_TORCH_TARGETS = r".*\.attn2\.to_(q|k|v|out\.0)"
# Rows of the check in float32 where training is in bfloat16: enough for a mean, few enough for the memory.
_CHECKED_ROWS = 2


@dataclasses.dataclass(frozen=True)
class Size:
    """A network and the batch it is trained on.

    Attributes:
      unet: the network.
      batch_size: images a step, each a positive and a negative.
    """

    unet: common.UNet
    batch_size: int


SIZES = {
    "small": Size(common.UNETS["tiny"], 4),
    "mid": Size(common.UNETS["mid"], 4),
    "sd21": Size(common.UNETS["sd21-base"], 16),
}

Batch = Mapping[str, np.ndarray]
Factors = Mapping[str, lora.Factors]


def write_unet(folder: pathlib.Path, unet: common.UNet, device: str) -> None:
    """Writes a network with random weights, the same at every call, in the diffusers layout."""
    torch.manual_seed(_SEED)
    with torch.device(device):
        network = diffusers.UNet2DConditionModel(**unet.arguments)
    # Torch's own start makes matrices so small that the text hardly matters to the prediction.
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=parameter[0].numel() ** -0.5)
    network.save_pretrained(folder)


def make_adapters(folder: pathlib.Path) -> Factors:
    """Adapters for all layers that get one, with no factor at zero, so that the first step depends on them."""
    network = models.abstract_model(
        UNet2DConditionModel, models.read_config(UNet2DConditionModel, sources.resolve(folder))
    )
    lora.add_lora(network, LORA, rngs=nnx.Rngs(_SEED))
    random = np.random.default_rng(_SEED)
    return {
        name: lora.Factors(
            np.asarray(values["down"]),
            0.1 * random.standard_normal(values["up"].shape, np.float32),
            LORA.scale,
        )
        for name, values in lora.lora_params(network).items()
    }


def make_batch(size: Size) -> Batch:
    """Random latents and text states in float16, as a cache holds them, in our layout."""
    random = np.random.default_rng(_SEED)
    side, width = size.unet.arguments["sample_size"], size.unet.arguments["cross_attention_dim"]
    shapes = {
        "latents": (side, side, 4),
        "text_states": (_TOKENS, width),
        "negative_text_states": (_TOKENS, width),
    }
    return {
        name: random.standard_normal((size.batch_size, *shape), np.float32).astype(np.float16)
        for name, shape in shapes.items()
    }


class Ours:
    """The step of `winobench.training.hardneg`, and the state that it trains."""

    def __init__(self, folder: pathlib.Path, dtype: str, device: str, batch_size: int, adapters: Factors):
        unet = models.load_model(UNet2DConditionModel, folder, dtype=dtype)
        lora.attach(unet, adapters)
        graphdef, trained, frozen = lora.split(unet)
        # Torch trains on one GPU.
        on_gpu = device == "cuda"
        mesh = parallel.make_mesh(jax.devices()[:1]) if on_gpu else loop.make_mesh(batch_size, 1, 1)
        optimizer = optimizers.make_optimizer(
            "adamw", _LEARNING_RATE, weight_decay=_WEIGHT_DECAY, clip_norm=_CLIP_NORM, b2=0.999
        )
        loss = hard_negatives.make_loss(StableDiffusion, {"unet": graphdef}, NoiseSchedule(), LOSS)
        self._step = loop.make_step(loss, optimizer, seed=_SEED, ema_decay=None, mesh=mesh)
        state = loop.create_state({"unet": nnx.to_pure_dict(trained)}, optimizer, average=False)
        self._state = parallel.place_parameters(state, mesh)
        self._frozen = parallel.place_parameters({"unet": nnx.to_pure_dict(frozen)}, mesh)
        self._rows = parallel.split_rows(mesh)
        self._exact = dtype == "float32"
        self.num_devices = mesh.size

    def step(self, batch: Batch) -> dict[str, jax.Array]:
        """Trains one step and returns its metrics, which may still be under way."""
        with jax.default_matmul_precision("highest") if self._exact else contextlib.nullcontext():
            self._state, metrics = self._step(self._state, jax.device_put(dict(batch), self._rows), self._frozen)
        return metrics

    def wait(self) -> None:
        """Waits for the last step."""
        jax.block_until_ready(self._state)


def first_draws(batch: Batch) -> hard_negatives.Draws:
    """The noise and the timesteps of our first step."""
    key = jax.random.fold_in(jax.random.key(_SEED), 0)
    return hard_negatives.draw(key, batch["latents"].shape, NoiseSchedule(), LOSS)


class TorchPeer:
    """The same in diffusers and peft."""

    def __init__(self, folder: pathlib.Path, dtype: str, device: str, adapters: Factors):
        self._device, self._dtype = device, getattr(torch, dtype)
        unet = diffusers.UNet2DConditionModel.from_pretrained(folder, torch_dtype=self._dtype).to(device)
        if device == "cuda":
            unet.to(memory_format=torch.channels_last)
        unet.requires_grad_(False)
        unet.add_adapter(peft.LoraConfig(r=LORA.rank, lora_alpha=LORA.rank * LORA.scale, target_modules=_TORCH_TARGETS))
        self._unet, self._adapters = unet.train(), adapters
        self._trained = [parameter for parameter in unet.parameters() if parameter.requires_grad]
        for parameter in self._trained:
            parameter.data = parameter.data.float()
        self._scheduler = diffusers.DDPMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", prediction_type="epsilon"
        )
        self._networks = {False: unet}
        self.reset()

    def reset(self) -> None:
        """Goes back to the first adapters and a fresh optimizer."""
        layers = {name: module for name, module in self._unet.named_modules() if hasattr(module, "lora_A")}
        if layers.keys() != self._adapters.keys():
            raise RuntimeError("peft has adapted other layers than winobench")
        for name, factors in self._adapters.items():
            for module, values in ((layers[name].lora_A, factors.down), (layers[name].lora_B, factors.up)):
                module["default"].weight.data.copy_(torch.from_numpy(values.T.copy()))
        self._optimizer = torch.optim.AdamW(self._trained, lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)

    def prepare(self, batch: Batch) -> dict[str, torch.Tensor]:
        """The batch in torch's layout, in the host's memory."""
        tensors = {name: torch.from_numpy(values) for name, values in batch.items()}
        return tensors | {"latents": tensors["latents"].permute(0, 3, 1, 2).contiguous()}

    def _draw(self, shape: torch.Size, draws: hard_negatives.Draws | None) -> tuple[torch.Tensor, torch.Tensor]:
        if draws is None:
            noise = torch.randn(shape, device=self._device)
            return noise, torch.randint(0, len(self._scheduler), shape[:1], device=self._device)
        noise, timesteps = (torch.from_numpy(np.array(values)) for values in (draws.noise, draws.timesteps))
        return noise.permute(0, 3, 1, 2).contiguous().to(self._device), timesteps.long().to(self._device)

    def step(
        self,
        batch: Mapping[str, torch.Tensor],
        *,
        batched: bool,
        compiled: bool = False,
        draws: hard_negatives.Draws | None = None,
    ) -> dict[str, torch.Tensor]:
        """Trains one step and returns its metrics.

        Args:
          batch: from `prepare`.
          batched: whether positives and negatives go through the network in one pass.
          compiled: whether the network is compiled.
          draws: noise and timesteps; drawn here when None.
        """
        if compiled and compiled not in self._networks:
            self._networks[compiled] = torch.compile(self._unet, dynamic=False)
        unet = self._networks[compiled]
        on_device = {name: tensor.to(self._device) for name, tensor in batch.items()}
        latents = on_device["latents"].float()
        positive, negative = (on_device[name].to(self._dtype) for name in ("text_states", "negative_text_states"))
        noise, timesteps = self._draw(latents.shape, draws)
        noisy = self._scheduler.add_noise(latents, noise, timesteps).to(self._dtype)
        mixed = self._dtype != torch.float32
        with torch.autocast(self._device, self._dtype) if mixed else contextlib.nullcontext():
            if batched:
                predictions = unet(
                    torch.cat([noisy, noisy]), torch.cat([timesteps, timesteps]), torch.cat([positive, negative])
                ).sample.chunk(2)
            else:
                predictions = [unet(noisy, timesteps, states).sample for states in (positive, negative)]
        errors = [F.mse_loss(prediction.float(), noise) for prediction in predictions]
        # The published code takes the threshold as a number, for which it waits.
        limit = LOSS.threshold * (errors[0].detach() if batched else errors[0].item())
        loss = errors[0] - torch.clamp(errors[1], max=limit)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._trained, _CLIP_NORM)
        self._optimizer.step()
        self._optimizer.zero_grad()
        metrics = {
            "loss": loss,
            "positive_error": errors[0],
            "negative_error": errors[1],
            "gradient_norm": norm,
        }
        return {name: value.detach() for name, value in metrics.items()}

    def gigaflops(self, batch: Mapping[str, torch.Tensor]) -> float:
        """Floating-point operations of one step, in 10^9, two for a multiplication and an addition."""
        with FlopCounterMode(display=False) as counter:
            self.step(batch, batched=True)
        self.reset()
        return counter.get_total_flops() / 1e9


Numbers = dict[str, float]


def difference(values: Numbers, reference: Numbers) -> float:
    """The largest difference of errors and loss, relative to the positives' error."""
    names = ("loss", "positive_error", "negative_error")
    differences = [abs(values[name] - reference[name]) for name in names]
    # Python's own maximum would lose one that is not a number.
    return float(np.max(differences)) / reference["positive_error"]


def check_agreement(
    name: str, values: Numbers, reference: Numbers, *, other: str = _OURS, coarseness: float = 1.0
) -> None:
    """Stops the benchmark unless two first steps did the same.

    Args:
      name: whose step it is.
      values: its numbers.
      reference: those that they should be.
      other: whose these are.
      coarseness: factor of the tolerances, which are those of float32.

    Raises:
      RuntimeError: says how they differ.
    """
    norm = abs(values["gradient_norm"] / reference["gradient_norm"] - 1.0)
    # Written so that what is not a number does not pass.
    if not (difference(values, reference) <= coarseness * TOLERANCE and norm <= coarseness * GRADIENT_TOLERANCE):
        raise RuntimeError(f"the first steps of {name} and of {other} differ: {values} and {reference}")


def _numbers(metrics: Mapping[str, Any]) -> Numbers:
    return {name: float(value) for name, value in metrics.items()}


def variants(compile: bool) -> dict[str, dict[str, bool]]:
    """Torch's contenders: name -> options of `TorchPeer.step`."""
    ways = {"one after the other": False, "batched": True}
    return {
        f"{'torch.compile' if compiled else 'torch'}, {name}": {"batched": batched, "compiled": compiled}
        for compiled in ((False, True) if compile else (False,))
        for name, batched in ways.items()
    }


def benchmark(
    size: Size,
    device: str,
    dtype: str,
    rounds: int,
    steps: int,
    *,
    compile: bool = False,
    checked: bool = True,
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Runs everything and returns the figures, ready for JSON.

    Args:
      size: the network and its batch.
      device: ``cpu`` or ``cuda``.
      dtype: ``float32`` or ``bfloat16``, of the frozen network.
      rounds: number of alternating measurements.
      steps: steps of each.
      compile: run torch compiled, too.
      checked: compare the first steps in float32, also where ``dtype`` is bfloat16.
      log: told what is going on.

    Raises:
      RuntimeError: the contenders do not compute the same.
    """
    load_before = machine.load_average()
    batch = make_batch(size)
    ways = variants(compile)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        log("writing a network with random weights")
        write_unet(folder, size.unet, device)
        adapters = make_adapters(folder)
        if dtype != "float32" and checked:
            log("first steps in float32")
            _check_in_float32(folder, device, adapters, batch)
        ours = Ours(folder, dtype, device, size.batch_size, adapters)
        peer = TorchPeer(folder, dtype, device, adapters)

    theirs = peer.prepare(batch)
    draws = first_draws(batch)
    gigaflops = peer.gigaflops(theirs)

    first, first_seconds = {}, {}
    for name in (_OURS, *ways):
        peer.reset()
        start = time.perf_counter()
        first[name] = _numbers(ours.step(batch) if name == _OURS else peer.step(theirs, **ways[name], draws=draws))
        first_seconds[name] = time.perf_counter() - start
        log(f"{name}: first step {first_seconds[name]:.1f} s, {first[name]}")
        if name != _OURS and dtype == "float32":
            check_agreement(name, first[name], first[_OURS])
        elif name != _OURS and ways[name]["compiled"]:
            plain = name.replace("torch.compile", "torch")
            check_agreement(name, first[name], first[plain], other=plain, coarseness=COARSENESS)

    def measure(name: str) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            if name == _OURS:
                ours.step(batch)
            else:
                peer.step(theirs, **ways[name])
        ours.wait() if name == _OURS else common.synchronize(device)
        return (time.perf_counter() - start) / steps

    seconds: dict[str, list[float]] = {name: [] for name in first}
    for name in first:
        measure(name)  # a second step may still be slower, as allocators and caches fill
    for number in range(rounds):
        for name, results in seconds.items():
            results.append(measure(name))
            log(f"round {number + 1} of {rounds}, {name}: {results[-1]:.3f} s a step")

    results = {
        name: _result(times, size.batch_size, first_seconds[name])
        | {"loss_difference": difference(first[name], first[_OURS])}
        for name, times in seconds.items()
    }
    return {
        "size": size.unet.description,
        "work": f"{size.batch_size} images a step, each with a hard text; adapters of rank {LORA.rank} on"
        f" {len(adapters)} layers",
        "dtype": dtype,
        "gigaflops_a_step": round(gigaflops, 2),
        "machine": machine.describe(common.accelerator_name(device), more=("optax", "peft")),
        "load_average": [load_before, machine.load_average()],
        "rounds": rounds,
        "steps_a_round": steps,
        "devices": ours.num_devices,
        "results": results,
    }


def _check_in_float32(folder: pathlib.Path, device: str, adapters: Any, batch: Mapping[str, np.ndarray]) -> None:
    """Raises RuntimeError if the contenders' first steps differ in float32."""
    part = {name: values[:_CHECKED_ROWS] for name, values in batch.items()}
    reference = _numbers(Ours(folder, "float32", device, _CHECKED_ROWS, adapters).step(part))
    peer = TorchPeer(folder, "float32", device, adapters)
    for name, way in variants(compile=False).items():
        peer.reset()
        values = _numbers(peer.step(peer.prepare(part), **way, draws=first_draws(part)))
        check_agreement(name, values, reference)


def _result(times: Sequence[float], batch_size: int, first_seconds: float) -> dict[str, Any]:
    """A contender's figures from the seconds of a step in each round."""
    rates = [batch_size / seconds for seconds in times]
    return {
        "images_per_second": statistics.median(rates),
        "lowest_and_highest": [round(min(rates), 4), round(max(rates), 4)],
        "seconds_a_step": statistics.median(times),
        "seconds_a_step_of_each_round": [round(seconds, 4) for seconds in times],
        "compile_seconds": round(max(0.0, first_seconds - statistics.median(times)), 1),
    }


def table(figures: dict[str, Any]) -> str:
    """The figures as a Markdown table with a head that says what was measured on what."""
    slowest = min(result["images_per_second"] for result in figures["results"].values())
    lines = [
        f"{figures['size']}; {figures['work']}; {figures['dtype']}; {figures['gigaflops_a_step']} GFLOP a step.",
        common.where(figures, ("jax", "torch", "diffusers", "peft")),
        "",
        "| | images/s | lowest to highest | s a step | TFLOP/s | faster by | compiling, s | losses differ by |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, result in figures["results"].items():
        low, high = result["lowest_and_highest"]
        lines.append(
            f"| {name} | {result['images_per_second']:.3g} | {low:.3g} to {high:.3g} | {result['seconds_a_step']:.3f}"
            f" | {figures['gigaflops_a_step'] / result['seconds_a_step'] / 1e3:.3g}"
            f" | {result['images_per_second'] / slowest:.2f} x | {result['compile_seconds']:.0f}"
            f" | {result['loss_difference']:.0e} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints a table, and writes the figures."""
    parser = common.argument_parser(
        "benchmarks.hardneg", __doc__, SIZES, "the network: small, mid (the default on a CPU) or sd21 (on a GPU)"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the frozen network")
    parser.add_argument("--batch_size", type=int, help="images a step; the size's own when left out")
    parser.add_argument("--steps", type=int, default=3, help="steps of each measurement")
    parser.add_argument("--unchecked", action="store_true", help="in bfloat16, compare no first steps in float32")
    parser.add_argument("--compile", action="store_true", help="on a GPU, run torch with torch.compile as well")
    options = parser.parse_args(arguments)
    memory.keep_freed()  # as the launcher does
    device = common.start(options)
    common.check_positive(options, "steps")
    if options.compile and device == "cpu":
        # Torch 2.13's compiler for CPUs gave the toy's gradient a norm of 0.044 in place of 0.058.
        raise InputError("--compile needs --device gpu: on a CPU, torch.compile gets other gradients")
    size = SIZES[options.size or ("sd21" if device == "cuda" else "mid")]
    if options.batch_size is not None:
        common.check_positive(options, "batch_size")
        size = dataclasses.replace(size, batch_size=options.batch_size)
    figures = benchmark(
        size,
        device,
        options.dtype,
        options.rounds,
        options.steps,
        compile=options.compile,
        checked=not options.unchecked,
        log=common.log,
    )
    print(table(figures))
    result_files.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
