"""Starts a launcher on a cluster or in a cloud: python -m launch.cloud --target=slurm --config=gdbench"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from absl import flags

from launch import configuration
from launch.cloud import jobs
from winobench.base.errors import InputError

USAGE = """
Writes the job file that runs launch.eval or launch.train on a cluster or in a cloud, and submits it. With --dry_run it
is only printed, for you to read, change, or submit yourself.

  python -m launch.cloud --target=skypilot --config=gdbench --dry_run          a SkyPilot task, for any cloud
  python -m launch.cloud --target=gke --config=gdbench --dry_run               a JobSet for Google Kubernetes Engine
  python -m launch.cloud --target=slurm --config=gdbench --dry_run             a script for sbatch
  python -m launch.cloud --target=tpu_vm --config=gdbench --dry_run            a script of gcloud commands

Four machines of eight GPUs that share one run, on machines that may be taken away:

  python -m launch.cloud --target=skypilot --nodes=4 --accelerator=H100:8 --spot --store=gs://my-bucket \\
    --config=gdbench:table1 --config.model=sd21-base --config.dtype=bfloat16 --secrets=HF_TOKEN
  python -m launch.cloud --target=slurm --nodes=4 --accelerator=h100:8 --workdir=/shared/runs/sd21 --time=12:00:00 \\
    --config=gdbench:table1 --config.model=sd21-base
  python -m launch.cloud --target=gke --nodes=4 --accelerator=H100:8 --image=REGISTRY/winobench --store=my-claim \\
    --queue=my-queue --config=gdbench:table1 --config.model=sd21-base
  python -m launch.cloud --target=tpu_vm --accelerator=v5litepod-64 --zone=us-west4-a --store=gs://my-bucket \\
    --config=gdbench:table1 --config.model=sd21-base

The config and its --config.* fields are checked here and passed on; what a config has is told by
`python -m launch.eval --config=NAME --help`. A config for launch.train is run by launch.train.

The run's folder: all processes of a run write into one folder, so it must be one that they all see. --store names what
is mounted as /mnt/winobench on each machine: a bucket, a volume, or an NFS export; the run's folder and the prepared
data (launch.prepare --data_dir) are in it. Under Slurm the folder is one of the cluster's shared file system.

What it takes: `python -m launch.plan --output=plan.json` with the same config says so ahead, from the compilers; with
--plan=plan.json the job has the plan's passes at once, memory and (Slurm) time limit wherever you name none.

Machines that are lost: every target starts the job again, and the same command with the same folder goes on where the
records end. Nothing is scored twice.

Secrets: --secrets takes names of environment variables (HF_TOKEN, OPENAI_API_KEY), never values. SkyPilot and Slurm
take the values from your environment, GKE from a Kubernetes secret, TPU VMs from Secret Manager.
"""

_TARGET = flags.DEFINE_enum("target", None, jobs.TARGETS, "Where to run: skypilot, gke, slurm or tpu_vm.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the job file, and submit nothing.")
_SECRETS = flags.DEFINE_list("secrets", [], "Names of environment variables that the job needs, with commas.")
flags.DEFINE_enum("launcher", None, jobs.LAUNCHERS, "What to run: eval or train; by default what the config is for.")
flags.DEFINE_string("name", None, "The job's name; winobench-<config>-<hash> by default.")
flags.DEFINE_integer("nodes", 1, "Machines, with one process each; with TPUs on GKE, slices.")
flags.DEFINE_string(
    "accelerator", None, "Of each machine: L4:1, H100:8, none; or a TPU slice such as v5litepod-16. Slurm: 8, h100:8."
)
flags.DEFINE_integer("cpus", None, "CPU cores of each machine.", lower_bound=1)
flags.DEFINE_integer("memory", None, "GB of memory of each machine; by the plan, if there is one.", lower_bound=1)
flags.DEFINE_string(
    "plan", None, "What launch.plan --output wrote for this config: passes at once, memory and time limit come from it."
)
flags.DEFINE_bool("spot", False, "Cheaper machines that may be taken away.")
flags.DEFINE_string(
    "store", None, "What all machines mount: gs://BUCKET or s3://BUCKET, a volume (SkyPilot) or volume claim (GKE),"
    " HOST:/PATH (TPU VM)."
)  # fmt: skip
flags.DEFINE_string("workdir", None, "The run's folder as the machines see it; one in the store's runs/ by default.")
flags.DEFINE_string("data_dir", None, "Prepared data as the machines see them; the store's data/ by default.")
flags.DEFINE_string("image", None, "Container image; for GKE one that has winobench, unless --package is given.")
flags.DEFINE_string(
    "package", None, "What pip installs on the machines, such as git+https://...; this checkout by default."
)
flags.DEFINE_string(
    "python", None, "A Python on the machines that has winobench; under Slurm this one, else one that is set up there."
)
flags.DEFINE_integer("max_restarts", 10, "How often the job is started again.", lower_bound=0)
flags.DEFINE_string("infra", None, "SkyPilot: where to look for machines, such as gcp, aws/us-east-1 or kubernetes.")
flags.DEFINE_string("project", None, "GKE, TPU VM: the project; gcloud's own by default.")
flags.DEFINE_string("zone", None, "GKE, TPU VM: the zone (or the cluster's region); gcloud's own by default.")
flags.DEFINE_string("cluster", None, "GKE: the cluster, with --project and --zone; kubectl's context by default.")
flags.DEFINE_string("namespace", None, "GKE: the namespace.")
flags.DEFINE_string("queue", None, "GKE: the local queue of Kueue that admits the job.")
flags.DEFINE_string("kube_secret", None, "GKE: the Kubernetes secret that holds --secrets; winobench by default.")
flags.DEFINE_string("service_account", None, "GKE: the account of the pods, which a bucket needs.")
flags.DEFINE_string("runtime", None, "TPU VM: the runtime version; the one for the TPU's kind by default.")
flags.DEFINE_string("partition", None, "Slurm: the partition.")
flags.DEFINE_string("account", None, "Slurm: the account.")
flags.DEFINE_string("time", None, "Slurm: the time limit, after which the job queues again and goes on.")

_TOOLS = {
    "sky": "pip install 'skypilot[gcp]', or with another cloud's name",
    "kubectl": "https://kubernetes.io/docs/tasks/tools has it",
    "sbatch": "log in to the cluster",
    "gcloud": "https://cloud.google.com/sdk/docs/install has it",
}


def main(overrides: Sequence[tuple[str, str]]) -> None:
    """Renders the job, and prints or submits it."""
    given = flags.FLAGS
    if _TARGET.value is None:
        raise InputError(
            f"no target is named: give --target=NAME with one of {', '.join(jobs.TARGETS)}.", code="nothing-named"
        )
    names = {field.name for field in dataclasses.fields(jobs.Request)} & set(given)
    options = {name: given[name].value for name in names - {"config"}}
    options["secrets"] = tuple(_SECRETS.value)
    job = jobs.make(jobs.Request(config=given.config or "gdbench", overrides=tuple(overrides), **options))
    if _DRY_RUN.value:
        print(job.text, end="")
        _print_notes([*job.notes, f"nothing is submitted; with this in FILE: {job.submit}"])
        return
    if job.lacks is not None:
        raise InputError(job.lacks)
    missing = [name for name in _SECRETS.value if name not in os.environ]
    if missing and _TARGET.value in ("skypilot", "slurm"):
        raise InputError(f"{missing[0]} is not in the environment: set it, or take it out of --secrets.")
    tool = "gcloud" if _TARGET.value == "tpu_vm" else job.command[0]
    if shutil.which(tool) is None:
        raise InputError(
            f"{tool} is not here: {_TOOLS[tool]}; or print the job with --dry_run and submit it elsewhere."
        )
    print(job.text, end="")
    _print_notes([*job.notes, f"running: {job.submit}"])
    sys.stdout.flush()
    sys.exit(submit(job))


def submit(job: jobs.Job) -> int:
    """Calls the target's tool with the job; returns its exit status."""
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
    configuration.start_passing_on(main, usage=USAGE)
