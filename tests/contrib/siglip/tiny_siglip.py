"""Small random SigLIP and SigLIP 2 in the published layout, written by torch transformers, with their tokenizers."""

import json
import pathlib

SIZE = 30  # pixels; patches of 7 leave two over, as those of 14 leave six of 384
LENGTH = 64
WORDS = ("a", "red", "blue", "cube", "ball", "of", "the", "photo", "left")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# As SentencePiece numbers them; the scores are logarithms of probabilities.
PIECES = [
    *((token, 0.0) for token in ("<pad>", "</s>", "<unk>")),
    ("▁", -3.0),
    *((f"▁{word}", -2.0) for word in WORDS),
    *((letter, -6.0) for letter in _LETTERS),
]
# The epsilons are unlike those published, and unlike each other, so that a swapped or forgotten one shows.
_TEXT = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
_TEXT |= {"projection_size": 32, "layer_norm_eps": 0.01}
_VISION = {"hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4}
_VISION |= {"image_size": SIZE, "patch_size": 7, "layer_norm_eps": 0.03}
_TOKENIZER = {"do_lower_case": True, "eos_token": "</s>", "model_input_names": ["input_ids"]}
_TOKENIZER |= {"model_max_length": LENGTH, "pad_token": "</s>", "processor_class": "SiglipProcessor"}
_TOKENIZER |= {"sp_model_kwargs": {}, "tokenizer_class": "SiglipTokenizer", "unk_token": "<unk>"}


def write_siglip(folder: pathlib.Path, family: str = "siglip") -> pathlib.Path:
    """Writes a model with random weights, the same at every call.

    ``siglip`` has towers of one width and ``tokenizer.json``, ``siglip2`` Gemma's tokenizer and bilinear images.
    """
    import torch
    import transformers

    from tests.parity.harness import randomize

    folder.mkdir(parents=True, exist_ok=True)
    count = write_pieces(folder) if family == "siglip" else write_gemma(folder)
    text = _TEXT if family == "siglip2" else _TEXT | {"hidden_size": 32, "num_attention_heads": 2}
    config = transformers.SiglipConfig(text_config=text | {"vocab_size": count + 3}, vision_config=_VISION)
    model = randomize(transformers.SiglipModel(config))
    with torch.no_grad():
        model.logit_scale.fill_(2.0)
        model.logit_bias.fill_(-3.0)
    model.save_pretrained(folder)
    processor = {"image_processor_type": "SiglipImageProcessor", "size": {"height": SIZE, "width": SIZE}}
    processor |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3}
    if family == "siglip2":
        processor |= {"do_convert_rgb": None, "resample": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def write_pieces(folder: pathlib.Path, *, spiece: bool = False) -> int:
    """SigLIP's tokenizer of ``PIECES``, in ``tokenizer.json`` or as a SentencePiece model; returns their number."""
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors

    if spiece:
        from transformers.convert_slow_tokenizer import import_protobuf

        proto = import_protobuf().ModelProto()
        for number, (piece, score) in enumerate(PIECES):
            proto.pieces.add(piece=piece, score=score, type={0: 3, 1: 3, 2: 2}.get(number, 1))
        proto.trainer_spec.unk_id, proto.trainer_spec.model_type = 2, 1
        (folder / "spiece.model").write_bytes(proto.SerializeToString())
    else:
        tokenizer = tokenizers.Tokenizer(models.Unigram(PIECES, unk_id=2))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
        tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(_TOKENIZER))
    return len(PIECES)


def write_gemma(folder: pathlib.Path) -> int:
    """A byte-pair tokenizer as Gemma's, which knows letters of both cases; returns the number of its tokens."""
    import transformers

    vocab = {token: number for number, token in enumerate(("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"))}
    merges = []
    for symbol in ("▁", *_LETTERS, *_LETTERS.upper(), ",", "!", "."):
        vocab[symbol] = len(vocab)
    for word in WORDS:
        piece = word[0]
        for letter in word[1:]:
            if piece + letter not in vocab:
                merges.append((piece, letter))
                vocab[piece + letter] = len(vocab)
            piece += letter
    options = {"add_bos_token": False, "add_eos_token": True, "padding_side": "right", "model_max_length": LENGTH}
    tokenizer = transformers.GemmaTokenizer(vocab=vocab, merges=merges, **options)
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    # As published: padding is attended to.
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_input_names": ["input_ids"]}))
    return len(vocab)
