"""Shards: what goes in comes out, unfinished sets are seen, and batches depend on seed and index alone."""

import itertools
import json

import numpy as np
import pytest

from winobench.data import array_records


@pytest.fixture
def records():
    return [{"number": np.int32(n), "square": np.full((2, 3), n * n, np.float16)} for n in range(20)]


def unchanged(record, generator):
    return record


def test_every_record_comes_back_once(records, tmp_path):
    array_records.write_shards(tmp_path, iter(records), num_shards=3, about={"seed": 1})
    source = array_records.ShardSource(tmp_path)
    assert len(source) == 20
    assert sorted(int(source[n]["number"]) for n in range(20)) == list(range(20))
    for n in range(20):
        record = source[n]
        np.testing.assert_array_equal(record["square"], np.full((2, 3), record["number"] ** 2))
        assert record["square"].dtype == np.float16


def test_only_a_finished_set_of_the_same_settings_is_complete(records, tmp_path):
    def interrupted():
        yield from records[:5]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        array_records.write_shards(tmp_path, interrupted(), num_shards=2, about={"seed": (1, 2)})
    assert not array_records.is_complete(tmp_path, {"seed": (1, 2)})
    array_records.write_shards(tmp_path, records, num_shards=2, about={"seed": (1, 2)})
    assert array_records.is_complete(tmp_path, {"seed": (1, 2)})
    assert not array_records.is_complete(tmp_path, {"seed": (1, 3)})
    assert json.loads((tmp_path / "index.json").read_text())["num_records"] == 20


def test_batches_can_start_anywhere(records):
    def numbers(first, count):
        batches = array_records.shuffled_batches(records, batch_size=6, seed=3, transform=unchanged, first_batch=first)
        return [next(batches)["number"].tolist() for _ in range(count)]

    whole = numbers(0, 10)
    assert numbers(4, 3) == whole[4:7]
    # Three epochs are the first sixty draws: every record three times, in no fixed order.
    assert sorted(itertools.chain.from_iterable(whole)) == sorted(list(range(20)) * 3)
    assert whole[0] != sorted(whole[0])


def test_transforms_draw_from_a_generator_that_depends_on_the_index(records):
    def draw(record, generator):
        return {"number": record["number"], "drawn": generator.random()}

    def draws(first):
        batches = array_records.shuffled_batches(records, batch_size=5, seed=0, transform=draw, first_batch=first)
        return next(batches)

    one, again, later = draws(2), draws(2), draws(6)
    np.testing.assert_array_equal(one["drawn"], again["drawn"])
    assert len(set(one["drawn"].tolist()) | set(later["drawn"].tolist())) == 10
