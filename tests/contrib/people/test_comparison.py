"""Blind comparison: what is paired, what a rater may know, what clicks mean, and how they are summed up."""

import io
import json
import re
import shutil
import types

import numpy as np
import PIL.Image
import pytest

from tests import launching
from tests.expectations import names
from tests.generation import fakes
from tests.launch import test_json
from tests.web.asking import ask, ask_for_all, click
from winobench.base.errors import InputError
from winobench.contrib.people import comparison, preference
from winobench.contrib.people.comparison import EQUAL, LEFT, RIGHT, Comparison, Side, make_pairs, sides

SEEDS = (3, 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures") / "clevr-run"
    return fakes.draw(folder, "plainmodel", "tunedmodel", seeds=SEEDS, batch_size=3).folder


@pytest.fixture(scope="module")
def third(tmp_path_factory):
    """A run of one model, with the seed of one and another one."""
    return fakes.draw(tmp_path_factory.mktemp("third") / "run", "third", seeds=(1, 7)).folder


@pytest.fixture
def compared(run, tmp_path):
    return Comparison(tmp_path / "blind", *sides([str(run)]))


def judge(found, rater, wanted):
    """Has a person prefer what ``wanted(pair)`` says: -1 the first side, 1 the second, 0 neither; None leaves it."""
    with found.serve(rater, 0) as (server, _):
        for code, pair, swapped in found.rows_for(rater):
            outcome = wanted(pair)
            if outcome is not None:
                label = EQUAL if outcome == 0 else LEFT if (outcome == 1) == swapped else RIGHT
                assert click(server, code, label)[0] == 200


def test_sides_are_named_by_run_and_model(run, third, tmp_path):
    one, other = sides([str(run)])
    assert (one.model, other.model) == ("plainmodel", "tunedmodel")
    assert sides([f"{run}:tunedmodel", f"{run}:plainmodel"]) == (other, one)
    assert sides([str(third), f"{run}:tunedmodel"])[0] == Side(third.resolve(), "third")
    for words in ([], [str(third)], [str(run), str(third)], [f"{run}:tunedmodel"] * 2):
        with pytest.raises(InputError, match=names("RUN:MODEL")):
            sides(words)
    with pytest.raises(InputError, match=names("'nobody'", "plainmodel", "tunedmodel")):
        sides([f"{run}:nobody", str(third)])
    # Only the seed that both have.
    assert len(make_pairs(*sides([str(third), f"{run}:tunedmodel"]))) == len(fakes.PROMPTS)
    other = fakes.draw(tmp_path / "other", "third", seeds=(7,), prompts=fakes.PROMPTS[:1]).folder
    with pytest.raises(InputError, match=names("third", "tunedmodel")):
        make_pairs(*sides([str(other), f"{run}:tunedmodel"]))


def test_a_lost_picture_is_named(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    found, path = sides([str(folder)]), folder / "pictures" / "tunedmodel" / "1" / "00001.png"
    path.write_bytes(bytes(reversed(path.read_bytes())))
    for _ in range(2):
        with pytest.raises(InputError, match=names("pictures/tunedmodel/1/00001.png")):
            make_pairs(*found)
        path.unlink(missing_ok=True)


def test_judgements_of_a_runs_images(run, tmp_path):
    """Only of comparisons that are finished, and of the images that were judged."""
    folder = shutil.copytree(run, tmp_path / "run")
    found = Comparison(tmp_path / "blind", *sides([str(folder)]))
    first, second, third, *_ = found.pairs
    outcomes = {first.key: 1, second.key: -1, third.key: 0}
    judge(found, "anna", lambda pair: outcomes.get(pair.key))
    judge(found, "ben", lambda pair: 1 if pair is first else None)
    assert comparison.judgements(folder) == {}  # somebody may still judge
    found.finish()
    before = sorted(tmp_path.rglob("*"))
    said = comparison.judgements(folder)
    one, other = first.records
    assert said[other.file] == dict.fromkeys(("anna", "ben"), "better than plainmodel")
    assert said[one.file] == dict.fromkeys(("anna", "ben"), "worse than tunedmodel")
    assert [said[record.file]["anna"] for record in second.records] == [
        "better than tunedmodel",
        "worse than plainmodel",
    ]
    assert [said[record.file]["anna"] for record in third.records] == ["equal to tunedmodel", "equal to plainmodel"]
    assert len(said) == 6
    assert sorted(tmp_path.rglob("*")) == before
    (folder / one.file).unlink()
    assert comparison.judgements(folder) == {}  # the images are not those that were judged


def test_a_rater_sees_nothing_that_tells_which_is_which(run, compared):
    told = []
    with compared.serve("anna", 0) as (server, _):
        status, html = ask(server, "GET", "/")
        assert status == 200
        _, items = ask(server, "GET", "/items")
        told += [html, items]
        for item in json.loads(items)["items"]:
            assert set(item) == {"id", "prompt"}
            for place in (LEFT, RIGHT):
                status, content, headers = ask_for_all(server, "GET", f"/pictures/{item['id']}-{place}")
                assert status == 200
                told += [content.decode("latin-1"), str(headers)]
                with PIL.Image.open(io.BytesIO(content)) as image:
                    assert image.info == {}
    for text in told:
        for secret in ("plainmodel", "tunedmodel", "fake", "clevr-run", "00000.png", compared._seed):
            assert secret not in text
    # Nor do codes, sides and order follow from what a rater can know: another comparison of the same has others.
    other = Comparison(compared.folder.with_name("again"), compared.first, compared.second)
    codes = [{code for code, _, _ in one.rows_for("anna")} for one in (compared, other)]
    assert codes[0].isdisjoint(codes[1])


def test_sides_and_order_are_drawn_for_each_rater(tmp_path):
    prompts = [fakes.Prompt(f"p{number}", f"prompt {number}") for number in range(60)]
    fakes.draw(tmp_path / "run", "a", "b", prompts=prompts, batch_size=60)
    found = Comparison(tmp_path / "blind", *sides([str(tmp_path / "run")]))
    for rater in ("anna", "ben"):
        left = sum(swapped for _, _, swapped in found.rows_for(rater))
        assert 15 < left < 45  # 60 fair coins are outside of this in 1 of 10,000 cases
    orders = [[pair.key for _, pair, _ in found.rows_for(rater)] for rater in ("anna", "ben")]
    assert orders[0] != orders[1] != [pair.key for pair in found.pairs]
    assert sorted(orders[0]) == sorted(orders[1])
    # The same at every start.
    again = Comparison(tmp_path / "blind", *sides([str(tmp_path / "run")]))
    assert [row[0] for row in again.rows_for("anna")] == [row[0] for row in found.rows_for("anna")]


def test_what_is_shown_left_is_what_a_click_on_the_left_means(compared):
    with compared.serve("anna", 0) as (server, labels):
        for code, pair, swapped in compared.rows_for("anna"):
            for place in (LEFT, RIGHT):
                _, content, _ = ask_for_all(server, "GET", f"/pictures/{code}-{place}")
                record = pair.records[int((place == LEFT) == swapped)]
                expected = fakes.colour(record.model, record.seed, record.number, record.prompt.text)
                with PIL.Image.open(io.BytesIO(content)) as image:
                    assert np.asarray(image)[0, 0].tolist() == expected
            click(server, code, LEFT)
        assert len(labels.labels) == 6
    outcomes = compared.outcomes()["anna"]
    for _, pair, swapped in compared.rows_for("anna"):
        assert outcomes[pair.key] == (preference.SECOND if swapped else preference.FIRST)


def test_the_summary_by_hand(compared):
    """Anna prefers the second for prompts one and two, Ben for one alone; of three they say: equal, and nothing."""
    judge(compared, "anna", lambda pair: {"one": 1, "two": 1, "three": 0}[pair.records[0].prompt.id])
    judge(compared, "ben", lambda pair: {"one": 1, "two": -1, "three": None}[pair.records[0].prompt.id])
    results = compared.finish()
    both = results["all"]
    for found, counts in (
        (results["raters"]["anna"], (0, 4, 2)),
        (results["raters"]["ben"], (2, 2, 0)),
        (both, (0, 2, 4)),
    ):
        assert (found["first"], found["second"], found["equal"]) == counts
    assert (both["share"]["value"], both["p_value"]) == (1.0, 1.0)  # one prompt: a coin thrown once
    assert results["left"] == {"anna": 0, "ben": 2}
    assert results["categories"]["color"]["second"] == 2
    assert set(results["categories"]) == {"color", "shape"}
    # Of the four pairs that both have judged, they agree on two.
    assert results["agreement"]["same"] == {"anna, ben": 0.5}
    assert results["agreement"]["n"] == 4
    # Fleiss by hand: labels first 2, second 6 of 8; expected 1/16 + 9/16; observed 1/2.
    assert results["agreement"]["value"] == pytest.approx((0.5 - 0.625) / 0.375)
    assert json.loads((compared.folder / "results.json").read_text())["all"]["second"] == 2
    assert results["paper"] == {"first": 33, "second": 60, "equal": 115}


def test_the_table_is_a_document_with_json(run, compared):
    judge(compared, "anna", lambda pair: 1)
    words = (run, f"--workdir={compared.folder}", "--finish", "--json")
    status, out, err = launching.launch("launch.rate", *words)
    assert status == 0, err
    document = test_json.validated("preferences", out)
    assert (document["second"], document["pairs"]) == ("tunedmodel", 6)
    assert document["results"]["all"]["second"] == 6
    assert "who judges" in err


def test_a_folder_is_of_one_comparison(run, compared):
    with pytest.raises(InputError, match=names("--rater=NAME")):  # nobody has judged
        compared.finish()
    judge(compared, "anna", lambda pair: 1)
    again = Comparison(compared.folder, compared.first, compared.second)
    assert again.finish()["all"]["second"] == 6
    with pytest.raises(InputError, match=names("--workdir")):
        Comparison(compared.folder, compared.second, compared.first)
    (compared.folder / "comparison.json").write_text("{")
    with pytest.raises(InputError, match=names("comparison.json")):
        Comparison(compared.folder, compared.first, compared.second)


def test_the_page_puts_prompts_in_as_text_alone(compared):
    html = comparison.page_html("<anna>")
    assert "&lt;anna&gt;" in html
    assert "innerHTML" not in html
    assert len(re.findall("<script", html)) == 1
    for fetched in ("http://", "https://", 'src="'):
        assert fetched not in html


@pytest.mark.parametrize("models", [("sd", "sdxl"), ("stable-diffusion-2-1-base", "flux2-klein-base-9b")])
def test_no_name_in_the_table_is_broken_at_80_columns(models, monkeypatch, capsys):
    with launching.flags_of_its_own():
        from launch import rate as launcher
    monkeypatch.setenv("COLUMNS", "80")
    found = {"first": 1_000, "second": 2_000, "equal": 300, "p_value": 1.23e-05}
    found["share"] = {"value": 0.666, "low": 0.6, "high": 0.7}
    results = {"all": found, "raters": {"anna-katharina": found, "ben": found}, "categories": {}, "judges": {}}
    results |= {"paper": {"first": 90, "second": 110, "equal": 0}}
    results["judges"] = {"instructblip-flan-t5-xl": {"all": found, "categories": {}}}
    sides = [types.SimpleNamespace(model=name) for name in models]
    compared = types.SimpleNamespace(first=sides[0], second=sides[1], pairs=[], folder="runs/compare")
    launcher._print_results(compared, results)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in (*models, "anna-katharina", "instructblip-flan-t5-xl", "paper: SD, HardNeg"):
        assert any(name in line for line in lines), name


def test_open_rules_are_below_the_item(compared):
    html = compared.serve("anna", 0)
    with html as (server, _):
        _, page = ask(server, "GET", "/")
    assert 0 < page.index('<div id="item"') < page.index('<details id="rules"') < page.index('<div id="labels"')
