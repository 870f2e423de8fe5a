"""Log-probabilities of each code equal the logits of the model's own ``generate`` for what it generates."""

import math

import jax
import numpy as np
import pytest
import torch
import transformers

from tests.contrib.autoregressive.tiny import TEXTS, WRITERS
from winobench.models import snapshots

TEXT = TEXTS[1]
GUIDANCE = 3.0
# Nats, of a code.
TOLERANCE = 2e-5


class _Recorder(transformers.LogitsProcessor):
    def __init__(self):
        self.logits = []

    def __call__(self, ids, scores):
        self.logits.append(scores.detach().clone())
        return scores


def generate_janus(reference, inputs, guidance=GUIDANCE):
    """What `generated` returns. ``generate`` keeps the last scores alone, so a processor records all."""
    recorder = _Recorder()
    codes = reference.model.generate(
        **inputs,
        generation_mode="image",
        do_sample=False,
        guidance_scale=guidance,
        logits_processor=transformers.LogitsProcessorList([recorder]),
    )
    with_text, without = torch.stack(recorder.logits).unbind(1)
    return codes[0], {"text": with_text, "none": without, "guided": without + guidance * (with_text - without)}


def generate_emu3(reference, inputs, guidance=GUIDANCE, negative=""):
    rows, start = reference.side // 8, inputs["input_ids"].shape[1]
    mapping = reference.model.model.vocabulary_mapping

    def allowed(_, ids):
        ends_a_row = (len(ids) - start + 1) % (rows + 1) == 0
        return [mapping.eol_token_id] if ends_a_row else mapping.image_tokens

    made = reference.model.generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        max_new_tokens=rows * (rows + 1),
        do_sample=False,
        prefix_allowed_tokens_fn=allowed,
        guidance_scale=guidance,
        negative_prompt_ids=reference.inputs(negative)["input_ids"],
        output_logits=True,
        output_scores=True,
        return_dict_in_generate=True,
    )
    grid = made.sequences[0, start:].reshape(rows, rows + 1)
    assert (grid[:, -1] == mapping.eol_token_id).all()

    def of_codes(steps):
        table = torch.cat(steps).reshape(rows, rows + 1, -1)[:, :-1].flatten(0, 1)
        return table[:, reference.rows_of_codes]

    codes = mapping.bpe2img_mapping_tensor[grid[:, :-1]].flatten().long()
    return codes, {"text": of_codes(made.logits), "guided": of_codes(made.scores)}


def generate_glm_image(reference, inputs):
    number = sum(int(height * width) for _, height, width in inputs["image_grid_thw"])
    reference.model.model.rope_deltas = None
    made = reference.model.generate(
        **inputs,
        max_new_tokens=number,
        min_new_tokens=number,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return made.sequences[0, inputs["input_ids"].shape[1] :], {"text": torch.cat(made.logits)}


GENERATED = {"janus": generate_janus, "emu3": generate_emu3, "glm_image": generate_glm_image}


@pytest.mark.quick(1)
@pytest.mark.parametrize("family", WRITERS)
def test_log_probabilities_equal_those_of_generate(load_generator, reference_of, family):
    reference, generator = reference_of(family), load_generator(family)
    inputs = reference.inputs(TEXT)
    codes, logits = GENERATED[family](reference, inputs)
    prompt = inputs["input_ids"].numpy().astype(np.int32)
    none = reference.without_text(inputs)["input_ids"].numpy().astype(np.int32)
    rows = {"text": (prompt, None), "none": (none, None), "guided": (prompt, none)}
    structure, params = snapshots.split(generator.network)

    @jax.jit
    def compute(params, ids, without, codes):
        network, others = structure.module(params), {}
        if without is not None:
            others = {"without": (without, np.full(1, without.shape[1])), "guidance": GUIDANCE}
        return network.log_ratios((ids, np.full(1, ids.shape[1])), codes, **others)[0]

    for name, table in logits.items():
        assert len(table) == len(codes) == generator.family.scored
        wanted = table.float().log_softmax(-1).gather(-1, codes[:, None])[:, 0]
        got = compute(params, *rows[name], codes[None].numpy().astype(np.int32))
        got = np.asarray(got, np.float64) - math.log(generator.family.codes)
        np.testing.assert_allclose(got, wanted.numpy(), atol=TOLERANCE, rtol=0, err_msg=name)
        # And all other codes, by the reference of the scores.
        if name == "text":
            expected = reference.logits(inputs, codes).log_softmax(-1)
            np.testing.assert_allclose(table.float().log_softmax(-1), expected, atol=TOLERANCE)
