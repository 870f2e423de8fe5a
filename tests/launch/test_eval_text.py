"""winobench eval on the text benchmarks: local models, recorded answers, a server; listings and refusals."""

import functools
import json
import pathlib
import re
import shutil

import pyarrow.parquet as pq
import pytest

from launch import configuration, text
from tests import launching, tiny_encoders, wscplus_files
from tests.expectations import names, raises
from tests.responders import api_server
from tests.scorers import tiny_models
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.checkpoints import language_models, sources
from winobench.report import published
from winobench.responders import language_model
from winobench.runs import provenance
from winobench.runs.settings import Recording
from winobench.scorers import loading
from winobench.tasks import TEXT_TASKS


def run(spec, workdir, **fields):
    overrides = [(name.replace("__", "."), str(value)) for name, value in fields.items()]
    config = configuration.load(spec, overrides, "eval")
    return text.main(config, str(workdir), Recording(name=spec.replace(":", "-")))


launch = functools.partial(launching.launch, "launch.eval")


def results_of(folder):
    return json.loads((pathlib.Path(folder) / "results.json").read_text())


@pytest.fixture
def server(monkeypatch):
    with api_server.running() as running:
        monkeypatch.setenv("OPENAI_API_KEY", api_server.KEY)
        running.answer = lambda prompt: "Final Answer: 2; nobody can tell."
        yield running


def test_a_local_model_scores_options(tiny_language_model, tmp_path, capsys):
    fields = {"model": tiny_language_model, "protocol": "zero_shot_options_swapped", "limit": 1}
    (folder,) = run("winoviz", tmp_path / "run", tasks="winoviz_mini_single", **fields)
    out = capsys.readouterr().out
    assert re.search(r"winoviz_mini_single *\n +individual +\d+\.\d +\d+\.\d to \d+\.\d +50\.0 +2", out)
    assert re.search(r"position_bias/first_option", out)
    assert "4 requests, 4 of them made now; " in out
    results = results_of(folder)
    assert results["tokens"]["input"] > 0
    assert results["cost"] is None
    assert len(results["versions"]["weights"]) == 64
    assert results["protocols"] == {"winoviz_mini_single": "zero_shot_options_swapped"}
    (row, _) = pq.read_table(pathlib.Path(folder) / "examples" / "winoviz_mini_single.parquet").to_pylist()
    assert len(row["scores"]) == len(row["choices"]) == 2
    # The plain protocol needs nothing that is not there; a run beside it takes it over.
    (other,) = run(
        "winoviz", tmp_path / "other", tasks="winoviz_mini_single", **fields | {"protocol": "zero_shot_options"}
    )
    assert results_of(other)["asked"] == 0


@pytest.mark.slow  # every protocol is compiled
def test_all_protocols_of_both_configs_in_one_command_each(tiny_chat_model, single_device, tmp_path):
    data_dir = tmp_path / "data"
    wscplus_files.write(data_dir)
    for spec, task in (("winoviz:debug", "winoviz_mini_single"), ("wscplus:debug", "wscplus")):
        words = [f"--config={spec}", f"--model={tiny_chat_model}", f"--data_dir={data_dir}"]
        words += ["--limit=1"]
        status, out, err = launch(*words, cwd=tmp_path)
        assert status == 0, err
        kinds = ("generation", "options")
        known = TEXT_TASKS[task].protocols
        able = [name for name, protocol in known.items() if protocol.kind in kinds and not protocol.needs]
        assert re.findall(r"protocol (\w+)$", out, re.MULTILINE) == able
        assert out.count("requests, ") == len(able)
        status, again, err = launch(*words, cwd=tmp_path)
        assert status == 0, err
        assert again.count(" 0 of them made now") == len(able)
        assert re.sub("requests, .*", "", again) == re.sub("requests, .*", "", out)


def test_recorded_answers_and_a_second_model_in_one_command(tmp_path, capsys):
    file = wscplus_files.write(tmp_path, said=lambda number, answer: 2)
    right = file.with_name("GPT3_results.csv")
    right.write_bytes(wscplus_files.write(tmp_path / "other").read_bytes())
    first, second = run(
        "wscplus", tmp_path / "run", model=f"recorded:{file},recorded:{right}", data_dir=tmp_path, protocol="toe"
    )
    assert [pathlib.Path(folder).name for folder in (first, second)] == ["GPT4_results", "GPT3_results"]
    entries = results_of(first)["tasks"]["wscplus"]
    assert entries["accuracy"]["value"] == 0.5
    assert entries["traditional/accuracy"]["value"] == 0
    assert entries["response_evasion"]["value"] == 1
    assert results_of(second)["tasks"]["wscplus"]["pair_accuracy"] | {"low": 0} == {
        "value": 1.0, "low": 0, "high": 1.0, "chance": pytest.approx(1 / 9), "n": 6, "ties": 0,
    }  # fmt: skip
    out = capsys.readouterr().out
    assert "model recorded:" in out
    assert "68.7" in out  # the paper's, beside GPT-4's
    assert "GPT-4: abstract and section 1" in out
    assert out.rstrip().endswith(f"winobench report {first} {second}")


def test_a_server_is_asked_once_and_failures_are_told(server, tmp_path, capsys):
    wscplus_files.write(tmp_path)
    model = f"openai:small-1@{server.address}/v1"
    fields = {"model": model, "protocol": "nt_zero_shot", "data_dir": tmp_path, "api__concurrency": 2}
    fields |= {"api__price": "1000,2000", "api__attempts": 1}
    failed = (500, {}, {"error": {"message": "out of order"}})
    server.script = ["ok"] * 5 + [failed, (200, {}, api_server.openai_body("Answer: 1", "length"))]
    with pytest.raises(SystemExit) as end:
        run("wscplus", tmp_path / "run", **fields)
    assert end.value.code == 2
    results = results_of(tmp_path / "run")
    assert results["requests"] == len(server.calls) == 24
    assert results["failed_calls"]["requests"] == results["failed_calls"]["questions"] == 1
    assert results["tasks"]["wscplus"]["accuracy"]["n"] == 23
    captured = capsys.readouterr()
    assert captured.err.count("1 of 24 calls failed and 1 question is left out") == 1
    assert "give the same command again, which sends only the missing requests" in captured.err
    endings = results["endings"]["wscplus"]
    assert (endings["finished"], endings["cut_off"], endings["failed"]) == (22, 1, 1)
    assert "1 of 23 answers are incomplete" in captured.err
    run("wscplus", tmp_path / "run", **fields)
    assert len(server.calls) == 26
    results = results_of(tmp_path / "run")
    assert results["failed_calls"] is None
    assert (results["requests"], results["asked"]) == (24, 2)
    assert results["tasks"]["wscplus"]["accuracy"]["value"] == 0.5
    assert results["tokens"] == {"input": 24 * 12, "output": 24 * 5}
    assert results["cost"] == pytest.approx(24 * (12 * 1000 + 5 * 2000) / 1e6)
    assert "24 requests, 2 of them made now; 288 tokens read, 120 written; $0.53" in capsys.readouterr().out
    (failures,) = (tmp_path / "run" / "responses").glob("failures-*.jsonl")
    assert [json.loads(line)["error"]["kind"] for line in failures.read_text().splitlines()] == ["server"]
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or api_server.KEY.encode() not in path.read_bytes()


def test_stars_stand_for_tasks_whose_data_are_there(tmp_path):
    mini = [name for name in TEXT_TASKS if name.startswith("winoviz_mini")]
    assert len(mini) == 3
    assert [task.name for task in text.choose_tasks("winoviz_*", str(tmp_path))] == mini
    assert text.choose_tasks("winoviz_mini_multi,winoviz_*", None)[0].name == "winoviz_mini_multi"
    assert text._without_data("winoviz_*", str(tmp_path)) == 3
    assert text._without_data("winoviz_mini_single", str(tmp_path)) == 0
    with pytest.raises(InputError, match=names("'wscplus*'", "WSC")):
        text.choose_tasks("wscplus*", str(tmp_path))


@pytest.mark.parametrize(
    ("spec", "fields", "message"),
    [
        (
            "winoviz",
            {"protocol": "zeroshot"},
            "has no protocol 'zeroshot': did you mean zero_shot",
        ),
        ("winoviz", {"tasks": "winoviz_single"}, "task 'winoviz_single' has no data yet"),
        ("winoviz", {"model": "clevr-tiny"}, "'clevr-tiny' is a model of images, which answers no questions"),
        ("winoviz", {"model": "openai:gpt-4o-mini"}, "OPENAI_API_KEY is not set"),
        ("winoviz", {"model": "recorded:{file}", "protocol": "zero_shot_options"}, "the model does generation"),
        ("winoviz", {"model": "{blip}"}, "has the model_type 'blip'"),
        ("winoviz", {"model": "openai:m@http://localhost:1/v1", "api__extra_body": "low"}, "api.extra_body"),
        ("winoviz", {"model": "flan-t5-base", "api__extra_body": "{"}, "api.extra_body"),
        ("wscplus", {}, "put it at"),
        ("wscplus", {"data_dir": "{bad}"}, "pronoun"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(spec, fields, message, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for name in ("blip", "bad/wscplus"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "blip" / "config.json").write_text('{"model_type": "blip"}')
    (tmp_path / "bad" / "wscplus" / "WSC+.csv").write_text("statement,answer\nx,0\n")
    names = {name: str(tmp_path / name) for name in ("blip", "bad")} | {"tmp": str(tmp_path)}
    names |= {"file": str(wscplus_files.write(tmp_path / "data"))}
    fields = {"model": "recorded:{file}"} | fields
    fields = {name: value.format(**names) if name != "api__extra_body" else value for name, value in fields.items()}
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError) as refusal:
        run(spec, tmp_path / "run", **fields)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_finished_run_loads_no_model(tiny_language_model, tmp_path, monkeypatch):
    """Until a file of the model changes: then the fingerprint tells that it is the same."""
    folder, loaded = shutil.copytree(tiny_language_model, tmp_path / "model"), []
    load = language_model.LanguageModel.from_pretrained
    monkeypatch.setattr(
        language_model.LanguageModel, "from_pretrained", lambda *a, **how: loaded.append(1) or load(*a, **how)
    )
    monkeypatch.setattr(provenance, "software", lambda: {"winobench": {"dirty": False}})
    monkeypatch.setattr(sources, "_TICK_NS", 0)
    fields = {"model": folder, "protocol": "zero_shot_options", "limit": 1, "tasks": "winoviz_mini_single"}
    for times in (1, 1, 2, 2):
        if times == 2 and len(loaded) == 1:
            (folder / "config.json").write_text((folder / "config.json").read_text())
        (place,) = run("winoviz", tmp_path / "run", **fields)
        assert len(loaded) == times
        assert results_of(place)["asked"] == (2 if times == 1 else 0)


def test_models_of_one_kind_are_told_from_those_of_the_other(monkeypatch):
    with pytest.raises(InputError, match=names("'qwen3-0.6b'")):
        loading.load_scorer("qwen3-0.6b")
    # What sees may also be asked without pictures: the same checkpoint under the same name.
    both = {*registry.MODELS} & {*registry.LANGUAGE_MODELS}
    assert both == {"llava-1.5-7b", "llava-1.5-13b"}
    for name in both:
        assert registry.MODELS[name].source == registry.LANGUAGE_MODELS[name].source
        assert loading.resolve(name).kind == "vqa_score"
    monkeypatch.setattr(language_models, "language_model_kind", lambda *_: "decoder")
    for name in (*registry.LANGUAGE_MODELS, "clip-vit-l14", "openai:m", "recorded:x.csv"):
        assert loading.resolve(name, loading.TEXTS).kind in ("decoder", "hosted", "recorded")


def test_options_reach_the_model(tiny_language_model, monkeypatch):
    monkeypatch.setattr(language_model.LanguageModel, "from_pretrained", lambda *args, **options: (args, options))
    overrides = {"dtype": "bfloat16", "int8": "true", "batch_size": "3", "seed": "7", "model_parallel": "2"}
    overrides |= {"allow_pickle": "true"}
    config = configuration.load("winoviz", overrides.items())
    (source, dtype), options = text.load_responder(config, str(tiny_language_model))
    assert (source, dtype) == (str(tiny_language_model), "bfloat16")
    assert options.pop("mesh").shape["model"] == 2
    assert options == {"int8": True, "batch_size": 3, "allow_pickle": True, "seed": 7}


def test_what_reports_call_a_model(tmp_path, monkeypatch):
    names = {"openai:gpt-4o-mini": "gpt-4o-mini", "openai:Qwen/Qwen3-8B@http://localhost:8000/v1": "Qwen/Qwen3-8B"}
    names |= {"recorded:/a/GPT4_results.csv": "GPT4_results", "qwen3-8b": "qwen3-8b"}
    for model, name in names.items():
        assert text.display_name(model) == name
        assert re.fullmatch(r"[\w.-]+", text.model_label(model))
    (tmp_path / "nli-bert-1" / "model").mkdir(parents=True)
    assert text.display_name(str(tmp_path / "nli-bert-1")) == "nli-bert-1"
    for name in ("nli-bert-1/model", "nli-bert-1/model/"):
        assert text.display_name(f"{tmp_path}/{name}") == text.model_label(f"{tmp_path}/{name}") == "nli-bert-1"
    monkeypatch.chdir(tmp_path / "nli-bert-1")
    assert text.display_name("model") == "nli-bert-1"


def test_the_papers_numbers_stand_beside_the_same_model_and_prompt():
    gpt4, flan = "openai:gpt-4-0613", "google/flan-t5-xxl"
    for model, protocol, task, measure, printed in (
        (gpt4, "toe", "wscplus", "accuracy", "68.7"),
        ("gpt-4", "nt_zero_shot", "wscplus", "accuracy", None),
        (flan, "zero_shot_options", "winoviz_single", "individual", "86.24"),
        (flan, "few_shot_swapped", "winoviz_multi", "pair", "42.05"),
        (flan, "zero_shot", "winoviz_mini_single", "individual", None),
        (flan, "captions_options", "winoviz_single", "pair", "71.88"),
        ("qwen3-8b", "zero_shot", "winoviz_single", "individual", None),
        ("clip-vit-l14", "picture_match", "winoviz_single", "individual", "64.67"),
    ):
        found = published.text_reference(task, measure, model=model, protocol=protocol)
        assert (found and found.printed) == printed
    assert published.text_reference("wscplus", "accuracy", model=gpt4, protocol="toe", limit=100).printed == "71"
    people = published.text_reference("wscplus", "offensive/accuracy", model="qwen3-8b", protocol="options")
    assert (people.model, people.printed, people.place) == ("human", "100", "Table 6")


@pytest.mark.slow  # compiles two networks
def test_encoders_answer_by_their_own_protocol(tmp_path, capsys):
    models = [str(tiny_encoders.write_bert(tmp_path / "bert", max_position_embeddings=64))]
    models.append(str(tiny_models.write_clip(tmp_path / "clip")))
    fields = {"tasks": "winoviz_mini_single", "limit": 2}
    folders = run("winoviz", tmp_path / "run", model=",".join(models), **fields)
    asked = [results_of(folder)["protocols"]["winoviz_mini_single"] for folder in folders]
    assert asked == ["entailment", "similarity"]
    for folder in folders:
        assert results_of(folder)["tasks"]["winoviz_mini_single"]["individual"]["n"] == 4
    with pytest.raises(InputError, match=names("'winoviz_mini_single'")):
        run("winoviz", tmp_path / "other", model=models[0], protocol="zero_shot", **fields)
    with raises("option-of-others", "int8"):
        run("winoviz", tmp_path / "other", model=models[0], int8="true", **fields)
    wscplus_files.write(tmp_path)
    with pytest.raises(InputError, match=names("'wscplus'")):
        run("wscplus", tmp_path / "other", model=models[1], protocol="all", data_dir=tmp_path)
    assert not (tmp_path / "other").exists()
