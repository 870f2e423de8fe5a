"""Small random language models in transformers' layout, written by torch transformers, with their own tokenizer."""

import pathlib

# What the tokenizer learns its pieces from; every other text is spelt with bytes, so that nothing is unknown.
TEXT = """\
Question: Which of the two options is right? Answer with Option 1 or Option 2.
Option 1: The banana is ripe, and the color of the banana is yellow. Option 2: The banana is unripe and green.
The trophy does not fit into the brown suitcase because it is too large. What does the pronoun refer to?
0. the trophy 1. the suitcase 2. ambiguous. The answer is 1. The city councilmen refused the demonstrators a permit.
Premise: Someone left the bike in the rain for a week. Let's think step by step. You are a helpful assistant.
Sentence: The doctor told the nurse that she had been working too hard, so the correct answer is neither of them.
"""
END, START, PAD = "</s>", "<s>", "<pad>"
CHAT_END = "<|im_end|>"
# In the manner of ChatML, with a switch for thinking like Qwen3's.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def make_tokenizer(*, kind: str = "decoder", chat_template: str | None = None, text: str = TEXT, size: int = 400):
    """A byte-level byte-pair tokenizer of at most ``size`` tokens, learned from a text; the same at every call.

    ``decoder`` puts a start token before each text, ``t5`` an end token behind it, ``opt`` an end token before it.
    """
    import tokenizers
    import transformers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    marks = [PAD, END, START, CHAT_END, "<|im_start|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=marks, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    around = {"decoder": f"{START} $A", "t5": f"$A {END}", "opt": f"{END} $A", "bare": None}[kind]
    if around:
        ids = [(token, tokenizer.token_to_id(token)) for token in (START, END)]
        tokenizer.post_processor = processors.TemplateProcessing(single=around, special_tokens=ids)
    result = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token={"t5": None, "opt": END}.get(kind, START),
        eos_token=CHAT_END if chat_template else END,
        pad_token=PAD,
        additional_special_tokens=marks[3:],
        clean_up_tokenization_spaces=False,
    )
    result.chat_template = chat_template
    return result


def write_language_model(
    folder: pathlib.Path, family: str = "llama", *, chat_template: str | None = None
) -> pathlib.Path:
    """Writes a ``llama``, ``qwen3`` or ``t5`` with random weights, the same at every call."""
    import torch
    import transformers

    tokenizer = make_tokenizer(
        kind={"llama": "decoder", "qwen3": "bare", "t5": "t5"}[family], chat_template=chat_template
    )
    common = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "pad_token_id": 0}
    decoder = common | {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    decoder |= {"num_key_value_heads": 2, "max_position_embeddings": 4096, "bos_token_id": tokenizer.bos_token_id}
    torch.manual_seed(0)
    if family == "llama":
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**decoder))
    elif family == "qwen3":
        model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(head_dim=8, **decoder))
    else:
        sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4}
        sizes |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0}
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, **common))
    with torch.no_grad():
        for parameter in model.parameters():
            # Torch's own start would make all answers alike, whatever the prompt.
            if parameter.ndim > 1:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def compile_quickly(patch) -> None:
    """Has language models' programs compiled with few optimizations while a ``pytest.MonkeyPatch`` is in force."""
    import jax

    from tests.parity.harness import QUICK_COMPILATION
    from winobench.responders import decoding

    programs = {"encode_prefix": "program", "score_options": "program", "generate": ("program", "width")}
    for name, static in programs.items():
        function = getattr(decoding, name).__wrapped__
        patch.setattr(decoding, name, jax.jit(function, static_argnames=static, compiler_options=QUICK_COMPILATION))
