"""The published config.json files of released models, from ``published_configs.json``."""

import json
import pathlib

ALL = json.loads((pathlib.Path(__file__).parent / "published_configs.json").read_text())


def of(part: str) -> dict[str, dict]:
    """Name of a released model -> the config of this part of it."""
    return {key.removeprefix(f"{part} "): values for key, values in ALL.items() if key.split(" ")[0] == part}


UNETS, VAES, TEXT_ENCODERS = of("unet"), of("vae"), of("text_encoder")
SDXL_TEXT_2 = ALL["text_encoder_2 sdxl"]
