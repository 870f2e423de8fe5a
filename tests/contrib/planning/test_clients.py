"""Jobs install the clients of hosted models."""

import pytest
from launch.cloud import jobs

from tests.launch.test_another_api import mistral  # noqa: F401 - a fixture that all tests use


@pytest.mark.parametrize(
    ("words", "extras"),
    [
        (["gdbench", "--model=clip-vit-b32, openai:gpt-4o"], "cuda,api"),
        (["gdbench", "--model=mistral:large,openai:gpt-4o,anthropic:claude-x"], "cuda,mistral,api"),
        (["winoviz:images", "--captioner=openai:gpt-4o"], "cuda,api"),
    ],
)
def test_jobs_install_the_clients_of_all_models(words, extras):
    spec, *overrides = words
    fields = [tuple(word.removeprefix("--").split("=")) for word in overrides]
    assert f".[{extras}]" in jobs.make(jobs.Request("skypilot", spec, fields, store="gs://bucket")).text
