"""A user's program, which type checkers read and nobody runs (tests/test_types.py): every public name, in use."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

import winobench
from winobench import (
    METRICS,
    SAMPLERS,
    TASKS,
    TEXT_TASKS,
    Asking,
    Association,
    AutoencoderKL,
    Captioner,
    ClevrVerifier,
    CLIPTextModel,
    Comparison,
    Contrastive,
    DiffusionITM,
    Example,
    Flux,
    Flux2Klein,
    HostedVQAScore,
    ImageLikelihood,
    Images,
    InputError,
    ItmHead,
    Judgement,
    NoiseSchedule,
    Pipeline,
    Prompt,
    Protocol,
    Recording,
    Run,
    Sampling,
    Schedule,
    Scoring,
    StableDiffusion,
    StableDiffusion3,
    StableDiffusionXL,
    TargetPair,
    Task,
    TextQuestion,
    TextTask,
    TokenGeneration,
    TorchPipeline,
    Triples,
    UNet2DConditionModel,
    VisionLanguageModel,
    VQAScore,
    ZImage,
    collect_images,
    compare,
    denoising_errors,
    evaluate,
    evaluate_questions,
    generate_images,
    get_task,
    get_text_task,
    judge_images,
    load_pipeline,
    load_responder,
    load_scorer,
    noise_key,
    read_images,
    read_prompts,
    read_run,
    task_from_jsonl,
)


class Constant:
    """A scorer of one's own."""

    def score(self, images: Sequence[Any], texts: Sequence[str]) -> np.ndarray:
        return np.zeros((len(images), len(texts)), np.float32)

    def fingerprint(self) -> dict[str, Any]:
        return {"model": "constant"}


def load(data_dir: str | None, limit: int | None) -> list[Example[Any, str]]:
    return [Example(id="one", images=("cat.png",), texts=("a cat", "a dog"), target=0)][:limit]


def scores(folder: pathlib.Path) -> np.ndarray:
    pipeline: Pipeline = load_pipeline(folder, "bfloat16")
    families: list[type[Pipeline]] = [StableDiffusion, StableDiffusionXL, StableDiffusion3, Flux, Flux2Klein, ZImage]
    families.append(TorchPipeline)
    schedule: Schedule = pipeline.schedule
    images: np.ndarray = pipeline.generate(["a cat"], num_steps=4, guidance_scale=3.0, seed=0)
    pipeline.save_pretrained(folder / "copy", dtype="float16")
    scorer: DiffusionITM = DiffusionITM.from_pretrained("clevr-tiny", "bfloat16", lora=folder)
    print(families, schedule, isinstance(schedule, NoiseSchedule), StableDiffusion.from_pretrained(folder).fingerprint)
    return scorer.score([*images, "dog.png", folder / "bird.png"], ["a cat", "a dog"], num_samples=4, seed=1)


def judges(folder: pathlib.Path) -> Mapping[str, Any]:
    sampling = Sampling(num_samples=4)
    tasks: list[str | Task] = ["clevr", get_task("winoground"), task_from_jsonl(folder / "mine.jsonl")]
    results: dict[str, Any] = evaluate(Constant(), tasks, folder / "run", sampling, Scoring(limit=4), Recording())
    for scorer in (Contrastive.from_pretrained("clip"), ItmHead.from_pretrained("blip"), load_scorer("sd21-base")):
        results = evaluate(scorer, "clevr", num_samples=4, limit=10)
    sees: VQAScore = VQAScore.from_pretrained("llava-1.5-7b", dtype="bfloat16")
    writes: VisionLanguageModel = Captioner.from_pretrained("llava-1.5-7b")
    hosted = HostedVQAScore(load_responder("openai:gpt-4o-mini"), folder=folder)
    evaluate(hosted, [], folder)
    print(sees, writes, VisionLanguageModel, ClevrVerifier.from_pretrained(folder))
    print(ImageLikelihood.from_pretrained("janus-pro-1b"), TokenGeneration.from_pretrained(folder))
    return results


def questions(folder: pathlib.Path) -> TextTask:
    task: TextTask = get_text_task("winoviz")
    found: dict[str, Any] = evaluate_questions(load_responder("flan-t5-base", "bfloat16"), [task], folder, Asking())
    protocols: list[type[Protocol] | type[TextQuestion]] = [Protocol, TextQuestion]
    print(found["tasks"], protocols)
    return task


def finished(folder: pathlib.Path) -> list[str]:
    run: Run = read_run(folder)
    images: Images = read_images(folder)
    image: np.ndarray = images.image(images.record("sd21-base", 0, 0))
    comparison: Comparison = compare(run, folder / "other", tasks=["clevr"])
    shown: list[str] = [comparison.table("markdown"), comparison.first, *(flip.task for flip in comparison.flips)]
    for name, task in run.tasks.items():
        print(shown, name, task.is_bias, run.batches(name), image.shape)
    return [run.model, *run.failed, *TASKS, *TEXT_TASKS, *METRICS, *SAMPLERS, winobench.__version__]


def generated(folder: pathlib.Path) -> Images:
    prompts: list[Prompt] = [*read_prompts("prompts.txt", limit=3), Prompt("1", "a cat")]
    return generate_images([], prompts, folder, seeds=[0, 1])


def collected(folder: pathlib.Path) -> Images:
    return collect_images(folder, "prompts.txt", folder / "run", name="another model", allow_missing=True)


def judged(run: Images) -> dict[str, float]:
    found: Judgement = judge_images(run, load_responder("qwen3-vl-8b", about_images=True), name="a judge")
    print(found.who, found.wordings)
    return {metric: groups["all"]["value"] for metric, groups in found.models["sd21-base"].items()}


def own_task() -> Task:
    pair = TargetPair("flowers", "rose", "wasp", ("good",), ("bad",))
    print(pair, Association)
    return Task(
        name="mine",
        version=1,
        description="Is it a cat?",
        metric="accuracy",
        shape=(1, 2),
        chance={},
        load=load,
        ready=lambda data_dir: None,
        images_compete=False,
        data_fingerprint=lambda data_dir, limit: f"1 {limit}",
    )


def training_loop(latents: jax.Array, states: jax.Array, schedule: Schedule, place: jax.Array) -> jax.Array:
    unet: UNet2DConditionModel = UNet2DConditionModel.from_pretrained("sd", subfolder="unet", dtype="bfloat16")
    vae: AutoencoderKL = AutoencoderKL.from_pretrained("sd", subfolder="vae")
    encoder: CLIPTextModel = CLIPTextModel.from_pretrained("sd", subfolder="text_encoder")
    print(vae.encode(latents)[0], encoder(place).last_hidden_state, unet(latents, place, states), noise_key(0))
    triples = Triples(image=place, text=place, sample=place, timestep=place)
    return denoising_errors(unet, {}, schedule, latents, states, triples, latents)


def main() -> None:
    try:
        scores(pathlib.Path("model"))
    except InputError as error:
        print(error, error.code)
