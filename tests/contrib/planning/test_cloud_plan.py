"""``winobench cloud --plan``: a job has the plan's batch, memory and time where nobody said otherwise."""

import dataclasses
import json

import pytest
import yaml
from launch.cloud import jobs

from launch import configuration
from tests.expectations import names
from winobench.base.errors import InputError

CONFIG = "gdbench:table1"
OVERRIDES = (("model", "sd21-base"), ("dtype", "bfloat16"))


def duration(devices, **parts):
    return {"devices": devices, **parts, "total": sum(parts.values())}


def plan(target, **changes):
    parts = {"scoring": 35_000.0, "encoding": 800.0, "loading": 100.0, "compiling": 80.0, "tails": 20.0}
    return {
        "target": target,
        "fits": None not in changes.get("programs", ()),
        "weights": {"unet": 3_000_000_000, "vae": 400_000_000},
        "programs": [{"name": "denoising step", "items": 24}],
        "durations": [duration(16, **parts)],
        "price": 2.0,
        "per_second": "passes/s",
        **changes,
    }


@pytest.fixture
def write(tmp_path):
    def write(*plans, spec=CONFIG, overrides=OVERRIDES):
        config = configuration.plain(configuration.load(spec, overrides))
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({"config": config, "plans": plans}))
        return str(path)

    return write


def make(target, path, **options):
    options = {"overrides": OVERRIDES, **options}
    return jobs.make(jobs.Request(target=target, config=CONFIG, plan=path, **options))


def test_slurm(write):
    path = write(plan("a100-80:8"), plan("h100:8"))
    job = make("slurm", path, nodes=2, accelerator="H100:8")
    assert "#SBATCH --mem=23G\n" in job.text  # twice the weights, and 16
    assert "#SBATCH --time=16:00:00\n" in job.text  # half as long again, and an hour
    assert "--batch_size=24 " in job.text
    assert "10.0 hours and 320.00 dollars" in job.notes[-1]


def test_what_is_said_is_said_and_the_run_is_the_same(write):
    path = write(plan("h100:8"))
    options = {"nodes": 2, "accelerator": "h100:8", "memory": 99, "time": "5:00:00"}
    said = make("slurm", path, **options)
    assert "#SBATCH --mem=99G\n" in said.text
    assert "#SBATCH --time=5:00:00\n" in said.text
    # The folder is that of the job without a plan, so that either goes on where the other ended.
    plain = jobs.make(jobs.Request(target="slurm", config=CONFIG, overrides=OVERRIDES, **options))
    folder = next(line for line in plain.text.splitlines() if "--workdir=" in line)
    assert folder in said.text
    with_batch = (*OVERRIDES, ("batch_size", "8"))
    job = make("slurm", write(plan("h100:8"), overrides=with_batch), **{**options, "overrides": with_batch})
    assert "--batch_size=8 " in job.text
    assert "--batch_size=24" not in job.text


@pytest.mark.parametrize(
    ("target", "options", "of"),
    [
        ("skypilot", {"accelerator": "v5litepod-16", "store": "gs://bucket"}, "v5e:4x4"),
        ("skypilot", {"accelerator": "A100-80GB:8", "nodes": 2, "store": "gs://bucket"}, "a100-80:8"),
        ("slurm", {"accelerator": "B200:8", "nodes": 2}, "b200:8"),
    ],
)
def test_every_target_calls_accelerators_by_its_own_names(write, target, options, of):
    job = make(target, write(plan(of)), **options)
    if target == "skypilot":
        assert yaml.safe_load(job.text)["resources"]["memory"] == "23+"
    else:
        assert "#SBATCH --mem=23G\n" in job.text
    assert "--batch_size=24" in job.text


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"target": "h200:8"}, {}, ("h200:8", "h100")),
        ({}, {"nodes": 3}, ("24 devices", "--devices=24")),
        ({}, {"accelerator": "8"}, ("--accelerator",)),
        ({"programs": [None]}, {}, ("h100:8", "does not fit")),
        ({}, {"overrides": (("model", "sd15"), ("dtype", "bfloat16"))}, ("--model=sd21-base", "sd15")),
    ],
)
def test_a_plan_of_something_else_is_one_sentence(write, changes, options, words):
    path = write(plan(**{"target": "h100:8", **changes}))
    with pytest.raises(InputError, match=names("plan.json", *words)):
        make("slurm", path, **{"nodes": 2, "accelerator": "h100:8", **options})


@pytest.mark.parametrize(
    ("made", "words"),
    [
        *((content, ("winobench plan",)) for content in ("[]", '{"config": 1, "plans": []}', "no")),
        ({"programs": [{"items": 1}]}, ("'fits'",)),  # without its parts
        ({"batches": [], "fits": True}, ("language model", "--plan")),
    ],
)
def test_a_plan_that_no_job_can_use_is_refused(write, made, words, tmp_path):
    if isinstance(made, str):
        (tmp_path / "plan.json").write_text(made)
    else:
        write({"target": "h100:8", **made})
    with pytest.raises(InputError, match=names("plan.json", *words)):
        make("slurm", str(tmp_path / "plan.json"), accelerator="h100:8")


def test_a_training(write):
    time = duration(4, training=35_000.0, loading=900.0, compiling=100.0)
    made = {"target": "v5e:2x2", "fits": True, "batch_size": 112, "accumulate": 4, "state": 3_400_000_000, "price": 2.0}
    made |= {"step": {"name": "training step", "items": 28}, "durations": [time]}
    for overrides, accumulate in (((), 4), ((("accumulate", "7"),), 7)):
        path = write(made, spec="hardneg:paper", overrides=overrides)
        request = jobs.Request("skypilot", "hardneg:paper", overrides, plan=path, accelerator="tpu-v5litepod-4")
        job = jobs.make(request)
        assert f"--accumulate={accumulate}" in job.text
        assert any("10.0 hours" in note for note in job.notes)
    with pytest.raises(InputError, match=names("8", "--accelerator=v5e")):
        jobs.make(dataclasses.replace(request, accelerator="tpu-v5litepod-8"))


def test_pictures(write):
    """As many at once as fit, if that is less than the config's; memory for the largest of the models."""
    models = [("sd15", 2 * 10**9, 8), ("sdxl", 8 * 10**9, 4)]
    generators = [{"model": name, "weights": {"denoiser": weights}, "batch": batch} for name, weights, batch in models]
    time = duration(4, texts=100.0, generation=35_000.0, decoding=600.0, loading=100.0, compiling=200.0)
    made = {"target": "v5e:2x2", "fits": True, "generators": generators, "durations": [time], "price": 2.0}
    options = (("model", "sd15,sdxl"),)
    path = write(made, spec="images:paper", overrides=options)
    request = jobs.Request("skypilot", "images:paper", options, plan=path, accelerator="tpu-v5litepod-4")
    job = jobs.make(request)
    assert "--batch_size=4" in job.text
    assert any("10.0 hours and 80.00 dollars, 32 GB" in note for note in job.notes)
    made["generators"][1]["batch"] = 16
    write(made, spec="images:paper", overrides=options)
    assert "batch_size" not in jobs.make(request).text
