"""The page of WSC+ items by real requests; tests/contrib/people/judging has what it shares with other pages."""

import json

import pytest

from tests.contrib.people.wscplus_items import fakes
from tests.web.asking import ask
from winobench.contrib.people.wscplus_items import annotate

ITEMS = fakes.items()
IDS = [item.id for item in ITEMS]


@pytest.fixture
def opened(tmp_path):
    with annotate.annotations(tmp_path, "anna") as labels, annotate.serve(ITEMS, labels, 0) as server:
        yield labels, server


def test_the_page_and_its_items(opened):
    _, server = opened
    status, page = ask(server, "GET", "/")
    assert status == 200
    assert "annotator anna" in page
    assert page.count("<script") == 1
    assert "http://" not in page
    assert "https://" not in page
    assert "src=" not in page
    status, text = ask(server, "GET", "/items")
    content = json.loads(text)
    assert (status, content["person"], content["labels"]) == (200, "anna", {})
    assert sorted(item["id"] for item in content["items"]) == sorted(IDS)
    # No generator, template or query: they could sway the judgement.
    assert {key for item in content["items"] for key in item} == {"id", "type", "sentences"}


def test_the_order_is_mixed_and_the_same_for_everyone(tmp_path):
    with (
        annotate.annotations(tmp_path, "anna") as anna,
        annotate.annotations(tmp_path, "ben") as ben,
        annotate.serve(ITEMS, anna, 0) as first,
        annotate.serve(ITEMS, ben, 0) as second,
    ):
        orders = [[one["id"] for one in json.loads(ask(s, "GET", "/items")[1])["items"]] for s in (first, second)]
    assert orders[0] == orders[1] != IDS
