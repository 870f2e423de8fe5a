"""Small random BLIP-2, InstructBLIP, LLaVA and Qwens, in the published layout: shards, processor, two tokenizers."""

import json
import pathlib

from tests.tiny_language_models import make_tokenizer

SIZE = 32  # pixels
QUERIES = 4
WORDS = ["a", "red", "blue", "cube", "ball", "left", "of", "the", "does", "this", "figure", "show", "##s", '"', "?"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
_VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
# Unlike those published, and unlike each other, so that a swapped or forgotten epsilon shows.
_VISION |= {"image_size": SIZE, "patch_size": 8, "layer_norm_eps": 0.01}
_QFORMER = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 3}
# One more id than the tokenizer knows: [DEC], as published.
_QFORMER |= {"vocab_size": len(VOCABULARY) + 1, "max_position_embeddings": 64, "layer_norm_eps": 0.03}
_T5 = {"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 1}
# As published: not the usual activation of such a T5.
_T5 |= {"num_heads": 4, "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu"}
_T5 |= {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
_DECODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}
_LLAMA = _DECODER | {"model_type": "llama", "intermediate_size": 48, "num_key_value_heads": 2}
_LLAMA |= {"max_position_embeddings": 256, "eos_token_id": 1, "bos_token_id": 2}
_OPT = _DECODER | {"model_type": "opt", "ffn_dim": 48, "max_position_embeddings": 160}
_OPT |= {"word_embed_proj_dim": 32, "bos_token_id": 1}


_CLIP = _VISION | {"model_type": "clip_vision_model", "num_hidden_layers": 3, "projection_dim": 8}
PATCHES = (SIZE // _CLIP["patch_size"]) ** 2

# Squares of 8 pixels, 24 of them at most.
QWEN_IMAGES = {"size": {"shortest_edge": 16 * 16, "longest_edge": 32 * 48}, "patch_size": 4, "temporal_patch_size": 2}
QWEN_IMAGES |= {"merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_QWEN_VISION = {"depth": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 4}
_QWEN_VISION |= {"num_position_embeddings": 16, "out_hidden_size": 40, "deepstack_visual_indexes": [0, 1]}
_QWEN_TEXT = {"hidden_size": 40, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
_QWEN_TEXT |= {"num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "eos_token_id": 3}
# A base far below the published one, so that it shows what every pair of a head turns by.
_ROPE = {"mrope_interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"}
_QWEN_TEXT |= {"rope_scaling": _ROPE, "rope_theta": 100}
# Windows of 2 x 2 squares, of which an image of 3 x 4 has four. The 16 numbers of a head turn in 8 pairs.
_QWEN25_VISION = {name: _QWEN_VISION[name] for name in ("hidden_size", "intermediate_size", "num_heads", "patch_size")}
_QWEN25_VISION |= {"depth": 4, "out_hidden_size": 64, "window_size": 16, "fullatt_block_indexes": [1]}
_QWEN25_TEXT = {"hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
_QWEN25_TEXT |= {"num_key_value_heads": 2, "max_position_embeddings": 512, "eos_token_id": 3, "rope_theta": 100}
_QWEN25_TEXT |= {"rope_scaling": {"mrope_section": [2, 3, 3], "type": "mrope"}}
QWENS = ("qwen2_5_vl", "qwen3_vl")
"""Families whose models read images of any shape."""


# A conversation as Qwen3-VL's template writes it, without videos and tools.
_QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Qwen2.5-VL's says this first where no other system turn is there.
_QWEN25_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    + _QWEN_TEMPLATE
)


def make_processor(folder: pathlib.Path, family: str):
    """Transformers' processor: images of 32 x 32, the language model's tokenizer, for InstructBLIP one like BERT's.

    Of a Qwen its parts: the image processor and the tokenizer.
    """
    import transformers

    if family in QWENS:
        template = _QWEN_TEMPLATE if family == "qwen3_vl" else _QWEN25_TEMPLATE
        tokenizer = make_tokenizer(kind="bare", chat_template=template)
        places = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
        tokenizer.add_special_tokens({"additional_special_tokens": places}, replace_extra_special_tokens=False)
        tokenizer.add_tokens(["Yes", "No"])  # as in the published one
        # The whole processor cannot be made without torchvision, which its videos take.
        return transformers.Qwen2VLImageProcessorPil(**QWEN_IMAGES), tokenizer
    if family == "llava":
        tokenizer = make_tokenizer(kind="decoder")
        tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]}, replace_extra_special_tokens=False)
        images = transformers.CLIPImageProcessorPil(
            size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}
        )
        how = {"vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
        return transformers.LlavaProcessor(images, tokenizer, patch_size=_CLIP["patch_size"], **how)
    images = transformers.BlipImageProcessorPil(size={"height": SIZE, "width": SIZE})
    tokenizer = make_tokenizer(kind={"vicuna": "decoder", "opt": "opt"}.get(family, "t5"))
    if family in ("blip-2", "opt"):
        return transformers.Blip2Processor(images, tokenizer, num_query_tokens=QUERIES)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    bert = transformers.BertTokenizerFast.from_pretrained(folder)
    (folder / "vocab.txt").unlink()
    return transformers.InstructBlipProcessor(images, tokenizer, bert, num_query_tokens=QUERIES)


def write_vision_language(folder: pathlib.Path, family: str = "instructblip") -> pathlib.Path:
    """Writes a model with random weights, the same at every call.

    ``instructblip`` and ``blip-2`` have FLAN-T5, ``vicuna`` is an InstructBLIP with it, ``opt`` a BLIP-2 with it.
    """
    import torch
    import transformers

    processor = make_processor(folder, family)
    if family in QWENS:
        for part in processor:
            part.save_pretrained(folder)
        _save(_randomized(_make_qwen(processor[1], family)), folder)
        return folder
    processor.save_pretrained(folder)
    blip_2 = (transformers.Blip2Config, transformers.Blip2ForConditionalGeneration)
    config_class, model_class = {
        "blip-2": blip_2,
        "opt": blip_2,
        "llava": (transformers.LlavaConfig, transformers.LlavaForConditionalGeneration),
    }.get(family, (transformers.InstructBlipConfig, transformers.InstructBlipForConditionalGeneration))
    text = {"vicuna": _LLAMA, "llava": _LLAMA, "opt": _OPT}.get(family, _T5)
    text = text | {"tie_word_embeddings": family == "opt"}
    if family == "opt":  # as published: an answer ends with a line
        (text["eos_token_id"],) = processor.tokenizer("\n", add_special_tokens=False)["input_ids"]
    vocab_size = len(processor.tokenizer) + 3
    between = {"qformer_config": _QFORMER, "num_query_tokens": QUERIES} if family != "llava" else {}
    config = config_class(
        vision_config=_CLIP if family == "llava" else _VISION,
        text_config=text | {"vocab_size": vocab_size},
        image_token_index=processor.tokenizer.convert_tokens_to_ids("<image>"),
        **between,
    )
    torch.manual_seed(31 if family == "opt" else 0)  # with which some of its texts end
    model = model_class(config)
    if family not in ("llava", "opt"):  # a head of its own, as published
        model.language_model.lm_head.weight = torch.nn.Parameter(torch.zeros(vocab_size, 32))
    _save(_randomized(model, is_opt=family == "opt"), folder)
    return folder


def _make_qwen(tokenizer, family):
    """With a head of its own, as the published ones of 7 and 8 billion parameters."""
    import torch
    import transformers

    tokens = {"image": "image_pad", "video": "video_pad", "vision_start": "vision_start", "vision_end": "vision_end"}
    ids = {f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>") for name, token in tokens.items()}
    is_3 = family == "qwen3_vl"
    text = (_QWEN_TEXT if is_3 else _QWEN25_TEXT) | {"vocab_size": len(tokenizer) + 3}
    vision = _QWEN_VISION if is_3 else _QWEN25_VISION
    config_class = transformers.Qwen3VLConfig if is_3 else transformers.Qwen2_5_VLConfig
    config = config_class(text_config=text, vision_config=vision, tie_word_embeddings=False, **ids)
    torch.manual_seed(0)
    cls = transformers.Qwen3VLForConditionalGeneration if is_3 else transformers.Qwen2_5_VLForConditionalGeneration
    return cls(config)


def _randomized(model, *, is_opt=False):
    """Torch's own start would make all answers alike, whatever the image and the question."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                is_table = ("embed" in name and "patch_embed.proj" not in name) or "query" in name
                std = 1.0 if is_table else parameter[0].numel() ** -0.5
                # Otherwise a head that is the embeddings would repeat the last token for ever.
                parameter.normal_(std=0.2 if is_opt and "embed_tokens" in name else std)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def _save(model, folder: pathlib.Path) -> None:
    """Two shards and a config as those of 2024; transformers 5 writes all heads of T5 as tied."""
    import safetensors.torch

    model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [type(model).__name__]
    config["text_config"].pop("scale_decoder_outputs", None)
    config["text_config"]["tie_word_embeddings"] = model.config.text_config.model_type == "opt"
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :]), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        safetensors.torch.save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
