"""winobench cloud: what is rendered is what the tools read, and what it starts is what was asked for."""

import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys

import pytest
import yaml
from launch.cloud import accelerators, jobs

import winobench
from launch import configuration
from launch.overrides import parted
from tests import launching
from tests.expectations import names, raises
from winobench.base.errors import InputError

ROOT = pathlib.Path(__file__).parents[3]
TARGETS = jobs.TARGETS

# Everything that a shell, YAML, Jinja, Kubernetes or a comment could take for its own.
HOSTILE = (
    '/mnt/it\'s "my" $HOME $(touch pwned) `touch pwned` $(HF_TOKEN) $$ \\n {{ x }} {% if %} #: - & * ! | > % @, ü 猫'
)
OVERRIDES = (("model", HOSTILE), ("seed", "7"), ("tasks", "-clevr: [a]"), ("revision", ""))

FLAGS = {
    "skypilot": ["--nodes=2", "--accelerator=H100:8", "--store=gs://my-bucket/runs", "--spot"],
    "slurm": ["--nodes=2", "--accelerator=h100:8", "--partition=gpu", "--account=lab", "--time=1-12:00:00"],
}


def launch(*words, environment=None, cwd=ROOT):
    # The tools that it calls write to the process's own streams.
    run = launching.launch if environment is None else launching.launch_process
    return run("launch.cloud", *words, cwd=cwd, **(environment or {}))


def request(target, **options):
    common = {
        "skypilot": {"nodes": 2, "accelerator": "H100:8", "store": "gs://my-bucket/runs", "spot": True},
        "slurm": {"nodes": 2, "accelerator": "h100:8"},
    }[target]
    return jobs.Request(target=target, config=options.pop("config", "gdbench"), **{**common, **options})


@pytest.fixture
def programs(tmp_path):
    """A function that puts a program of ours on the PATH of what is run; returns the environment."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def put(**scripts):
        for name, script in scripts.items():
            path = folder / name
            path.write_text(script)
            path.chmod(0o755)
        return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "LOG": str(tmp_path / "log")}

    return put


ECHO = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["LOG"], "a") as log:
    print(json.dumps([sys.argv[1:], dict(os.environ)]), file=log)
sys.exit(int(os.environ.get("STATUS", "0")))
"""


@pytest.fixture
def echo(tmp_path):
    """A program that stands for Python on the machines: it writes down its arguments and environment."""
    path = tmp_path / "echo python"
    path.write_text(ECHO)
    path.chmod(0o755)
    return path


def logged(tmp_path):
    return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


def bash(script, environment, cwd, status=0, **options):
    done = subprocess.run(
        ["bash", "-c", script] if isinstance(script, str) else ["bash", *script],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        **options,
    )
    assert done.returncode == status, done.stderr
    return done


def test_the_commands_of_the_help_print_jobs():
    status, out, err = launch("--help")
    assert (status, err) == (0, "")
    for word in (*(f"--target={target} --config=gdbench" for target in TARGETS), "--secrets", "--store", "--dry_run"):
        assert word in out
    examples = re.findall(r"^  winobench cloud (.*?[^\\])$", out, re.MULTILINE | re.DOTALL)
    assert len(examples) >= 4
    for line in examples:
        words = shlex.split(re.sub(r" \\\n +", " ", line).split("  ")[0])
        status, text, err = launch(*words, "--dry_run")
        assert status == 0, (words, err)
        assert "note: nothing is submitted. With this in FILE: " in err
        assert "winobench eval" in text
        assert "--config=gdbench" in text
        if text.startswith("#!"):
            assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
        else:
            assert isinstance(yaml.safe_load(text), dict)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no target is named: give --target=NAME with one of skypilot, slurm."),
        (["--target=lsf"], "--target=lsf is not one of skypilot, slurm."),
        (["--target=slurm", "--config=hardneg", "--launcher=eval"], "config 'hardneg' is for winobench train"),
        (["--target=slurm", "--config=wscplus_generate"], "is for winobench write_items, which one process"),
        (["--target=gke"], "--target=gke is gone"),
        (["--target=tpu_vm"], "give --target=skypilot --infra=gcp --accelerator=v5litepod-8"),
    ],
)
def test_bad_input_is_one_line(words, message):
    launching.refuse("launch.cloud", *words, "--dry_run", named=[message])


@pytest.mark.parametrize(("config", "overrides"), [("gdbenhc", ()), ("gdbench", (("sed", "1"),))])
def test_a_wrong_config_is_told_of_as_by_the_launcher_itself(config, overrides):
    with pytest.raises(InputError) as expected:
        configuration.load(config, overrides, "eval")
    with raises(expected.value.code) as found:
        jobs.make(request("slurm", config=config, overrides=overrides))
    assert str(found.value).split(":")[0] == str(expected.value).split(":")[0]


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("skypilot", {"store": None, "spot": False}, "one that all machines must see: name a store with --store="),
        ("slurm", {"nodes": 10**11}, "--nodes=100000000000"),
        ("slurm", {"workdir": ""}, "--workdir="),
        ("skypilot", {"workdir": "runs/mine"}, "--workdir=runs/mine"),
        ("skypilot", {"store": None, "nodes": 1}, "one that outlives a machine that is taken away"),
        ("skypilot", {"workdir": "runs/here"}, "--workdir=runs/here is a folder on the machines"),
        ("slurm", {"accelerator": "v5litepod-8"}, "is a TPU, which Slurm has not"),
        ("skypilot", {"accelerator": "v6e-8"}, "a larger --accelerator has more machines"),
        ("skypilot", {"accelerator": "8"}, "names no kind of GPU: write H100:8"),
        ("skypilot", {"accelerator": "v9-8"}, "not a TPU that is known"),
        ("skypilot", {"store": "My Volume"}, "nor a SkyPilot volume's name"),
        ("skypilot", {"store": "gs://a b"}, "characters that no bucket has"),
        ("slurm", {"partition": "gpu\n#SBATCH --uid=0"}, "cannot be printed"),
        ("slurm", {"overrides": (("model", "a\nb"),)}, "--model='a\\nb' holds a character"),
        ("slurm", {"partition": "a b"}, "--partition=a b has characters"),
        ("skypilot", {"name": "My_Job"}, "small letters, digits and inner dashes"),
        *(("skypilot", {"store": url}, "neither a bucket (gs://BUCKET, s3://BUCKET)") for url in ("gs://-", "x://a")),
        *(
            ("slurm", {"time": time}, f"--time={time} is not a time limit of Slurm")
            for time in ("-1", "abc", "1:2:3:4", "1-", "12:60")
        ),
        ("slurm", {"config": "winoviz"}, "one process runs --config=winoviz"),
        ("slurm", {"log": "mlflow"}, "--log is 'mlflow', but it must be one or more of tensorboard"),
        ("slurm", {"array": "models", "config": "images"}, "--array is for winobench eval, not for winobench generate"),
        ("slurm", {"array": "models", "overrides": (("model", " , "),)}, "--array needs models"),
        ("slurm", {"array": "models", "plan": "plan.json"}, "--plan is of one job for all models"),
        (
            "slurm",
            {"array": "models", "config": "winoviz", "nodes": 1, "overrides": (("generator", "sd15"),)},
            "generate them first, and give --images",
        ),
        ("skypilot", {"array": "models"}, "give SkyPilot one command for each model"),
        ("slurm", {"setup": "a\nb"}, "--setup='a\\nb' holds a character"),
        ("slurm", {"log": "wandb", "config": "images"}, "--log is for winobench eval and train"),
    ],
)
def test_what_a_target_cannot_do_is_said(target, options, message):
    with pytest.raises(InputError) as error:
        jobs.make(request(target, **options))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("target", TARGETS)
def test_a_secret_is_a_name_and_no_value_is_in_an_error_or_a_job(target, monkeypatch):
    with raises("secret-value") as error:
        jobs.make(request(target, secrets=("HF_TOKEN=hf_abcdef",)))
    assert "hf_abcdef" not in str(error.value)
    monkeypatch.setenv("HF_TOKEN", "hf_value_of_it")
    job = jobs.make(request(target, secrets=("HF_TOKEN", "OPENAI_API_KEY")))
    assert "hf_value_of_it" not in job.text + job.submit + " ".join(job.notes)
    assert all(name in job.text for name in ("HF_TOKEN", "OPENAI_API_KEY"))


def test_the_same_run_has_the_same_name_and_folder_and_another_one_another():
    first, again, other = (jobs.make(request("skypilot", overrides=(("seed", seed),))) for seed in ("1", "1", "2"))
    assert first == again
    names = [yaml.safe_load(job.text)["name"] for job in (first, other)]
    assert names[0] != names[1]
    assert all(f"/mnt/winobench/runs/{name}" in job.text for name, job in zip(names, (first, other), strict=True))


@pytest.mark.parametrize(
    ("config", "launcher", "name"),
    [("hardneg:paper", "train", ""), ("gdbench", "eval", "5b96be92"), ("images", "generate", "cd490480")],
)
def test_a_job_has_its_configs_launcher_and_the_name_that_it_had(config, launcher, name):
    """A job given again finds its records."""
    job = jobs.make(request("slurm", config=config)).text
    assert f"-m winobench {launcher}" in job
    assert f"#SBATCH --job-name=winobench-{config.replace(':', '-')}-{name}" in job


def _run_rendered(target, job, environment, cwd, programs, status=0):
    """Runs what each machine would run, in as few steps as the target allows; the second machine of two."""
    if target == "skypilot":
        task = yaml.safe_load(job.text)
        sky = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1"}
        bash(task["run"], {**environment, **sky}, cwd, status)
    else:
        environment |= programs(srun=SRUN)
        bash(job.text, {**environment, "SLURM_CPUS_PER_TASK": "64"}, cwd, status)


@pytest.mark.parametrize("target", TARGETS)
def test_the_machines_run_the_very_words_that_were_given(target, echo, tmp_path, programs):
    job = jobs.make(request(target, overrides=OVERRIDES, workdir=HOSTILE, data_dir=HOSTILE, python=str(echo)))
    cwd = tmp_path / "here"
    cwd.mkdir()
    _run_rendered(target, job, {"LOG": str(tmp_path / "log")}, cwd, programs)
    ((words, environment),) = logged(tmp_path)
    assert words == [
        *("-m", "winobench", "eval", "--config=gdbench"),
        *(f"--{field}={text}" for field, text in OVERRIDES),
        *(f"--workdir={HOSTILE}", f"--processes={'10.0.0.1:8901,2,1' if target == 'skypilot' else 'auto'}"),
    ]
    assert environment["WINOBENCH_DATA"] == HOSTILE
    assert not list(tmp_path.rglob("pwned"))
    with launching.flags_of_its_own():
        _, overrides = parted(words, configuration.load("gdbench"))
    assert tuple(overrides) == OVERRIDES


SRUN = '#!/bin/bash\nwhile [[ "$1" == --* ]]; do shift; done\nexec "$@"\n'


def _of_array(job, ids, tmp_path, programs):
    """The words that the tasks of an array run their program with."""
    environment = {**programs(srun=SRUN), "SLURM_CPUS_PER_TASK": "1"}
    for number in ids:
        bash(job.text, {**environment, "SLURM_ARRAY_TASK_ID": str(number)}, tmp_path)
    return [words for words, _ in logged(tmp_path)]


def test_a_task_of_an_array_is_the_job_of_its_model(echo, tmp_path, programs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models = ["sd15", *filter(None, map(str.strip, HOSTILE.split(",")))]
    options = {"python": str(echo), "nodes": 1}
    fields = [("seed", "7"), ("model", "not-this"), ("model", ",".join(models))]
    job = jobs.make(request("slurm", overrides=fields, array="models", **options))
    assert f"#SBATCH --array=0-{len(models) - 1}\n" in job.text
    found = _of_array(job, range(len(models)), tmp_path, programs)
    (tmp_path / "log").unlink()
    for model in models:
        single = jobs.make(request("slurm", overrides=[("seed", "7"), ("model", model)], **options))
        bash(single.text, {**programs(srun=SRUN), "SLURM_CPUS_PER_TASK": "1"}, tmp_path)
    assert found == [words for words, _ in logged(tmp_path)]
    assert len({words[-1] for words in found}) == len(models)
    assert not list(tmp_path.rglob("pwned"))
    # A number that is not of the array, such as by sbatch --array=0-9, runs nothing.
    environment = {**programs(srun=SRUN), "SLURM_CPUS_PER_TASK": "1", "SLURM_ARRAY_TASK_ID": "9"}
    bash(job.text, environment, tmp_path, status=1)
    assert len(logged(tmp_path)) == len(models)


@pytest.mark.parametrize(
    ("options", "folder"), [({"workdir": "a b"}, "a b"), ({"name": "mine"}, "runs/mine")], ids=["workdir", "name"]
)
def test_models_of_an_array_have_folders_in_the_named_one(options, folder, echo, tmp_path, programs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    overrides = [("model", "a/sd,b/sd,sd15")]
    job = jobs.make(request("slurm", overrides=overrides, array="models", python=str(echo), nodes=1, **options))
    found = _of_array(job, range(3), tmp_path, programs)
    assert [words[-1] for words in found] == [
        f"--workdir={tmp_path}/{folder}/{label}" for label in ("a-sd", "b-sd", "sd15")
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_the_setup_runs_ahead_of_the_program_and_stops_the_job_if_it_fails(target, echo, tmp_path, programs):
    def run(setup, status=0):
        job = jobs.make(request(target, setup=setup, python=str(echo), workdir="/runs"))
        environment = {"LOG": str(tmp_path / "log")}
        _run_rendered(target, job, environment, tmp_path, programs, status)

    run("load() { export LOADED=\"$1's $NOT_SET_HERE\"; }; load 'a  b'")
    ((_, environment),) = logged(tmp_path)
    assert environment["LOADED"] == "a  b's "
    run("false; true", status=1)
    run("echo 'a quote that does not end", status=2)
    assert len(logged(tmp_path)) == 1
    run("true  # nothing else")
    run("true \\")
    assert len(logged(tmp_path)) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": 1, "store": None, "spot": False, "accelerator": "none"},
        {"nodes": 1, "accelerator": "v5litepod-16", "infra": "gcp/us-west4/us-west4-a"},
        {"store": "my-volume", "secrets": ("HF_TOKEN",), "image": "registry/winobench:1", "infra": "aws/us-east-1"},
        {"store": None, "workdir": HOSTILE, "overrides": OVERRIDES},
    ],
)
def test_skypilot_by_its_own_schema(options, monkeypatch, tmp_path):
    sky = pytest.importorskip("sky", reason="SkyPilot is not installed: pip install -e '.[cloud]'")
    from sky.utils import common_utils, schemas

    monkeypatch.setenv("HOME", str(tmp_path))
    job = jobs.make(request("skypilot", **options))
    config = yaml.safe_load(job.text)
    common_utils.validate_schema(config, schemas.get_task_schema(), "")
    common_utils.validate_schema(config["resources"], schemas.get_resources_schema(), "")
    config.pop("file_mounts", None)  # it would ask the cloud for the bucket
    task = sky.Task.from_yaml_config(config, secrets_overrides=[(name, "x") for name in options.get("secrets", ())])
    assert task.num_nodes == options.get("nodes", 2)
    (resources,) = task.resources
    wanted = {"none": None, "v5litepod-16": {"tpu-v5litepod-16": 1}}.get(options.get("accelerator"), {"H100": 8})
    assert resources.accelerators == wanted
    assert resources.use_spot == options.get("spot", True)
    from sky.client.cli import command as cli

    monkeypatch.setenv("HF_TOKEN", "x")
    managed = job.command[1] == "jobs"
    words = job.command[3 if managed else 2 :]
    context = (cli.jobs_launch if managed else cli.launch).make_context("launch", list(words))
    assert context.params["entrypoint"] == ("FILE",)
    assert dict(context.params["secret"]) == ({"HF_TOKEN": "x"} if options.get("secrets") else {})


def test_skypilot():
    job = jobs.make(request("skypilot", secrets=("HF_TOKEN",)))
    task = yaml.safe_load(job.text)
    assert task["num_nodes"] == 2
    assert task["workdir"] == str(ROOT)
    assert task["resources"]["accelerators"] == "H100:8"
    assert task["resources"]["use_spot"] is True
    assert task["file_mounts"] == {"/mnt/winobench": {"source": "gs://my-bucket/runs", "mode": "MOUNT"}}
    assert task["secrets"] == {"HF_TOKEN": None}
    assert job.command[:4] == ["sky", "jobs", "launch", "-n"]
    assert job.command[-3:] == ["--secret", "HF_TOKEN", "FILE"]
    for script in (task["setup"], task["run"]):
        assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    # One machine needs no store, and is left there for the results to be fetched.
    job = jobs.make(request("skypilot", nodes=1, store=None, spot=False))
    assert job.command[:3] == ["sky", "launch", "-c"]
    assert "--processes" not in job.text
    assert "'.[tpu]'" in jobs.make(request("skypilot", nodes=1, accelerator="v6e-1")).text


# sbatch's options as its manual has them; those that we use, and what they take.
SBATCH = {
    "job-name": r"[\w-]+",
    "nodes": r"\d+",
    "ntasks-per-node": "1",
    "cpus-per-task": r"\d+",
    "mem": r"\d+G",
    "gpus-per-node": r"([\w.-]+:)?\d+",
    "partition": r"[\w,.-]+",
    "account": r"[\w.-]+",
    "time": r"(\d+-)?\d+(:\d+){0,2}",
    "output": r"%x-(%j|%A_%a)\.out",
    "open-mode": "append",
    "export": "ALL",
    "requeue": None,
    "signal": r"B:USR1@\d+",
    "array": r"0-\d+",
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nodes": 1, "accelerator": "none"},
        {"array": "models", "overrides": (("model", "a,b"),), "setup": "module load cuda"},
        {"accelerator": "4", "partition": "gpu,long", "account": "lab", "time": "1-12:00:00", "secrets": ("HF_TOKEN",)},
    ],
)
def test_slurm(options):
    job = jobs.make(request("slurm", **options))
    assert subprocess.run(["bash", "-n"], input=job.text, text=True).returncode == 0
    lines = job.text.splitlines()
    assert lines[0] == "#!/bin/bash"
    given = {}
    for line in lines:
        if line.startswith("#SBATCH"):
            name, equals, value = re.fullmatch(r"#SBATCH --([\w-]+)(=?)(.*)", line).groups()
            assert name not in given
            pattern = SBATCH[name]
            assert not equals if pattern is None else re.fullmatch(pattern, value), line
            given[name] = value
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(i < first for i, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert given.keys() >= {"job-name", "nodes", "ntasks-per-node", "requeue", "signal", "open-mode"}
    assert ("gpus-per-node" in given) == (options.get("accelerator") != "none")
    assert ("--processes=auto" in job.text) == (options.get("nodes", 2) > 1)
    assert job.command == ["sbatch"]


@pytest.mark.parametrize("time", ["30", "30:00", "12:00:00", "1-12", "1-12:00:00", "UNLIMITED"])
def test_every_form_of_a_time_limit_is_taken(time):
    assert f"#SBATCH --time={time}\n" in jobs.make(request("slurm", time=time)).text


def test_slurm_fills_in_paths_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text((ROOT / "configs" / "gdbench.py").read_text())
    text = jobs.make(request("slurm", workdir="runs/a b", config="mine.py:debug")).text
    assert f"--workdir='{tmp_path}/runs/a b'" in text
    assert f"--config={tmp_path}/mine.py:debug" in text
    task = yaml.safe_load(jobs.make(request("skypilot", config="mine.py")).text)
    assert task["file_mounts"]["~/winobench_files/mine.py"] == f"{tmp_path}/mine.py"


@pytest.mark.parametrize("kind", ["job", "array"])
def test_a_slurm_job_that_nears_its_time_limit_is_put_into_the_queue_again(kind, tmp_path, programs, echo):
    options, requeued = {
        "job": ({}, "77"),
        "array": ({"array": "models", "overrides": (("model", "a,b"),)}, "76_1"),
    }[kind]
    job = jobs.make(request("slurm", python=str(echo), max_restarts=2, **options))
    environment = programs(
        srun='#!/bin/bash\necho $$ > "$LOG.pid"\nkill -USR1 $PPID\nexec sleep ${SLEEP-20}\n',
        # As Slurm itself, it ends the job.
        scontrol='#!/bin/bash\necho "[\\"$*\\", {}]" >> "$LOG"\nkill "$(cat "$LOG.pid")"\n',
    )
    environment |= {"SLURM_JOB_ID": "77", "SLURM_CPUS_PER_TASK": "1"}
    environment |= {"SLURM_ARRAY_JOB_ID": "76", "SLURM_ARRAY_TASK_ID": "1"} if kind == "array" else {}
    bash(job.text, environment, tmp_path, status=128 + 15)
    assert [words for words, _ in logged(tmp_path)] == [f"requeue {requeued}"]
    bash(job.text, {**environment, "SLURM_RESTART_COUNT": "2", "SLEEP": "0.2"}, tmp_path)
    assert len(logged(tmp_path)) == 1


def test_a_slurm_job_ends_as_its_processes_do(tmp_path, programs, echo):
    job = jobs.make(request("slurm", python=str(echo), secrets=("HF_TOKEN",)))
    environment = programs(srun=SRUN)
    environment |= {"SLURM_CPUS_PER_TASK": "1", "HF_TOKEN": "x"}
    bash(job.text, environment, tmp_path)
    bash(job.text, {**environment, "STATUS": "2"}, tmp_path, status=2)
    done = bash(job.text, {**environment, "HF_TOKEN": ""}, tmp_path, status=1)
    assert "HF_TOKEN: set it in the environment that sbatch is called from" in done.stderr
    assert len(logged(tmp_path)) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", None),
        ("8", accelerators.Gpus("", 8)),
        ("H100", accelerators.Gpus("H100", 1)),
        ("A100-80GB:4", accelerators.Gpus("A100-80GB", 4)),
        ("v5e-8", (accelerators.Slice("v5litepod-8", "v5litepod", 8), 1)),
        ("tpu-v6e-4", (accelerators.Slice("v6e-4", "v6e", 4), 1)),
        ("v6e-256", (accelerators.Slice("v6e-256", "v6e", 256), 64)),
        ("v4-8", (accelerators.Slice("v4-8", "v4", 4), 1)),
        ("v5p-128", (accelerators.Slice("v5p-128", "v5p", 64), 16)),
    ],
)
def test_accelerators(text, expected):
    """Those of a slice with the number of its machines."""
    found = accelerators.parse(text)
    assert ((found, found.num_hosts) if isinstance(found, accelerators.Slice) else found) == expected


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """As from a wheel: no checkout around the package."""
    monkeypatch.setattr(jobs, "_ROOT", tmp_path)


def test_a_checkout_is_installed_by_its_lock_file():
    setup = yaml.safe_load(jobs.make(request("skypilot")).text)["setup"]
    assert "https://astral.sh/uv/install.sh" not in setup
    assert f"https://astral.sh/uv/{jobs._UV_VERSION}/install.sh" in setup
    locked, own = (line for line in setup.splitlines() if "uv pip install" in line)
    assert locked.endswith("--require-hashes --requirement requirements.lock")
    assert own.endswith("--constraint requirements.lock -e '.[cuda]'")
    bare = yaml.safe_load(jobs.make(request("skypilot", accelerator="none")).text)["setup"]
    assert bare.splitlines()[-1].endswith("--no-deps -e .")


@pytest.mark.usefixtures("installed")
def test_an_installed_package_installs_the_same_version():
    job = jobs.make(request("skypilot"))
    task = yaml.safe_load(job.text)
    assert "workdir" not in task
    assert task["setup"].splitlines()[-1].endswith(f"'winobench[cuda]=={winobench.__version__}'")
    assert any("from the package index" in note for note in job.notes)


@pytest.mark.usefixtures("installed")
def test_a_wheel_and_a_config_from_here_are_sent(tmp_path, monkeypatch, programs, echo):
    here = tmp_path / "it's here"
    here.mkdir()
    monkeypatch.chdir(here)
    wheel = here / "winobench-9-py3-none-any.whl"
    wheel.touch()
    (here / "mine.py").write_text((ROOT / "configs" / "gdbench.py").read_text())
    job = jobs.make(request("skypilot", package=wheel.name, config="mine.py:debug", workdir="/runs"))
    task = yaml.safe_load(job.text)
    assert task["file_mounts"] == {
        "/mnt/winobench": {"source": "gs://my-bucket/runs", "mode": "MOUNT"},
        f"~/winobench_files/{wheel.name}": str(wheel),
        "~/winobench_files/mine.py": str(here / "mine.py"),
    }
    assert task["setup"].splitlines()[-1].endswith("\"$HOME\"/winobench_files/'winobench-9-py3-none-any.whl[cuda]'")
    job = jobs.make(request("skypilot", python=str(echo), config="mine.py:debug", workdir="/runs"))
    _run_rendered("skypilot", job, {"LOG": str(tmp_path / "log"), "HOME": "/a home"}, tmp_path, programs)
    assert "--config=/a home/winobench_files/mine.py:debug" in logged(tmp_path)[0][0]
    with pytest.raises(InputError, match=names("--package=other.whl")):
        jobs.make(request("skypilot", package="other.whl"))


@pytest.mark.parametrize(
    "model", ["openai:gpt-4o", "sd21-base,openai:gpt-4o", "clip-rn50x64, sd21-base, openai:gpt-4o"]
)
def test_a_hosted_model_brings_its_client_wherever_it_stands(model):
    assert "'.[cuda,api]'" in jobs.make(request("skypilot", overrides=(("model", model),))).text


def test_trackers_come_with_their_packages_and_change_no_name():
    job, without = (jobs.make(request("skypilot", log=log)) for log in ("wandb,tensorboard", ""))
    assert "'.[cuda,wandb]'" in job.text
    assert "--log=wandb,tensorboard" in job.text
    assert job.submit == without.submit


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ("winobench", "winobench[cuda]"),
        ("winobench==0.2.0", "winobench[cuda]==0.2.0"),
        ("winobench[tpu]", "winobench[tpu]"),
        ("git+https://host/w.git@main", "winobench[cuda] @ git+https://host/w.git@main"),
        ("/mnt/winobench/src", "/mnt/winobench/src[cuda]"),
    ],
)
def test_packages(package, expected):
    assert jobs._with_extras(package, "[cuda]") == expected


@pytest.mark.parametrize("target", TARGETS)
def test_the_targets_own_tool_gets_what_was_shown(target, tmp_path, programs):
    tool = {"skypilot": "sky", "slurm": "sbatch"}[target]
    take = '#!/bin/sh\nif [ -f "$last" ]; then cat "$last"; else cat; fi > "$LOG"\necho "$@" >> "$LOG.words"\nexit 3\n'
    take = take.replace("\nif", "\nfor last; do :; done\nif", 1)
    environment = programs(**{tool: take})
    words = [f"--target={target}", "--config=gdbench", "--seed=3", *FLAGS[target]]
    status, out, err = launch(*words, environment=environment, cwd=tmp_path)
    assert status == 3, err
    assert (tmp_path / "log").read_text() == out
    assert "note: running: " in err
    words = (tmp_path / "log.words").read_text()
    expected = {"skypilot": r"jobs launch -n \S+ \S+\.yaml", "slurm": ""}
    assert re.fullmatch(expected[target], words.strip())


@pytest.mark.parametrize("target", TARGETS)
def test_a_tool_that_is_not_there_is_one_clear_sentence(target, tmp_path):
    status, out, err = launching.launch("launch.cloud", f"--target={target}", *FLAGS[target], PATH=str(tmp_path))
    tool = {"skypilot": "sky", "slurm": "sbatch"}[target]
    assert (status, out, err.count("\n"), "--dry_run" in err) == (2, "", 1, True)
    assert err.startswith(f"error: {tool} is not here: ")


def test_a_secret_that_is_not_set_is_told_of_ahead(programs):
    environment = programs(sbatch="#!/bin/sh\nexit 5\n") | {"OPENAI_API_KEY": "x"}
    status, _, err = launch("--target=slurm", "--secrets=OPENAI_API_KEY", environment=environment)
    assert status == 5, err
    words = ("--target=slurm", "--secrets=OPENAI_API_KEY,NOT_SET_HERE")
    launching.refuse("launch.cloud", *words, named=["NOT_SET_HERE is not in the environment"], **environment)
    environment["NOT_SET_HERE"] = ""
    launching.refuse("launch.cloud", *words, named=["NOT_SET_HERE"], **environment)


SBATCH_HERE = """#!/bin/bash
script=$(mktemp)
cat > "$script"
nodes=$(sed -n 's/^#SBATCH --nodes=//p' "$script")
cpus=$(sed -n 's/^#SBATCH --cpus-per-task=//p' "$script")
SLURM_JOB_ID=$JOB SLURM_NNODES=$nodes SLURM_CPUS_PER_TASK=$cpus exec bash "$script"
"""
SRUN_HERE = """#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
pids=()
for (( i = 0; i < SLURM_NNODES; i++ )); do
  SLURM_STEP_NODELIST=localhost SLURM_STEP_NUM_NODES=$SLURM_NNODES SLURM_NTASKS=$SLURM_NNODES \\
    SLURM_PROCID=$i SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE="1(x$SLURM_NNODES)" "$@" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit $status
"""


@pytest.mark.slow  # two launches at once
def test_an_evaluation_in_two_processes_under_slurm(tiny_pipeline, tmp_path, programs):
    words = ["--config=gdbench:debug", f"--model={tiny_pipeline}", "--tasks=clevr"]
    environment = programs(sbatch=SBATCH_HERE, srun=SRUN_HERE) | {"devices": 2}
    environment["JOB"] = str(random.randrange(10**6))  # JAX's port depends on it
    words += ["--target=slurm", "--accelerator=none", "--nodes=2", "--workdir=the run's", "--cpus=1"]
    status, out, err = launch(*words, environment=environment, cwd=tmp_path)
    assert status == 0, err
    assert "--processes=auto" in out
    assert out.count("for figures, comparisons and examples") == 1  # one of them prints
    assert "for 2 processes" in err
    folder = tmp_path / "the run's"
    assert {path.name.split("-")[1].lstrip("0") for path in (folder / "errors").iterdir()} == {"", "1"}
    # That numbers are those of one process is in tests/evaluation/test_processes.py.
    results = json.loads((folder / "results.json").read_text())
    assert results["versions"]["device"]["processes"] == 2
    assert results["computed_passes"] == results["passes"] > 0
