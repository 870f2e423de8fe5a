"""Language models beside torch transformers on the same weights, the same machine and in the same run.

    python -m benchmarks.language_model                                a mid-size LLaMA on the CPU, some minutes
    python -m benchmarks.language_model --size=7b --device=gpu --dtype=bfloat16       LLaMA 2 7B's shapes
    python -m benchmarks.language_model --output=FILE                  writes the figures as JSON, too

All get the same random weights and the same questions, which begin with the same examples (few-shot), and do two
things: they score the options of each question, and they write an answer of a fixed length, the most likely one.

* winobench: `LanguageModel.ask`, from the requests to the answers: tokens, batches and all.
* winobench, nothing shared: the same without being told what the questions have in common.
* torch, batched: transformers with its own cache of keys and values, batches sorted by length and padded at the left.
  Options are rows of their own, logits are computed for the options alone, and texts are from `generate`.
* torch, prefix shared: the same, but the examples' keys and values are computed once and repeated for the rows.

Torch gets token ids that were made before, and the batch size that is fastest for it. Before anything is timed, all
must have the same scores and write the same, in float32. Rounds alternate between them, and the table shows medians.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers

from benchmarks import common, machine, result_files
from winobench.responders.language_model import LanguageModel
from winobench.runs.requests import Generation, Options, Turn

SCORE_TOLERANCE = 1e-3
"""Of log-likelihoods in float32, in nats; they are sums over some tokens, of -10 each."""

_OURS, _PLAIN = "winobench", "winobench, nothing shared"
_BATCHED, _SHARED = "torch, batched", "torch, prefix shared"
_WORKS = ("options", "generation")
# The first token that is a word; answers are compared without the special ones before it.
_FIRST_WORD = 2
# Questions of the check in float32 where the benchmark runs in bfloat16.
_CHECKED = 4


@dataclasses.dataclass(frozen=True)
class Size:
    """A network and its work.

    Attributes:
      description: in a few words, for a table's head.
      network: arguments of transformers' LlamaConfig.
      questions: number of questions.
      shots: number of examples before each.
      shot_words: words of an example's question and of its answer, one token each.
      question_words: the fewest and the most words of a question.
      options: number of options.
      option_words: words of an option.
      new_tokens: length of a text.
      batch_sizes: rows of torch's batches, to choose from.
    """

    description: str
    network: dict[str, Any]
    questions: int
    shots: int
    shot_words: tuple[int, int]
    question_words: tuple[int, int]
    options: int
    option_words: int
    new_tokens: int
    batch_sizes: tuple[int, ...]

    @property
    def work(self) -> str:
        """Description of the work, for a table's head."""
        low, high = self.question_words
        return (
            f"{self.questions} questions of {low} to {high} tokens behind {self.shots * sum(self.shot_words)} shared"
            f" ones; {self.options} options of {self.option_words} tokens each, or {self.new_tokens} tokens of text"
        )


SIZES = {
    "small": Size(
        description="a toy that only shows that the benchmark runs",
        network={
            "vocab_size": 128,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
        },
        questions=5,
        shots=2,
        shot_words=(8, 2),
        question_words=(4, 12),
        options=2,
        option_words=2,
        new_tokens=6,
        batch_sizes=(4,),
    ),
    "mid": Size(
        description="LLaMA of 8 layers, width 512, 8 heads (4 of keys and values), 32,000 tokens (57 M parameters)",
        network={
            "vocab_size": 32000,
            "hidden_size": 512,
            "intermediate_size": 1408,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
        },
        questions=48,
        shots=4,
        shot_words=(56, 8),
        question_words=(24, 64),
        options=2,
        option_words=4,
        new_tokens=48,
        batch_sizes=(4, 8, 16, 48),
    ),
    "7b": Size(
        description="LLaMA 2 7B (6.7 B parameters)",
        network={
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
        },
        questions=256,
        shots=4,
        shot_words=(100, 25),
        question_words=(32, 96),
        options=2,
        option_words=4,
        new_tokens=128,
        batch_sizes=(16, 32, 64),
    ),
}


def write_model(folder: pathlib.Path, size: Size, device: str) -> None:
    """Writes a network with random weights, the same at every call, and a tokenizer of words, in transformers' layout.

    No token ends a text, so that all texts are of one length.
    """
    network = size.network
    words = {"<unk>": 0, "<s>": 1} | {f"w{number}": number for number in range(_FIRST_WORD, network["vocab_size"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = transformers.LlamaConfig(
        **network, max_position_embeddings=4096, bos_token_id=1, eos_token_id=None, pad_token_id=None
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config)
    # Torch's own start makes matrices so small that the prompt hardly matters.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
    model.save_pretrained(folder)


def make_turns(size: Size) -> tuple[list[tuple[Turn, ...]], list[tuple[str, ...]]]:
    """Conversations and the options of each, of random words."""
    random = np.random.default_rng(0)

    def text(count: int) -> str:
        return " ".join(f"w{number}" for number in random.integers(_FIRST_WORD, size.network["vocab_size"], count))

    question, answer = size.shot_words
    shots = [
        turn for _ in range(size.shots) for turn in (Turn("user", text(question)), Turn("assistant", text(answer)))
    ]
    low, high = size.question_words
    turns = [(*shots, Turn("user", text(random.integers(low, high + 1)))) for _ in range(size.questions)]
    return turns, [tuple(text(size.option_words) for _ in range(size.options)) for _ in turns]


@dataclasses.dataclass(frozen=True)
class Work:
    """Questions, as requests and as token ids.

    Attributes:
      options: requests for options' log-likelihoods.
      generation: requests for texts.
      prefix: the tokens of the examples.
      prompts: the tokens behind them, of each question.
      option_tokens: of each question's options.
    """

    options: list[Options]
    generation: list[Generation]
    prefix: tuple[int, ...]
    prompts: list[tuple[int, ...]]
    option_tokens: list[tuple[tuple[int, ...], ...]]

    def part(self, count: int) -> Work:
        """The first questions."""
        lists = {
            field.name: getattr(self, field.name)[:count]
            for field in dataclasses.fields(self)
            if field.name != "prefix"
        }
        return dataclasses.replace(self, **lists)

    def unshared(self, name: str) -> list[Any]:
        """Requests that do not tell what they have in common."""
        return [dataclasses.replace(request, prefix_turns=0) for request in getattr(self, name)]


def make_work(size: Size, model: LanguageModel) -> Work:
    """Everything that is asked."""
    turns, options = make_turns(size)
    shared = 2 * size.shots
    encoded = [model.prompts.encode_options(*pair) for pair in zip(turns, options, strict=True)]
    prefix = model.prompts.encode_prefix(turns[0], shared)
    return Work(
        options=[Options(*pair, prefix_turns=shared) for pair in zip(turns, options, strict=True)],
        generation=[Generation(turn, max_tokens=size.new_tokens, prefix_turns=shared) for turn in turns],
        prefix=prefix,
        prompts=[tokens.context[len(prefix) :] for tokens in encoded],
        option_tokens=[tokens.options for tokens in encoded],
    )


class TorchPeer:
    """Transformers, in batches."""

    def __init__(self, folder: pathlib.Path, device: str, dtype: str):
        self._device = device
        model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        self._model = model.to(device).eval()

    def gigaflops(self, tokens: int) -> float:
        """Floating-point operations of reading this many tokens, in 10^9, two for a multiplication and an addition."""
        embedding = self._model.get_input_embeddings().weight.numel()
        return 2e-9 * tokens * (sum(parameter.numel() for parameter in self._model.parameters()) - embedding)

    def _batch(self, rows: Sequence[tuple[int, ...]], prefix: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids of rows, padded between the prefix and what follows, and the mask of both."""
        width = max(map(len, rows))
        ids = torch.tensor([(*prefix, *(0,) * (width - len(row)), *row) for row in rows])
        mask = torch.tensor([(1,) * len(prefix) + (0,) * (width - len(row)) + (1,) * len(row) for row in rows])
        return ids.to(self._device), mask.to(self._device)

    def _prefix_cache(self, prefix: tuple[int, ...]) -> Any:
        ids = torch.tensor([prefix], device=self._device)
        return self._model(ids, use_cache=True, logits_to_keep=1).past_key_values

    def _sorted(self, rows: Sequence[tuple[int, ...]], batch_size: int) -> list[list[int]]:
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]

    @torch.inference_mode()
    def options(self, work: Work, batch_size: int, *, shared: bool) -> list[Any]:
        """Log-likelihoods of the options of each question."""
        pairs = [(number, option) for number, options in enumerate(work.option_tokens) for option in options]
        head = () if shared else work.prefix
        rows = [(*head, *work.prompts[number], *option) for number, option in pairs]
        cache = self._prefix_cache(work.prefix) if shared else None
        scores = np.zeros(len(rows))
        for batch in self._sorted(rows, batch_size):
            ids, mask = self._batch([rows[number] for number in batch], work.prefix if shared else ())
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            past, skipped = None, 0
            if cache is not None:
                past, skipped = copy.deepcopy(cache), len(work.prefix)
                past.batch_repeat_interleave(len(batch))
            longest = max(len(pairs[number][1]) for number in batch)
            logits = self._model(
                ids[:, skipped:],
                attention_mask=mask,
                position_ids=positions[:, skipped:],
                past_key_values=past,
                use_cache=past is not None,
                logits_to_keep=longest + 1,
            ).logits
            chosen = logits[:, :-1].float().log_softmax(-1).gather(2, ids[:, -longest:, None])[..., 0].cpu()
            for number, values in zip(batch, chosen, strict=True):
                scores[number] = values[longest - len(pairs[number][1]) :].sum()
        return scores.reshape(len(work.prompts), -1).tolist()

    @torch.inference_mode()
    def generation(self, work: Work, batch_size: int, *, shared: bool) -> list[Any]:
        """The words of the answer to each question, as tokens."""
        head = () if shared else work.prefix
        rows = [(*head, *prompt) for prompt in work.prompts]
        cache = self._prefix_cache(work.prefix) if shared else None
        texts: list[Any] = [None] * len(rows)
        for batch in self._sorted(rows, batch_size):
            ids, mask = self._batch([rows[number] for number in batch], work.prefix if shared else ())
            past = None
            if cache is not None:
                past = copy.deepcopy(cache)
                past.batch_repeat_interleave(len(batch))
            tokens = self._model.generate(
                ids,
                attention_mask=mask,
                past_key_values=past,
                max_new_tokens=work.generation[0].max_tokens,
                do_sample=False,
                pad_token_id=0,
            )
            for number, row in zip(batch, tokens[:, ids.shape[1] :].tolist(), strict=True):
                texts[number] = [token for token in row if token >= _FIRST_WORD]
        return texts


def ours(model: LanguageModel, work: Work, name: str, *, shared: bool) -> list[Any]:
    """The scores of the options, or the answer's words as tokens, of each question.

    Raises:
      RuntimeError: a request could not be answered.
    """
    requests = getattr(work, name) if shared else work.unshared(name)
    answers = dict(model.ask(requests))
    if failed := [raw["error"]["message"] for raw in answers.values() if "error" in raw]:
        raise RuntimeError(f"{len(failed)} requests have failed: {failed[0]}")
    if name == "options":
        return [answers[number]["scores"] for number in range(len(requests))]
    # Words are tokens, and the other way round.
    return [[int(word[1:]) for word in answers[number]["text"].split()] for number in range(len(requests))]


def difference(name: str, results: list[Any], reference: list[Any]) -> float:
    """The largest difference of scores in nats, or the share of texts that are not the same."""
    if name == "options":
        return float(np.abs(np.asarray(results) - np.asarray(reference)).max())
    return sum(one != other for one, other in zip(results, reference, strict=True)) / len(reference)


def check_agreement(name: str, who: str, results: list[Any], reference: list[Any]) -> None:
    """Stops the benchmark unless results are those of torch.

    Raises:
      RuntimeError: says how they differ.
    """
    gap = difference(name, results, reference)
    # Written so that what is not a number does not pass.
    if not gap <= (SCORE_TOLERANCE if name == "options" else 0.0):
        what = f"scores differ by up to {gap:.2g}" if name == "options" else f"{gap:.0%} of the texts differ"
        raise RuntimeError(f"{who} and {_BATCHED} do not do the same: {what}")


def contenders(
    model: LanguageModel, peer: TorchPeer, work: Work, name: str, batch_sizes: dict[str, int]
) -> dict[str, Callable[[], list[Any]]]:
    """Contenders for some work. The first is the reference."""
    torch_run = getattr(peer, name)
    return {
        _BATCHED: lambda: torch_run(work, batch_sizes[_BATCHED], shared=False),
        _SHARED: lambda: torch_run(work, batch_sizes[_SHARED], shared=True),
        _PLAIN: lambda: ours(model, work, name, shared=False),
        _OURS: lambda: ours(model, work, name, shared=True),
    }


def _timed(run: Callable[[], list[Any]]) -> tuple[float, list[Any]]:
    start = time.perf_counter()
    results = run()
    return time.perf_counter() - start, results


def _best_batch_size(run: Callable[[int], list[Any]], batch_sizes: Sequence[int]) -> int:
    """The batch size whose second run is the fastest."""

    def second(batch_size: int) -> float:
        run(batch_size)
        return _timed(lambda: run(batch_size))[0]

    return min(batch_sizes, key=second)


def _check_in_float32(folder: pathlib.Path, size: Size, device: str) -> None:
    model, peer = LanguageModel.from_pretrained(folder), TorchPeer(folder, device, "float32")
    work = make_work(size, model).part(_CHECKED)
    for name in _WORKS:
        runs = contenders(model, peer, work, name, dict.fromkeys((_BATCHED, _SHARED), _CHECKED))
        reference = runs[_BATCHED]()
        for who, run in runs.items():
            check_agreement(name, who, run(), reference)


def benchmark(size: Size, device: str, dtype: str, rounds: int, log: Callable[[str], None] = print) -> dict[str, Any]:
    """Runs everything and returns the figures, ready for JSON.

    Args:
      size: the network and its work.
      device: ``cpu`` or ``cuda``.
      dtype: ``float32`` or ``bfloat16``.
      rounds: number of alternating measurements.
      log: told what is going on.

    Raises:
      RuntimeError: the contenders do not compute the same.
    """
    load_before = machine.load_average()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        log("writing a network with random weights")
        write_model(folder, size, device)
        if dtype != "float32":
            log("scores and texts in float32")
            _check_in_float32(folder, size, device)
        model, peer = LanguageModel.from_pretrained(folder, dtype), TorchPeer(folder, device, dtype)
    work = make_work(size, model)
    part = work.part(max(size.batch_sizes))

    results: dict[str, dict[str, Any]] = {}
    for name in _WORKS:
        batch_sizes = {
            who: _best_batch_size(functools.partial(getattr(peer, name), part, shared=shared), size.batch_sizes)
            for who, shared in ((_BATCHED, False), (_SHARED, True))
        }
        log(f"{name}: batches of {batch_sizes[_BATCHED]} and {batch_sizes[_SHARED]}")
        runs = contenders(model, peer, work, name, batch_sizes)
        first = {}
        for who, run in runs.items():
            first[who] = _timed(run)
            log(f"{name}, {who}: first time {first[who][0]:.2f} s")
            if dtype == "float32":
                check_agreement(name, who, first[who][1], first[_BATCHED][1])
        seconds: dict[str, list[float]] = {who: [] for who in runs}
        for number in range(rounds):
            for who, run in runs.items():
                seconds[who].append(_timed(run)[0])
                log(f"round {number + 1} of {rounds}, {name}, {who}: {seconds[who][-1]:.2f} s")
        results[name] = {}
        for who, times in seconds.items():
            median = statistics.median(times)
            count = size.questions * (1 if name == "options" else size.new_tokens)
            results[name][who] = {
                "per_second": count / median,
                "seconds": median,
                "seconds_of_each_round": [round(seconds_of_round, 4) for seconds_of_round in times],
                "compile_seconds": round(max(0.0, first[who][0] - median), 1),
                "batch_size": batch_sizes.get(who),
                "difference": difference(name, first[who][1], first[_BATCHED][1]),
            }
    return {
        "size": size.description,
        "work": size.work,
        "dtype": dtype,
        "gigaflops_a_token": round(peer.gigaflops(1), 3),
        "machine": machine.describe(common.accelerator_name(device), more=("tokenizers",)),
        "load_average": [load_before, machine.load_average()],
        "rounds": rounds,
        "devices": model.mesh.size,
        "results": results,
    }


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown tables with a head that says what was measured on what."""
    lines = [
        f"{figures['size']}; {figures['work']}; {figures['dtype']}; {figures['gigaflops_a_token']} GFLOP a token.",
        common.where(figures, ("jax", "torch", "transformers")),
    ]
    units = {"options": "questions/s", "generation": "tokens/s"}
    for name, results in figures["results"].items():
        lines += [
            "",
            f"| {name} | {units[name]} | all, s | beside torch, batched | batch | compiling, s | differs by |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for who, result in results.items():
            lines.append(
                f"| {who} | {result['per_second']:.1f} | {result['seconds']:.2f}"
                f" | {results[_BATCHED]['seconds'] / result['seconds']:.2f} x | {result['batch_size'] or 'its own'}"
                f" | {result['compile_seconds']:.0f} | {result['difference']:.0e} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints tables, and writes the figures."""
    parser = common.argument_parser(
        "benchmarks.language_model", __doc__, SIZES, "the network: mid on a CPU, 7b on a GPU"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="float32 on a CPU, bfloat16 on a GPU")
    options = parser.parse_args(arguments)
    device = common.start(options)
    on_gpu = device == "cuda"
    size = SIZES[options.size or ("7b" if on_gpu else "mid")]
    dtype = options.dtype or ("bfloat16" if on_gpu else "float32")
    figures = benchmark(size, device, dtype, options.rounds, log=common.log)
    print(table(figures))
    result_files.write(figures, options.output)


if __name__ == "__main__":
    common.run(main)
