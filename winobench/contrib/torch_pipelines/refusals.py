"""The names of refused pipeline classes of diffusers, and the reasons."""

from __future__ import annotations

import re

_IMAGE = "it needs an image with the text"
_METHOD = (
    "it is another way to sample from the weights of {0}. To score them, write {0} as _class_name in model_index.json"
)
_CASCADE = "one network makes an embedding of an image from the text, and another one makes the image from it"
_TOKENS = "it predicts discrete tokens of images, so that it has no errors of predicted noise"
_MODULAR = "diffusers has only modular blocks for it, and no pipeline"

# Class -> why it is refused, as the end of a sentence.
REFUSED = {
    "AltDiffusionPipeline": "diffusers no longer loads its text encoder",
    "AmusedPipeline": _TOKENS,
    "BlipDiffusionPipeline": _IMAGE,
    "Cosmos2TextToImagePipeline": "diffusers loads it only with a guard model (the package cosmos_guardrail)",
    "Cosmos3OmniPipeline": "it makes video",
    "DiffusionGemmaPipeline": "it makes text",
    "GlmImagePipeline": "a language model first samples tokens of an image, so that a text has no fixed states",
    "IFPipeline": "it makes pixels of 64 x 64 images, which further models enlarge",
    "KandinskyCombinedPipeline": _CASCADE,
    "KandinskyPipeline": _CASCADE,
    "KandinskyPriorPipeline": _CASCADE,
    "KandinskyV22CombinedPipeline": _CASCADE,
    "KandinskyV22PriorPipeline": _CASCADE,
    "LDMTextToImagePipeline": "it encodes texts within its loop, so that their states cannot be kept",
    "LLaDA2Pipeline": "it makes text",
    "OmniGenPipeline": "it has no text encoder: one network reads the tokens of the text in every step",
    "PRXPixelPipeline": "it makes pixels without an autoencoder, from noise of twice the usual size",
    "QwenImage21Pipeline": "the positions of its image depend on the number of tokens in the text",
    "SanaSprintPipeline": "it is distilled to few steps with times on a circle, which no noise schedule here has",
    "SemanticStableDiffusionPipeline": _METHOD.format("StableDiffusionPipeline"),
    "ShapEPipeline": "it makes shapes in three dimensions",
    "StableCascadeCombinedPipeline": _CASCADE,
    "StableCascadeDecoderPipeline": _CASCADE,
    "StableCascadePriorPipeline": _CASCADE,
    "StableDiffusionAttendAndExcitePipeline": _METHOD.format("StableDiffusionPipeline"),
    "StableDiffusionDiffEditPipeline": _IMAGE,
    "StableDiffusionGLIGENPipeline": "it needs boxes with the text",
    "StableDiffusionGLIGENTextImagePipeline": "it needs boxes and images with the text",
    "StableDiffusionLDM3DPipeline": "it makes a map of depths with each image",
    "StableDiffusionModelEditingPipeline": _METHOD.format("StableDiffusionPipeline"),
    "StableDiffusionPanoramaPipeline": _METHOD.format("StableDiffusionPipeline"),
    "StableDiffusionParadigmsPipeline": _METHOD.format("StableDiffusionPipeline"),
    "StableDiffusionPipelineSafe": _METHOD.format("StableDiffusionPipeline"),
    "StableDiffusionPix2PixZeroPipeline": _IMAGE,
    "StableDiffusionSAGPipeline": _METHOD.format("StableDiffusionPipeline"),
    "StableUnCLIPPipeline": _CASCADE,
    "UnCLIPPipeline": _CASCADE,
    "UniDiffuserPipeline": "it denoises image and text together, at separate times",
    "VQDiffusionPipeline": _TOKENS,
    "VersatileDiffusionDualGuidedPipeline": _IMAGE,
    "VersatileDiffusionTextToImagePipeline": "each call rebuilds its UNet, for texts or for images",
    "WuerstchenCombinedPipeline": _CASCADE,
    "WuerstchenDecoderPipeline": _CASCADE,
    "WuerstchenPriorPipeline": _CASCADE,
}

# Pattern in a name -> why such classes are refused. The first match counts.
_KINDS = (
    ("Onnx", "its networks are ONNX programs, which JAX cannot run"),
    ("Audio|Music|AceStep|Spectrogram", "it makes sound"),
    (
        "Video|Animate|T2V|I2V|TI2V|ToWorld|^(Allegro|AnyFlow|Chrono|CogVideoX|ConsisID|Cosmos2_5|Helios|LTX|Latte|Lucy"
        "|Mochi|PIA|SanaWM|SkyReels|Wan)",
        "it makes video",
    ),
    ("ControlNet|Control|Adapter", "it needs an image that controls the layout, such as edges or depths"),
    ("Modular", _MODULAR),
    (
        "Img2Img|I2I|Inpaint|Edit|Emb2Emb|Upscale|SuperResolution|Pix2Pix|Depth2Img|Variation|Refiner|Fill|Redux|Layered"
        "|CycleDiffusion|Cloze|Marigold|PaintByExample|RePaint",
        _IMAGE,
    ),
    (
        "^(AuraFlow|BriaFibo2?|CogView4|DreamLite(Mobile)?|ErnieImage|HiDreamImage|Hunyuan(Image|DiT(PAG)?)|Ideogram4"
        "|Kandinsky(3|5T2I)|Lumina2|NucleusMoEImage|ZImage(Omni)?)Pipeline$",
        "JAX runs it only with changes to its code, and no installed package adds them by the entry point"
        " winobench.torch_families",
    ),
)


def reason(name: str) -> str | None:
    """Why the class of this name is refused, or None for an unknown name."""
    fitting = (why for pattern, why in _KINDS if re.search(pattern, name))
    return REFUSED.get(name) or next(fitting, None)
