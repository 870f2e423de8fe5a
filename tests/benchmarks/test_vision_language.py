import json

import numpy as np
import pytest

from benchmarks import vision_language, vision_language_peer
from tests.tiny_language_models import compile_quickly


@pytest.mark.slow
def test_runs_and_all_agree(tmp_path, capsys, monkeypatch):
    compile_quickly(monkeypatch)
    output = tmp_path / "figures.json"
    vision_language.main(["--size=small", "--rounds=1", f"--output={output}"])
    figures = json.loads(output.read_text())
    assert set(figures["families"]) == {"instructblip", "llava"}
    for found in figures["families"].values():
        scores, captions = found["results"]["scores"], found["results"]["captions"]
        assert list(scores) == ["torch, published", "torch, images once", "winobench"]
        assert list(captions) == ["torch", "winobench"]
        assert scores["winobench"]["difference"] < 1e-5
        for results, count in ((scores, 4), (captions, 2)):
            for each in results.values():
                assert each["per_second"] * each["seconds"] == pytest.approx(count)
    shown = capsys.readouterr().out
    assert shown.count("| winobench |") == 4


def test_what_torch_is_given(tmp_path):
    """Tokens and pixels are winobench's own, and each text is told from the others."""
    size = vision_language_peer.SIZES["small"][1]
    vision_language_peer.write_model(tmp_path / "model", size)
    scorer = vision_language.VQAScore.from_pretrained(tmp_path / "model")
    captioner = vision_language.VisionLanguageModel(scorer._loaded)
    images, texts = vision_language_peer.make_work(size)
    inputs = vision_language_peer.Inputs.of(scorer, captioner, images, texts)
    assert tuple(inputs.pixels.shape) == (2, 3, 28, 28)
    unknown = scorer._loaded.tokenizer.unk_token_id
    assert all(unknown not in question for question in (*inputs.questions, inputs.before, inputs.answer))
    assert len(set(map(tuple, inputs.questions))) == len(texts)
    peer = vision_language_peer.TorchPeer(tmp_path / "model", size, "cpu", "float32")
    anew, once = (peer.scores(inputs, 2, shared=shared) for shared in (False, True))
    np.testing.assert_allclose(anew, once, rtol=1e-5)
    assert np.ptp(anew) > 1e-3 * anew.max()
