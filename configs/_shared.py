"""The options of several configs, by their earlier place: copies of earlier configs import them from here."""

from winobench.runs.model_settings import Api, Checkpoint, Pipeline, Responder, Sampler, Weights
from winobench.runs.training_settings import Mesh, Stage, Training

__all__ = ["Api", "Checkpoint", "Mesh", "Pipeline", "Responder", "Sampler", "Stage", "Training", "Weights"]
