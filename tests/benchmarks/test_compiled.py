"""The table of what compilers said."""

from benchmarks import compiled


def plan(target, rate, **programs):
    step = {"items": 8, "items_per_second": rate}
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
        "sd35-large, bfloat16, l4:1, staged": plan("l4:1", 5.0, while_scoring=19e9, while_encoding=20e9),
        "sd35-large, bfloat16, h100:8, plain attention": plan("h100:8", 1.0),
        "sd35-large, bfloat16, l4:1": plan("l4:1", 0.0, programs=[None]),
        "sdxl, bfloat16, h100:8": plan("h100:8", 2.0),
    }
    lines = compiled.one_table(found, ["sd35-large"], ["h100:8", "l4:1", "v6e:2x4"]).splitlines()
    assert lines[2:] == [
        "| sd35-large | h100:8 | 16.3 | 2.0 | 1.7 | 20.0 of 33.5 | 8 | 1,026 |",
        "| sd35-large | l4:1 | 16.3, staged | 2.0 | 0.7 | 19.0 of 33.5; 20.0 while texts are encoded | 8 | 5 |",
        "| sd35-large | v6e:2x4 | 16.3, staged | 2.0 | 1.7 (step) | 20.0 of 33.5 | 8 | 12 * |",
    ]
