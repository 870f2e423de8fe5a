"""Images by models behind an API: what is sent, what is kept, what is paid for, and what ends a run."""

import base64
import dataclasses
import hashlib
import io
import json
import time

import numpy as np
import PIL.Image
import pytest

import winobench
from tests import launching
from tests.contrib.hosted_images import image_server
from tests.contrib.hosted_images.image_server import AZURE, BLOCKED, body, colour, error, file_of, whole
from tests.expectations import raises
from tests.generation import fakes
from tests.responders import api_server
from winobench.contrib.hosted_images.model import HostedImages
from winobench.contrib.hosted_images.openai_images import Drawing
from winobench.generation import generate, judged, loading
from winobench.prompts.prompt_files import SOURCE_IMAGE, SOURCE_SHA256, Prompt
from winobench.runs.requests import InputImage

PROMPTS = [Prompt("1", "a red cube"), Prompt("2", "zwei Würfel", "zwei"), Prompt("3", '<b>"cats"</b>')]


@pytest.fixture
def server(monkeypatch):
    api_server.set_keys(monkeypatch)
    with image_server.running() as server:
        yield server


def generators(server, model="gpt-image-2", *, settings=None, **hosted):
    named = f"openai:{model}@{server.address}/v1"
    how = {"first_wait": 0.01, **hosted}
    return loading.make_generators([named], settings=settings, hosted=how)


def draw(server, folder, prompts=PROMPTS, *, model="gpt-image-2", settings=None, seeds=(0,), ask_again=False, **hosted):
    made = generators(server, model, settings=settings, **hosted)
    how = {"settings": settings or generate.Settings(), "seeds": seeds, "ask_again": ask_again, "progress": False}
    return generate.generate_images(made, prompts, folder, **how)


def only(kind, reply):
    """A server's reply to prompts that are this one, and images for others."""
    return lambda fields: reply if fields["prompt"] == kind else (200, {}, whole(fields["prompt"]))


def test_what_is_sent_and_what_is_kept(server, tmp_path):
    run = draw(server, tmp_path / "run", size="16x8", quality="low", extra_body={"moderation": "low"})
    assert sorted(server.prompts) == sorted(prompt.text for prompt in PROMPTS)
    for path, fields in server.calls:
        assert path == "/v1/images/generations"
        assert fields == {
            **{"model": "gpt-image-2", "prompt": fields["prompt"], "n": 1},
            **{"size": "16x8", "quality": "low", "moderation": "low"},
        }
    (model,) = run.models
    assert (model.label, model.name) == ("gpt-image-2", "gpt-image-2")
    assert model.settings == {"size": "16x8", "quality": "low", "moderation": "low", "base_url": f"{server.address}/v1"}
    for record in run.records:
        expected = np.broadcast_to(colour(record.prompt.text), (8, 16, 3))
        np.testing.assert_array_equal(run.image(record), expected)
        received = hashlib.sha256(file_of(record.prompt.text)).hexdigest()
        seconds = record.source.pop("seconds")
        assert 0 <= seconds < 60
        assert record.source == {"sha256": received, "input_tokens": 10, "output_tokens": 272}
    # The key is in the headers alone.
    assert set(server.keys) == {f"Bearer {api_server.KEY}"}
    assert not any(api_server.KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    again = draw(server, tmp_path / "run", size="16x8", quality="low", extra_body={"moderation": "low"})
    assert (len(again.records), len(server.calls)) == (3, 3)
    with raises("another-run", "quality"):
        draw(server, tmp_path / "run", size="16x8", quality="high", extra_body={"moderation": "low"})


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_formats_of_images(server, tmp_path, kind):
    server.reply = lambda fields: (200, {}, whole(fields["prompt"], size=(24, 24), kind=kind))
    run = draw(server, tmp_path, PROMPTS[:1], output_format=kind.lower())
    assert server.calls[0][1]["output_format"] == kind.lower()
    difference = run.image(run.records[0]).astype(int) - colour(PROMPTS[0].text)
    assert np.abs(difference).max() <= 4


def test_a_data_url_and_transparent_parts(server, tmp_path):
    buffer = io.BytesIO()
    PIL.Image.new("RGBA", (4, 4), (255, 0, 0, 0)).save(buffer, "PNG")
    item = f"data:image/png;base64,{base64.encodebytes(buffer.getvalue()).decode()}"
    server.reply = lambda fields: (200, {}, body(b64_json=item, revised_prompt="a cube that is red"))
    run = draw(server, tmp_path / "a", PROMPTS[:1], background="transparent")
    assert (run.image(run.records[0]) == 255).all()
    server.reply = lambda fields: (200, {}, body(url=item, revised_prompt="a cube that is red"))
    run = draw(server, tmp_path / "b", PROMPTS[:1])
    assert (run.image(run.records[0]) == 255).all()
    assert run.records[0].source["revised_prompt"] == "a cube that is red"


def test_a_server_gets_rewritten_prompts_and_judges_read_the_others(server, tmp_path):
    run = draw(server, tmp_path, [Prompt("1", "Würfel", shown="a 'red' cube")])
    assert server.prompts == ["a 'red' cube"]
    assert (run.records[0].prompt.text, run.prompts[0].shown) == ("Würfel", "a 'red' cube")


def test_judges_count_filtered_prompts(server, tmp_path):
    server.reply = only("a red cube", (400, {}, BLOCKED))
    run = draw(server, tmp_path)
    judgement = judged.judge_images(run, fakes.ImageJudge(), name="judge", rubric="vqa_score", progress=False)
    assert judgement.no_image == {"gpt-image-2": {"filtered": 1}}
    assert judgement.models["gpt-image-2"]["no_image"]["all"]["value"] == pytest.approx(1 / 3)


def test_an_image_is_edited(server, tmp_path):
    """The file goes out as it is, to another address. Known prices hold for texts that are read, and not for images."""
    path = tmp_path / "source.png"
    path.write_bytes(file_of("before"))
    source = InputImage(str(path), hashlib.sha256(path.read_bytes()).hexdigest())
    details = {"text_tokens": 10, "image_tokens": 90}
    usage = {"input_tokens": 100, "output_tokens": 272, "input_tokens_details": details}
    server.reply = lambda fields: (200, {}, whole(fields["prompt"]) | {"usage": usage})
    name = f"openai:gpt-image-2@{server.address}/v1"
    model = HostedImages(name, size="16x8", prices={"gpt-image-2": (5, 30)})
    ((_, raw),) = model.ask_parts([Drawing("ein 'roter' Würfel", 0, source)])
    ((address, fields),) = server.calls
    assert address == "/v1/images/edits"
    assert fields == {
        **{"model": "gpt-image-2", "prompt": "ein 'roter' Würfel", "n": "1", "size": "16x8"},
        "image": ("image/png", file_of("before")),
    }
    pixels, said = raw["image"], raw["source"]
    np.testing.assert_array_equal(pixels[0, 0], colour("ein 'roter' Würfel"))
    assert said["image_tokens"] == 90
    assert model.price(100, 272, True) == pytest.approx((100 * 5 + 272 * 30) / 1e6)
    assert HostedImages("openai:gpt-image-2").price(100, 272, True) is None
    assert HostedImages("openai:gpt-image-2").price(100, 272) is not None
    (tmp_path / "other.png").write_bytes(file_of("another"))
    with raises("file-changed", "other.png"):
        list(model.ask_parts([Drawing("x", 0, InputImage(str(tmp_path / "other.png"), source.sha256))]))
    assert len(server.calls) == 1


def test_prompts_that_edit_images(server, tmp_path):
    """A model gets the run's copy of the image. Pipelines refuse such prompts."""
    before = file_of("before")
    content = {SOURCE_IMAGE: "a/b.png", SOURCE_SHA256: hashlib.sha256(before).hexdigest()}
    prompts = [Prompt("1", "make it red", content=content, source=lambda: before), Prompt("2", "a cube")]
    run = draw(server, tmp_path / "run", prompts)
    assert [record.prompt.text for record in run.records] == ["make it red", "a cube"]
    assert sorted(path for path, _ in server.calls) == ["/v1/images/edits", "/v1/images/generations"]
    sent = {fields["prompt"]: fields.get("image") for _, fields in server.calls}
    assert sent == {"make it red": ("image/png", before), "a cube": None}
    for call in (generate.generate_images, generate.estimate):
        with raises("wrong-kind-of-model", "1", "the fake", "openai:MODEL"):
            call([*generators(server), fakes.generator(fakes.FakePipeline())], prompts, tmp_path / "both")


def test_seeds_and_sizes_are_sent_where_they_are_asked_for(server, tmp_path):
    draw(server, tmp_path / "a", PROMPTS[:1], seeds=(3, 5), send_seed=True, settings=generate.Settings(image_size=64))
    assert sorted((fields["seed"], fields["size"]) for _, fields in server.calls) == [(3, "64x64"), (5, "64x64")]
    draw(server, tmp_path / "b", PROMPTS[:1], seeds=(3, 5))
    assert all("seed" not in fields and "size" not in fields for _, fields in server.calls[2:])
    with raises("bad-value", "64", "64x32"):
        draw(server, tmp_path / "c", settings=generate.Settings(image_size=64), size="64x32")


def test_base64_is_requested_unless_a_server_refuses_that(server, tmp_path):
    draw(server, tmp_path / "a", PROMPTS[:1], model="sd-server")
    assert server.calls.pop()[1]["response_format"] == "b64_json"

    def refuse(fields):
        if "response_format" in fields:
            return 400, {}, error("Unknown parameter: 'response_format'.", "unknown_parameter", param="response_format")
        return 200, {}, whole(fields["prompt"])

    server.reply = refuse
    run = draw(server, tmp_path / "b", model="another", concurrency=1)
    assert ["response_format" in fields for _, fields in server.calls] == [True, False, False, False]
    assert len(run.records) == 3


def test_images_at_addresses_are_downloaded_without_the_key(server, tmp_path):
    server.reply = lambda fields: (200, {}, body(url=f"{server.address}/a.png?sig=secret"))
    server.files["/a.png?sig=secret"] = (302, {"Location": "/b.png"}, "")
    server.files["/b.png"] = (200, {}, file_of("at an address"))
    run = draw(server, tmp_path, PROMPTS[:1], model="sd")
    np.testing.assert_array_equal(run.image(run.records[0])[0, 0], colour("at an address"))
    assert server.got == [("/a.png?sig=secret", None), ("/b.png", None)]
    assert "secret" not in "".join(path.read_text() for path in tmp_path.rglob("*.json*"))


@pytest.mark.parametrize(
    ("url", "files", "named"),
    [
        ("file:///etc/passwd", {}, ["'file'"]),
        ("ftp://127.0.0.1/a.png", {}, ["'ftp'"]),
        ("/a.png", {"/a.png": (302, {"Location": "file:///etc/passwd"}, "")}, ["'file'"]),
        ("/a.png", {"/a.png": (302, {"Location": "/a.png"}, "")}, ["127.0.0.1", "302"]),
        ("/a.png", {}, ["127.0.0.1", "404"]),
        ("/a.png", {"/a.png": (200, {}, b"0" * 3000)}, ["more than"]),
        ("/a.png", {"/a.png": (200, {"Content-Length": "900"}, file_of("x"))}, ["127.0.0.1"]),
        ("http://", {}, ["cannot be downloaded"]),
        ("http://[bad/a.png", {}, ["not a URL"]),
    ],
)
def test_an_image_that_cannot_be_downloaded_is_not_paid_twice(server, tmp_path, monkeypatch, url, files, named):
    monkeypatch.setattr("winobench.contrib.hosted_images.openai_images._SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr("winobench.contrib.hosted_images.openai_images.OpenAIImages.largest_answer", 2000)
    server.reply, server.files = only("a red cube", (200, {}, body(url=url))), files
    with raises("calls-failed", "1 of 3 images", "may have been billed", *named):
        draw(server, tmp_path / "run", model="sd")
    assert len(server.calls) == 3
    # The others are there, and the same command requests this one alone.
    server.reply = lambda fields: (200, {}, whole(fields["prompt"]))
    assert len(draw(server, tmp_path / "run", model="sd").records) == 3
    assert server.prompts[3:] == ["a red cube"]


FILTERS = {
    "OpenAI": (400, {}, BLOCKED),
    "DALL-E": (
        400,
        {},
        error("Your request was rejected as a result of our safety system.", "content_policy_violation"),
    ),
    "Azure": (400, {}, AZURE),
    "Azure, the image": (400, {}, {"error": {"code": "contentFilter", "message": "Your task failed."}}),
    "Google": (400, {}, [{"error": {"code": 400, "message": "The prompt violates our policies.", "status": "X"}}]),
    "gateway": (451, {}, error("blocked by moderation")),
    "error of status 200": (200, {}, BLOCKED),
    "Seedream": (
        200,
        {},
        {"data": [{"error": {"code": "OutputImageSensitiveContentDetected", "message": "sensitive information"}}]},
    ),
    "no image": (200, {}, {"created": 1, "data": []}),
    "an empty address": (200, {}, body(url="")),
    "xAI": (200, {}, {"data": [{"b64_json": "", "respect_moderation": False}]}),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filtered_prompt_is_a_missing_image_and_ends_nothing(server, tmp_path, name):
    server.reply = only("a red cube", FILTERS[name])
    run = draw(server, tmp_path / "run", concurrency=1)
    assert [record.number for record in run.records] == [1, 2]
    (missing,) = run.missing
    assert (missing.place, missing.kind) == (("gpt-image-2", 0, 0), "filtered")
    assert missing.reason
    assert len(server.calls) == 3
    draw(server, tmp_path / "run")
    assert len(server.calls) == 3  # it is not requested again,
    server.reply = lambda fields: (200, {}, whole(fields["prompt"]))
    run = draw(server, tmp_path / "run", ask_again=True)  # unless that is asked for
    assert (len(run.records), run.missing, server.prompts[3:]) == (3, (), ["a red cube"])


def test_words_about_an_image_that_was_not_sent_speak_of_no_filter(server, tmp_path):
    server.reply = only("a red cube", (400, {}, error("Invalid image size")))
    assert [missing.kind for missing in draw(server, tmp_path).missing] == ["blocked"]


def test_another_refusal_of_a_prompt_is_a_missing_image_of_another_kind(server, tmp_path):
    words = "Invalid 'prompt': string too long. Expected a string with maximum length 1000."
    server.reply = only("a red cube", (400, {}, error(words, "string_above_max_length", param="prompt")))
    (missing,) = draw(server, tmp_path).missing
    assert (missing.kind, missing.reason) == ("blocked", words)


@pytest.mark.parametrize(
    ("reply", "code", "named"),
    [
        (
            (401, {}, error(f"Incorrect API key: {api_server.KEY}", "invalid_api_key")),
            "key-refused",
            ["OPENAI_API_KEY"],
        ),
        ((404, {}, error("The model does not exist.", "model_not_found")), "no-such-model", ["does not exist"]),
        ((400, {}, error("The model 'x' does not exist.", "invalid_value", param="model")), "field-refused", ["model"]),
        ((400, {}, error("Invalid value: '9x9'.", "invalid_value", param="size")), "field-refused", ["size", "9x9"]),
        # The field's name is also a filter's.
        ((400, {}, error("Invalid value: 'x'.", "invalid_value", param="moderation")), "field-refused", ["moderation"]),
        (
            (422, {}, {"detail": [{"loc": ["body", "moderation"], "msg": "bad", "type": "literal_error"}]}),
            "field-refused",
            ["moderation"],
        ),
        (
            (422, {}, {"detail": [{"loc": ["body", "size"], "msg": "bad", "type": "value_error"}]}),
            "field-refused",
            ["size"],
        ),
        (
            (400, {}, error("Billing hard limit has been reached", "billing_hard_limit_reached")),
            "no-credit",
            ["Billing"],
        ),
        ((403, {}, error("Your organization must be verified.")), "account-refused", ["verified"]),
        (
            (403, {}, error("Your resource has been temporarily blocked: it may violate our content policy.")),
            "account-refused",
            ["temporarily blocked"],
        ),
        ((429, {"Retry-After": "9999"}, error("slow down", "rate_limit_exceeded")), "rate-limited", ["9999"]),
    ],
)
def test_a_fault_of_every_call_ends_the_run_at_once(server, tmp_path, reply, code, named):
    server.reply = lambda fields: reply
    with raises(code, *named) as caught:
        draw(server, tmp_path / "run", size="9x9", extra_body={"moderation": "x"}, concurrency=1)
    assert len(server.calls) == 1
    assert api_server.KEY not in str(caught.value)


def test_calls_that_may_pass_are_repeated(server, tmp_path):
    data = json.dumps(whole("a red cube"))
    replies = [
        (429, {"Retry-After": "0.05"}, error("slow down", "rate_limit_exceeded")),
        (500, {}, error("oops", "server_error")),
        (500, {}, error("Unable to process image request", "server_error")),
        (200, {"Content-Length": str(len(data))}, data[:50]),  # cut off
        (200, {}, data),
    ]
    server.reply = lambda fields: replies.pop(0)
    began = time.monotonic()
    run = draw(server, tmp_path, PROMPTS[:1])
    assert (len(run.records), len(server.calls)) == (1, 5)
    assert time.monotonic() - began > 0.05


def test_a_slow_call_is_given_up_and_others_stay(server, tmp_path):
    def reply(fields):
        time.sleep(0.5 * (fields["prompt"] == "a red cube"))
        return 200, {}, whole(fields["prompt"])

    server.reply = reply
    with raises("calls-failed", "1 of 3", "timeout", "same command again"):
        draw(server, tmp_path / "run", timeout=0.2, attempts=2)
    assert server.prompts.count("a red cube") == 2
    partial = winobench.read_images(tmp_path / "run", complete=False)
    assert len(partial.records) == 2


@pytest.mark.parametrize(
    "reply",
    [
        (200, {}, "no JSON"),
        (200, {}, {"data": "none"}),
        (200, {}, body(b64_json="%%%")),
        (200, {}, body(b64_json=base64.b64encode(b"no image").decode())),
        (200, {}, body(b64_json=base64.b64encode(file_of("x")[:40]).decode())),
    ],
)
def test_an_answer_without_a_readable_image_is_one_failed_call(server, tmp_path, reply):
    server.reply = only("a red cube", reply)
    with raises("calls-failed", "1 of 3", "may have been billed"):
        draw(server, tmp_path / "run")
    assert len(server.calls) == 3


def test_answers_that_cannot_be_read_end_the_run_before_all_are_paid_for(server, tmp_path):
    prompts = [Prompt(str(number), f"cube {number}") for number in range(12)]
    server.reply = lambda fields: (200, {}, body(b64_json=base64.b64encode(b"<svg/>").decode()))
    with raises("all-calls-failed", "the last 5 calls", "SVG", "may have been billed"):
        draw(server, tmp_path, prompts, failures_in_a_row=5, concurrency=1)
    assert len(server.calls) == 5


def test_prompts_of_a_row_that_ends_the_run_are_requested_again(server, tmp_path):
    prompts = [Prompt(str(number), f"cube {number}") for number in range(9)]
    server.reply = lambda fields: (
        (400, {}, error("not today")) if fields["prompt"] not in ("cube 0", "cube 2") else (200, {}, whole("x"))
    )
    how = {"failures_in_a_row": 4, "concurrency": 1}
    with raises("all-calls-failed", "not today"):
        draw(server, tmp_path, prompts, **how)
    server.reply = lambda fields: (200, {}, whole("x"))
    run = draw(server, tmp_path, prompts, **how)
    assert [missing.prompt.text for missing in run.missing] == ["cube 1"]  # the server has answered the next one
    assert len(run.records) == 8


def test_calls_under_way_are_bounded_and_a_dead_server_ends_the_run(server, tmp_path):
    server.seconds = 0.02
    prompts = [Prompt(str(number), f"cube {number}") for number in range(12)]
    draw(server, tmp_path / "a", prompts, concurrency=3)
    assert server.most == 3
    server.reply = lambda fields: (503, {}, error("down"))
    with raises("all-calls-failed", "the last 5 calls", "down", server.address):
        draw(server, tmp_path / "b", prompts, attempts=1, failures_in_a_row=5, concurrency=1)
    assert len(server.calls) == 12 + 5


def test_prices_before_and_after(server, tmp_path):
    how = {"seeds": (0, 1), "settings": generate.Settings()}
    (made,) = generators(server, quality="low", size="1024x1024", prices={"gpt-image-2": (5.0, 30.0)})
    before = generate.estimate([made], PROMPTS, tmp_path, **how)
    assert before["gpt-image-2"] == {"images": 6, "missing": 6, "tokens": None, "cost": None, "seconds": None}
    generate.generate_images([made], PROMPTS, tmp_path, progress=False, **how)
    run = winobench.read_images(tmp_path)
    spent = made.hosted.spent(run.records)
    assert (spent["images"], spent["tokens"]) == (6, {"input": 60, "output": 1632})
    assert spent["cost"] == pytest.approx((60 * 5 + 1632 * 30) / 1e6, rel=1e-12)
    run.path(run.records[0]).unlink()
    after = generate.estimate([made], PROMPTS, tmp_path, **how)["gpt-image-2"]
    assert (after["missing"], after["tokens"]) == (1, {"input": 10, "output": 272})
    assert after["cost"] == pytest.approx(spent["cost"] / 6)
    # Overwriting requests all of them, also in the folder of another run.
    for prompts in (PROMPTS, PROMPTS[:2]):
        all_of_them = generate.estimate([made], prompts, tmp_path, overwrite=True, **how)["gpt-image-2"]
        assert all_of_them["missing"] == 2 * len(prompts)
    # Without prices of tokens, or without tokens, an image has a price of its own or none.
    assert generators(server)[0].hosted.spent(run.records)["cost"] is None
    of_images = generators(server, image_price=0.04)[0].hosted
    unknown = [dataclasses.replace(record, source={"sha256": "0" * 64}) for record in run.records]
    assert of_images.spent(unknown) == {
        "images": 6,
        "tokens": None,
        "cost": pytest.approx(0.24),
        "seconds": 0.0,
    }


def test_stated_tokens_of_openais_models(monkeypatch):
    api_server.set_keys(monkeypatch)
    hosted = {"quality": "high", "size": "1024x1536"}
    made = loading.make_generators(["openai:gpt-image-1.5", "openai:gpt-image-2"], hosted=hosted)
    first, second = (each.hosted.estimate([], 10) for each in made)
    assert first["tokens"] == {"input": None, "output": 62_400}
    assert first["cost"] == pytest.approx(62_400 * 32 / 1e6)
    assert second == {"tokens": None, "cost": None, "seconds": None}


def test_pipelines_and_hosted_models_in_one_run(server, tmp_path):
    pipeline = fakes.FakePipeline()
    both = [fakes.generator(pipeline), *generators(server)]
    run = generate.generate_images(both, PROMPTS, tmp_path, progress=False)
    assert [record.model for record in run.records] == ["fake"] * 3 + ["gpt-image-2"] * 3
    assert json.loads((tmp_path / "config.json").read_text())["identity"]["settings"]["num_steps"] == 50
    assert run.models[0].settings["num_steps"] == 50
    assert "num_steps" not in run.models[1].settings


def test_models_are_told_apart(server, monkeypatch):
    names = [f"openai:m@{server.address}/v1", "openai:m@http://localhost:1/v1", "openai:org/n@http://localhost:1/v1"]
    made = loading.make_generators(names, hosted={})
    labels = [each.label for each in made]
    assert len(set(labels)) == 3
    assert labels[2] == "n"
    assert [each.name for each in made] == ["m", "m", "org/n"]
    assert len({each.files() for each in made}) == 3


@pytest.mark.parametrize(
    ("how", "code", "named"),
    [
        ({"loras": ["some/lora"]}, "option-of-others", ["lora", "openai:m"]),
        ({"variant": "fp16"}, "option-of-others", ["variant"]),
        ({"revision": "main"}, "option-of-others", ["revision"]),
        ({"pipeline_options": {"a": 1}}, "option-of-others", ["pipeline_options"]),
        ({"hosted": None}, "wrong-kind-of-model", ["openai:m", "API"]),
        ({"hosted": {"extra_body": {"prompt": "x"}}}, "reserved-field", ["prompt"]),
        ({"hosted": {"extra_body": {"size": "1x1"}, "size": "2x2"}}, "reserved-field", ["size"]),
        ({"hosted": {"image_price": -1}}, "out-of-range", ["image_price"]),
    ],
)
def test_options_that_hosted_models_lack(monkeypatch, how, code, named):
    api_server.set_keys(monkeypatch)
    with raises(code, *named):
        loading.make_generators(["openai:m@http://127.0.0.1:1/v1"], **{"hosted": {}, **how})


def test_names_without_a_key_or_without_images(monkeypatch):
    api_server.set_keys(monkeypatch)
    with raises("wrong-kind-of-model", "anthropic:m", "openai"):
        loading.make_generators(["anthropic:m"], hosted={})
    monkeypatch.delenv("OPENAI_API_KEY")
    with raises("no-key", "OPENAI_API_KEY"):
        loading.make_generators(["openai:gpt-image-2"], hosted={})


launch = launching.launch


@pytest.mark.slow
def test_from_the_command_line(server, tmp_path):
    (tmp_path / "p.txt").write_text("a red cube\nviolence\ntwo cats\n")
    server.reply = only("violence", (400, {}, BLOCKED))
    model = f"--model=openai:gpt-image-2@{server.address}/v1"
    words = ["launch.generate", "--prompts=p.txt", model, "--image_size=64", "--api.price=5,30", "--workdir=run"]
    status, out, err = launch(*words, "--dry_run", "--json", cwd=tmp_path)
    assert (status, server.calls, (tmp_path / "run").exists()) == (0, [], False)
    assert json.loads(out)["planned"]["gpt-image-2"]["missing"] == 3
    status, out, err = launch(*words, "--json", cwd=tmp_path)
    assert status == 0, err
    document = json.loads(out)
    assert document["missing"] == {"gpt-image-2": {"filtered": 1}}
    assert document["spent"]["gpt-image-2"]["cost"] == pytest.approx(2 * (10 * 5 + 272 * 30) / 1e6)
    assert "1 of 3 images (33.3%) are missing (1 filtered" in err
    page = (tmp_path / "run" / "pictures.html").read_text()
    assert page.count("<img ") == 2
    status, out, err = launch(*words, cwd=tmp_path)
    assert (status, len(server.calls)) == (0, 3)
    assert "$0.02" in out
    server.reply = lambda fields: (400, {}, BLOCKED)
    status, out, err = launch(*words[:-1], "--workdir=other", cwd=tmp_path)
    assert (status, "3 of 3 images (100.0%)" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--num_steps=30"], ["num_steps", "openai:m"]),
        (["--guidance_scale=5"], ["guidance_scale"]),
        (["--sampler=ddim"], ["sampler"]),
        (["--lora=x"], ["lora"]),
        (["--dtype=bfloat16"], ["dtype"]),
        (["--model=clevr-tiny", "--api.size=8x8"], ["api.size", "clevr-tiny"]),
    ],
)
def test_options_without_an_effect_are_refused(words, named):
    launching.refuse("launch.generate", "--model=openai:m@http://127.0.0.1:1/v1", *words, named=named)


@pytest.mark.slow
def test_a_killed_run_pays_nothing_twice(server, tmp_path):
    texts = [f"cube number {number}" for number in range(100)]
    texts[40] = "violence"
    (tmp_path / "p.txt").write_text("\n".join(texts))
    server.reply, server.seconds = only("violence", (400, {}, BLOCKED)), 0.05
    model = f"--model=openai:gpt-image-2@{server.address}/v1"
    words = ["--prompts=p.txt", model, "--workdir=run", "--api.concurrency=4"]
    process = launching.start("launch.generate", *words, cwd=tmp_path)
    launching.kill(process, lambda: len(list(tmp_path.glob("run/pictures/*/*/*.png"))) >= 50)
    partial = winobench.read_images(tmp_path / "run", complete=False)
    there = {record.prompt.text for record in partial.records}
    before = len(server.calls)
    assert 40 <= len(there) < 100
    assert before - len(there) <= 1 + 4  # the filtered one, and those under way
    assert launching.launch_process("launch.generate", *words, cwd=tmp_path)[0] == 0
    again = server.prompts[before:]
    assert not there & set(again)
    assert len(again) == len(set(again)) == 100 - len(there) - len(partial.missing)
    run = winobench.read_images(tmp_path / "run")
    assert (len(run.records), [missing.prompt.text for missing in run.missing]) == (99, ["violence"])
    for record in run.records:
        np.testing.assert_array_equal(run.image(record)[0, 0], colour(record.prompt.text))
