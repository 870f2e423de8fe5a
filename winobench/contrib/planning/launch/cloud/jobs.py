"""A job for a cluster or cloud: its request, checked, and the file that starts it, rendered.

Targets differ in who starts the processes, how they find each other, and how a lost machine is replaced. The launcher
itself then resumes the run in its folder.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jinja2

import winobench
from winobench.base import options, registry, trackers
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.runs import model_settings, settings
from winobench.training import recipes

from .. import configuration, overrides
from . import accelerators, planned
from .storage import MOUNT, check_store, is_url

TARGETS = ("skypilot", "slurm")
SHARED = ("eval", "generate", "train")  # launchers whose work several processes can share

_REMOVED = {"gke": "--infra=kubernetes", "tpu_vm": "--infra=gcp --accelerator=v5litepod-8"}
_TEMPLATES = {"skypilot": "skypilot.yaml", "slurm": "slurm.sh"}
_DEFAULT_ACCELERATORS = {"skypilot": "L4:1", "slurm": "1"}
# Options of one target.
_ONLY_FOR = {
    **dict.fromkeys(("image", "store", "spot", "package", "infra"), "skypilot"),
    **dict.fromkeys(("partition", "account", "time", "array"), "slurm"),
}
_ROOT = pathlib.Path(__file__).resolve().parents[5]
_PORT = 8901
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_MAX_NAME = 40
_MOST_NODES = 100_000
_WORD = re.compile(r"[\w.,:@%+/-]+")
_SECRET = re.compile(r"[A-Z_][A-Z0-9_]*")
# As sbatch reads it: minutes, minutes:seconds, hours:minutes:seconds, and the same behind "days-" from the hours on.
_TIME = re.compile(
    r"\d{1,9}(:[0-5]?\d){0,2}|\d{1,6}-\d{1,2}(:[0-5]?\d){0,2}|infinite|unlimited", re.ASCII | re.IGNORECASE
)
_PYTHON_VERSION = "3.12"
_UV_VERSION = "0.13.9"
_SENT = "winobench_files"  # below the machines' home: files from here


@dataclasses.dataclass(frozen=True)
class Request:
    """The flags of the command line. The fields have their names."""

    target: str
    config: str
    overrides: Sequence[tuple[str, str]] = ()
    launcher: str | None = None
    name: str | None = None
    nodes: int = 1
    accelerator: str | None = None
    cpus: int | None = None
    memory: int | None = None
    plan: str | None = None
    spot: bool = False
    workdir: str | None = None
    store: str | None = None
    data_dir: str | None = None
    image: str | None = None
    package: str | None = None
    python: str | None = None
    secrets: Sequence[str] = ()
    log: str = ""
    max_restarts: int = 10
    infra: str | None = None
    partition: str | None = None
    account: str | None = None
    time: str | None = None
    array: str | None = None
    setup: str = ""


@dataclasses.dataclass(frozen=True)
class Job:
    text: str  # of the file
    suffix: str  # of the file's name
    command: Sequence[str]  # submits it. ``FILE`` means the file's path, and a command without it reads the file
    notes: Sequence[str]  # sentences on what else must be there

    @property
    def submit(self) -> str:
        """The command as one would type it."""
        text = shlex.join(self.command)
        return text if "FILE" in self.command else f"{text} FILE"


def make(request: Request) -> Job:
    _check_words(request)
    launcher = _launcher(request)
    config = configuration.load(request.config, request.overrides, launcher)
    _check_log(request, launcher)
    accelerator = accelerators.parse(request.accelerator or _DEFAULT_ACCELERATORS[request.target])
    _check_accelerator(request, accelerator)
    slice_ = accelerator if isinstance(accelerator, accelerators.Slice) else None
    gpus = accelerator if isinstance(accelerator, accelerators.Gpus) else None
    several = request.nodes > 1 or (slice_ is not None and slice_.num_hosts > 1)
    if several and (isinstance(config, settings.Asking) or _trains_alone(config)):
        raise InputError(f"one process runs --config={request.config}: take one machine with --nodes=1.")
    name = request.name or _job_name(launcher, request.config, config)
    plan = None if request.plan is None else planned.read(request.plan, config, accelerator, request.nodes)
    request = request if plan is None else _as_planned(request, plan, config)
    array = None if request.array is None else _array(request, launcher, config)
    workdir = '"${workdirs[SLURM_ARRAY_TASK_ID]}"' if array else _workdir(request, name, several)
    installs = request.python is None and request.target == "skypilot"
    checkout = str(_ROOT) if (_ROOT / "pyproject.toml").is_file() else None
    takes_checkout = installs and request.package is None and checkout is not None
    if installs and request.package is None and checkout is None:
        request = dataclasses.replace(request, package=f"winobench=={winobench.__version__}")
    processes = _processes(request, slice_) if several else None
    job = Job(
        "",
        pathlib.PurePath(_TEMPLATES[request.target]).suffix,
        _submit_command(request, name),
        [*_notes(request), *([] if plan is None else [plan.note])],
    )
    values = dataclasses.asdict(request) | {
        "array": array,
        "checkout": checkout if takes_checkout else None,
        "command": _command(request, launcher, takes_checkout, workdir, processes),
        "sent": _sent(request, takes_checkout),
        "environment": "\n".join(_environment(request, checkout)),
        "gpus": gpus,
        "install": _install(request, _extras(config, accelerator, request.log), takes_checkout),
        "launcher": launcher,
        "label": f"winobench {launcher} --config={request.config}",
        "mount": MOUNT,
        "name": name,
        "setup": shlex.quote(request.setup) if request.setup.strip() else "",
        "slice": slice_,
        "store_url": is_url(request.store),
        "store_volume": request.store is not None and not is_url(request.store),
        "submit": job.submit,
        "workdir": workdir,
    }
    text = _templates().get_template(f"{_TEMPLATES[request.target]}.jinja").render(values)
    return dataclasses.replace(job, text=text)


def _trains_alone(config: Any) -> bool:
    return hasattr(config, "recipe") and recipes.needs_one_process(config.recipe)


def _as_planned(request: Request, plan: planned.Planned, config: Any) -> Request:
    """The request with the plan's numbers wherever it has none itself."""
    changes: dict[str, object] = {}
    # Without a number, or where the launcher's own number of images does not fit.
    named, planned_size = getattr(config, "batch_size", None), plan.batch_size
    is_sampler = isinstance(config, model_settings.Sampler)
    is_less = is_sampler and isinstance(named, int) and planned_size is not None and planned_size < named
    if planned_size is not None and (named is None or is_less):
        changes["overrides"] = (*request.overrides, ("batch_size", str(planned_size)))
    if plan.accumulate is not None and plan.accumulate > config.accumulate:
        changes["overrides"] = (*request.overrides, ("accumulate", str(plan.accumulate)))
    defaults = {"memory": plan.memory, "time": plan.time}
    for field, value in defaults.items():
        if getattr(request, field) is None and _ONLY_FOR.get(field, request.target) == request.target:
            changes[field] = value
    return dataclasses.replace(request, **changes)


def _launcher(request: Request) -> str:
    launcher = request.launcher or configuration.launcher_of(request.config)
    if launcher not in SHARED:
        raise InputError(f"config {request.config!r} is for winobench {launcher}, which one process runs.")
    return launcher


def _environment(request: Request, checkout: str | None) -> list[str]:
    data_dir = request.data_dir or (f"{MOUNT}/data" if request.store else None)
    environment = [] if data_dir is None else [f"export WINOBENCH_DATA={shlex.quote(data_dir)}"]
    if request.target == "slurm" and checkout is not None:
        environment.append(f"export PYTHONPATH={shlex.quote(checkout)}${{PYTHONPATH:+:$PYTHONPATH}}")
    return environment


def _command(request: Request, launcher: str, takes_checkout: bool, workdir: str, processes: str | None) -> str:
    given = [(field, text) for field, text in request.overrides if not (request.array and field == "model")]
    return " \\\n  ".join(
        [
            f"{_python(request)} -m winobench {launcher}",
            f"--config={_config_spec(request, takes_checkout)}",
            *(shlex.quote(f"--{field}={text}") for field, text in given),
            *(['--model="${models[SLURM_ARRAY_TASK_ID]}"'] if request.array else []),
            f"--workdir={workdir}",
            *([f"--log={request.log}"] if request.log else []),
            *([] if processes is None else [processes]),
        ]
    )


def _check_words(request: Request) -> None:
    """Refuses options that no target can take, or that are for another target."""
    if request.target in _REMOVED:
        raise InputError(
            f"--target={request.target} is gone, since SkyPilot starts such machines: give --target=skypilot"
            f" {_REMOVED[request.target]}",
            code="removed-option",
        )
    if not all(map(_SECRET.fullmatch, request.secrets)):  # which may be secrets themselves, so they are not repeated
        raise InputError(
            "--secrets takes names of environment variables with commas, such as HF_TOKEN, and never their values.",
            code="secret-value",
        )
    for fault in _faults(request):
        raise InputError(fault)
    if request.store is not None:
        check_store(request.store)


def _faults(request: Request) -> Iterator[str]:
    if request.target not in TARGETS:
        yield f"--target={request.target} is not one of {', '.join(TARGETS)}."
    given = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    if request.array is not None and request.target == "skypilot":
        yield "--array is for --target=slurm: give SkyPilot one command for each model."
    if request.array is not None and request.plan is not None:
        yield "--plan is of one job for all models: leave out --plan or --array."
    for flag, target in _ONLY_FOR.items():
        if given[flag] not in (None, False) and request.target != target:
            yield f"--{flag} is not for --target={request.target}: leave it out."
    for flag, text in [*given.items(), *request.overrides]:
        # A line break would end a comment or a line of options, wherever it is quoted.
        if isinstance(text, str) and not text.isprintable():
            yield f"--{flag}={text!r} holds a character that cannot be printed: leave it out."
    if not 1 <= request.nodes <= _MOST_NODES:
        yield f"--nodes={request.nodes} is not a number of machines: it is 1 to {_MOST_NODES:,}."
    if request.name is not None and not (_NAME.fullmatch(request.name) and len(request.name) <= _MAX_NAME):
        form = f"up to {_MAX_NAME} small letters, digits and inner dashes"
        yield f"--name={request.name} is not a job's name: take {form}."
    for flag in ("infra", "partition", "account", "time"):
        if given[flag] is not None and not _WORD.fullmatch(given[flag]):
            yield f"--{flag}={given[flag]} has characters that none such has: write letters, digits and ._:-/ only."
    if request.time is not None and not _TIME.fullmatch(request.time):
        forms = "minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS, such as 12:00:00 or 1-12:00:00"
        yield f"--time={request.time} is not a time limit of Slurm: write {forms}."
    if (
        (package := request.package or "").endswith(".whl")
        and not re.match(r"/|\w+://", package)
        and not _wheel(package)
    ):
        yield f"--package={package} is not a file here: build it with python -m build, or name it from / on."
    for flag in ("workdir", "data_dir"):
        path = given[flag]
        # Under Slurm, the machines share this one's folders.
        if path is not None and (not path or (request.target != "slurm" and not path.startswith("/"))):
            yield f"--{flag}={path} is a folder on the machines: give its path from / on."


def _check_accelerator(request: Request, accelerator: accelerators.Gpus | accelerators.Slice | None) -> None:
    is_slice = isinstance(accelerator, accelerators.Slice)
    given = f"--accelerator={request.accelerator}"
    if request.target == "slurm" and is_slice:
        raise InputError(f"{given} is a TPU, which Slurm has not: take --target=skypilot.")
    if is_slice and request.nodes > 1:
        raise InputError(
            f"--nodes={request.nodes} with a TPU would be several slices: a larger --accelerator has more machines."
        )
    if isinstance(accelerator, accelerators.Gpus) and request.target == "skypilot" and not accelerator.kind:
        raise InputError(f"{given} names no kind of GPU: write H100:{accelerator.count}, for instance.")


def _check_log(request: Request, launcher: str) -> None:
    """Refuses unknown trackers, and trackers of winobench generate. Only the machines need their packages."""
    if request.log and launcher == "generate":
        raise InputError("--log is for winobench eval and train: leave it out.", code="option-of-others")
    if request.log:
        options.words(*trackers.NAMES).check("--log", request.log)


def _extras(config: Any, accelerator: accelerators.Gpus | accelerators.Slice | None, log: str) -> str:
    """The extras of our package that the job needs, such as ``[cuda,api]``."""
    extras = []
    if accelerator is not None:
        extras.append("tpu" if isinstance(accelerator, accelerators.Slice) else "cuda")
    names = f"{getattr(config, 'model', None)},{getattr(config, 'captioner', None)}".split(",")
    apis = [registry.api_of(name.strip()) for name in names]
    extras += dict.fromkeys(registry.apis()[api].extra for api in apis if api)
    by_torch = [name.strip() for name in names if registry.is_by_torch(name.strip())]
    extras += ["torch"] if by_torch or getattr(config, "backend", None) == "torch" else []
    extras += [name for name in options.comma_separated(log) if name != trackers.TENSORBOARD]
    return f"[{','.join(extras)}]" if extras else ""


# Options that names do not have at these values, since earlier versions lacked them.
_LATER = (
    ("api", configuration.plain(model_settings.ImageApi())),
    ("autoencoder_dtype", "float32"),
    ("backend", "auto"),
    ("embeddings", None),
    ("float8", False),
    ("guidance", None),
    ("negative_prompt", None),
    ("preprocessing", "squash"),
    ("scored_by", "likelihood"),
    ("shown", None),
)
_LATER_BY_LAUNCHER = {"generate": (("model_parallel", 1),)}


def _job_name(launcher: str, spec: str, config: Any) -> str:
    """A name that is the same for the same run."""
    if hasattr(config, "of_diffusion"):
        config = config.of_diffusion()  # whose values were the defaults of earlier versions
    later = (*_LATER, *_LATER_BY_LAUNCHER.get(launcher, ()))
    told = {name: value for name, value in configuration.plain(config).items() if (name, value) not in later}
    settings = json.dumps([launcher, spec, told], sort_keys=True, default=str)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
    label = spec.removesuffix(".py")
    short = re.sub(r"[^a-z0-9]+", "-", label.rsplit("/", 1)[-1].lower()).strip("-")
    return f"winobench-{short[: _MAX_NAME - len('winobench--') - len(digest)].strip('-')}-{digest}"


def _array(request: Request, launcher: str, config: Any) -> dict[str, list[str]]:
    """The models and folders of an array's tasks, as words of a shell command."""
    if launcher != "eval":
        raise InputError(f"--array is for winobench eval, not for winobench {launcher}: leave it out.")
    if getattr(config, "generator", None) and not config.images:
        raise InputError("--array would generate the same images in each task: generate them first, and give --images.")
    models = overrides.split(config.model)
    if not models:
        raise InputError("--array needs models: name them with --model=NAME,NAME.")
    if request.workdir is None and request.name is None:
        singles = [configuration.load(request.config, (*request.overrides, ("model", model))) for model in models]
        folders = ["runs/" + _job_name(launcher, request.config, single) for single in singles]
    else:
        folder = request.workdir or f"runs/{request.name}"
        folders = [os.path.join(folder, label) for label in registry.model_labels(models)]
    paths = [os.path.abspath(user_path(folder)) for folder in folders]
    return {"models": list(map(shlex.quote, models)), "workdirs": list(map(shlex.quote, paths))}


def _workdir(request: Request, name: str, several: bool) -> str:
    """The run's folder, as a word of a shell command."""
    if request.target == "slurm":
        return shlex.quote(os.path.abspath(user_path(request.workdir or f"runs/{name}")))
    if request.workdir is not None:
        return shlex.quote(request.workdir)
    if request.store is not None:
        return f"{MOUNT}/runs/{name}"
    if several or request.spot:
        why = "all machines must see" if several else "outlives a machine that is taken away"
        raise InputError(
            f"the run's folder must be one that {why}: name a store with --store=gs://BUCKET, s3://BUCKET or a volume,"
            " or a folder on one that the machines have already with --workdir."
        )
    return f'"$HOME"/winobench_runs/{name}'


def _python(request: Request) -> str:
    if request.python is not None:
        return shlex.quote(request.python)
    if request.target == "slurm":
        return shlex.quote(sys.executable)
    return '"$HOME"/winobench_env/bin/python'


def _config_spec(request: Request, takes_checkout: bool) -> str:
    """The config as the machines know it, as a word of a shell command."""
    file, name = _config_file(request), pathlib.PurePath(request.config.partition(":")[0]).name
    argument = "".join(request.config.partition(":")[1:])
    if file is None:
        return shlex.quote(request.config)
    if request.target == "slurm":
        return shlex.quote(f"{file}{argument}")
    if takes_checkout and file.is_relative_to(_ROOT):
        return shlex.quote(f"{file.relative_to(_ROOT)}{argument}")
    return f'"$HOME"/{_SENT}/{shlex.quote(name + argument)}'


def _config_file(request: Request) -> pathlib.Path | None:
    """The file that ``--config`` names; None for a config's name."""
    path = request.config.partition(":")[0]
    return pathlib.Path(os.path.abspath(path)) if path.endswith(".py") or "/" in path else None


def _sent(request: Request, takes_checkout: bool) -> dict[str, str]:
    """Files that go to the machines next to the checkout: place there -> place here."""
    if request.target == "slurm":
        return {}
    config = _config_file(request)
    if config is not None and takes_checkout and config.is_relative_to(_ROOT):
        config = None
    files = [file for file in (config, _wheel(request.package)) if file is not None]
    return {f"~/{_SENT}/{file.name}": str(file) for file in files}


def _wheel(package: str | None) -> pathlib.Path | None:
    """The wheel here that ``--package`` names; None for anything else."""
    if package is None or not package.endswith(".whl") or re.match(r"\w+://", package):
        return None
    path = pathlib.Path(os.path.abspath(user_path(package)))
    return path if path.is_file() else None


def _processes(request: Request, slice_: accelerators.Slice | None) -> str:
    """The flag by which processes find each other, as a word of a shell command."""
    if request.target == "slurm" or slice_ is not None:
        return "--processes=auto"
    return f'--processes="$(head -n 1 <<< "$SKYPILOT_NODE_IPS"):{_PORT},$SKYPILOT_NUM_NODES,$SKYPILOT_NODE_RANK"'


def _install(request: Request, extras: str, takes_checkout: bool) -> str:
    """Commands that install winobench on each machine. Empty if it is there."""
    if not takes_checkout and request.package is None:
        return ""
    wanted = [_locked(extras)] if takes_checkout else [_requirement(request.package, extras)]
    if request.python is not None:
        install = [f"{_python(request)} -m pip install --quiet {requirement}" for requirement in wanted]
        return "\n".join(["set -euo pipefail", *install])
    if takes_checkout:
        wanted.insert(0, "--require-hashes --requirement requirements.lock")
    # The machines' own Python is often too old for winobench. Uv brings one.
    environment = '"$HOME"/winobench_env'
    return "\n".join(
        [
            "set -euo pipefail",
            'export PATH="$HOME/.local/bin:$PATH"',
            f"uv --version 2> /dev/null | grep -qF 'uv {_UV_VERSION}'"
            f" || curl -LsSf https://astral.sh/uv/{_UV_VERSION}/install.sh | sh",
            f"[[ -x {environment}/bin/python ]] || uv venv --python {_PYTHON_VERSION} {environment}",
            *(f"uv pip install --quiet --python {environment}/bin/python {requirement}" for requirement in wanted),
        ]
    )


def _locked(extras: str) -> str:
    """Installs the checkout next to the versions of its lock file, which bound its extras as well."""
    return f"--constraint requirements.lock -e {shlex.quote('.' + extras)}" if extras else "--no-deps -e ."


def _requirement(package: str, extras: str) -> str:
    """The requirement of ``--package`` for pip, as a word of a shell command."""
    if (wheel := _wheel(package)) is not None:
        return f'"$HOME"/{_SENT}/{shlex.quote(wheel.name + extras)}'
    return shlex.quote(_with_extras(package, extras))


def _with_extras(package: str, extras: str) -> str:
    """A requirement with our extras, unless it names its own."""
    if not extras or "[" in package:
        return package
    if re.match(r"(git|hg|svn|bzr)\+|\w+://", package):
        return f"winobench{extras} @ {package}"
    match = re.fullmatch(r"(winobench)(\s*[=<>!~@].*)?", package)
    return f"{match[1]}{extras}{match[2] or ''}" if match is not None else f"{package}{extras}"


def _submit_command(request: Request, name: str) -> list[str]:
    if request.target == "slurm":
        return ["sbatch"]
    secrets = [word for secret in request.secrets for word in ("--secret", secret)]
    is_managed = request.store is not None or request.spot
    launch = ["jobs", "launch", "-n"] if is_managed else ["launch", "-c"]
    return ["sky", *launch, name, *secrets, "FILE"]


def _notes(request: Request) -> list[str]:
    """Sentences on requirements that cannot be checked from here."""
    notes = []
    if request.secrets:
        notes.append(f"{', '.join(request.secrets)} must be set in the environment of the command that submits")
    if request.target == "slurm":
        notes.append("all nodes must see the run's folder, this Python, and winobench, at the same paths")
    if request.package == f"winobench=={winobench.__version__}":
        notes.append(f"the machines install {request.package} from the package index: --package=FILE.whl sends a wheel")
    if request.workdir is not None and request.target != "slurm" and request.store is None:
        notes.append(f"--workdir={request.workdir} must be on a file system that all machines have mounted already")
    return notes


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["yaml"] = functools.partial(json.dumps, ensure_ascii=False)  # JSON's values are YAML's, too
    return environment
