"""Small random baselines in the layouts that their checkpoints are published in."""

import json
import pathlib

from tests.models.test_networks import filled
from winobench import checkpoints
from winobench.checkpoints import tokenizer_files
from winobench.models.blip import BlipForImageTextRetrieval
from winobench.models.blip_config import BlipConfig, BlipTextConfig, BlipVisionConfig
from winobench.models.clip import CLIPTextConfig
from winobench.models.clip_model import CLIPConfig, CLIPModel
from winobench.models.clip_vision import CLIPVisionConfig

WORDS = ["a", "red", "blue", "cube", "ball", "of"]
SIZE = 16  # pixels, of both models

# With a word of each pair of the gender bias task, which would otherwise be equal for the model.
BLIP_VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "suit", "briefcase", "beer"]
_LAYERS = {"intermediate_size": 16, "num_hidden_layers": 1}
_WORDS = {"vocab_size": len(BLIP_VOCABULARY) + 2, "bos_token_id": len(BLIP_VOCABULARY), "max_position_embeddings": 20}
BLIP = BlipConfig(
    BlipTextConfig(hidden_size=12, encoder_hidden_size=8, num_attention_heads=3, **_WORDS, **_LAYERS),
    BlipVisionConfig(hidden_size=8, num_attention_heads=2, image_size=SIZE, patch_size=8, **_LAYERS),
    image_text_hidden_size=6,
)


def write_blip(folder: pathlib.Path) -> pathlib.Path:
    """A BLIP with its tokenizer and its processor's configuration; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints.save_model(filled(BlipForImageTextRetrieval, BLIP), folder)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in BLIP_VOCABULARY))
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "BlipImageProcessor", "size": {"height": SIZE, "width": SIZE}})
    )
    return folder


def write_clip(folder: pathlib.Path) -> pathlib.Path:
    """A CLIP with a vision transformer in transformers' layout; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab_size = tokenizer_files.write_clip_tokenizer(folder, WORDS, 20)
    sizes = {"num_attention_heads": 2, **_LAYERS}
    ids = {"bos_token_id": vocab_size - 2, "eos_token_id": vocab_size - 1, "pad_token_id": vocab_size - 1}
    config = CLIPConfig(
        CLIPTextConfig(vocab_size=vocab_size, hidden_size=12, max_position_embeddings=20, **sizes, **ids),
        CLIPVisionConfig(hidden_size=8, image_size=SIZE, patch_size=8, **sizes),
        projection_dim=6,
    )
    checkpoints.save_model(filled(CLIPModel, config), folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "CLIPImageProcessor", "size": SIZE, "crop_size": SIZE})
    )
    return folder
