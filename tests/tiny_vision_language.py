"""Small random BLIP-2, InstructBLIP and LLaVA, in the published layout: shards, processor, two tokenizers."""

import json
import pathlib

from tests.tiny_language_models import make_tokenizer

SIZE = 32  # pixels
QUERIES = 4
WORDS = ["a", "red", "blue", "cube", "ball", "left", "of", "the", "does", "this", "figure", "show", "##s", '"', "?"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": SIZE,
    "patch_size": 8,
    # Unlike those published, and unlike each other, so that a swapped or forgotten one shows.
    "layer_norm_eps": 0.01,
}
_QFORMER = {
    # One more id than the tokenizer knows: [DEC], as published.
    "vocab_size": len(VOCABULARY) + 1,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "max_position_embeddings": 64,
    "layer_norm_eps": 0.03,
}
_T5 = {
    "model_type": "t5",
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 1,
    "num_heads": 4,
    "feed_forward_proj": "gated-gelu",
    # As published: not the usual one of such a T5.
    "dense_act_fn": "gelu",
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": 1,
}


_LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}


_OPT = {
    "model_type": "opt",
    "hidden_size": 32,
    "ffn_dim": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 160,
    "word_embed_proj_dim": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
}


_CLIP = _VISION | {"model_type": "clip_vision_model", "num_hidden_layers": 3, "projection_dim": 8}
PATCHES = (SIZE // _CLIP["patch_size"]) ** 2


def make_processor(folder: pathlib.Path, family: str):
    """Transformers' processor: images of 32 x 32, the language model's tokenizer, for InstructBLIP one like BERT's."""
    import transformers

    if family == "llava":
        tokenizer = make_tokenizer(kind="decoder")
        tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]}, replace_extra_special_tokens=False)
        images = transformers.CLIPImageProcessorPil(
            size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}
        )
        return transformers.LlavaProcessor(
            images,
            tokenizer,
            patch_size=_CLIP["patch_size"],
            vision_feature_select_strategy="default",
            num_additional_image_tokens=1,
        )
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

    Args:
      folder: where to; made if needed.
      family: ``instructblip`` or ``blip-2``, with FLAN-T5; ``vicuna`` for an InstructBLIP with it; ``opt`` for a BLIP-2
        with it; ``llava``.

    Returns:
      The folder.
    """
    import torch
    import transformers

    processor = make_processor(folder, family)
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
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Torch's own start would make all answers alike, whatever the image and the question.
            if parameter.ndim > 1:
                std = 1.0 if "embed" in name or "query" in name else parameter[0].numel() ** -0.5
                # Otherwise a head that is the embeddings would repeat the last token for ever.
                parameter.normal_(std=0.2 if family == "opt" and "embed_tokens" in name else std)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    _save(model, folder)
    return folder


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
