"""WinoViz with pictures: drawn, asked about in each way, resumed after a kill at every stage; and bad input."""

import collections
import dataclasses
import json
import pathlib

import pyarrow.parquet as pq
import pytest

from launch import configuration, text
from tests import tiny_language_models
from tests.evaluation.image_fakes import Seer
from tests.expectations import names, raises
from tests.generation import fakes
from tests.tiny_vision_language import write_vision_language
from winobench import report
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.generation import loading as generators
from winobench.responders import loading
from winobench.runs import schema
from winobench.runs.requests import ImageText
from winobench.runs.responses import num_recorded
from winobench.runs.settings import Recording
from winobench.scorers import loading as scorers

TASK = "winoviz_mini_single"
SEES = ("picture_text", "picture_options", "picture_match")
READS = ("generation", "options")


def run(workdir, spec="winoviz:images", **fields):
    fields = {"tasks": TASK, "limit": 2, "images_per_premise": 3} | fields
    overrides = [(name.replace("__", "."), str(value)) for name, value in fields.items()]
    config = configuration.load(spec, overrides, "eval")
    return text.main(config, workdir and str(workdir), Recording(name=spec.replace(":", "-")))


def results_of(folder):
    return json.loads((pathlib.Path(folder) / "results.json").read_text())


def rows_of(folder):
    return pq.read_table(pathlib.Path(folder) / "examples" / f"{TASK}.parquet").to_pylist()


@pytest.fixture
def cast(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    pipeline = fakes.FakePipeline("sd15")
    models = {
        "clip-vit-l14": Seer("picture_match", name="clip"),
        "instructblip-flan-t5-xl": Seer(*SEES, name="instructblip"),
        "blip2-flan-t5-xl": Seer(*SEES, name="blip2"),
        "flan-t5-base": Seer(*READS, name="base"),
        "flan-t5-xxl": Seer(*READS, name="xxl"),
    }
    monkeypatch.setattr(generators, "make_generators", lambda names, **_: [fakes.generator(pipeline)])
    monkeypatch.setattr(loading, "load_responder", lambda model, *_, **how: models[registry.resolve(model).name])
    for name, model in models.items():
        monkeypatch.setitem(loading.ANSWERS, name, model.kinds)

    def resolve(model, *_):
        ref = registry.resolve(model)
        return dataclasses.replace(ref, kind=ref.name if ref.name in models else ref.kind)

    monkeypatch.setattr(scorers, "resolve", resolve)
    return collections.namedtuple("Cast", "pipeline models")(pipeline, models)


def test_each_model_is_asked_by_its_first_protocol_about_pictures(cast, tmp_path):
    model = "clip-vit-l14,instructblip-flan-t5-xl,flan-t5-xxl,flan-t5-base"
    folders = run(None, model=model)
    assert [results_of(folder)["protocols"][TASK] for folder in folders] == [
        "picture_match", "vqa", "captions", "captions",
    ]  # fmt: skip
    # Two items have four premises; what is drawn is there for all models, and captions for both that read them.
    assert len(cast.pipeline.drawn) == len(set(cast.pipeline.drawn)) == 4 * 3
    captioner = cast.models["blip2-flan-t5-xl"]
    assert len(captioner.asked) == 12
    assert set(map(type, captioner.asked)) == {ImageText}
    asked = {name: len(model.asked) for name, model in cast.models.items()}
    assert asked == dict.fromkeys(asked, 12)
    for folder in folders:
        results = results_of(folder)
        schema.check(results, schema.Results, "results.json", strict=True)
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        schema.check(config, schema.Config, "config.json", strict=True)
        captioned = results["protocols"][TASK] == "captions"
        assert results["requests"] == (24 if captioned else 12)
        for row in rows_of(folder):
            assert len(row["pictures"]) == len(row["choices"]) == 3
            captions = [f"a caption of {sha[:6]}" for sha in row["pictures"]]
            assert row["captions"] == (captions if captioned else [])
            votes = [choice for choice in row["choices"] if choice is not None]
            assert votes.count(row["choice"]) >= 2
            assert row["correct"] == (row["choice"] == row["answer"])
    assert results_of(folders[3])["asked"] == 12  # its captions are the other's
    assert run(None, model=model) == folders
    assert len(cast.pipeline.drawn) == 12
    assert {name: len(model.asked) for name, model in cast.models.items()} == asked
    assert [results_of(folder)["asked"] for folder in folders] == [0, 0, 0, 0]


def test_a_kill_at_any_stage_loses_no_picture_no_caption_and_no_answer(cast, tmp_path):
    captioner, reader = cast.models["blip2-flan-t5-xl"], cast.models["flan-t5-xxl"]
    fields = {"model": "flan-t5-xxl", "generation__batch_size": 1}
    cast.pipeline.fails_after, captioner.stop_after, reader.stop_after = 8, 5, 7
    with pytest.raises(InputError, match=names("fire")):
        run("run", **fields)
    drawn = len(cast.pipeline.drawn)
    assert 0 < drawn <= 8
    cast.pipeline.fails_after = None
    for stage, model in ((5, captioner), (7, reader)):
        with pytest.raises(KeyboardInterrupt):
            run("run", **fields)
        assert len(model.asked) == stage
        model.stop_after = None
    (folder,) = run("run", **fields)
    assert folder == "run"
    assert pathlib.Path("run-images/config.json").is_file()
    assert len(cast.pipeline.drawn) == len(set(cast.pipeline.drawn)) == 12
    for model in (captioner, reader):
        assert len(model.asked) == len(set(model.asked)) == 12
    assert results_of(folder)["asked"] == 5
    assert len(rows_of(folder)) == 4


@pytest.mark.parametrize("trouble", ["failing", "cut"])
def test_failed_captions_are_told_and_asked_for_again(cast, tmp_path, capsys, trouble):
    captioner = cast.models["blip2-flan-t5-xl"]
    run("first", model="clip-vit-l14", limit=1)
    first = cast.models["clip-vit-l14"].asked[0].image
    setattr(captioner, trouble, (first.sha256,))
    fields = {"model": "flan-t5-xxl", "limit": 1, "images": "first-images"}
    with pytest.raises(SystemExit):
        run("run", **fields)
    results = results_of("run")
    assert results["failed_calls"]["requests"] == results["failed_calls"]["questions"] == 1
    assert results["tasks"][TASK]["individual"]["n"] == 1
    assert [row["status"] for row in rows_of("run")].count("failed") == 1
    assert "1 question is left out" in capsys.readouterr().err
    setattr(captioner, trouble, ())
    run("run", **fields)
    assert results_of("run")["tasks"][TASK]["individual"]["n"] == 2
    assert collections.Counter(captioner.asked).most_common(1)[0][1] == 2  # the one that failed
    assert len(captioner.asked) == 7
    assert len(set(cast.models["flan-t5-xxl"].asked)) == len(cast.models["flan-t5-xxl"].asked) == 6


def test_the_page_shows_pictures_captions_and_votes(cast, tmp_path):
    folders = run(None, model="flan-t5-xxl,clip-vit-l14")
    page = report.write_report(folders, tmp_path / "report")
    words = page.read_text()
    assert "What was seen in images" in words
    assert "With images of the premises (Table 6), our small set" in words
    assert "3 a question, generated by sd15" in words
    assert words.count('class="card pictured') == 4
    assert words.count("data:image/jpeg;base64,") == 12
    assert words.count("a caption of ") >= 12
    for row in rows_of(folders[0]):
        assert dict(row["texts"])["premise"] in words.replace("&#39;", "'")
    assert "http" not in words.split("<footer>")[0].replace("http://www.w3.org", "")
    lines = (tmp_path / "report" / "pictures.csv").read_text().splitlines()
    assert lines[0] == "run,task,id,picture,caption,response,vote,right,correct"
    assert len(lines) == 1 + 2 * 12
    text = report.write_report(folders, tmp_path / "short", gallery_examples=0).read_text()
    assert "data:image/jpeg" not in text


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"model": "flan-t5-xxl", "protocol": "vqa"}, "kind-not-answered", ("'vqa'", "picture_text", "captions")),
        ({"model": "flan-t5-xxl", "captioner": "none"}, "no-captioner", ("'captions'", "--captioner")),
        ({"generator": "clip-vit-l14"}, "wrong-kind-of-model", ("--generator", "clip-vit-l14")),
        ({"generator": "none", "protocol": "vqa"}, "no-pictures", ("'vqa'", "--images", "--generator")),
        ({"images": "nowhere"}, "no-such-folder", ("nowhere",)),
        ({"protocol": "vqua"}, "unknown-name", ("'vqua'", "vqa")),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_drawn(cast, tmp_path, fields, code, words):
    before = sorted(tmp_path.rglob("*"))
    with raises(code, *words):
        run("run", **fields)
    assert not cast.pipeline.drawn
    assert sorted(tmp_path.rglob("*")) == before


def test_a_picture_that_is_gone_is_named(cast, tmp_path):
    run("run", model="clip-vit-l14", limit=1)
    (tmp_path / "run-images" / "pictures" / "sd15" / "1" / "00000.png").unlink()
    with raises("no-picture", "run-images/pictures/sd15/1/00000.png", "--workdir=run-images"):
        run("other", model="clip-vit-l14", limit=1, images="run-images")
    with raises("no-picture", "winobench generate --config=images"):
        run("other", model="clip-vit-l14", limit=2, images="run-images")
    run("run", model="clip-vit-l14", limit=1)  # which draws it again
    assert len(cast.pipeline.drawn) == 7
    assert results_of("run")["asked"] == 0


@pytest.mark.slow  # several networks are compiled
@pytest.mark.parametrize(
    ("protocol", "model"),
    [
        ("picture_match", "pipeline"),
        ("vqa,vqa_options,picture_match", "instructblip"),
        ("captions,captions_options", "t5"),
    ],
)
def test_small_random_models_from_end_to_end(
    protocol, model, tiny_pipeline, tiny_t5, single_device, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    tiny_language_models.compile_quickly(monkeypatch)
    written = {
        "instructblip": lambda folder: write_vision_language(folder, "instructblip"),
        "blip-2": lambda folder: write_vision_language(folder, "blip-2"),
        "pipeline": lambda _: tiny_pipeline,
        "t5": lambda _: tiny_t5,
    }
    fields = {"generator": tiny_pipeline, "generation__num_steps": 2, "sampling__num_samples": 2, "limit": 1}
    fields |= {"captioner": written["blip-2"](tmp_path / "blip-2")} if model == "t5" else {"captioner": "none"}
    fields |= {"model": written[model](tmp_path / model), "protocol": protocol, "images_per_premise": 2}
    folders = run(None, **fields)
    assert len(folders) == len(protocol.split(","))
    for folder in folders:
        results = results_of(folder)
        assert results["failed_calls"] is None
        assert results["tasks"][TASK]["individual"]["n"] == 2
        for row in rows_of(folder):
            assert len(row["pictures"]) == 2
            assert bool(row["captions"]) == (model == "t5")
    if model == "t5":
        assert results_of(folders[1])["asked"] == 4  # its captions are the other run's
    # A run that returns at once leaves its results as they are, with the requests of the first call.
    recorded = [num_recorded(pathlib.Path(folder, "responses")) for folder in folders]
    assert run(None, **fields) == folders
    assert [num_recorded(pathlib.Path(folder, "responses")) for folder in folders] == recorded
    assert "What was seen in images" in report.write_report(folders, tmp_path / "report").read_text()
