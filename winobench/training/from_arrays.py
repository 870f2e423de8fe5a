"""Trains the embedded model's denoiser from a folder of arrays, on a machine that has only JAX, Flax, Optax and tqdm.

python -m launch.train --config=clevr_tiny --write_arrays=arrays      # here: scenes, autoencoder, latents
python -m winobench.training.from_arrays arrays --max_minutes=60      # there; again to go on
python -m launch.train --config=clevr_tiny --state=arrays/state.npz   # here again: checkpoint and export
"""

from __future__ import annotations

import argparse
import pathlib
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from winobench import json_files
from winobench.errors import InputError
from winobench.training import clevr_tiny, loop


def batches(
    folder: str | pathlib.Path, *, batch_size: int, seed: int, empty_fraction: float, first_batch: int = 0
) -> Iterator[loop.Batch]:
    """Endless batches from the arrays of ``clevr_tiny.write_arrays``; batch n depends on (seed, n) alone.

    Args:
      folder: with ``latents.npy``, ``input_ids.npy`` and ``empty_ids.npy``.
      batch_size: examples a batch, drawn with replacement.
      seed: of the draws.
      empty_fraction: probability of the empty text.
      first_batch: number of the first batch.
    """
    folder = pathlib.Path(folder)
    latents, ids = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("latents", "input_ids"))
    empty = np.load(folder / "empty_ids.npy")
    batch = first_batch
    while True:
        generator = np.random.default_rng((seed, batch))
        rows = np.sort(generator.integers(len(latents), size=batch_size))
        chosen = ids[rows, generator.integers(ids.shape[1], size=batch_size)]
        is_empty = generator.random(batch_size) < empty_fraction
        yield {
            "latents": latents[rows].astype(np.float32),
            "input_ids": np.where(is_empty[:, None], empty, chosen).astype(np.int32),
        }
        batch += 1


def train(folder: str | pathlib.Path, *, num_steps: int | None = None, max_minutes: float | None = None) -> None:
    """Trains from ``folder`` and keeps ``state.npz`` and ``metrics.jsonl`` there; goes on from a state that is there.

    Args:
      folder: from ``clevr_tiny.write_arrays``.
      num_steps: total number of steps; the recipe's when None.
      max_minutes: stop after this time.

    Raises:
      InputError: the folder is not one of ``write_arrays``.
    """
    folder = pathlib.Path(folder)
    if not (folder / "recipe.json").exists():
        raise InputError(f"{folder} has no recipe.json: make it with launch.train --write_arrays={folder}")
    recipe = _as_attributes(json_files.read(folder / "recipe.json", "write the arrays again"))
    settings = recipe.denoiser
    if num_steps is not None:
        settings.num_steps = num_steps
    step, state = clevr_tiny.denoiser_step(recipe, recipe.vocab_size, clevr_tiny.schedule(recipe))
    kept = folder / "state.npz"
    if kept.exists():
        state = loop.load_state(state, kept)
    loop.train(
        step,
        state,
        lambda first: batches(
            folder,
            batch_size=settings.batch_size,
            seed=recipe.seed,
            empty_fraction=settings.empty_text_fraction,
            first_batch=first,
        ),
        num_steps=settings.num_steps,
        checkpoints=None,
        metrics_file=folder / "metrics.jsonl",
        name="denoiser",
        log_every=settings.log_every,
        checkpoint_every=settings.checkpoint_every,
        on_checkpoint=lambda state: loop.save_state(state, kept),
        max_seconds=None if max_minutes is None else 60.0 * max_minutes,
    )


def _as_attributes(values: Any) -> Any:
    if isinstance(values, dict):
        return types.SimpleNamespace(**{name: _as_attributes(value) for name, value in values.items()})
    return values


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="winobench.training.from_arrays"
    )
    parser.add_argument("folder", help="from launch.train --write_arrays; state.npz and metrics.jsonl are kept in it")
    parser.add_argument("--num_steps", type=int, help="total number of steps, in place of the recipe's")
    parser.add_argument("--max_minutes", type=float, help="stop after this time")
    options = parser.parse_args(arguments)
    try:
        train(options.folder, num_steps=options.num_steps, max_minutes=options.max_minutes)
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
