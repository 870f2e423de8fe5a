"""winobench: how well does a text-to-image model understand what it draws, and a language model what it reads?

The public names are imported when they are first used, so that ``import winobench`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from winobench.base.version import __version__

if TYPE_CHECKING:
    from winobench.base.errors import InputError
    from winobench.diffusion.families import load_pipeline
    from winobench.diffusion.flux import Flux
    from winobench.diffusion.flux_2 import Flux2Klein
    from winobench.diffusion.pipeline import Pipeline
    from winobench.diffusion.samplers import SAMPLERS
    from winobench.diffusion.schedules import NoiseSchedule, Schedule
    from winobench.diffusion.stable_diffusion import StableDiffusion
    from winobench.diffusion.stable_diffusion_3 import StableDiffusion3
    from winobench.diffusion.stable_diffusion_xl import StableDiffusionXL
    from winobench.diffusion.z_image import ZImage
    from winobench.evaluation.evaluate import evaluate
    from winobench.evaluation.questions import evaluate_questions
    from winobench.generation.generate import draw_pictures
    from winobench.generation.judged import judge_pictures
    from winobench.metrics import METRICS
    from winobench.models.autoencoder_kl import AutoencoderKL
    from winobench.models.clevr_verifier import ClevrVerifier
    from winobench.models.clip import CLIPTextModel
    from winobench.models.unet_2d_condition import UNet2DConditionModel
    from winobench.prompts.named_sets import read_prompts
    from winobench.prompts.prompt_files import Prompt
    from winobench.report.comparison import Comparison, compare
    from winobench.responders.loading import load_responder
    from winobench.responders.vision_language import Captioner, VisionLanguageModel
    from winobench.responders.vqa_score import HostedVQAScore
    from winobench.runs.image_runs import Pictures, read_pictures
    from winobench.runs.judgements import Judgement
    from winobench.runs.reading import read_run
    from winobench.runs.run import Run
    from winobench.runs.settings import Asking, Recording, Sampling, Scoring
    from winobench.scorers.contrastive import Contrastive
    from winobench.scorers.denoising import Triples, denoising_errors
    from winobench.scorers.diffusion_itm import DiffusionITM
    from winobench.scorers.itm_head import ItmHead
    from winobench.scorers.loading import load_scorer
    from winobench.scorers.samples import noise_key
    from winobench.scorers.vqa_score import VQAScore
    from winobench.tasks import TASKS, TEXT_TASKS, get_task, get_text_task
    from winobench.tasks.base import Association, Example, TargetPair, Task
    from winobench.tasks.jsonl import task_from_jsonl
    from winobench.tasks.questions import Protocol, TextQuestion, TextTask
    from winobench.torch_pipelines.pipeline import TorchPipeline

_HOME = {
    "METRICS": "winobench.metrics",
    "SAMPLERS": "winobench.diffusion.samplers",
    "TASKS": "winobench.tasks",
    "TEXT_TASKS": "winobench.tasks",
    "Asking": "winobench.runs.settings",
    "Association": "winobench.tasks.base",
    "AutoencoderKL": "winobench.models.autoencoder_kl",
    "CLIPTextModel": "winobench.models.clip",
    "Captioner": "winobench.responders.vision_language",
    "ClevrVerifier": "winobench.models.clevr_verifier",
    "Comparison": "winobench.report.comparison",
    "Contrastive": "winobench.scorers.contrastive",
    "DiffusionITM": "winobench.scorers.diffusion_itm",
    "Example": "winobench.tasks.base",
    "Flux": "winobench.diffusion.flux",
    "Flux2Klein": "winobench.diffusion.flux_2",
    "HostedVQAScore": "winobench.responders.vqa_score",
    "InputError": "winobench.base.errors",
    "ItmHead": "winobench.scorers.itm_head",
    "Judgement": "winobench.runs.judgements",
    "NoiseSchedule": "winobench.diffusion.schedules",
    "Pictures": "winobench.runs.image_runs",
    "Pipeline": "winobench.diffusion.pipeline",
    "Prompt": "winobench.prompts.prompt_files",
    "Protocol": "winobench.tasks.questions",
    "Recording": "winobench.runs.settings",
    "Run": "winobench.runs.run",
    "Sampling": "winobench.runs.settings",
    "Schedule": "winobench.diffusion.schedules",
    "Scoring": "winobench.runs.settings",
    "StableDiffusion": "winobench.diffusion.stable_diffusion",
    "StableDiffusion3": "winobench.diffusion.stable_diffusion_3",
    "StableDiffusionXL": "winobench.diffusion.stable_diffusion_xl",
    "TargetPair": "winobench.tasks.base",
    "Task": "winobench.tasks.base",
    "TextQuestion": "winobench.tasks.questions",
    "TextTask": "winobench.tasks.questions",
    "TorchPipeline": "winobench.torch_pipelines.pipeline",
    "Triples": "winobench.scorers.denoising",
    "UNet2DConditionModel": "winobench.models.unet_2d_condition",
    "VQAScore": "winobench.scorers.vqa_score",
    "VisionLanguageModel": "winobench.responders.vision_language",
    "ZImage": "winobench.diffusion.z_image",
    "compare": "winobench.report.comparison",
    "denoising_errors": "winobench.scorers.denoising",
    "draw_pictures": "winobench.generation.generate",
    "evaluate": "winobench.evaluation.evaluate",
    "evaluate_questions": "winobench.evaluation.questions",
    "get_task": "winobench.tasks",
    "get_text_task": "winobench.tasks",
    "judge_pictures": "winobench.generation.judged",
    "load_pipeline": "winobench.diffusion.families",
    "load_responder": "winobench.responders.loading",
    "load_scorer": "winobench.scorers.loading",
    "noise_key": "winobench.scorers.samples",
    "read_pictures": "winobench.runs.image_runs",
    "read_prompts": "winobench.prompts.named_sets",
    "read_run": "winobench.runs.reading",
    "task_from_jsonl": "winobench.tasks.jsonl",
}

__all__ = [
    "METRICS",
    "SAMPLERS",
    "TASKS",
    "TEXT_TASKS",
    "Asking",
    "Association",
    "AutoencoderKL",
    "CLIPTextModel",
    "Captioner",
    "ClevrVerifier",
    "Comparison",
    "Contrastive",
    "DiffusionITM",
    "Example",
    "Flux",
    "Flux2Klein",
    "HostedVQAScore",
    "InputError",
    "ItmHead",
    "Judgement",
    "NoiseSchedule",
    "Pictures",
    "Pipeline",
    "Prompt",
    "Protocol",
    "Recording",
    "Run",
    "Sampling",
    "Schedule",
    "Scoring",
    "StableDiffusion",
    "StableDiffusion3",
    "StableDiffusionXL",
    "TargetPair",
    "Task",
    "TextQuestion",
    "TextTask",
    "TorchPipeline",
    "Triples",
    "UNet2DConditionModel",
    "VQAScore",
    "VisionLanguageModel",
    "ZImage",
    "__version__",
    "compare",
    "denoising_errors",
    "draw_pictures",
    "evaluate",
    "evaluate_questions",
    "get_task",
    "get_text_task",
    "judge_pictures",
    "load_pipeline",
    "load_responder",
    "load_scorer",
    "noise_key",
    "read_pictures",
    "read_prompts",
    "read_run",
    "task_from_jsonl",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'winobench' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
