"""Shared parts of the benchmarks: networks, devices, and options."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import diffusers
import jax
import torch
import transformers

from winobench import parallel
from winobench.base.errors import InputError
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig


@dataclasses.dataclass(frozen=True)
class UNet:
    """A denoiser.

    Attributes:
      description: in a few words, for a table's head.
      arguments: of diffusers' UNet2DConditionModel.
    """

    description: str
    arguments: dict[str, Any]


UNETS = {
    "tiny": UNet(
        "a toy that only shows that the benchmark runs",
        {
            "sample_size": 8,
            "block_out_channels": (16, 32),
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
            "layers_per_block": 1,
            "norm_num_groups": 8,
            "attention_head_dim": 4,
            "cross_attention_dim": 16,
        },
    ),
    "mid": UNet(
        "UNet 64/128/256/256 channels, 2 layers a block, 8 heads, cross-attention width 512, 32 x 32 x 4 latents",
        {
            "sample_size": 32,
            "block_out_channels": (64, 128, 256, 256),
            "layers_per_block": 2,
            "attention_head_dim": 8,
            "cross_attention_dim": 512,
        },
    ),
    "sd21-base": UNet(
        "UNet of SD 2.1-base (866 M parameters), 64 x 64 x 4 latents",
        dataclasses.asdict(UNet2DConditionConfig.sd21_base()),
    ),
}


def argument_parser(
    module: str, description: str | None, sizes: Iterable[str], size_help: str
) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have.

    Args:
      module: the benchmark's, ``benchmarks.scorer``.
      description: its docstring.
      sizes: choices of ``--size``.
      size_help: what they are.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="where everything runs")
    parser.add_argument("--size", choices=sorted(sizes), help=size_help)
    parser.add_argument("--rounds", type=int, default=3, help="alternating measurements")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the figures, as JSON")
    return parser


def start(options: argparse.Namespace) -> str:
    """Quiets the libraries and prepares both frameworks, before either has looked for devices.

    Returns:
      Torch's name of the device, ``cpu`` or ``cuda``.

    Raises:
      InputError: there is no such device, or the options cannot be used.
    """
    for library in (diffusers.utils.logging, transformers.utils.logging):
        library.set_verbosity_error()
        library.disable_progress_bar()
    device = "cuda" if options.device == "gpu" else "cpu"
    if device == "cuda":
        if not torch.cuda.is_available():
            raise InputError(
                "--device gpu needs a torch that sees a GPU, but torch.cuda.is_available() is False",
                code="missing-package",
            )
        # Float32 means float32.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        # Two frameworks share the memory. JAX reads this when it first looks for devices.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        if jax.default_backend() != "gpu":
            raise InputError(
                "--device gpu needs a jax that sees a GPU: install winobench[cuda]", code="missing-package"
            )
    else:
        parallel.one_device_per_core()
    check_positive(options, "rounds")
    return device


def check_positive(options: argparse.Namespace, *names: str) -> None:
    """Raises InputError unless these options are at least 1."""
    for name in names:
        if getattr(options, name) < 1:
            raise InputError(f"--{name} is {getattr(options, name)}, but it must be at least 1", code="out-of-range")


def synchronize(device: str) -> None:
    """Waits until torch's device has nothing left to do."""
    if device == "cuda":
        torch.cuda.synchronize()


def accelerator_name(device: str) -> str | None:
    """Kind of GPU of torch's device. None for a CPU."""
    return torch.cuda.get_device_name() if device == "cuda" else None


def log(line: str) -> None:
    """Tells the user what is going on."""
    print(line, file=sys.stderr, flush=True)


def where(figures: Mapping[str, Any], libraries: Iterable[str]) -> str:
    """Machine on which figures were measured, in one line.

    Args:
      figures: with the entries ``machine`` and ``load_average``.
      libraries: those whose versions are named.
    """
    system = figures["machine"]
    machine = system["accelerator"] or f"{system['processor']}, {system['cores']} cores"
    versions = ", ".join(f"{name} {system['libraries'][name]}" for name in libraries)
    before, after = figures["load_average"]
    return f"{machine}; {versions}; load average {before} before, {after} after."


def run(main: Callable[[], None]) -> None:
    """Runs a benchmark from the command line: what its user can mend is told in a line."""
    try:
        main()
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
