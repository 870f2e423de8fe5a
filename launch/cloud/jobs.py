"""A job for a cluster or cloud: what it needs, checked, and the file that starts it, rendered.

Every target runs the same launcher with the same config. What differs is who starts the processes, how they find each
other, and how a machine that was lost is replaced. Going on after that is the launcher's own work: the same command
with the same folder skips what is recorded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Sequence

import jinja2
import ml_collections

import winobench
from launch import configuration
from launch.cloud import accelerators, planned
from launch.cloud.storage import MOUNT, bucket_and_prefix, check_store, is_url, mount_commands
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.training import recipes

TARGETS = ("skypilot", "gke", "slurm", "tpu_vm")
LAUNCHERS = ("eval", "train")

_TEMPLATES = {"skypilot": "skypilot.yaml", "gke": "gke.yaml", "slurm": "slurm.sh", "tpu_vm": "tpu_vm.sh"}
_DEFAULT_ACCELERATORS = {"skypilot": "L4:1", "gke": "L4:1", "slurm": "1", "tpu_vm": "v5litepod-8"}
# What only some targets understand.
_ONLY_FOR = {
    "image": ("skypilot", "gke"),
    "store": ("skypilot", "gke", "tpu_vm"),
    "spot": ("skypilot", "gke", "tpu_vm"),
    "package": ("skypilot", "gke", "tpu_vm"),
    "infra": ("skypilot",),
    "project": ("gke", "tpu_vm"),
    "zone": ("gke", "tpu_vm"),
    "cluster": ("gke",),
    "namespace": ("gke",),
    "queue": ("gke",),
    "kube_secret": ("gke",),
    "service_account": ("gke",),
    "runtime": ("tpu_vm",),
    "partition": ("slurm",),
    "account": ("slurm",),
    "time": ("slurm",),
    "memory": ("skypilot", "gke", "slurm"),
}
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PORT = 8901
_DEFAULT_CLAIM = "winobench"
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_MAX_NAME = 40  # JobSet makes host names of it, which end at 63
_WORD = re.compile(r"[\w.,:@%+/-]+")
_SECRET = re.compile(r"[A-Z_][A-Z0-9_]*")
# As sbatch reads it: minutes, minutes:seconds, hours:minutes:seconds, and the same behind "days-" from the hours on.
_TIME = re.compile(
    r"\d{1,9}(:[0-5]?\d){0,2}|\d{1,6}-\d{1,2}(:[0-5]?\d){0,2}|infinite|unlimited", re.ASCII | re.IGNORECASE
)
_PYTHON_VERSION = "3.12"


@dataclasses.dataclass(frozen=True)
class Request:
    """What the command line asks for; the fields are the flags of the same names."""

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
    max_restarts: int = 10
    infra: str | None = None
    project: str | None = None
    zone: str | None = None
    cluster: str | None = None
    namespace: str | None = None
    queue: str | None = None
    kube_secret: str | None = None
    service_account: str | None = None
    runtime: str | None = None
    partition: str | None = None
    account: str | None = None
    time: str | None = None


@dataclasses.dataclass(frozen=True)
class Job:
    """A rendered job.

    Attributes:
      text: the file.
      suffix: of the file's name.
      command: what submits it; ``FILE`` stands for the file's path, and a command without it reads the file.
      notes: sentences on what else must be there.
      lacks: why it cannot be submitted as it is, or None.
    """

    text: str
    suffix: str
    command: Sequence[str]
    notes: Sequence[str]
    lacks: str | None = None

    @property
    def submit(self) -> str:
        """The command as one would type it."""
        return _submit(self.command)


def make(request: Request) -> Job:
    """Checks a request and renders its job.

    Raises:
      InputError: an unknown config, a field or value that does not fit, or something that the target cannot do.
    """
    _check_words(request)
    launcher = _launcher(request)
    config = configuration.load(request.config, request.overrides, launcher)
    accelerator = accelerators.parse(request.accelerator or _DEFAULT_ACCELERATORS[request.target])
    _check_accelerator(request, accelerator)
    slice_ = accelerator if isinstance(accelerator, accelerators.Slice) else None
    gpus = accelerator if isinstance(accelerator, accelerators.Gpus) else None
    several = request.nodes > 1 or (slice_ is not None and slice_.num_hosts > 1)
    if several and (config.kind == "ask" or config.get("recipe") in recipes.EMBEDDED):
        raise InputError(f"one process runs --config={request.config}: take one machine with --nodes=1.")
    name = request.name or _job_name(launcher, request.config, config)
    plan = None if request.plan is None else planned.read(request.plan, config, accelerator, request.nodes)
    request = request if plan is None else _as_planned(request, plan, config)
    store = request.store or (_DEFAULT_CLAIM if request.target == "gke" else None)
    workdir = _workdir(request, store, name, several)
    installs = request.python is None and (request.target in ("skypilot", "tpu_vm") or request.package is not None)
    checkout = str(_ROOT) if (_ROOT / "setup.py").is_file() else None
    if installs and request.package is None and checkout is None:
        raise InputError("this winobench is no checkout that could be copied: say what to install with --package.")
    takes_checkout = installs and request.package is None
    environment = _environment(request, store, checkout)
    processes = _processes(request, slice_, name) if several else None
    command = _command(request, launcher, installs, takes_checkout, workdir, processes)
    setup = _setup(request, store, _extras(config, accelerator), takes_checkout)
    image, lacks = _image(request)
    submit_command = _submit_command(request, name, store)
    bucket, prefix = bucket_and_prefix(store) if is_url(store) else (None, None)
    values = dataclasses.asdict(request) | {
        "bucket": bucket,
        "checkout": checkout if takes_checkout else None,
        "command": command,
        "environment": "\n".join(environment),
        "gke_gpu": gpus and accelerators.GKE_GPUS.get(gpus.kind.upper()),
        "gpus": gpus,
        "image": image,
        "kube_secret": request.kube_secret or "winobench",
        "launcher": launcher,
        "several": several,
        "label": f"launch.{launcher} --config={request.config}",
        "local_folder": store is None and request.workdir is None,
        "local_python": sys.executable,
        "mount": MOUNT,
        "name": name,
        "place": " ".join(_place(request)),
        "prefix": prefix,
        "runtime": request.runtime or (slice_ and slice_.runtime),
        "script": "\n".join([setup or "set -euo pipefail", *environment, f"exec {command}"]),
        "setup": setup,
        "slice": slice_,
        "store": store,
        "store_url": is_url(store),
        "store_volume": store is not None and not is_url(store),
        "submit": _submit(submit_command),
        "workdir": workdir,
    }
    text = _templates().get_template(f"{_TEMPLATES[request.target]}.jinja").render(values)
    suffix = pathlib.PurePath(_TEMPLATES[request.target]).suffix
    notes = _notes(request, store, image, lacks, name)
    return Job(text, suffix, submit_command, [*notes, *([] if plan is None else [plan.note])], lacks)


def _as_planned(request: Request, plan: planned.Planned, config: ml_collections.ConfigDict) -> Request:
    """The request with what the plan says wherever it says nothing itself."""
    changes: dict[str, object] = {}
    # Where nobody says how many, or the launcher's own number, as of images, does not fit.
    named, found = config.get("batch_size"), plan.batch_size
    is_less = config.kind == "draw" and isinstance(named, int) and found is not None and found < named
    if found is not None and (named is None or is_less):
        changes["overrides"] = (*request.overrides, ("batch_size", str(found)))
    if plan.accumulate is not None and plan.accumulate > config.accumulate:
        changes["overrides"] = (*request.overrides, ("accumulate", str(plan.accumulate)))
    defaults = {"memory": plan.memory, "time": plan.time}
    for field, value in defaults.items():
        if getattr(request, field) is None and request.target in _ONLY_FOR[field]:
            changes[field] = value
    return dataclasses.replace(request, **changes)


def _launcher(request: Request) -> str:
    launcher = request.launcher or configuration.launcher_of(request.config) or "eval"
    # Of what launch.generate does, images are shared among processes, and items of language models are not.
    is_shared = launcher in LAUNCHERS or configuration.load(request.config).kind == "draw"
    if not is_shared and request.launcher is None:
        raise InputError(f"config {request.config!r} is for python -m launch.{launcher}, which one process runs.")
    return launcher


def _environment(request: Request, store: str | None, checkout: str | None) -> list[str]:
    data_dir = request.data_dir or (f"{MOUNT}/data" if store else None)
    environment = [] if data_dir is None else [f"export WINOBENCH_DATA={shlex.quote(data_dir)}"]
    if request.target == "slurm" and checkout is not None:
        environment.append(f"export PYTHONPATH={shlex.quote(checkout)}${{PYTHONPATH:+:$PYTHONPATH}}")
    return environment


def _command(
    request: Request, launcher: str, installs: bool, takes_checkout: bool, workdir: str, processes: str | None
) -> str:
    return " \\\n  ".join(
        [
            f"{_python(request, installs)} -m launch.{launcher}",
            shlex.quote(f"--config={_config_spec(request, takes_checkout)}"),
            *(shlex.quote(f"--config.{field}={text}") for field, text in request.overrides),
            f"--workdir={workdir}",
            *([] if processes is None else [processes]),
        ]
    )


def _check_words(request: Request) -> None:
    """Refuses what no target can take, and options of another target than the one that is chosen."""
    if request.target not in TARGETS:
        raise InputError(f"--target={request.target} is not one of {', '.join(TARGETS)}.")
    for flag, targets in _ONLY_FOR.items():
        if getattr(request, flag) not in (None, False) and request.target not in targets:
            raise InputError(f"--{flag} is not for --target={request.target}: leave it out.")
    texts = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    texts |= {f"config.{field}": text for field, text in request.overrides}
    for flag, text in texts.items():
        # A line break would end a comment or a line of options, wherever it is quoted.
        if isinstance(text, str) and not text.isprintable():
            raise InputError(f"--{flag}={text!r} holds a character that cannot be printed: leave it out.")
    if request.nodes < 1:
        raise InputError(f"--nodes={request.nodes} is no number of machines: it is 1 or more.")
    if request.name is not None and not (_NAME.fullmatch(request.name) and len(request.name) <= _MAX_NAME):
        raise InputError(
            f"--name={request.name} is no job's name: take up to {_MAX_NAME} small letters, digits and inner dashes."
        )
    for secret in request.secrets:
        if not _SECRET.fullmatch(secret):  # which may be the secret itself, so it is not repeated
            raise InputError(
                "--secrets takes names of environment variables with commas, such as HF_TOKEN, and never their values.",
                code="secret-value",
            )
    plain = ("infra", "project", "zone", "cluster", "namespace", "queue", "kube_secret", "service_account")
    for flag in (*plain, "runtime", "partition", "account", "time"):
        text = getattr(request, flag)
        if text is not None and not _WORD.fullmatch(text):
            raise InputError(
                f"--{flag}={text} has characters that none such has: write letters, digits and ._:-/ only."
            )
    if request.time is not None and not _TIME.fullmatch(request.time):
        raise InputError(
            f"--time={request.time} is not a time limit of Slurm: write minutes, HOURS:MINUTES:SECONDS or"
            " DAYS-HOURS:MINUTES:SECONDS, such as 12:00:00 or 1-12:00:00."
        )
    if request.workdir is not None and request.target != "slurm" and not request.workdir.startswith("/"):
        raise InputError(f"--workdir={request.workdir} is a folder on the machines: give its path from / on.")
    if request.data_dir is not None and request.target != "slurm" and not request.data_dir.startswith("/"):
        raise InputError(f"--data_dir={request.data_dir} is a folder on the machines: give its path from / on.")
    if request.store is not None:
        check_store(request.target, request.store)


def _check_accelerator(request: Request, accelerator: accelerators.Gpus | accelerators.Slice | None) -> None:
    """Refuses what the target has not."""
    is_slice = isinstance(accelerator, accelerators.Slice)
    given = f"--accelerator={request.accelerator}"
    if request.target == "tpu_vm" and not is_slice:
        raise InputError(f"{given} is no TPU: --target=tpu_vm takes types such as v5litepod-16.")
    if request.target == "slurm" and is_slice:
        raise InputError(f"{given} is a TPU, which Slurm has not: take --target=gke, tpu_vm or skypilot.")
    if is_slice and request.nodes > 1 and request.target != "gke":
        raise InputError(
            f"--nodes={request.nodes} with a TPU means several slices, which only --target=gke starts: a larger"
            " --accelerator has more machines."
        )
    if isinstance(accelerator, accelerators.Gpus) and request.target in ("skypilot", "gke") and not accelerator.kind:
        raise InputError(f"{given} names no kind of GPU: write H100:{accelerator.count}, for instance.")
    is_gpus = isinstance(accelerator, accelerators.Gpus)
    if is_gpus and request.target == "gke" and accelerator.kind.upper() not in accelerators.GKE_GPUS:
        known = ", ".join(accelerators.GKE_GPUS)
        raise InputError(f"{given} is no GPU that GKE is known to have: choose one of {known}.")


def _image(request: Request) -> tuple[str | None, str | None]:
    """The container image, and why the job cannot be submitted with it."""
    if request.image is not None or request.target != "gke":
        return request.image, None
    if request.package is not None:
        return f"python:{_PYTHON_VERSION}", None
    why = (
        "--target=gke needs --image, a container image with winobench in it, or --package, what pip is to install in a"
        " plain one."
    )
    return f"winobench:{winobench.__version__}", why


def _extras(config: ml_collections.ConfigDict, accelerator: accelerators.Gpus | accelerators.Slice | None) -> str:
    """The extras of our package that the job needs, as a requirement has them."""
    extras = []
    if accelerator is not None:
        extras.append("tpu" if isinstance(accelerator, accelerators.Slice) else "cuda")
    names = f"{config.get('model')},{config.get('captioner')}".split(",")
    apis = [registry.api_of(name.strip()) for name in names]
    extras += dict.fromkeys(registry.apis()[api].extra for api in apis if api)
    return f"[{','.join(extras)}]" if extras else ""


def _job_name(launcher: str, spec: str, config: ml_collections.ConfigDict) -> str:
    """A name that is the same for the same run, and another one for another."""
    settings = json.dumps([launcher, spec, configuration.plain(config)], sort_keys=True, default=str)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
    label = spec.removesuffix(".py")
    short = re.sub(r"[^a-z0-9]+", "-", label.rsplit("/", 1)[-1].lower()).strip("-")
    return f"winobench-{short[: _MAX_NAME - len('winobench--') - len(digest)].strip('-')}-{digest}"


def _workdir(request: Request, store: str | None, name: str, several: bool) -> str:
    """The run's folder, as a word of a shell command."""
    if request.target == "slurm":
        return shlex.quote(os.path.abspath(user_path(request.workdir or f"runs/{name}")))
    if request.workdir is not None:
        return shlex.quote(request.workdir)
    if store is not None:
        return f"{MOUNT}/runs/{name}"
    if several or request.spot:
        why = "all machines must see" if several else "outlives a machine that is taken away"
        kinds = "gs://BUCKET or HOST:/PATH" if request.target == "tpu_vm" else "gs://BUCKET, s3://BUCKET or a volume"
        raise InputError(
            f"the run's folder must be one that {why}: name a store with --store={kinds}, or a folder on one that the"
            " machines have already with --workdir."
        )
    return f'"$HOME"/winobench_runs/{name}'


def _python(request: Request, installs: bool) -> str:
    if request.python is not None:
        return shlex.quote(request.python)
    if request.target == "slurm":
        return shlex.quote(sys.executable)
    return "python" if request.target == "gke" or not installs else '"$HOME"/winobench_env/bin/python'


def _config_spec(request: Request, takes_checkout: bool) -> str:
    """The config as the machines know it."""
    path, colon, argument = request.config.partition(":")
    if not (path.endswith(".py") or "/" in path):
        return request.config
    absolute = os.path.abspath(path)
    if request.target == "slurm":
        return f"{absolute}{colon}{argument}"
    if request.target == "skypilot" and takes_checkout and pathlib.Path(absolute).is_relative_to(_ROOT):
        return f"{pathlib.Path(absolute).relative_to(_ROOT)}{colon}{argument}"
    raise InputError(f"--config={path} is not on the machines: put the file into configs/, and give its name.")


def _processes(request: Request, slice_: accelerators.Slice | None, name: str) -> str:
    """How the processes find each other, as a word of a shell command."""
    if request.target == "slurm" or slice_ is not None:
        return "--processes=auto"
    if request.target == "skypilot":
        return f'--processes="$(head -n 1 <<< "$SKYPILOT_NODE_IPS"):{_PORT},$SKYPILOT_NUM_NODES,$SKYPILOT_NODE_RANK"'
    # JAX would ask the cluster's API, which needs rights that a pod's account has not by default.
    return f'--processes="{name}-workers-0-0.{name}:{_PORT},{request.nodes},$JOB_COMPLETION_INDEX"'


def _setup(request: Request, store: str | None, extras: str, takes_checkout: bool) -> str:
    """What each machine does ahead of the command; nothing where all is there."""
    mount = mount_commands(store) if request.target == "tpu_vm" and store is not None else []
    install: list[str] = []
    if takes_checkout and request.target == "tpu_vm":
        install = _install(request, f'"$(echo "$HOME"/winobench-*.whl)"{extras and shlex.quote(extras)}')
    elif takes_checkout:
        install = _install(request, f"-e {shlex.quote('.' + extras)}")
    elif request.package is not None:
        install = _install(request, shlex.quote(_with_extras(request.package, extras)))
    return "\n".join(["set -euo pipefail", *mount, *install] if mount or install else [])


def _install(request: Request, wanted: str) -> list[str]:
    """Commands that install a requirement, which is a word of a shell command."""
    if request.python is not None or request.target == "gke":
        return [f"{_python(request, False)} -m pip install --quiet {wanted}"]
    # The machines' own Python is often older than what winobench needs. Uv brings one.
    return [
        'export PATH="$HOME/.local/bin:$PATH"',
        "command -v uv > /dev/null || curl -LsSf https://astral.sh/uv/install.sh | sh",
        f'[[ -x "$HOME"/winobench_env/bin/python ]] || uv venv --python {_PYTHON_VERSION} "$HOME"/winobench_env',
        f'uv pip install --quiet --python "$HOME"/winobench_env/bin/python {wanted}',
    ]


def _with_extras(package: str, extras: str) -> str:
    """A requirement with our extras, unless it names its own."""
    if not extras or "[" in package:
        return package
    if re.match(r"(git|hg|svn|bzr)\+|\w+://", package):
        return f"winobench{extras} @ {package}"
    match = re.fullmatch(r"(winobench)(\s*[=<>!~@].*)?", package)
    return f"{match[1]}{extras}{match[2] or ''}" if match is not None else f"{package}{extras}"


def _place(request: Request) -> list[str]:
    return [f"--{flag}={value}" for flag in ("project", "zone") if (value := getattr(request, flag))]


def _submit_command(request: Request, name: str, store: str | None) -> list[str]:
    if request.target == "slurm":
        return ["sbatch"]
    if request.target == "tpu_vm":
        return ["bash", "FILE"]
    if request.target == "gke":
        parts = (request.project, request.zone, request.cluster)
        # The name that `gcloud container clusters get-credentials` gives a context.
        context = [f"--context=gke_{'_'.join(parts)}"] if all(parts) else []
        return ["kubectl", *context, "apply", "-f", "-"]
    secrets = [word for secret in request.secrets for word in ("--secret", secret)]
    if store is not None or request.spot:
        return ["sky", "jobs", "launch", "-n", name, *secrets, "FILE"]
    return ["sky", "launch", "-c", name, *secrets, "FILE"]


def _submit(command: Sequence[str]) -> str:
    text = shlex.join(command)
    return text if "FILE" in command or command[-1] == "-" else f"{text} FILE"


def _notes(request: Request, store: str | None, image: str | None, lacks: str | None, name: str) -> list[str]:
    """What must be there that we cannot see from here."""
    notes = []
    if lacks is not None:
        notes.append(f"no --image and no --package is given: {image} stands for an image with winobench in it")
    if request.target == "gke" and not is_url(store):
        notes.append(f"the cluster must have JobSet, and the volume claim {store}, which all pods can write at once")
    elif request.target == "gke":
        notes.append("the cluster must have JobSet and the Cloud Storage FUSE driver, and the pods' account the bucket")
    context = (request.project, request.zone, request.cluster)
    if request.target == "gke" and any(context) and not all(context):
        notes.append("kubectl's present context is used: --project, --zone and --cluster together name another")
    if request.secrets and request.target == "gke":
        keys = " ".join(f'--from-literal={secret}="${secret}"' for secret in request.secrets)
        made = f"kubectl create secret generic {request.kube_secret or 'winobench'} {keys}"
        notes.append(f"the secret must be there: {made}")
    if request.secrets and request.target == "tpu_vm":
        notes.append(f"Secret Manager must have {', '.join(request.secrets)}, readable by the TPU VM's account")
    if request.secrets and request.target in ("skypilot", "slurm"):
        notes.append(f"{', '.join(request.secrets)} must be set in the environment of the command that submits")
    if request.target == "slurm":
        notes.append("all nodes must see the run's folder, this Python, and winobench, at the same paths")
    if request.workdir is not None and request.target != "slurm" and store is None:
        notes.append(f"--workdir={request.workdir} must be on a file system that all machines have mounted already")
    return notes


def _yaml(value: object) -> str:
    """A value as YAML has it; JSON's strings are YAML's, too."""
    return json.dumps(value, ensure_ascii=False)


def _kubernetes(text: str) -> str:
    """Keeps Kubernetes from replacing ``$(NAME)`` in a container's command, where ``$$`` stands for ``$``."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("launch.cloud", "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(yaml=_yaml, shell=shlex.quote, kubernetes=_kubernetes)
    return environment
