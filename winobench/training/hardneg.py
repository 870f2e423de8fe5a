"""HardNeg-DiffusionITM: fine-tunes a diffusion model by LoRA so that it separates right pairs from nearly right ones.

Krojer et al. 2023, "Are Diffusion Models Vision-And-Language Reasoners?", section 3.2 and Table 2. The run's folder:

    <workdir>/config.json
              metrics.jsonl, tensorboard/         the numbers of training and of every validation
              checkpoints/                        the newest for going on, and the best by validation
              lora/pytorch_lora_weights.safetensors         of the best validation: for winobench eval and diffusers
              lora/last/pytorch_lora_weights.safetensors    of the newest checkpoint
    <workdir>/../.latents/                        the encoded images, which runs next to each other share
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
from flax import nnx

from winobench import checkpoints, parallel
from winobench.base import json_files, near_names, options, registry
from winobench.base.errors import InputError
from winobench.base.progress import Progress
from winobench.data import hard_negatives as negative_data
from winobench.diffusion import families, pipeline
from winobench.evaluation import choice
from winobench.runs.training_settings import HardNeg
from winobench.tasks import clevr_hardneg
from winobench.tasks.clevr_negatives import ClevrNegatives
from winobench.training import hard_negatives, hardneg_step, latent_cache, loop, tuning
from winobench.training.coco_captions import TRAINING_SETS
from winobench.training.validation import MEAN, Validation

CLEVR = "clevr"  # the training set that is rendered here. Others are prepared by ``winobench prepare``
_COCO_VALIDATION = "coco_hardneg_text,coco_hardneg_image"


def free_fields(config: HardNeg) -> tuple[str, ...]:
    is_constant = config.optimizer.schedule == "constant"
    return tuning.free_fields(is_constant, "data.data_dir", "data.cache_dir", "remat")


def default_name(config: HardNeg, spec: str, digest: str) -> str:
    is_unhinged = config.loss.threshold is None and config.loss.kind != "none"
    return tuning.folder_name(config, spec, config.loss.kind + "-unhinged" * is_unhinged, digest)


class Training(tuning.Tuning[HardNeg]):
    best_metric = MEAN
    watched = "positive_error"

    def __init__(self, config: HardNeg, workdir: pathlib.Path):
        # Cheap checks come before the model is loaded and images are encoded.
        registry.resolve(config.model)
        hardneg_step.optimizer(config.optimizer, config.num_steps or options.MAX_STEPS + 1)
        super().__init__(config, workdir)
        source = training_source(config)
        self._tasks = validation_tasks(config) if config.validate_every else []
        schedule = families.read_description(config.model, revision=config.revision, backend=families.NATIVE).schedule
        hard_negatives.timesteps_of(config.loss, schedule)
        (options.span(schedule.num_train_timesteps) | options.choice(options.ALL)).or_none().check(
            "--validation.timestep_range", config.validation.timestep_range
        )

        self._pipeline = self._load()
        self._images = self._encode(source)
        self.num_steps = self.count_steps(len(self._images.rows))
        self._adapted = hardneg_step.adapt(self._pipeline, config)
        self._frozen = parallel.place_parameters(self._adapted.frozen, self._mesh)
        self._step, optimizer = hardneg_step.make_step(
            self._pipeline, self._adapted, config, self.num_steps, self._mesh
        )
        self._state = hardneg_step.first_state(self._adapted, optimizer, config)
        self._adapted = dataclasses.replace(self._adapted, trained={}, frozen={})
        # Releases the networks as they were loaded, which are on one device.
        self._pipeline = self.model(self._state)
        self._validation = self._make_validation() if self._tasks else None

    def _load(self) -> pipeline.Pipeline:
        """The model, if there is memory for its training."""
        config = self._config
        loaded = families.load_pipeline(
            config.model,
            backend=families.NATIVE,
            dtype=config.dtype,
            encoder_dtype="float32",
            variant=config.variant,
            revision=config.revision,
            allow_pickle=config.allow_pickle,
        )
        size = loaded.check_image_size(config.image_size)
        rows = config.batch_size // (config.accumulate * self._mesh.size)
        loaded.check_denoising(loaded.latent_shape(size), rows, self._mesh.devices.flat[0])
        loaded.check_memory(size, 1, self._mesh.devices.flat[0])
        return loaded

    def _encode(self, source: negative_data.Source) -> latent_cache.LatentSet:
        settings = self._config.data
        folder = pathlib.Path(settings.cache_dir) if settings.cache_dir else latent_cache.folder_near(self._workdir)
        with Progress("encoding images", "images") as bar:
            return latent_cache.encode(
                self._pipeline,
                source,
                folder,
                image_size=self._config.image_size,
                on_start=bar.start,
                on_progress=bar.advance,
            )

    def _make_validation(self) -> Validation:
        settings = self._config.validation
        return Validation(
            self._tasks,
            data_dir=self._config.data.data_dir,
            limit=settings.limit,
            num_samples=settings.num_samples,
            seed=self._config.seed,
            timestep_range=settings.timestep_range,
            batch_size=settings.batch_size,
            image_size=self._config.image_size,
            mesh=self._mesh,
        )

    def _batches_from(self, first: int) -> Iterator[loop.Batch]:
        return negative_data.batches(
            self._images,
            lambda texts: self._pipeline.tokenize(texts, image_size=self._config.image_size),
            batch_size=self._config.batch_size,
            seed=self._config.seed,
            first_batch=first,
            part=jax.process_index(),
            num_parts=jax.process_count(),
        )

    def model(self, state: loop.TrainState) -> pipeline.Pipeline:
        """The pipeline as a state has it. Averaged where there is an average."""
        params = state.params if state.ema is None else state.ema
        networks = {
            name: nnx.merge(graphdef, *(part[name] for part in (params, self._frozen) if name in part))
            for name, graphdef in self._adapted.graphdefs.items()
        }
        return self._pipeline.replace(**networks)

    def measure(self, state: loop.TrainState) -> dict[str, float]:
        return self._validation(self.model(state))

    def export_best(self, state: loop.TrainState) -> None:
        self.export(state, self._workdir / "lora")

    def export_newest(self, state: loop.TrainState) -> None:
        self.export(state, self._workdir / "lora" / "last")

    def export(self, state: loop.TrainState, folder: pathlib.Path) -> None:
        """Writes a state's adapters as ``<folder>/pytorch_lora_weights.safetensors``, from the first process."""
        # Every process has a part in this where the adapters are spread over several.
        state = state._replace(params=jax.tree.map(parallel.fetch, state.params))
        if state.ema is not None:
            state = state._replace(ema=jax.tree.map(parallel.fetch, state.ema))
        if jax.process_index() == 0:
            model = self.model(state)
            # Without a threshold it is not one of the paper's rows.
            loss = self._config.loss
            known = loss.kind if loss.kind == "none" or loss.threshold is not None else None
            checkpoints.save_lora(
                folder, negatives=known, **{name: model.networks[name] for name in self._adapted.names}
            )

    def report(self) -> str:
        folder = self._workdir / "lora"
        lines = []
        path = self._workdir / "metrics.jsonl"
        rows = [row for _, row in json_files.read_lines(path, constants=True) if MEAN in row] if path.exists() else []
        trained = [row for row in rows if row["step"]]
        if trained:
            names = [name for name in rows[0] if name.startswith("validation/")]
            best = max(trained, key=lambda row: (row[MEAN], row["step"]))
            shown = {"untuned": rows[0]} if not rows[0]["step"] else {}
            shown |= {f"step {best['step']}, the best": best, f"step {trained[-1]['step']}, the last": trained[-1]}
            width = max(map(len, shown))
            for label, row in shown.items():
                numbers = (f"{name.removeprefix('validation/')} {100 * row[name]:.1f}%" for name in names)
                lines.append(f"{label:<{width}}  {', '.join(numbers)}")
            if not rows[0]["step"] and best[MEAN] < rows[0][MEAN]:
                lines.append("no checkpoint is better in this validation than the model was before")
        return "\n".join([*lines, f"exported {folder}: judge it with", f"  {self.evaluation_command(folder)}"])

    def evaluation_command(self, folder: pathlib.Path) -> str:
        config = self._config
        fields: dict[str, Any] = {"model": config.model, "lora": folder}
        more = {name: getattr(config, name) for name in ("variant", "revision", "image_size")}
        fields |= {name: value for name, value in more.items() if value is not None}
        if config.dtype != "float32":
            fields["dtype"] = config.dtype
        if config.allow_pickle:
            fields["allow_pickle"] = "true"
        span = config.validation.timestep_range
        if span is not None:
            fields["sampling.timestep_range"] = span if isinstance(span, str) else ",".join(map(str, span))
        return tuning.evaluation_command("gdbench", fields)


run = Training.run


def training_source(config: HardNeg) -> negative_data.Source:
    settings = config.data
    if settings.name == CLEVR:
        return ClevrNegatives(settings.num_scenes, seed=config.seed)
    if settings.name not in TRAINING_SETS:
        known = [CLEVR, *TRAINING_SETS]
        hint = near_names.did_you_mean(settings.name, known, f"choose one of {', '.join(known)}.")
        raise InputError(
            f"the training set {settings.name!r} (config.data.name) is unknown: {hint}", code="unknown-name"
        )
    return TRAINING_SETS[settings.name].load(settings.data_dir)


def validation_tasks(config: HardNeg) -> list[Any]:
    """The tasks that ``config.validation`` names, or else the training set's own."""
    names = config.validation.tasks
    own = {task.name: task for task in clevr_hardneg.validation_tasks(seed=config.seed)}
    if names is None:
        names = ",".join(own) if config.data.name == CLEVR else _COCO_VALIDATION
    chosen = options.comma_separated(names)
    return choice.choose_tasks([own.get(name, name) for name in chosen], config.data.data_dir)
