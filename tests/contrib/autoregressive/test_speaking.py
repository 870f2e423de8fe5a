"""A tiny Janus that writes words: it judges, answers about images of WinoViz, and writes captions, from its folder."""

import json

import pyarrow.parquet as pq
import pytest
import torch
import transformers

from tests import launching
from tests.contrib.autoregressive.tiny import pictures
from tests.contrib.benchmarks.question_layouts import write_dpg
from tests.generation import fakes
from winobench.prompts.named_sets import read_prompts
from winobench.runs import judgements


@pytest.fixture(scope="module")
def speaking(write_generator, tmp_path_factory):
    """A function of a word, whose letters differ: the folder of a Janus that always answers with this word."""

    def write(word):
        folder, tied = tmp_path_factory.mktemp("speaking"), write_generator("janus")
        processor = transformers.JanusProcessor.from_pretrained(tied)
        model = transformers.JanusForConditionalGeneration.from_pretrained(tied, tie_word_embeddings=False)
        decoder, tokenizer = model.model.language_model, processor.tokenizer
        (*letters,) = tokenizer(f":{word}", add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            for layer in decoder.layers:  # so that the state is the last token's embedding
                layer.self_attn.o_proj.weight.zero_()
                layer.mlp.down_proj.weight.zero_()
            decoder.norm.weight.fill_(1)
            model.lm_head.weight.zero_()
            # A prompt ends with a colon. Each letter leads to the next one.
            for before, after in zip(letters, [*letters[1:], tokenizer.eos_token_id], strict=True):
                model.lm_head.weight[after] = decoder.embed_tokens.weight[before]
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
        return folder

    return write


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number, image in enumerate(pictures(2)):
        image.save(folder / f"{number}.png")
    return folder


def launched(launcher, *words):
    status, out, err = launching.launch(f"launch.{launcher}", *words)
    assert status == 0, err
    return out


def test_it_judges_by_its_texts(speaking, tmp_path):
    run = fakes.draw(tmp_path / "run", "a", prompts=read_prompts(f"dpg_bench:{write_dpg(tmp_path / 'dpg')}", limit=3))
    out = launched("judge", run.folder, f"--model={speaking('yes')}")
    assert "dpg_bench" in out
    (judged,) = judgements.read_all(run)
    assert judged.kind == "picture_text"
    values = {name: groups["all"]["value"] for name, groups in judged.models["a"].items() if "all" in groups}
    assert (values["score"], values["unread"]) == (1, 0)


@pytest.mark.slow
def test_it_answers_about_the_images_of_winoviz(speaking, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--config=winoviz:images_debug", "--limit=1", "--protocol=vqa,vqa_options,picture_match"]
    launched("eval", *words, f"--model={speaking('1')}", f"--workdir={tmp_path / 'run'}")
    rows = {path.parts[-3]: pq.read_table(path).to_pylist() for path in (tmp_path / "run").rglob("examples/*.parquet")}
    assert rows.keys() == {"vqa", "vqa_options", "picture_match"}
    for protocol, of_one in rows.items():
        assert len(of_one) == 2
        assert all(len(row["choices"]) == 2 for row in of_one)
        if protocol == "vqa":  # what it writes is what is read
            assert all(row["choices"] == [0, 0] for row in of_one)
        if protocol == "vqa_options":  # it looks at the last letter alone, so all images get the same option
            assert len({tuple(row["choices"]) for row in of_one} - {(None, None)}) == 1


@pytest.mark.slow
def test_it_writes_a_caption_of_one_token(speaking, images, tmp_path):
    model = speaking("Option 1")
    for limit, text in ((1, "O"), (30, "Option 1")):
        run = tmp_path / f"run{limit}"
        launched("caption", images, f"--model={model}", f"--max_tokens={limit}", f"--workdir={run}")
        lines = [json.loads(line) for line in (run / "captions.jsonl").read_text().splitlines()]
        assert [line["text"] for line in lines] == [text] * 2
