"""The page of tables that docs/write_measurements.py makes of the result files."""

import json
import pathlib
import runpy
import shutil

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "write_measurements.py"))


def plan(target, rate, **programs):
    step = {"items": 8, "temporaries": 1.2e9, "items_per_second": rate, "at_most_per_second": 2 * rate}
    return {
        "target": target,
        "weights": {"denoiser": 16e9, "autoencoder": 0.3e9, "text encoders": 0},
        "others": 2e9,
        "total": 20e9,
        "usable": 33.5e9,
        "programs": [step],
        **programs,
    }


def test_one_table():
    found = {
        "sd35-large, bfloat16, v6e:2x4, staged, few blocks": plan("v6e:2x4", 12.4),
        "sd35-large, bfloat16, h100:8": plan("h100:8", 1026.4),
        "sd35-large, bfloat16, l4:1, staged": plan("l4:1", 5.0, while_scoring=19e9, while_encoding=21e9),
        "sd35-large, bfloat16, h100:8, plain attention": plan("h100:8", 1.0),
        "sd35-large, bfloat16, l4:1": plan("l4:1", 0.0, programs=[None]),
        "sdxl, bfloat16, h100:8": plan("h100:8", 2.0),
    }
    lines = SCRIPT["one_table"](found, ["sd35-large"], ["h100:8", "l4:1", "v6e:2x4"]).splitlines()
    assert lines[2:] == [
        "| sd35-large | h100:8 | 16.3 | 2.0 | 1.2 | 1.7 | 20.0 of 33.5 | 8 | 1,026 | 2,053 |",
        "| sd35-large | l4:1 | 16.3, staged | 2.0 | 1.2 | 0.7 |"
        " 19.0 of 33.5; 21.0 while texts are encoded | 8 | 5 | 10 |",
        "| sd35-large | v6e:2x4 | 16.3, staged | 2.0 | 1.2 |  | 20.0 of 33.5 | 8 | 12.4 * | 24.8 * |",
    ]


def test_the_page_is_that_of_the_result_files():
    assert SCRIPT["main"](["--check"]) == 0, "run python docs/write_measurements.py"


@pytest.fixture
def results(tmp_path):
    return pathlib.Path(shutil.copytree(ROOT / "benchmarks" / "results", tmp_path / "results"))


def test_the_page_follows_the_files(results):
    before = SCRIPT["page"](results)
    assert (
        "| trained, clevr_image | 45 | low_discrepancy | 100.0% | 100 [87, 100] | 13.1 x | 100 [87, 100] | 2.5 x"
        in before
    )
    assert "| stratified | 0.56 [0.44, 0.70] | 0.63 [0.53, 0.74] |" in before
    assert "| clevr: 8,036 on 574 images | 95.3 (93.4) | 46.8 | 95.5 (93.6) |" in before
    assert "| 20 and 20 images, spreads 5 to 1 | 5.6 | 11.5 |" in before
    path = results / "scorer-cpu.json"
    figures = json.loads(path.read_text())
    assert "| fused | 240 | 18.6 | 43% | 13.44 | 2.2 x | 2 |" in before
    figures["results"]["winoground"]["fused"]["seconds"] /= 2
    path.write_text(json.dumps(figures))
    assert "| fused | 240 | 18.6 | 43% | 6.72 | 4.3 x | 2 |" in SCRIPT["page"](results)


def test_measurements_on_a_gpu_follow_their_file(results):
    path = results / "h100-measured.json"
    found = json.loads(path.read_text())
    page = SCRIPT["page"](results)
    assert "| sd21-base | 32 | 971 | 548 | 56% | 0.8 |" in page
    assert "| sd21-base, torch.compile | 501 | 1.09 x |" in page
    assert "| sd21-base | attention | 4.5 | 9.8 | 2.18 |" in page
    found["steps"][0]["passes_per_second"] = 1002.0
    path.write_text(json.dumps(found))
    assert "| sd21-base, torch.compile | 501 | 2.00 x |" in SCRIPT["page"](results)


def test_the_example_of_a_plan_is_that_of_the_results(results):
    """Its row of a v5e, in the guide."""
    plan = json.loads((results / "compiled.json").read_text())["sd21-base, bfloat16, v5e:4x4"]
    step = plan["programs"][0]
    memory = f"{plan['total'] / 1e9:.1f} of {plan['usable'] / 1e9:.1f}"
    work = f"{step['items']} {sum(each['operations'] for each in step['kernels'].values()) / step['items'] / 1e12:.2f}"
    moved = f"{sum(each['bytes'] for each in step['kernels'].values()) / step['items'] / 1e9:.2f}"
    row = f"v5e:4x4 {memory} {work} {moved} {step['items_per_second']:.0f} {step['at_most_per_second']:.0f}"
    guide = (ROOT / "docs" / "howto" / "plan_a_run.md").read_text()
    assert row in " ".join(guide.split())
