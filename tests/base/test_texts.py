import json
import time

import pytest

from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.base.texts import check_texts
from winobench.checkpoints import tokenizer_files


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", 5], ("wrong-type", "5")),
        (["half \ud83d"], ("lone-surrogate",)),
        (["a red cube " * 10**6], ("text-too-long", "11,000,000")),
    ],
)
def test_texts_that_no_model_can_read(texts, message):
    started = time.process_time()
    with raises(*message) as error:
        check_texts(texts)
    assert time.process_time() - started < 1
    str(error.value).encode()
    assert len(str(error.value)) < 300


def test_a_tokenizer_needs_a_length_and_rows_for_all_ids(tmp_path):
    count = tokenizer_files.write_clip_tokenizer(tmp_path, ["a", "red"], 77)
    assert tokenizer_files.num_ids(tokenizer_files.read_clip_tokenizer(tmp_path)) == count
    vocabulary = json.loads((tmp_path / "vocab.json").read_text())
    vocabulary[next(reversed(vocabulary))] = 10**6
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    assert tokenizer_files.num_ids(tokenizer_files.read_clip_tokenizer(tmp_path)) == 10**6 + 1
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    for length in (0, -5, 2, 1.5, "x", True):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": length}))
        with pytest.raises(InputError, match=names("model_max_length", "3")):
            tokenizer_files.read_clip_tokenizer(tmp_path)
