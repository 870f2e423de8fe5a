import numpy as np
import pytest

from tests.expectations import names, raises
from winobench.metrics import agreement


class TestFleissKappa:
    def test_by_hand(self):
        # Agreement of the items: 1, (4 + 1 - 3) / 6 = 1/3, 1; mean 7/9. Shares 5/9 and 4/9: expected 41/81.
        kappa = agreement.fleiss_kappa([[3, 0], [2, 1], [0, 3]])
        assert kappa.observed == pytest.approx(7 / 9)
        assert kappa.expected == pytest.approx(41 / 81)
        assert kappa.value == pytest.approx(22 / 40)
        assert (kappa.n, kappa.num_raters) == (3, 3)

    def test_full_agreement_and_full_disagreement(self):
        assert agreement.fleiss_kappa([[5, 0], [0, 5], [5, 0]]).value == pytest.approx(1)
        assert agreement.fleiss_kappa([[1, 1], [1, 1]]).value == pytest.approx(-1)

    @pytest.mark.parametrize(
        "counts", [[], [1, 2], [[[2, 1]]], [[1, 1], [2, 1]], [[1, 0], [0, 1]], [[-1, 3], [1, 1]], [[2.5, 0], [2, 0]]]
    )
    def test_bad_counts(self, counts):
        with pytest.raises(ValueError, match=names("fleiss_kappa")):
            agreement.fleiss_kappa(counts)

    @pytest.mark.parametrize("level", [-0.5, 0, 1, 1.5])
    def test_bad_level(self, level):
        with pytest.raises(ValueError, match=names("level")):
            agreement.fleiss_kappa([[3, 0], [2, 1]], level=level)

    @pytest.mark.parametrize(("items", "raters"), [(1, 2), (3, 7), (49, 3), (997, 11)])
    def test_one_label_only_never_has_a_value(self, items, raters):
        counts = np.tile([raters, 0], (items, 1))
        found = agreement.fleiss_kappa(counts)
        assert found[:3] == (None, None, None)
        assert agreement.fleiss_kappa(counts[:1])[1:3] == (None, None)
        assert (found.observed, found.expected) == (1, 1)
        counts[0] = [raters - 1, 1]
        assert agreement.fleiss_kappa(counts, num_resamples=1).value < 0


class TestRaterFiles:
    def write(self, folder, name, *lines):
        path = folder / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def test_several_files(self, tmp_path):
        first = self.write(tmp_path, "1.csv", "item,rater,label", "a,R1,0", "b,R1,2")
        second = self.write(tmp_path, "2.csv", "label,item,rater,note", "0,a,R2,sure", "1, b ,R2,")
        ratings = agreement.read_ratings(first, second)
        assert ratings == [("a", "R1", "0"), ("b", "R1", "2"), ("a", "R2", "0"), ("b", "R2", "1")]
        counts, items = agreement.count_matrix(ratings, ("0", "1", "2"))
        assert items == ["a", "b"]
        assert counts.tolist() == [[2, 0, 0], [0, 1, 1]]
        # Observed 1/2; shares 1/2, 1/4, 1/4: expected 3/8.
        assert agreement.ratings_kappa(ratings).value == pytest.approx((1 / 2 - 3 / 8) / (5 / 8))

    @pytest.mark.parametrize(
        ("content", "code", "words"),
        [
            *((content, "missing-column", ()) for content in (b"", b"\n\n", b"\xef\xbb\xbf", b"item,rater\nx,y\n")),
            *((content, "damaged-table", ("CSV",)) for content in (b"\xff\xfe", b'"', b'item,rater,label\n"a,R,0')),
            (b"item,rater\na,R", "missing-column", ("'label'",)),
            (b"item,rater,label\na,R,", "empty-cell", ("1",)),
            (b"item,rater,label\na,R", "empty-cell", ()),
            (b"item,rater,label\na,R,0\na,R,1", "repeated-judgement", ("'a'", "'R'", "1")),
            (None, "no-such-file", ()),
        ],
    )
    def test_bad_files(self, tmp_path, content, code, words):
        path = tmp_path / "bad.csv"
        if content is not None:
            path.write_bytes(content)
        with raises(code, *words, str(path)):
            agreement.read_ratings(path)

    def test_odd_labels(self, tmp_path):
        """A zero byte, and labels that spreadsheets would compute."""
        path = self.write(tmp_path, "odd.csv", "item,rater,label", "x,y,\0", "'=1,'@anna,0")
        assert agreement.read_ratings(path) == [("x", "y", "\0"), ("=1", "@anna", "0")]

    def test_bad_judgements(self):
        ratings = [agreement.Rating("a", "R1", "0"), agreement.Rating("a", "R2", "x"), agreement.Rating("b", "R1", "0")]
        with raises("unknown-label", "0", "1"):
            agreement.count_matrix(ratings, ("0", "1"))
        with raises("unequal-judgements", "'b'", "1", "2"):
            agreement.count_matrix(ratings)
        with raises("one-rater"):
            agreement.ratings_kappa(ratings[:1])
        with raises("empty-file"):
            agreement.count_matrix([])


ANSWERS = {"a": "0", "b": "1", "c": "2", "d": "2"}
GROUPS = {"a": "traditional", "b": "traditional", "c": "ambiguous", "d": "offensive"}


class TestRaterAccuracy:
    def test_rows_and_columns(self):
        given = {"R1": "0122", "R2": "0012"}
        ratings = [
            agreement.Rating(item, rater, label)
            for rater, labels in given.items()
            for item, label in zip("abcd", labels, strict=True)
        ]
        table = agreement.rater_accuracy(ratings, ANSWERS, GROUPS)
        assert list(table) == ["R1", "R2", "average"]
        assert list(table["R1"]) == ["traditional", "ambiguous", "offensive", "total"]
        assert {column: entry["value"] for column, entry in table["R2"].items()} == {
            "traditional": 0.5,
            "ambiguous": 0.0,
            "offensive": 1.0,
            "total": 0.5,
        }
        assert table["average"]["total"]["value"] == pytest.approx(0.75)
        assert (table["average"]["total"]["n"], table["R1"]["total"]["n"]) == (8, 4)
        for row in table.values():
            for entry in row.values():
                assert 0 <= entry["low"] <= entry["value"] <= entry["high"] <= 1
                assert (entry["chance"], entry["ties"]) == (None, 0)

    def test_the_average_weighs_raters_alike(self):
        ratings = [agreement.Rating(item, "R1", ANSWERS[item]) for item in "abcd"]
        ratings.append(agreement.Rating("a", "R2", "2"))
        table = agreement.rater_accuracy(ratings, ANSWERS, GROUPS)
        assert table["average"]["total"]["value"] == pytest.approx(0.5)
        assert "ambiguous" not in table["R2"]

    def test_unknown_item(self):
        with raises("unknown-item", "'x'"):
            agreement.rater_accuracy([agreement.Rating("x", "R1", "0")], ANSWERS, GROUPS)
        for answers, groups in (({"a": "0"}, {}), ({}, {"a": "traditional"})):
            with raises("unknown-item", "'a'"):
                agreement.rater_accuracy([agreement.Rating("a", "R1", "0")], answers, groups)

    def test_nothing(self):
        assert agreement.rater_accuracy([], ANSWERS, GROUPS) == {}


@pytest.mark.parametrize("items", [2, 25])
def test_the_interval_of_kappa_is_that_of_two_thousand_drawn_samples(items):
    """Drawn and computed one by one: the interval reaches as far, and further where items are few."""
    counts = np.random.default_rng(7).multinomial(3, [0.5, 0.3, 0.2], size=items)
    counts[0], counts[1] = [3, 0, 0], [1, 2, 0]
    result = agreement.fleiss_kappa(counts)
    assert result == agreement.fleiss_kappa(counts, num_resamples=2_000, seed=0)
    drawn = counts[np.random.default_rng(0).integers(items, size=(2_000, items))]
    observed, shares = ((drawn**2).sum(axis=(1, 2)) / items - 3) / 6, drawn.sum(axis=1) / (3 * items)
    expected = (shares**2).sum(axis=1)
    has_value = expected < 1
    low, high = np.quantile(((observed - expected)[has_value] / (1 - expected[has_value])), [0.025, 0.975])
    assert result.low < low + 0.02
    assert result.high > high - 0.02
    if items == 25:
        assert (result.low, result.high) == pytest.approx((low, high), abs=0.2)


def test_cohens_kappa_by_hand():
    """Cohen (1960): 0.75 observed, 5/8 x 5/8 + 3/8 x 3/8 expected. scikit-learn 1.9.1 agreed on 2,000 tables."""
    first, second = [1, 1, 0, 0, 1, 0, 1, 1], [1, 0, 0, 0, 1, 1, 1, 1]
    result = agreement.cohen_kappa(first, second, num_resamples=200)
    assert (result.observed, result.expected, result.n, result.num_raters) == (0.75, 34 / 64, 8, 2)
    assert result.value == pytest.approx((0.75 - 34 / 64) / (1 - 34 / 64))
    assert result.low < result.value < result.high
    assert agreement.cohen_kappa(["a", "b", "c"], ["b", "c", "a"]).value == -0.5
    assert agreement.cohen_kappa([True, False], [True, False]).value == 1.0
    # One label is agreement that chance explains.
    assert agreement.cohen_kappa([1, 1], [1, 1])[:3] == (None, None, None)
    # All items of one cluster leave nothing to resample.
    assert agreement.cohen_kappa(first, second, ["p"] * 8)[1:3] == (None, None)
    for wrong in (([], []), ([1], [1, 2])):
        with pytest.raises(ValueError, match="two lists of one length"):
            agreement.cohen_kappa(*wrong)
    with pytest.raises(ValueError, match="a cluster for each of 2 items"):
        agreement.cohen_kappa([1, 0], [0, 1], [1])
