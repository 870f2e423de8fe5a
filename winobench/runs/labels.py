"""Labels of tasks and models in reports: short, and the same in tables and figures."""

from __future__ import annotations

import re

TASK_LABELS = {
    "aro_flickr_order": "ARO Flickr order",
    "aro_coco_order_published": "ARO COCO order, published shuffles",
    "aro_flickr_order_published": "ARO Flickr order, published shuffles",
    "clevr_hard_image": "CLEVR hard, image",
    "clevr_hard_256": "CLEVR hard, 256 pixels",
    "clevr_hard_image_256": "CLEVR hard, image, 256 pixels",
    "pets_photo": "Pets, photo prompt",
    "pets_all": "Pets, all photographs",
    "pets_photo_all": "Pets, photo prompt, all photographs",
    "genderbias": "Gender bias",
    "coco_counterfactuals": "COCO-Counterfactuals",
    "coco_hardneg_text": "COCO hard negatives, text",
    "coco_hardneg_image": "COCO hard negatives, image",
    "coco_hardneg_text_328": "COCO hard negatives, text, 328 rows",
    "coco_hardneg_image_328": "COCO hard negatives, image, 328 rows",
    "winoviz_single": "WinoViz single-hop",
    "winoviz_multi": "WinoViz multi-hop",
    "winoviz_decoupled": "WinoViz decoupled",
    "winoviz_mini_single": "WinoViz mini, single-hop",
    "winoviz_mini_multi": "WinoViz mini, multi-hop",
    "winoviz_mini_decoupled": "WinoViz mini, decoupled",
    "wscplus": "WSC+",
    "wscplus_test": "WSC+ test set",
}
"""Labels of tasks that `task_label` cannot make of their names."""

# Words that people write in another way than in the names of tasks.
_PROPER = """
    ARO BiVLC BLIP CLEVR CLIP COCO COLA ColorSwap ConMe CountBench CREPE EvalMuse FGVC Flickr30K GenAI GenEval GQA
    ImageCoDe ImageNet ImageReward ITM MMBias MMVP NaturalBench PACO SD SeeTRUE SugarCrepe SVO TIFA160 VALSE VG VisMin
    VQA
    Winoground
"""
_WORDS = {word.lower(): word for word in _PROPER.split()} | {
    "cifar10": "CIFAR-10",
    "eqbench": "EqBen",
    "flowers102": "Flowers 102",
    "hardneg": "hard negatives",
    "hpdv2": "HPD v2",
    "mscoco": "MS COCO",
    "obj": "object",
    "selfbench": "Self-Bench",
    "stl10": "STL-10",
    "subj": "subject",
    "vlchecklist": "VL-CheckList",
    "whatsup": "What'sUp",
}


def task_label(task: str) -> str:
    """A task's label: ``My COCO test`` for ``my_coco_test``."""
    if task in TASK_LABELS:
        return TASK_LABELS[task]
    words = [_WORDS.get(word, word) for word in re.split(r"[_\s]+", task) if word]
    text = " ".join(words) or task
    return text[0].upper() + text[1:] if words and words[0].islower() else text


def model_label(model: str) -> str:
    """A model's short name: a registry name as it is, the last part of a hub id or of a folder's path."""
    last = re.split(r"[/\\]", model.rstrip("/\\"))[-1]
    return last if last.strip(".") else model


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and end around an ellipsis where it has more than ``most`` letters."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 3
    return f"{text[: most - 1 - tail].rstrip()}…{text[len(text) - tail :].lstrip()}"
