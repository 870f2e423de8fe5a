"""Write a job for a cluster or a cloud, and submit it: winobench cloud --target=slurm --config=gdbench"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from absl import flags

from winobench.base.errors import InputError

from .. import configuration
from . import jobs

DEFAULT_CONFIG = "gdbench"

USAGE = """
Writes the job file that runs winobench eval, generate or train on a cluster or in a cloud, and submits it.
With --dry_run it is only printed, for you to read, change, or submit yourself.

  winobench cloud --target=skypilot --config=gdbench --dry_run          a SkyPilot task, for any cloud
  winobench cloud --target=slurm --config=gdbench --dry_run             a script for sbatch

Four machines of eight GPUs that share one run, on machines that may be taken away:

  winobench cloud --target=skypilot --nodes=4 --accelerator=H100:8 --spot --store=gs://my-bucket \\
    --config=gdbench:table1 --model=sd21-base --dtype=bfloat16 --secrets=HF_TOKEN
  winobench cloud --target=slurm --nodes=4 --accelerator=h100:8 --workdir=/shared/runs/sd21 --time=12:00:00 \\
    --config=gdbench:table1 --model=sd21-base

Three models at once under Slurm, each in a task of one job array, after two commands of the cluster:

  winobench cloud --target=slurm --array=models --setup='module load cuda; conda activate wino' --python=python \\
    --config=gdbench:table1 --model=sd15,sd21-base,sdxl

The machines of a TPU slice, and a cluster of Kubernetes:

  winobench cloud --target=skypilot --accelerator=v5litepod-64 --infra=gcp --store=gs://my-bucket \\
    --config=gdbench:table1 --model=sd21-base
  winobench cloud --target=skypilot --accelerator=H100:8 --infra=kubernetes --store=my-volume \\
    --config=gdbench:table1 --model=sd21-base

The config and its fields are checked here and passed on. `winobench eval --config=NAME --help` lists
them. The config's kind chooses the launcher: winobench eval, winobench generate or winobench train.

The run's folder: all processes of a run write into one folder, so it must be one that they all see. --store names what
is mounted as /mnt/winobench on each machine: a bucket or a volume. The run's folder and the prepared data
(winobench prepare --data_dir) are in it. Under Slurm the folder is one of the cluster's shared file system.

`winobench plan --output=plan.json` with the same config estimates the job's resources. With --plan=plan.json the
job has the plan's passes at once, memory and (Slurm) time limit wherever you name none.

Lost machines: every target starts the job again, and the same command with the same folder resumes the run. Nothing is
scored twice.

Secrets: --secrets takes names of environment variables (HF_TOKEN, OPENAI_API_KEY), never values. SkyPilot and Slurm
take the values from your environment.
"""

_TARGET = flags.DEFINE_string("target", None, "Where to run: skypilot or slurm.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the job file, and submit nothing.")
_SECRETS = flags.DEFINE_list("secrets", [], "Names of environment variables that the job needs, with commas.")
flags.DEFINE_string("log", "", "Experiment trackers of eval and train, with commas: wandb, for instance.")
flags.DEFINE_enum("launcher", None, jobs.SHARED, "The program: eval, generate or train. The config's own by default.")
flags.DEFINE_string("name", None, "The job's name, winobench-<config>-<hash> by default.")
flags.DEFINE_integer("nodes", 1, "Machines, with one process each. A TPU slice has its own number.")
flags.DEFINE_string(
    "accelerator", None, "Of each machine: L4:1, H100:8, none. Or a TPU slice such as v5litepod-16. Slurm: 8, h100:8."
)
flags.DEFINE_integer("cpus", None, "CPU cores of each machine.", lower_bound=1)
flags.DEFINE_integer("memory", None, "GB of memory of each machine. By the plan, if there is one.", lower_bound=1)
flags.DEFINE_string(
    "plan", None, "The file of winobench plan --output for this config: gives passes at once, memory and time limit."
)
flags.DEFINE_bool("spot", False, "Cheaper machines that may be taken away.")
flags.DEFINE_string("store", None, "What all machines mount: gs://BUCKET, s3://BUCKET, or a SkyPilot volume.")
flags.DEFINE_string("workdir", None, "The run's folder as the machines see it. One in the store's runs/ by default.")
flags.DEFINE_string("data_dir", None, "Prepared data as the machines see them. The store's data/ by default.")
flags.DEFINE_string("image", None, "Container image of the machines.")
flags.DEFINE_string(
    "package",
    None,
    "What pip installs on the machines, such as git+https://... or a wheel from here. By default this checkout or,"
    " where winobench is installed, the same version from the package index.",
)
flags.DEFINE_string(
    "python", None, "A Python on the machines that has winobench. Under Slurm this one, else one that is set up there."
)
flags.DEFINE_integer("max_restarts", 10, "How often the job is started again.", lower_bound=0)
flags.DEFINE_string("infra", None, "SkyPilot: where to look for machines, such as gcp, aws/us-east-1 or kubernetes.")
flags.DEFINE_string("partition", None, "Slurm: the partition.")
flags.DEFINE_string("account", None, "Slurm: the account.")
flags.DEFINE_string("time", None, "Slurm: the time limit, after which the job queues again and continues.")
flags.DEFINE_enum(
    "array",
    None,
    ["models"],
    "Slurm: a job array. Each of its tasks evaluates one model of --model. Without it, one job evaluates all.",
)
flags.DEFINE_string("setup", "", "Shell commands ahead of the program: 'module load cuda; conda activate NAME'.")

_TOOLS = {
    "sky": "pip install 'skypilot[gcp]', or with another cloud's name",
    "sbatch": "log in to the cluster",
}


def main(overrides: Sequence[tuple[str, str]]) -> None:
    given = flags.FLAGS
    if _TARGET.value is None:
        raise InputError(
            f"no target is named: give --target=NAME with one of {', '.join(jobs.TARGETS)}.", code="nothing-named"
        )
    names = {field.name for field in dataclasses.fields(jobs.Request)} & set(given)
    options = {name: given[name].value for name in names - {"config"}}
    options["secrets"] = tuple(_SECRETS.value)
    job = jobs.make(jobs.Request(config=given.config or DEFAULT_CONFIG, overrides=tuple(overrides), **options))
    if _DRY_RUN.value:
        print(job.text, end="")
        _print_notes([*job.notes, f"nothing is submitted. With this in FILE: {job.submit}"])
        return
    missing = [name for name in _SECRETS.value if not os.environ.get(name)]
    if missing:
        raise InputError(f"{missing[0]} is not in the environment, or is empty: set it, or take it out of --secrets.")
    tool = job.command[0]
    if shutil.which(tool) is None:
        raise InputError(
            f"{tool} is not here: {_TOOLS[tool]}. Or print the job with --dry_run and submit it elsewhere."
        )
    print(job.text, end="")
    _print_notes([*job.notes, f"running: {job.submit}"])
    sys.stdout.flush()
    sys.exit(_submit(job))


def _submit(job: jobs.Job) -> int:
    """Calls the target's tool with the job. Returns its exit status."""
    if "FILE" not in job.command:
        return subprocess.run(job.command, input=job.text, text=True).returncode
    with tempfile.TemporaryDirectory(prefix="winobench-job-") as folder:
        path = os.path.join(folder, f"job{job.suffix}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(job.text)
        return subprocess.run([path if word == "FILE" else word for word in job.command]).returncode


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


if __name__ == "__main__":
    configuration.start_passing_on(main, default=DEFAULT_CONFIG, usage=USAGE)
