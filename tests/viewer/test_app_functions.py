"""Functions of the viewer's application against those of winobench. They run in Node, where it is installed."""

import csv
import io
import json
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

from winobench import metrics
from winobench.base import csv_cells, text_tables
from winobench.metrics.margins import margins as own_margins
from winobench.report import wording

APP = pathlib.Path(__file__).parents[2] / "winobench" / "viewer" / "app"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")


@pytest.fixture
def called(tmp_path):
    """Calls a function of a module with each list of arguments, which JSON can hold, and gives the values."""

    def call(module, function, *calls):
        shutil.copy(APP / f"{module}.js", tmp_path / f"{module}.mjs")
        script = f"""
            import {{ {function} }} from './{module}.mjs'
            const text = await new Promise(done => process.stdin.setEncoding('utf8').once('data', done))
            process.stdout.write(JSON.stringify(JSON.parse(text).map(one => {function}(...one))))
        """
        (tmp_path / "call.mjs").write_text(script, encoding="utf-8")
        said = json.dumps(calls)
        found = subprocess.run([NODE, "call.mjs"], cwd=tmp_path, input=said, capture_output=True, text=True, timeout=60)
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)

    return call


TEXTS = [
    "plain",
    'a "quoted", text',
    "two\nlines and\ttabs",
    "=SUM(A1)",
    "'=1+1",
    "-3.5",
    "-3.5 points",
    "+x",
    "@name",
    "＝1",
    "50% of $5 & #1_{a} ~^\\ <b>|c|</b>",
    "−3.5 – 4 — … “q” † ‡ ● ○ ★ ✓ ✗ ·",
    "[option]",
    "* star",
    "a-3 and -3, x.-1 é-2",
    "wide　space\u200b and \x00 control",
    "",
]


def test_csv_is_that_of_python(called):
    keys = ["text", "number", "=key", "flag"]
    rows = [[text, 0.125 * place, None, place % 2 == 0] for place, text in enumerate(TEXTS, 1)]
    [found] = called("saving", "csv", [keys, rows])
    expected = csv_cells.write_rows(keys, [dict(zip(keys, row, strict=True)) for row in rows])
    assert found.splitlines(keepends=True)[0] == "text,number,'=key,flag\r\n"
    read, wanted = (list(csv.reader(io.StringIO(text, newline=""))) for text in (found, expected))
    assert [[row[0], float(row[1]), *row[2:]] for row in read[1:]] == [
        [row[0], float(row[1]), *row[2:]] for row in wanted[1:]
    ]


@pytest.mark.parametrize("left", [1, 2])
def test_latex_is_that_of_python(called, left):
    labels = ["task & metric", "value", "-1 %"]
    rows = [[text, text, "-0.5 to −0.25"] for text in TEXTS]
    [found] = called("saving", "latex", [labels, rows, left, "A  title\nof a table"])
    expected = text_tables.comment("latex", "A  title\nof a table")
    assert found == expected + text_tables.write_table("latex", labels, rows, texts=left)


@pytest.mark.parametrize("values", [[], [0.03], [0.04, 0.01, 0.04, 1.0, 0.0], np.random.default_rng(0).random(200)])
def test_adjusted_p_values_are_those_of_python(called, values):
    [found] = called("statistics", "falseDiscoveryRates", [list(map(float, values))])
    np.testing.assert_allclose(found, metrics.false_discovery_rates(values), rtol=1e-12)


@pytest.mark.parametrize("rises", [False, True])
def test_ranks_are_the_places_that_overlapping_intervals_allow(called, rises):
    generator = np.random.default_rng(1)
    intervals = [{"low": low, "high": low + size} for low, size in generator.random((40, 2)).round(1)]

    def is_better(one, other):
        return one["high"] < other["low"] if rises else one["low"] > other["high"]

    expected = [
        {
            "first": 1 + sum(is_better(other, one) for other in intervals),
            "last": len(intervals) - sum(is_better(one, other) for other in intervals),
        }
        for one in intervals
    ]
    assert called("statistics", "ranks", [intervals, rises]) == [expected]


NUMBERS = [0, 0.0625, 0.00625, 0.125, 0.3125, 0.625, -0.0625, -0.0004, 0.00049999, 1 / 3, 0.999, 1, 0.155, 2.675]


@pytest.mark.parametrize(
    ("function", "calls", "expected"),
    [
        ("percent", [[value] for value in NUMBERS], map(wording.percent, NUMBERS)),
        ("percent", [[value, 1, True] for value in NUMBERS], [wording.percent(value, sign=True) for value in NUMBERS]),
        ("number", [[value, 2] for value in NUMBERS], [wording.number(value, 2) for value in NUMBERS]),
        ("number", [[value, 0] for value in NUMBERS], [wording.number(value, 0) for value in NUMBERS]),
        ("probability", [[value**6] for value in NUMBERS], [wording.probability(value**6) for value in NUMBERS]),
        ("words", [["macro_mean_of"]], [wording.readable("macro_mean_of")]),
    ],
)
def test_numbers_read_as_in_reports(called, function, calls, expected):
    assert called("wording", function, *calls) == list(expected)


@pytest.mark.parametrize(
    ("metric", "shape", "has_target"),
    [
        ("accuracy", (1, 2), True),
        ("macro_accuracy", (3, 1), True),
        ("recall", (6, 1), True),
        ("all_true", (1, 3), True),
        ("winoground", (2, 2), False),
        ("winoground", (3, 3), False),
        ("winoground_image", (2, 2), False),
        ("own_texts", (2, 3), False),
        ("all_answers", (2, 4), False),
    ],
)
def test_a_margin_has_the_sign_of_the_verdict(called, metric, shape, has_target):
    scores = np.random.default_rng(2).integers(0, 4, (60, *shape)).astype(float)
    most = max(shape) - (metric == "all_true")
    targets = [place % most if has_target else None for place in range(len(scores))]
    judge = metrics.METRICS[metric]
    outcome = judge(list(scores), targets)[judge.headline]
    rows = [
        {"target": target, "scores": matrix.tolist(), "correct": bool(right)}
        for target, matrix, right in zip(targets, scores, outcome.correct, strict=True)
    ]
    margins = np.array(called("answers", "margin", *([row, metric] for row in rows)))
    np.testing.assert_array_equal(margins > 0, outcome.correct)
    assert not outcome.tie[margins > 0].any()
    if metric in ("accuracy", "winoground") and max(shape) == 2:
        np.testing.assert_allclose(margins, own_margins(targets, list(scores)))


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        # Two debug runs of 12 questions, and one of 1,400: the largest counts, not the most frequent.
        ([("debug", 12), ("debug", 12), ("all", 1400)], {"data": "all", "n": 1400}),
        # Of one set a run may have fewer, as some calls failed.
        ([("all", 1390), ("all", 1400), ("other", 1395)], {"data": "all", "n": 1400}),
        ([("first", 10), ("second", 10), ("second", 10)], {"data": "second", "n": 10}),
        ([("first", 10), ("second", 10)], {"data": "first", "n": 10}),
        ([], None),
    ],
)
def test_the_largest_set_of_questions_is_ranked(called, sets, expected):
    assert called("statistics", "largestSet", [[{"data": data, "n": n} for data, n in sets]]) == [expected]


@pytest.mark.parametrize("falls", [False, True])
def test_runs_on_fewer_questions_stand_below_and_runs_without_a_value_last(called, falls):
    sign = -1 if falls else 1
    rows = [  # in the expected order
        {"isRanked": True, "n": 1400, "value": sign * 0.9},
        {"isRanked": True, "n": 1390, "value": sign * 0.8},
        {"isRanked": False, "n": 56, "value": sign * 0.2},
        {"isRanked": False, "n": 12, "value": sign * 1.0},
        {"isRanked": False},
    ]
    pairs = [(one, other) for one in range(len(rows)) for other in range(len(rows))]
    found = called("statistics", "beforeInRanking", *([rows[one], rows[other], falls] for one, other in pairs))
    assert [np.sign(value) for value in found] == [np.sign(one - other) for one, other in pairs]
