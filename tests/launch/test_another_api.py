"""A hosted API is one class that registers itself: all users of hosted models know it."""

import inspect
import sys

import openai
import pytest

from launch import configuration, listing, text
from tests.expectations import raises
from winobench.base import registry
from winobench.responders import hosted
from winobench.responders import loading as responders
from winobench.responders.hosted.providers.openai import OpenAI
from winobench.responders.vqa_score import HostedVQAScore
from winobench.runs import provenance
from winobench.scorers import loading as scorers


@pytest.fixture(autouse=True)
def mistral(monkeypatch):
    monkeypatch.setitem(hosted.APIS, "mistral", None)  # the class enters itself, and leaves after the test

    class Mistral(OpenAI, provider="mistral"):
        description = "Mistral's API"
        default_url = "https://api.mistral.example/v1"
        key_variable, url_variable = "MISTRAL_API_KEY", "MISTRAL_BASE_URL"
        package, extra = "mistral_client", "mistral"

    monkeypatch.setitem(sys.modules, "mistral_client", openai)
    monkeypatch.setenv("MISTRAL_API_KEY", "a-key-of-some-length")


def test_its_models_are_known_by_their_names():
    ref = registry.resolve("mistral:large@https://host/v1")
    assert (ref.kind, ref.provider, ref.title, ref.source) == ("hosted", "mistral", "large", ref.name)
    assert text.display_name(ref.name) == "large"
    assert "mistral:MODEL" in [row["name"] for row in listing.models()["models"]]
    with raises("unknown-api", "'mistrl'", "mistral:MODEL"):
        registry.resolve("mistrl:large")


def test_all_options_of_hosted_models_reach_it():
    fields = {"model": "mistral:large", "api.attempts": "3", "api.votes": "7", "api.price": "1,2"}
    fields |= {"api.timeout": "5", "api.extra_body": '{"top_p": 1}'}
    config = configuration.load("gdbench", fields.items())
    options = text.api_options(config.api, config.model)
    assert (options["attempts"], options["votes"], options["prices"]) == (3, 7, {"large": (1.0, 2.0)})
    assert (options["timeout"], options["extra_body"]) == (5.0, {"top_p": 1})
    scorers.check_scorer("clevr-tiny", hosted=options)  # which it ignores


def test_it_scores_and_answers():
    scorer = scorers.load_scorer("mistral:large", hosted={"votes": 7, "logprobs": None})
    assert isinstance(scorer, HostedVQAScore)
    assert (scorer.fingerprint()["api"], scorer.fingerprint()["votes"]) == ("mistral", 7)
    responder = responders.load_responder("mistral:large", hosted={"votes": 7})
    assert responder.fingerprint()["base_url"] == "https://api.mistral.example/v1"
    assert responders.answered_kinds("mistral:large") is None


def test_runs_record_its_clients_version(monkeypatch):
    monkeypatch.setattr(provenance, "_version", lambda name: {"jax": "1", "mistral_client": "2"}.get(name))
    assert inspect.unwrap(provenance.software)()["libraries"] == {"jax": "1", "mistral_client": "2"}
