"""Trains a model: python -m launch.train --config=clevr_tiny"""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING

from absl import flags

from launch import configuration
from winobench import registry
from winobench.errors import InputError

if TYPE_CHECKING:
    import ml_collections

DEFAULT_CONFIG = "clevr_tiny"

USAGE = """
Trains a model and exports it as a diffusers folder. A run that was stopped goes on when the same command is given.

  python -m launch.train --config=clevr_tiny                      the embedded model, from nothing
  python -m launch.train --config=clevr_tiny:debug                every stage in a few minutes
  python -m launch.train --config=clevr_tiny --config.denoiser.num_steps=20000
  python -m launch.train --config=clevr_tiny --max_minutes=60     stop after an hour, with a checkpoint and an export

The denoiser can be trained on another machine that has only JAX, Flax, Optax and tqdm:

  python -m launch.train --config=clevr_tiny --write_arrays=arrays    here; take the folder there
  python -m winobench.training.from_arrays arrays --max_minutes=60    there; bring the folder back
  python -m launch.train --config=clevr_tiny --state=arrays/state.npz here; trains what is left and exports
"""

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder; runs/train-<config> by default.")
_MAX_MINUTES = flags.DEFINE_float("max_minutes", None, "Stop training the denoiser after this time.", lower_bound=0.0)
_WRITE_ARRAYS = flags.DEFINE_string(
    "write_arrays", None, "Write what the denoiser learns from into this folder, and stop."
)
_STATE = flags.DEFINE_string("state", None, "Go on from this state.npz, which was trained from such a folder.")


def main(config: ml_collections.ConfigDict) -> None:
    """Runs the stages of the recipe that are not finished yet."""
    from winobench.training import clevr_tiny

    spec = flags.FLAGS.config or DEFAULT_CONFIG
    workdir = pathlib.Path(_WORKDIR.value or f"runs/train-{spec.replace(':', '-')}")
    keep_config(config, workdir)
    if _WRITE_ARRAYS.value:
        clevr_tiny.write_arrays(config, workdir, _WRITE_ARRAYS.value)
        print(f"wrote {_WRITE_ARRAYS.value}: train with python -m winobench.training.from_arrays {_WRITE_ARRAYS.value}")
        return
    if _STATE.value:
        clevr_tiny.read_state(config, workdir, _STATE.value)
    minutes = _MAX_MINUTES.value
    clevr_tiny.run(config, workdir, max_seconds=None if minutes is None else 60.0 * minutes)
    folder = workdir / "clevr_tiny"
    first, end = registry.timestep_range("clevr-tiny")
    print(
        f"exported {folder}: judge it with python -m launch.eval --config=gdbench --config.model={folder}"
        f" --config.sampling.timestep_range={first},{end}"
    )


def keep_config(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> None:
    """Writes the run's config, or checks that the run in ``workdir`` is this one.

    The length of the denoiser's training may change from call to call: that is how a run is prolonged.

    Raises:
      InputError: the folder holds a run with other settings.
    """
    path = workdir / "config.json"
    values = configuration.plain(config)
    if path.exists():
        old, new = (_fixed(flat) for flat in (json.loads(path.read_text()), json.loads(json.dumps(values))))
        differing = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        if differing:
            raise InputError(
                f"{workdir} holds a run with another {', '.join(differing)}: give its settings or another --workdir"
            )
    workdir.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(values, indent=2) + "\n")
    temporary.rename(path)


_FREE = ("denoiser.num_steps", "denoiser.decay_steps", "denoiser.checkpoint_every", "denoiser.log_every")


def _fixed(values: dict, prefix: str = "") -> dict[str, object]:
    flat = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _fixed(value, f"{prefix}{name}.")
        elif prefix + name not in _FREE:
            flat[prefix + name] = value
    return flat


if __name__ == "__main__":
    configuration.start(main, launcher="train", default=DEFAULT_CONFIG, usage=USAGE)
