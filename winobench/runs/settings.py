"""Options of evaluations, each declared once: usual value, range, help, when it applies, and whether it is recorded.

Configs, ``--help``, the checks of the command line and of calls, the recorded identity and the JSON Schema of
``config.json`` are made from these fields. A new option is one field here, and its use.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NotRequired

from winobench.base import near_names, options
from winobench.base.errors import InputError
from winobench.base.options import option
from winobench.metrics import normalization, sample_mean, sequential, timestep_weights

MODES = ("fixed", "race")
"""How samples are spent: all pairs on all of them, or each pair only until its question is decided."""

# Cases that an option may be for, and why others do not have it.
SAMPLES, DIFFUSION, (FIXED, RACE) = "samples", "diffusion", MODES
LIKELIHOOD, NORMALIZED = "likelihood", "normalized"
_WITHOUT = {
    SAMPLES: "a scorer without samples of noise",
    DIFFUSION: "a scorer that is not a diffusion model",
    LIKELIHOOD: "a scorer that is not a likelihood of image tokens",
    NORMALIZED: "a scorer whose scores are used as they are",
    FIXED: "a race, which decides by plain means",
    RACE: "a fixed number of samples",
}
CASES = tuple(_WITHOUT)
"""Everything that an option may be for."""


def _read_weights(given: Any) -> Any:
    return timestep_weights.described(timestep_weights.parse(given))


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How noise and timesteps are sampled, and how their errors are averaged.

    Attributes:
      num_samples: noise and timestep samples a pair, in a race at most; None for as many as timesteps are listed, or
        else for `winobench.scorers.samples.DEFAULT_NUM_SAMPLES`.
      num_bias_samples: the same for tasks of social bias (paper, footnote 6).
      seed: of the samples, and of permutations and resamples.
      timesteps: ``uniform``, ``low_discrepancy``, ``antithetic``, ``stratified``, ``even``, ``published``, or the
        timesteps themselves, for all tasks; ``uniform`` when None. A race also knows ``importance``, its default:
        timesteps where candidates differ, learned from a pilot (`winobench.evaluation.importance`).
        ``antithetic_importance`` is the same for a fixed number of samples, two of which have opposite noise.
      timestep_weights: how much each timestep counts: ``uniform``, a rule for noise levels, or a file of
        learned weights (`winobench.metrics.timestep_weights`). Errors are recorded without them.
      reduce_dtype: each error is rounded to it before the mean over samples; ``float16`` does as the published code,
        which makes ties (docs/explanation/ties.md). Recorded errors are not rounded.
      mode: ``fixed`` scores every pair on every sample; ``race`` only until its question is decided, as
        `winobench.evaluation.race` says. Tasks of bias and ratings have nothing to decide, and take all of theirs.
      alpha: of a race: how often a question may be decided otherwise than by all samples, at most, if ``rare_share``
        is right.
      rare_share: of a race: the smallest share of the samples that may hold all that speaks for a candidate. No single
        sample is taken to hold more than 1 / (rare_share * num_samples) of it. What is smaller assumes less and takes
        more samples (docs/explanation/race.md).
    """

    num_samples: int | None = option(
        None, options.NUM_SAMPLES, "pairs of noise and timestep that each image-text pair is judged on"
    )
    num_bias_samples: int = option(20, options.NUM_SAMPLES, "the same for tasks of social bias")
    seed: int = option(0, options.SEED, "random seed for noise and timesteps", outside=True)
    timesteps: str | Sequence[int] | Sequence[float] | None = option(
        None,
        options.TIMESTEPS.or_none(),
        "uniform, low_discrepancy, antithetic, stratified, even, published, or timesteps with commas, one a sample."
        " Those where candidates differ: importance in a race, and antithetic_importance without. None for uniform, and"
        " for importance in a race",
        read=options.read_timesteps,
    )
    timestep_weights: str | os.PathLike[str] | Mapping[str, Any] = option(
        timestep_weights.UNIFORM,
        options.PATH,
        "how much timesteps count: uniform, sigma_sqrt, cosmap, logit_normal, or a file that"
        " winobench report --fit_timesteps wrote",
        read=_read_weights,
        only_for=(SAMPLES, FIXED),
        unless_default=True,
    )
    reduce_dtype: str = option(
        sample_mean.DTYPES[0],
        sample_mean.choice(),
        "what each error is rounded to before the mean. Float16 does as the published code (docs/explanation/ties.md)",
        outside=True,
        only_for=(SAMPLES, FIXED),
        unless_default=True,
    )
    mode: str = option(
        FIXED,
        options.choice(*MODES),
        "fixed, or race: more samples until a question is decided, num_samples at most",
        only_for=(SAMPLES,),
        unless_default=True,
        code="unknown-name",
    )
    alpha: float = option(
        0.01,
        options.ALPHA,
        "race: largest share of questions that may be decided differently than with all samples",
        only_for=(RACE,),
        ignored=True,
    )
    rare_share: float = option(
        sequential.SHARE,
        options.RARE_SHARE,
        "race: smallest share of the samples that may hold all evidence for a candidate",
        only_for=(RACE,),
        ignored=True,
    )


@dataclasses.dataclass(frozen=True)
class Data:
    """The data of the tasks.

    Attributes:
      data_dir: where the tasks find prepared data. See `winobench.data.prepared.default_data_dir`.
      limit: scenes or items a task, as the task counts them; None means all.
    """

    data_dir: str | None = option(
        None,
        options.PATH.or_none(),
        "where winobench prepare has put the data. None for $WINOBENCH_DATA or ~/winobench_data",
        recorded=False,
    )
    limit: int | None = option(
        None, options.LIMIT, "scenes or items a task, or images of each group for bias. None for all"
    )


@dataclasses.dataclass(frozen=True)
class Scoring(Data):
    """How images are scored against texts.

    Attributes:
      normalize: ``auto``, or a name in `winobench.metrics.normalization.NORMALIZATIONS`.
    """

    normalize: str = option(
        normalization.AUTO,
        normalization.choice(),
        "auto, unconditional (less the error under the empty text), gray_image, or none",
        only_for=(NORMALIZED,),
        usual=(normalization.AUTO, "none"),
        read=lambda given: normalization.choice().check("normalize", given),  # of those that there are now
    )


@dataclasses.dataclass(frozen=True)
class Asking(Data):
    """How questions are put to a language model.

    Attributes:
      protocol: a name in each task's ``protocols``; None for the first of each task that the responder can answer, of
        those about images where there are images.
    """

    protocol: str | None = option(
        None,
        options.text(4_096).or_none(),
        "names with commas (--list_tasks), all the model can answer, or none for the task's first such one",
        recorded=False,
    )


@dataclasses.dataclass(frozen=True)
class Recording:
    """How a run is recorded and shown, which changes no number.

    Attributes:
      overwrite: delete the records of another run in the folder instead of refusing it.
      reuse: look for errors and answers in the folders next to the run's.
      progress: show how much is done, how fast, and the time left.
      name: begins the default folder's name.
      model: what reports call the scorer or responder.
      config: recorded in the results as it is, instead of the arguments.
      label: what reports and the viewer call the run. By default its model, and the options in which runs differ. The
        same call with another label resumes the same run, which then has that label.
      log: experiment trackers that get progress and results: ``tensorboard``, ``wandb`` or ``trackio``, several with
        commas or in a list. A tracker that fails costs a warning.
    """

    overwrite: bool = False
    reuse: bool = True
    progress: bool = True
    name: str = "evaluation"
    model: str | None = None
    config: Mapping[str, Any] | None = None
    label: str | None = None
    log: str | Sequence[str] = ()


_PARTS = {Sampling: "sampling", Scoring: "settings", Asking: "settings", Recording: "recording"}
"""Class -> argument of a call that takes its options."""


def with_options(given: Mapping[str, Any], parts: Mapping[type, Any]) -> list[Any]:
    """Dataclasses of options with some of their fields replaced. Raises InputError for anything else in their place."""
    for kind, part in parts.items():
        options.instance(f"a winobench.{kind.__name__}", kind).check(_PARTS[kind], part, "wrong-type")
    owner = {field.name: kind for kind, part in parts.items() for field in dataclasses.fields(part)}
    for name in given:
        if name not in owner:
            hint = near_names.did_you_mean(name, owner, f"choose of {', '.join(owner)}.")
            raise InputError(f"{options.quote(name)} is not an option of this call: {hint}", code="unknown-field")
    return [
        dataclasses.replace(part, **{name: value for name, value in given.items() if owner[name] is kind})
        for kind, part in parts.items()
    ]


def checked(settings: Any) -> Any:
    """A dataclass of options with every recorded value as it is used. Raises InputError for one that is not allowed."""
    fields = {name: field for name, field in options.declared(settings).items() if field.metadata.get("recorded", True)}
    values = {name: options.checked(field, name, getattr(settings, name)) for name, field in fields.items()}
    return dataclasses.replace(settings, **values)


def check_cases(
    fields: Mapping[str, dataclasses.Field], values: Mapping[str, Any], cases: Collection[str], prefix: str = ""
) -> None:
    """Refuses options that these cases do not have."""
    for name, case in options.out_of_place(fields, values, cases):
        raise InputError(
            f"{prefix}{name}={options.quote(values[name])} is not for {_WITHOUT[case]}: leave it at"
            f" {fields[name].default}",
            code="option-of-others",
        )


def described(settings: Any, cases: Collection[str] = (SAMPLES, FIXED)) -> dict[str, Any]:
    """The options that can change a number, as a run's identity has them: usual ones may be left out."""
    recorded = {}
    for name, field in options.declared(settings).items():
        about, value = field.metadata, getattr(settings, name)
        is_usual = about.get("unless_default") and value == field.default
        has_no_part = about.get("ignored") and not set(about["only_for"]) <= set(cases)
        if about.get("recorded", True) and not is_usual and not has_no_part:
            recorded[name] = value
    return recorded


def recorded_types(settings: type) -> dict[str, Any]:
    """Name -> type in ``config.json`` of what `described` gives, for `winobench.runs.schema`."""
    ranges = {
        name: field.metadata["range"]
        for name, field in options.declared(settings).items()
        if field.metadata.get("recorded", True)
    }
    return {name: NotRequired[one.kind | None if one.optional else one.kind] for name, one in ranges.items()}
