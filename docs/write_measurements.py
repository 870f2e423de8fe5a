"""Writes docs/reference/measurements.md, the tables of benchmarks/results/*.json, or checks it.

python docs/write_measurements.py            # write it
python docs/write_measurements.py --check    # only say whether it is up to date

Every file is what its benchmark writes with --output.
"""

from __future__ import annotations

import itertools
import json
import math
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "reference" / "measurements.md"

_HEAD = """# Measurements

<!-- Made by docs/write_measurements.py from benchmarks/results. Run that instead of editing this page. -->

This page has the tables of all benchmarks in the repository, each with the command that makes it. The other pages
explain them: [performance](../explanation/performance.md), [races](../explanation/race.md) and
[intervals](../explanation/intervals.md). Each figure is from one machine, and a virtual machine with two cores varies
by 10% and more from run to run. Numbers in brackets after a percentage are 95% intervals.
"""


def main(words: Sequence[str]) -> int:
    """Writes the page, or returns 1 where it is not what it should be."""
    text = page(RESULTS)
    if list(words) != ["--check"]:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text)
        return 0
    return 0 if PAGE.is_file() and PAGE.read_text() == text else 1


def page(results: pathlib.Path) -> str:
    """The whole page, from a folder of result files."""
    files = {path.stem: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
    parts: list[Iterable[str]] = [
        [_HEAD],
        _measured(files["h100-measured"]),
        _faster(files["faster"], files["compiled"]),
        _compiled(files["compiled"]),
        _images_planned(files["images-planned"]),
        _vision_language_planned(files["vision-language-planned"]),
        _scorer(files["scorer-cpu"]),
        _trace(files["trace-cpu"]),
        _images(files["images-cpu"]),
        _training(files["hardneg-cpu"]),
        _language_model(files["language-model-cpu"]),
        _vision_language(files["vision-language-cpu"]),
        _races(files),
        _classes(files["race-classes-clevr-tiny"]),
        _efficiency(files["efficiency"]),
        _intervals(files["intervals"]),
        _viewer(files["viewer"]),
    ]
    return "\n".join(itertools.chain(*parts))


def _measured(found: Mapping[str, Any]) -> Iterator[str]:
    machine = found["machine"]
    libraries = machine["libraries"]
    yield from _section(
        "Measured on an H100",
        f"One {machine['accelerator']}, {machine['power_limit_w']} W, jax {libraries['jax']}, cuDNN"
        f" {libraries['nvidia-cudnn-cu13']}, torch {libraries['torch']}, {found['date']}. Weights and inputs are"
        " random, in bfloat16. *Planned* is the bound of `winobench plan` for the same program. Kernels were compared"
        " with float32: attention, its gradients and GEGLU differ by at most 0.25%. Errors in float32 differ from a"
        " CPU's by at most 5e-7, in bfloat16 by 0.24%. `gdbench:debug` gives a CPU's accuracies. A script took these"
        " figures. The first command times the steps in the same way. The second one runs every benchmark of a GPU"
        " within nine minutes, and continues when it is called again. Both have run on a CPU only.",
        "python -m benchmarks.gpu\npython -m benchmarks.gpu --all FOLDER",
    )
    rows = []
    for each in found["steps"]:
        planned, measured = each["planned"], each["passes_per_second"]
        figures = _short(planned), _short(measured), f"{measured / planned:.0%}", _short(each["temporaries_gb"])
        rows.append([each["model"], str(each["batch_size"]), *figures])
    yield _table(["step", "passes at once", "planned passes/s", "measured", "of planned", "temporaries, GB"], rows)
    ours = next(each["passes_per_second"] for each in found["steps"] if each["batch_size"] == 32)
    rows = [["winobench", _short(ours), ""]]
    for each in (each for each in found["torch"] if each["batch_size"] == 32):
        rows.append([each["what"], _short(each["passes_per_second"]), f"{ours / each['passes_per_second']:.2f} x"])
    yield _paragraph(
        "The denoiser of SD 2.1-base, 32 rows at once, on the same GPU. torch has channels last and fused attention."
    )
    yield _table(["program", "passes/s", "winobench is faster by"], rows)
    yield _paragraph("Milliseconds of a step by kind of kernel:")
    rows = []
    for each in found["steps"]:
        for kind, (measured, planned) in each.get("kernels_ms, measured and planned", {}).items():
            rows.append([each["model"], kind, _short(planned), _short(measured), f"{measured / planned:.2f}"])
    yield _table(["step", "kernels", "planned", "measured", "ratio"], rows)
    yield _paragraph(
        "Whole evaluations. A short one mostly encodes images in float32: an image costs as much as 21 passes, and"
        " GDBench has about 1,800 passes for each image. The first evaluation tries kernels out."
    )
    rows = [
        [each["what"], _short(each["seconds"]), _short(each["passes_per_second"]) if "passes" in each else ""]
        for each in found["evaluation"]
        if "seconds" in each
    ]
    yield _table(["evaluation", "seconds", "passes/s"], rows)
    yield _paragraph("Not measured:")
    yield _table(["program", "reason"], [[each["what"], each["why"]] for each in found["not_measured"]])


def _short(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _faster(found: Mapping[str, Any], plans: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Compared with limits and with others",
        f"{found['about']} *C* is compiled: estimates and limits of `winobench plan`, which no device has confirmed."
        " *M* is measured on two CPU cores, *R* is read in a publication.",
        "python -m benchmarks.compiled --models sd21-base --accelerators v5e:4x4,v6e:2x4 \\\n"
        "    --output benchmarks/results/compiled.json",
    )
    rows = []
    for each in found["rows"]:
        before, peer = each["before"], each["peer"]
        now, plan = each.get("now"), plans.get(each.get("plan"), {})
        if any(version.startswith("jax ") for version in plan.get("versions", ())):  # compiled since the comparison
            now = plan["programs"][0][each["figure"]]
        best = before if now is None else now
        ratio = "" if peer is None else f"{best / peer if each['better'] == 'more' else peer / best:.2f}"
        figures = ["" if value is None else _short(value) for value in (peer, before, now)]
        source = f"{figures[0]} ({each['source']})" if peer is not None else ""
        rows.append([each["what"], source, *figures[1:], ratio, each["by"]])
    head = ["what", "peer or limit", "before", "now", "ratio to it", ""]
    yield _table(head, rows)


def _compiled(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Plans of diffusion models",
        "GDBench's step in bfloat16, by the figures of compilers. **No step in this table was measured.**"
        " [Plan a run](../howto/plan_a_run.md#how-far-to-trust-it) explains *passes/s*, the estimate, and *at most*, a"
        " limit. Memory is in GB of one device, compared with the memory that JAX gives to programs. *Step* is the"
        " denoising step's temporaries, *any* the temporaries of the largest program, mostly an encoder. A star marks a"
        " step that is extrapolated from few blocks, without the encoders' temporaries. *Staged* means that text"
        " encoders and denoiser are never on a device together. jax 0.10.2, cuDNN 9.28 and libtpu 0.0.42.1."
        f" {_newer(found)}"
        " Limits of TPUs in the other rows are of the sums of each kind of kernel.",
        "python -m benchmarks.compiled --output benchmarks/results/compiled.json",
    )
    names = [name.split(", ") for name in found]
    models, accelerators = (sorted({name[index] for name in names}) for index in (0, 2))
    yield one_table(found, models, accelerators)


def _newer(found: Mapping[str, Any]) -> str:
    """A sentence on the plans that other versions have compiled."""
    rows: dict[str, list[str]] = {}
    for name, plan in found.items():
        if "versions" in plan:
            model, _, devices, *_ = name.split(", ")
            rows.setdefault(", ".join(plan["versions"]), []).append(f"{model} on {devices}")
    return "Newer rows: " + ". ".join(f"{', '.join(names)} ({versions})" for versions, names in rows.items()) + "."


def one_table(found: Mapping[str, Any], models: Sequence[str], accelerators: Sequence[str]) -> str:
    """Plans of some models on some accelerators; one that the file does not hold has no row."""
    rows = []
    for model, text in itertools.product(models, accelerators):
        for name, plan in found.items():
            its_model, _, its_text, *differences = name.split(", ")
            if (its_model, its_text) == (model, text) and "plain attention" not in differences and plan["programs"][0]:
                rows.append(_plan_cells(model, plan, differences))
    head = ["model", "devices", "weights", "tables", "step", "any", "sum of", "passes at once", "passes/s", "at most"]
    return _table(head, rows)


def _plan_cells(model: str, plan: Mapping[str, Any], differences: Sequence[str]) -> list[str]:
    step, few = plan["programs"][0], "few blocks" in differences
    weights = sum(plan["weights"].values())
    # A plan of resident encoders has one sum.
    needed = plan.get("while_scoring", plan["total"])
    encoding = plan.get("while_encoding", 0)
    more = f"; {_gb(encoding)} while texts are encoded" if encoding > needed else ""
    return [
        model,
        plan["target"],
        _gb(weights) + (", staged" if "staged" in differences else ""),
        _gb(plan["others"]),
        _gb(step["temporaries"]),
        "" if few else _gb(needed - weights - plan["others"]),
        f"{_gb(needed)} of {_gb(plan['usable'])}{more}",
        f"{step['items']}",
        _short(step["items_per_second"]) + (" *" if few else ""),
        _short(step["at_most_per_second"]) + (" *" if few else ""),
    ]


def _images_planned(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Plans of image generation",
        "The same for generated images: 50 steps, guidance 7.5, bfloat16, 8 images at once on each device. **Compiled,"
        " not measured.** *s at least* is the limit.",
        "winobench plan --config=images:paper --model=sd21-base,sdxl --dtype=bfloat16 \\\n"
        "    --accelerator=h100:1,v5e:2x2 --output=images-planned.json",
    )
    rows = []
    for name, plan in found.items():
        for one in plan["generators"]:
            sums = [weights := sum(one["weights"].values()), one["total"] - weights - one["others"]]
            cells = [*map(_gb, sums), f"{_gb(one['total'])} of {_gb(plan['usable'])}", f"{one['batch']}"]
            limit = one["loop"]["limit"] + one["decoder"]["limit"] + one["encodings"] * one["texts"]["limit"]
            times = [f"{one['seconds_per_image']:.3g}", f"{limit / one['batch']:.3g}"]
            times.append(f"{one['images_per_second']:.2g}")
            rows.append([name.split(", ")[0], plan["target"], *cells, *times])
    yield _table(
        ["model", "devices", "weights", "temporaries", "sum of, GB", "at once", "s an image", "s at least", "images/s"],
        rows,
    )


def _vision_language_planned(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Plans of VQAScore",
        "All of GDBench (94,277 images, at most 927,534 pairs) by vision-language models in bfloat16, with texts of 32"
        " tokens. **Compiled, not measured.** *GDBench* is the time on the named devices, with programs from a"
        " compilation cache. A star marks rates that are extrapolated from few layers.",
        "winobench plan --config=gdbench:full --model=llava-1.5-7b --dtype=bfloat16 \\\n"
        "    --accelerator=h100:1,v5e:2x2 --output=vision-language-planned.json",
    )
    rows = []
    for plan in found.values():
        mark = " *" if any("extrapolated" in note for note in plan["notes"]) else ""
        images, pairs = plan["images"], plan["pairs"]
        at_once = [images["items"] * plan["copies"], pairs["items"] * plan["copies"]]
        rates = [images["per_second"], pairs["per_second"]]
        shared = [f"{plan['model_parallel']}", _gb(plan["weights"]), f"{_gb(plan['table'])} ({plan['rows']:,})"]
        work = [f"{number} at {rate:,.0f}/s{mark}" for number, rate in zip(at_once, rates, strict=True)]
        minutes = f"{plan['durations'][0]['with_cache'] / 60:.0f} min"
        memory = f"{_gb(plan['total'])} of {_gb(plan['usable'])}"
        rows.append([plan["model"], plan["target"], *shared, memory, *work, minutes])
    head = [
        "model",
        "devices",
        "share a copy",
        "weights",
        "tables (images)",
        "sum of, GB",
        "images",
        "pairs",
        "GDBench",
    ]
    yield _table(head, rows)


def _scorer(figures: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Scoring, compared with torch",
        "The same random network, images, texts and timesteps are scored by winobench (*fused*) and by torch diffusers,"
        " in alternating rounds. *Pair by pair* is the procedure of the published code. Scores agree before anything is"
        " timed. *Of ceiling* is the share of the rate of large matrix products in the same run.",
        "python -m benchmarks.scorer --output benchmarks/results/scorer-cpu.json",
    )
    yield _paragraph(f"Network: {figures['size']}. {figures['gigaflops_a_pass']} GFLOP a pass, {figures['dtype']}.")
    for style, results in figures["results"].items():
        slowest = max(each["seconds"] for each in results.values())
        yield _paragraph(f"{style.capitalize()} style, {figures['work'][style]}:")
        rows = []
        for name, each in results.items():
            rate = each["passes_per_second"]
            share = rate * figures["gigaflops_a_pass"] / 1e3 / figures["matrix_teraflops"]
            rows.append([name, f"{each['passes']}", f"{rate:.1f}", f"{share:.0%}", f"{each['seconds']:.2f}"])
            rows[-1] += [f"{slowest / each['seconds']:.1f} x", f"{each['batch_size']}"]
            rows[-1] += [
                f"{each['compile_seconds']:.0f}",
                f"{each['largest_score_difference'] or 0:.0e}".replace("0e+00", ""),
            ]
        head = ["", "passes", "passes/s", "of ceiling", "evaluation, s", "faster by", "batch", "compiling, s"]
        yield _table([*head, "scores differ by"], rows)
    yield _where(figures, "jax", "torch", "diffusers")


def _trace(figures: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Does the device wait for input?",
        f"JAX's profiler records an evaluation with {figures['size']} of {figures['work'].split(':')[0]}. In a second"
        " recording each image takes 0.15 s longer to load. The table has shares of each device's time.",
        "python -m benchmarks.trace --output benchmarks/results/trace-cpu.json",
    )
    rows = []
    for name, result in figures["results"].items():
        for device, one in result["devices"].items():
            rows.append([f"{name}, {device}", *(f"{100 * share:.1f}%" for share in one["shares"].values())])
    shares = next(iter(next(iter(figures["results"].values()))["devices"].values()))["shares"]
    yield _table(["loading", *shares], rows)
    yield _paragraph(f"Without the profiler: {figures['passes_per_second_without_profiler']:.0f} passes/s.")
    yield "![timelines of both evaluations: loading threads, Python and two devices](../images/trace.png)\n"
    yield _where(figures, "jax")


def _images(figures: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Image generation, compared with torch",
        f"{figures['model']} and torch diffusers generate {figures['images']} images of {figures['steps']} DDIM steps"
        f" in batches of {figures['batch_size']}, from the same weights, texts and noise, in float32. Latents agree to"
        f" {figures['difference']:.0e} of the largest. The first call of winobench compiles and takes"
        f" {figures['first_call_seconds']:.1f} s.",
        "python -m benchmarks.images --rounds=7 --output benchmarks/results/images-cpu.json",
    )
    rates = figures["images_per_second"]
    slowest = min(rates.values())
    yield _table(
        ["", "images/s", "faster by"],
        [[name, f"{rate:.1f}", f"{rate / slowest:.2f} x"] for name, rate in rates.items()],
    )
    yield _where(figures, "jax", "torch", "diffusers")


def _training(figures: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "A training step, compared with torch",
        "One step of LoRA with hard negatives, here and in torch (diffusers and peft), on the same random network and"
        f" batch. {figures['work'].capitalize()}. *One after the other* makes one forward pass for the"
        " positives and one for the negatives, *batched* makes both in one. Errors, loss and the gradient's norm agree"
        " before anything is timed.",
        "python -m benchmarks.hardneg --output benchmarks/results/hardneg-cpu.json",
    )
    rows = []
    for name, each in figures["results"].items():
        low, high = each["lowest_and_highest"]
        rows.append([name, f"{each['images_per_second']:.2f}", f"{low:.2f} to {high:.2f}"])
        rows[-1] += [f"{each['seconds_a_step']:.2f}", f"{each['compile_seconds']:.0f}"]
    yield _table(["", "images/s", "lowest to highest", "s a step", "compiling, s"], rows)
    yield _where(figures, "jax", "torch", "diffusers", "peft")


def _language_model(figures: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Language models, compared with torch",
        f"The network is a {figures['size']}, with random weights. The work: {figures['work']}."
        " *Prefix shared* computes the keys and values of the common beginning once. *Nothing shared* is winobench"
        " without that. Log-likelihoods and texts agree before"
        " anything is timed. Torch has its best batch size.",
        "python -m benchmarks.language_model --output benchmarks/results/language-model-cpu.json",
    )
    rows = {
        who: [f"{each[who]['per_second']:.1f}" for each in figures["results"].values()]
        for who in figures["results"]["options"]
    }
    yield _table(["", "options, questions/s", "texts, tokens/s"], [[who, *cells] for who, cells in rows.items()])
    yield _where(figures, "jax", "torch", "transformers")


def _vision_language(figures: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Vision-language models, compared with torch",
        "VQAScore of all pairs of some images and texts, and captions, here and in torch transformers, with the same"
        " random weights. *Published* sends the image and the question of each pair through the whole network. *Images"
        " once* reuses the states of an image. Scores and captions agree before anything is timed.",
        "python -m benchmarks.vision_language --output benchmarks/results/vision-language-cpu.json",
    )
    rows = []
    for name, family in figures["families"].items():
        for work, results in family["results"].items():
            slowest = next(iter(results.values()))["per_second"]
            unit = "pairs/s" if work == "scores" else "images/s"
            for who, each in results.items():
                rate = each["per_second"]
                rows.append([f"{name}, {work}: {who}", f"{rate:.2f} {unit}", f"{rate / slowest:.2f} x"])
    yield _table(["", "rate", "compared with the first"], rows)
    for family in figures["families"].values():
        yield _paragraph(f"{family['network']}. {family['images']} images x {family['texts']} texts.")
    yield _where(figures, "jax", "torch", "transformers")


_RACED = {"trained": "race-clevr-tiny", "noisy": "race-clevr-tiny-noisy"}
_SHARES = ("now 0.04", "now 0.1", "now 0.2")


def _races(files: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Races",
        "How many passes a [race](../explanation/race.md) saves, and how often it decides as all 250 samples do. 15"
        " rendered scenes, alpha 1%. *Trained* is clevr-tiny. *Noisy* is the same model with normal noise on its"
        " denoiser's weights, of 0.6 of their spread. *t test* is a plain t test after 4, 8, 16, ... samples, for"
        " comparison.",
        "python -m benchmarks.race --scenes=15 --questions=40 --races=300 --output FILE",
    )
    head = ["", "questions", "timesteps", "right with all samples", "t test: agrees, %", "fewer passes"]
    head += ["race: agrees, %", *(f"fewer passes, `rare_share` {name.split()[1]}" for name in _SHARES)]
    rows = []
    for called, name in _RACED.items():
        for task, of in files[name]["decisions"]["tasks"].items():
            for rule in ("low0", "importance"):
                one = of[rule]
                fewer = [f"{one[each]['fixed_passes'] / one[each]['passes']:.1f} x" for each in ("before", *_SHARES)]
                agrees = [_interval(one[each]["agrees"]) for each in ("before", "now 0.04")]
                label = "importance" if rule == "importance" else files[name]["rule"]
                rows.append([f"{called}, {task}", f"{of['questions']}", label, f"{one['fixed']:.1%}"])
                rows[-1] += [agrees[0], fewer[0], agrees[1], *fewer[1:]]
    yield _table(head, rows)
    yield from _fewer_samples(files)
    yield from _simulated(files["race-simulations"]["simulations"])
    yield from _timestep_rules(files)
    yield _where(files["race-clevr-tiny"], "jax")


def _fewer_samples(files: Mapping[str, Any]) -> Iterator[str]:
    yield _paragraph("Fixed numbers of samples: agreement with the decisions of all 250, in %.")
    rows = []
    for called, name in _RACED.items():
        for task, of in files[name]["decisions"]["tasks"].items():
            numbers = of["low0"]["fewer"]
            rows.append([f"{called}, {task}", *map(_interval, numbers.values())])
    yield _table(["", *(f"{number} samples" for number in numbers)], rows)


def _simulated(simulations: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    races = sum(each["races"] for each in simulations)
    yield _paragraph(
        f"Simulated races, {races:,} in all, between candidates whose paired differences have a known distribution."
        " *Agrees* is the share of decisions that 250 samples confirm."
    )
    rows = []
    for each in simulations:
        cells = [(_interval(each[rule]["agrees"]), f"{each[rule]['samples']:.0f}") for rule in ("before", "now")]
        rows.append([f"{each['question']}: {each['differences']}", f"{each['races']}", *itertools.chain(*cells)])
    yield _table(["candidates: differences", "races", "t test: agrees", "samples", "race: agrees", "samples"], rows)


def _timestep_rules(files: Mapping[str, Any]) -> Iterator[str]:
    yield _paragraph(
        "Which timesteps: the mean squared error of the mean difference of two captions with 16 samples, relative to"
        " `uniform`. The geometric mean over 40 questions, with its 95% interval. *Early* is clevr-tiny after 500 of"
        " 2,600 training steps. The questions share scenes, so that the intervals are too narrow."
    )
    ratios = {}
    for name in ("race-clevr-tiny", "race-clevr-tiny-early"):
        for rule, (mean, error) in files[name]["timesteps"]["mean_log_ratio"].items():
            low, high = (math.exp(mean + sign * 1.96 * error) for sign in (-1, 1))
            shown = f"{math.exp(mean):.2f} [{low:.2f}, {high:.2f}]" if error else "1"
            ratios.setdefault(rule, [rule]).append(shown)
    yield _table(["timesteps", "trained", "early"], list(ratios.values()))


def _classes(figures: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Races among a hundred classes",
        f"{figures['model']} chooses the class of {figures['images']} rendered images among {figures['classes']} texts,"
        f" with {figures['budget']} samples. *Schedule* keeps a fixed number of candidates after a fixed number of"
        " samples, as the code of Diffusion Classifier does.",
        f"python -m benchmarks.race_classes --images={figures['images']} --output FILE",
    )
    fixed = figures["fixed"]
    rows = [["all samples", f"{fixed['passes']:,}", "100%", "", f"{fixed['accuracy']:.1%}"]]
    for name, of in figures["rules"].items():
        same = of["answers"]
        cells = [f"{of['passes']:,}", f"{of['passes'] / fixed['passes']:.1%}", f"{same['same']} of {same['of']}"]
        rows.append([name, *cells, f"{of['accuracy']:.1%}"])
    yield _table(["", "passes", "share of all", "same answers", "accuracy"], rows)
    yield _where(figures, "jax")


def _efficiency(found: Mapping[str, Any]) -> Iterator[str]:
    hard, pairs, classes = names = list(dict.fromkeys(of["set"] for of in found["sets"]))
    sizes = ", ".join(f"{of['questions']} of `{of['set']}`" for of in found["sets"][: len(names)])
    yield from _section(
        "Rules for noise and timesteps",
        f"How soon answers equal the answers of {found['budget']} samples, with {found['seeds']} seeds of each rule."
        f" Questions: {sizes} ({found['classes']} classes). *Settled*: the number of samples from which on the answer"
        " stays the same. *Agrees*: the share of answers that all samples give, too, in %. *Variance*: the squared"
        " error of the score differences at 32 samples, relative to `low_discrepancy`. *Half*: agreement with 16"
        " samples minus the agreement of `low_discrepancy` with 32, in percentage points. Rules"
        " that learn do so on the other half of the questions, without their answers. Intervals are over questions."
        " All questions share the seeds.",
        "python -m benchmarks.efficiency --images=10 --workdir=DIR --output=benchmarks/results/efficiency.json",
    )
    for model in dict.fromkeys(row["model"] for row in found["rules"]):
        of = {(row["set"], row["rule"]): row for row in found["rules"] if row["model"] == model}
        full = {part["set"]: _interval(part["right"]) for part in found["sets"] if part["model"] == model}
        yield _paragraph(
            f"{model}. Right with all samples: " + ", ".join(f"`{name}` {full[name]}%" for name in names) + "."
        )
        rows = []
        for rule in dict.fromkeys(rule for _, rule in of):
            row = of[hard, rule]
            cells = [_ends(row["samples"]), *(_interval(row["agrees"][n]) for n in ("16", "32"))]
            gain = [100 * end for end in row["gain"]]
            cells += [_interval(row["right"]["32"]), _ends(row["variance"], 2), _ends(gain, 1)]
            other = of[pairs, rule]
            cells += [_interval(other["agrees"]["32"]), _ends(other["variance"], 2)]
            rows.append([rule, *cells, _ends(of[classes, rule]["variance"], 2)])
        head = ["`clevr_hard`: settled", "agrees at 16", "at 32", "right at 32", "variance", "half"]
        yield _table(["", *head, "pairs: agrees at 32", "variance", "classes: variance"], rows)
    yield _paragraph("Rules that drop classes: samples of a class, and agreement with all samples, in %.")
    rows = [
        [row["model"], row["rule"], _ends(row["samples"]), _interval(row["agrees"]), _interval(row["right"])]
        for row in found["dropping"]
    ]
    yield _table(["", "rule", "samples", "agrees", "right"], rows)
    yield _where(found, "jax")


def _ends(values: Sequence[float], digits: int = 0) -> str:
    value, low, high = (f"{end:.{digits}f}" for end in values)
    return f"{value} [{low}, {high}]"


def _intervals(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "Coverage of the intervals",
        f"How often 95% intervals contain the truth, in percent. Simulations of {found['repetitions']} repetitions a"
        " cell, unless a number is given. A cell of 500 repetitions has a standard error of one point. The lowest of 15"
        " cells of an exact interval is then expected at about 93.3, and the lowest of 420 below 92.",
        f"python -m benchmarks.intervals --repetitions={found['repetitions']} --output"
        " benchmarks/results/intervals.json",
    )
    yield from _shares(found)
    yield from _exact(found)
    yield from _values(found)
    yield from _noise_of_samples(found)


def _shares(found: Mapping[str, Any]) -> Iterator[str]:
    yield _paragraph(
        "Accuracies, and paired differences of two runs: the mean over true values and correlations, with the lowest"
        " cell in brackets. *If independent* is the lowest cell of Wilson's interval that ignores shared images."
    )
    proportions = [*found["proportions"], *found["few_clusters"]]
    differences = _by([*found["differences"], *found["differences_few_clusters"]], "design")
    rows = [
        [design, _mean_and_lowest(cells), _lowest(cells, "if_independent"), _mean_and_lowest(differences[design])]
        for design, cells in _by(proportions, "design").items()
    ]
    yield _table(["questions", "accuracy", "if independent", "paired difference"], rows)
    yield _paragraph(
        "Macro means. *At Kish's number* is the lowest cell of an interval that takes all answers as independent."
    )
    rows = [
        [design, _mean_and_lowest(cells), _lowest(cells, "if_independent")]
        for design, cells in _by(found["macro"], "design").items()
    ]
    yield _table(["groups", "macro mean", "at Kish's number"], rows)
    yield _paragraph("Pages of 20 differences between equal models: the share with at least one such difference.")
    rows = [[each["design"], _percent(each["excluded"]), _percent(each["marked"])] for each in found["marks"]]
    yield _table(["questions", "an interval without 0", "a mark ●"], rows)


def _exact(found: Mapping[str, Any]) -> Iterator[str]:
    yield _paragraph(
        "Independent answers: the lowest coverage over all true proportions, computed exactly (for hundreds of"
        " questions from 200 on)."
    )
    by_level = _by(found["exact_proportions"], "level")
    sizes = ["{} to {:,}".format(*each["n"]) for each in next(iter(by_level.values()))]
    rows = [[f"{100 * level:.0f}%", *(_percent(each["coverage"]) for each in of)] for level, of in by_level.items()]
    yield _table(["level", *(f"n = {size}" for size in sizes)], rows)
    yield _paragraph(
        "Paired differences of independent answers: the lowest coverage on a grid of gains and losses, and its mean."
    )
    rows = [[f"{each['n']}", _percent(each["coverage"]), _percent(each["mean"])] for each in found["exact_differences"]]
    yield _table(["questions", "lowest", "mean"], rows)


def _values(found: Mapping[str, Any]) -> Iterator[str]:
    yield _paragraph("Means of values of different shapes, 10,000 repetitions a cell.")
    yield _table(*_grid(found["means"], lambda of: _groups(of["clusters"], of["of"]), "values"))
    yield _paragraph("Effect sizes of bias tasks, 1,000 repetitions a cell: the lowest over effects up to d = 0.9.")
    yield _table(*_grid(found["effect_sizes"], lambda of: "{} and {} images".format(*of["images"]), "psi"))
    yield _paragraph("The average effect size of ten pairs.")
    rows = [
        [f"{each['images']}", f"{each['average']}", _percent(each["coverage"])]
        for each in found["average_effect_sizes"]
    ]
    yield _table(["images", "average effect", "coverage"], rows)
    yield _paragraph("How often groups with equal means have a two-sided p-value of at most 5%.")
    yield _table(*_grid(found["tests"], _unequal, "psi", value="rejected"))
    yield _paragraph("Fleiss' kappa, 500 repetitions a cell: the lowest over kappas of 0.2, 0.5 and 0.8.")
    yield _table(*_grid(found["kappas"], lambda of: f"{of['items']} items", "labels"))
    yield _paragraph("Agreement with people's ratings, five images a prompt, 150 repetitions a cell.")
    yield _table(*_grid(found["ratings"], lambda of: of["measure"].replace("_", " "), "prompts"))


def _noise_of_samples(found: Mapping[str, Any]) -> Iterator[str]:
    yield _paragraph(
        "How often the interval of a difference between two equally good runs excludes 0, in percent: the lowest and"
        " highest of six cells of 300 repetitions. Accuracies are near 60 and 90%, and 0, 10 and 50% of the noise is"
        " common to all questions."
    )
    names = {
        "itself, other samples": "the same model, other noise and timesteps",
        "itself, other noise": "the same model, other noise",
        "an equal one, same samples": "an equal model, the same samples",
    }
    cells: dict[tuple[str, int, int], list[Mapping[str, Any]]] = {}
    for each in found["samples"]:
        cells.setdefault((each["differs_from"], each["questions"], each["samples"]), []).append(each)
    rows = []
    for (second, questions, samples), of in cells.items():
        spans = [sorted(100 * each[key] for each in of) for key in ("without_noise", "differs")]
        rows.append([names[second], f"{questions:,}", f"{samples}"])
        rows[-1] += [f"{values[0]:.0f} to {values[-1]:.0f}" for values in spans]
    yield _table(["second run", "questions", "samples", "without the noise of samples", "with it"], rows)


def _groups(clusters: int, size: int) -> str:
    return f"{clusters} values" if size == 1 else f"{clusters} clusters of {size}"


def _unequal(of: Mapping[str, Any]) -> str:
    return "{} and {} images".format(*of["images"]) + ", spreads {} to {}".format(*of["spreads"])


def _viewer(figures: Mapping[str, Any]) -> Iterator[str]:
    yield from _section(
        "The viewer",
        f"Headless Chromium and the server on one machine show {figures['runs']} runs of"
        f" {figures['questions_a_run']['texts']:,} questions. *Cold* is a new server and a new browser. *In the app* is"
        " a step from one question to another. *Whole* adds the answers of the other runs.",
        "python -m benchmarks.viewer FOLDER --make --output FILE",
    )
    pages = {
        "table of runs": figures["first_page"],
        "question by its address": figures["question_by_its_address"],
        "question in the app": {"warm": figures["question_in_the_app"]},
    }
    rows = [
        [f"{page}, {what}, {state}", *(f"{times[key]:,.0f}" for key in ("median", "least", "p95")), f"{times['n']}"]
        for page, states in pages.items()
        for state, parts in states.items()
        for what, times in parts.items()
    ]
    yield _table(["page and part", "median, ms", "least", "95th percentile", "n"], rows)
    rows = [[name.replace("_", " "), f"{value:,.0f}"] for name, value in figures["lists_ms"].items()]
    yield _table(["list, once", "ms"], rows)
    walked = [at for at in figures["memory_mib"] if "questions" in at]
    rows = [
        [f"{at['questions']}", *(f"{at[key]:,.0f}" for key in ("server", "page_heap", "renderers"))] for at in walked
    ]
    yield _table(["questions seen", "server, MiB", "page's heap", "browser's processes"], rows)
    yield _where(figures, "starlette", "pyarrow")


def _grid(cells: Sequence[Mapping[str, Any]], row: Any, column: str, value: str = "coverage") -> tuple[list[str], list]:
    """A table's head and rows: the lowest (of ``rejected`` the highest) of the cells with the same row and column."""
    found: dict[str, dict[str, list[float]]] = {}
    columns = dict.fromkeys(_label(each[column]) for each in cells)
    for each in cells:
        found.setdefault(row(each), {}).setdefault(_label(each[column]), []).append(each[value])
    choose = max if value == "rejected" else min
    rows = [
        [name, *(_percent(choose(of[label])) if label in of else "" for label in columns)] for name, of in found.items()
    ]
    return ["" if column != "prompts" else "prompts", *columns], rows


def _label(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"{100 * share:.0f}%" for share in value)
    return {"student of 3": "Student's t, 3 degrees of freedom"}.get(value, f"{value}")


def _by(cells: Iterable[Mapping[str, Any]], key: str) -> dict[Any, list[Mapping[str, Any]]]:
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for each in cells:
        found.setdefault(each[key], []).append(each)
    return found


def _mean_and_lowest(cells: Sequence[Mapping[str, Any]]) -> str:
    return f"{_percent(sum(each['coverage'] for each in cells) / len(cells))} ({_lowest(cells, 'coverage')})"


def _lowest(cells: Sequence[Mapping[str, Any]], key: str) -> str:
    return _percent(min(each[key] for each in cells))


def _interval(values: Sequence[float]) -> str:
    return "{:.0f} [{:.0f}, {:.0f}]".format(*(100 * value for value in values))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _gb(number: float) -> str:
    return f"{number / 1e9:.1f}"


def _section(title: str, text: str, command: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield _paragraph(text)
    yield _command(command)


def _paragraph(text: str) -> str:
    """Lines of a page, with a sentence for what a semicolon divides in a description of a result file."""
    shown = re.sub("; (.)", lambda found: f". {found[1].upper()}", text)
    return textwrap.fill(shown, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def _command(words: str) -> str:
    return f"```bash\n{words}\n```\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _where(figures: Mapping[str, Any], *libraries: str) -> str:
    """The machine, the libraries and its load, in one sentence."""
    system = figures["machine"]
    versions = ", ".join(f"{name} {system['libraries'][name]}" for name in libraries)
    load = figures["load_average"]
    busy = f"{load[0]} before and {load[1]} after" if isinstance(load, list) else f"{load}"
    return _paragraph(f"Machine: {system['processor']}, {system['cores']} cores. {versions}. Load average {busy}.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
