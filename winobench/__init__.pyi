"""The public names, each with its module: `__init__.py` reads them here."""

from typing import Any

from winobench.base.errors import InputError as InputError
from winobench.base.version import __version__ as __version__
from winobench.data.example import Example as Example
from winobench.diffusion.families import load_pipeline as load_pipeline
from winobench.diffusion.flux import Flux as Flux
from winobench.diffusion.flux_2 import Flux2Klein as Flux2Klein
from winobench.diffusion.pipeline import Pipeline as Pipeline
from winobench.diffusion.samplers import SAMPLERS as SAMPLERS
from winobench.diffusion.schedules import NoiseSchedule as NoiseSchedule
from winobench.diffusion.schedules import Schedule as Schedule
from winobench.diffusion.stable_diffusion import StableDiffusion as StableDiffusion
from winobench.diffusion.stable_diffusion_3 import StableDiffusion3 as StableDiffusion3
from winobench.diffusion.stable_diffusion_xl import StableDiffusionXL as StableDiffusionXL
from winobench.diffusion.z_image import ZImage as ZImage
from winobench.evaluation.evaluate import evaluate as evaluate
from winobench.evaluation.questions import evaluate_questions as evaluate_questions
from winobench.generation.collecting import collect_images as collect_images
from winobench.generation.generate import generate_images as generate_images
from winobench.generation.judged import judge_images as judge_images
from winobench.metrics import METRICS as METRICS
from winobench.metrics.association import Association as Association
from winobench.metrics.association import TargetPair as TargetPair
from winobench.models.autoencoder_kl import AutoencoderKL as AutoencoderKL
from winobench.models.clip import CLIPTextModel as CLIPTextModel
from winobench.models.unet_2d_condition import UNet2DConditionModel as UNet2DConditionModel
from winobench.prompts.named_sets import read_prompts as read_prompts
from winobench.prompts.prompt_files import Prompt as Prompt
from winobench.report.comparison import Comparison as Comparison
from winobench.report.comparison import compare as compare
from winobench.responders.loading import load_responder as load_responder
from winobench.responders.vision_language import Captioner as Captioner
from winobench.responders.vision_language import VisionLanguageModel as VisionLanguageModel
from winobench.responders.vqa_score import HostedVQAScore as HostedVQAScore
from winobench.runs.image_runs import Images as Images
from winobench.runs.image_runs import read_images as read_images
from winobench.runs.judgements import Judgement as Judgement
from winobench.runs.reading import read_run as read_run
from winobench.runs.run import Run as Run
from winobench.runs.settings import Asking as Asking
from winobench.runs.settings import Recording as Recording
from winobench.runs.settings import Sampling as Sampling
from winobench.runs.settings import Scoring as Scoring
from winobench.scorers.contrastive import Contrastive as Contrastive
from winobench.scorers.denoising import Triples as Triples
from winobench.scorers.denoising import denoising_errors as denoising_errors
from winobench.scorers.diffusion_itm import DiffusionITM as DiffusionITM
from winobench.scorers.itm_head import ItmHead as ItmHead
from winobench.scorers.loading import load_scorer as load_scorer
from winobench.scorers.samples import noise_key as noise_key
from winobench.scorers.vqa_score import VQAScore as VQAScore
from winobench.tasks import TASKS as TASKS
from winobench.tasks import TEXT_TASKS as TEXT_TASKS
from winobench.tasks import get_task as get_task
from winobench.tasks import get_text_task as get_text_task
from winobench.tasks.base import Task as Task
from winobench.tasks.jsonl import task_from_jsonl as task_from_jsonl
from winobench.tasks.questions import Protocol as Protocol
from winobench.tasks.questions import TextQuestion as TextQuestion
from winobench.tasks.questions import TextTask as TextTask

# What entry points of winobench.names add.
ClevrVerifier: Any
ImageLikelihood: Any
TokenGeneration: Any
TorchPipeline: Any
