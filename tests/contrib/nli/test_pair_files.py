"""Pairs of SNLI and ANLI: from the published files, in the archives' folders, from the hub's form; what is missing."""

import collections
import dataclasses
import json

import pyarrow
import pyarrow.parquet
import pytest

from configs import nli
from tests.expectations import names, raises
from tests.tiny_encoders import write_nli
from winobench.base.errors import InputError
from winobench.contrib.nli import pair_files

LABELS = (pair_files.ENTAILMENT, pair_files.CONTRADICTION)


@pytest.fixture
def folder(tmp_path):
    return write_nli(tmp_path / "nli")


def test_pairs(folder):
    pairs = pair_files.read_pairs(folder, ["snli", "anli"], "train", LABELS)
    assert collections.Counter(pair.part for pair in pairs) == {"snli": 32, "anli_r1": 11, "anli_r2": 10, "anli_r3": 10}
    assert {pair.label for pair in pairs} == set(LABELS)
    assert pairs[0] == pair_files.Pair("the ball is red", "a red ball", "entailment", "snli")
    # With the third label, but without the pair on which the annotators did not agree.
    assert len(pair_files.read_pairs(folder, ["snli"], "dev", (*LABELS, pair_files.NEUTRAL))) == 17


def test_the_archives_folders(folder):
    (folder / "snli_1.0").mkdir()
    (folder / "snli_1.0_dev.jsonl").rename(folder / "snli_1.0" / "snli_1.0_dev.jsonl")
    (folder / "anli_v1.0" / "R1").rename(folder / "R1")
    assert len(pair_files.read_pairs(folder, ["snli", "anli"], "dev", LABELS)) > 20


def test_the_hubs_form(tmp_path, monkeypatch):
    """Parquet files with numbers for labels, at the places where the hub has them."""
    asked = []

    def download(repository, name, *, repo_type):
        asked.append((repository, name, repo_type))
        rows = [{"premise": "a", "hypothesis": str(label), "label": label} for label in (0, 1, 2, -1)]
        path = tmp_path / f"{len(asked)}.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return str(path)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    pairs = pair_files.read_pairs(None, ["snli", "anli"], "dev", LABELS)
    assert [pair.label for pair in pairs[:2]] == ["entailment", "contradiction"]
    assert len(pairs) == 8
    assert asked[0] == ("stanfordnlp/snli", "plain_text/validation-00000-of-00001.parquet", "dataset")
    assert asked[3] == ("facebook/anli", "plain_text/dev_r3-00000-of-00001.parquet", "dataset")


def test_bad_input(folder):
    for sets in (["snli", "mnli"], []):
        with raises("unknown-name", "NLI"):
            pair_files.read_pairs(folder, sets, "train", LABELS)
    (folder / "snli_1.0_train.jsonl").unlink()
    (folder / "anli_v1.0" / "R2" / "train.jsonl").unlink()
    with pytest.raises(InputError, match=names("snli_1.0_train.jsonl", "R2/train.jsonl", "snli_1.0.zip")):
        pair_files.read_pairs(folder, ["snli", "anli"], "train", LABELS)
    with raises("no-examples"):
        pair_files.read_pairs(folder, ["snli"], "dev", ["unknown"])
    path = folder / "snli_1.0_dev.jsonl"
    lines = path.read_text()
    path.write_text(lines + json.dumps({"sentence1": "a", "gold_label": "entailment"}) + "\n")
    with pytest.raises(InputError, match=names("snli_1.0_dev.jsonl", "19", "SNLI")):
        pair_files.read_pairs(folder, ["snli"], "dev", LABELS)
    row = {"context": "a", "hypothesis": "b", "label": ["e"]}
    (folder / "anli_v1.0" / "R1" / "dev.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match=names("dev.jsonl", "1", "ANLI")):
        pair_files.read_pairs(folder, ["anli"], "dev", LABELS)
    path.write_text(lines[:-9])
    with raises("not-json", "snli_1.0_dev.jsonl"):
        pair_files.read_pairs(folder, ["snli"], "dev", LABELS)


def test_without_the_hub():
    with pytest.raises(InputError, match=names("stanfordnlp/snli", "config.data.folder")):
        pair_files.read_pairs(None, ["snli"], "train", LABELS)


def test_the_config_takes_these_sets():
    (sets,) = (field for field in dataclasses.fields(nli.Data) if field.name == "sets")
    assert all(sets.metadata["range"].check("data.sets", name) for name in pair_files.SETS)
