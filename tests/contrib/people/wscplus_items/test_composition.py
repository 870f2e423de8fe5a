"""The composition of a file: tables next to the paper's, and Figures 4 and 10."""

import csv

import pytest
from PIL import Image

from tests import wscplus_files
from winobench.contrib.people.wscplus_items.__main__ import main
from winobench.data import wscplus


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_figures_of_a_file(tmp_path, capsys):
    wscplus_files.write(tmp_path)
    main(["", "composition", str(tmp_path / "wscplus" / "WSC+.csv"), str(tmp_path / "figures")])
    out = capsys.readouterr().out
    assert out.endswith("pronouns.png, pronouns.csv, types_by_model.png, types_by_model.csv\n")
    counts = {
        (row["type"], row["writer"]): int(row["questions"]) for row in rows_of(tmp_path / "figures/types_by_model.csv")
    }
    assert {key: count for key, count in counts.items() if count} == {
        ("traditional", "GPT4"): 12,
        ("ambiguous", "Claude2"): 6,
        ("offensive", "GPT3"): 6,
    }
    first, *others = rows_of(tmp_path / "figures" / "pronouns.csv")
    assert (first["pronoun"], first["questions"], first["share"], first["wsc285"]) == ("it", "24", "1.0", "88")
    assert sum(int(row["wsc285"]) for row in (first, *others)) == 285
    for name in ("pronouns", "types_by_model"):
        with Image.open(tmp_path / "figures" / f"{name}.png") as image:
            assert image.width > 600


def test_counts_of_the_published_file_are_those_of_tables_2_and_5(reference_data, tmp_path, capsys):
    main(["", "composition", str(reference_data / "wscplus" / "WSC+.csv"), str(tmp_path)])
    first, table_5, figure_10, _ = capsys.readouterr().out.split("\n\n")
    shares = {row[1]: row[3:] for row in map(str.split, first.splitlines()[1:]) if len(row) == 5}
    assert set(shares) == {"traditional", "ambiguous", "offensive", "Claude2", "GPT4", "GPT3"}
    assert all(ours == papers for ours, papers in shares.values())
    splits = [row[2] for row in map(str.split, first.splitlines()[1:]) if row[0] == "split"]
    assert splits == ["2,301", "699", "26"]
    counts = [line.split()[-2:] for line in table_5.splitlines()[1:]]
    assert counts == [["1,364"] * 2, ["534"] * 2, ["1,102"] * 2, ["3,026"] * 2]
    cells = [line.split() for line in figure_10.splitlines()]
    assert cells[1:] == [
        ["traditional", "704", "40", "620"],
        ["ambiguous", "232", "154", "148"],
        ["offensive", "510", "318", "274"],
    ]
    pronouns = {row["pronoun"]: row for row in rows_of(tmp_path / "pronouns.csv")}
    shown = [
        [f"{100 * float(pronouns[one][share]):.1f}" for one in ("he", "she", "it")]
        for share in ("share", "wsc285_share")
    ]
    assert shown == [["37.0", "34.6", "14.4"], ["27.7", "14.0", "30.9"]]


def test_counts_without_items_of_people():
    """By hand: people's items are few-shot examples, which the types leave out and the total has."""
    fields = {"statement": "s", "pronoun": "it", "snippet": "it", "options": ("a", "b"), "answer": 2, "reason": ""}
    items = [
        wscplus.Item("1", **fields, generator="Human", type="ambiguous", split="few_shot"),
        wscplus.Item("2", **fields, generator="mine", type="ambiguous"),
        wscplus.Item("3", **fields, generator="GPT4", type="offensive"),
    ]
    assert wscplus.post_filtering(items) == {"traditional": 0, "ambiguous": 1, "offensive": 1, "total": 3}
    found = wscplus.types_by_generator(items)
    assert list(found["ambiguous"].items()) == [("GPT4", 0), ("mine", 1)]
    assert wscplus.pronoun_counts(["It ", "it", "she"]) == {"it": 2, "she": 1}


def test_a_missing_file_and_other_words(tmp_path, capsys):
    for words in (["composition", str(tmp_path / "WSC+.csv")], ["count"]):
        with pytest.raises(SystemExit):
            main(["", *words])
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
