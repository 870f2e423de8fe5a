"""Chat templates that come with a model: tried in a separate process before they are rendered in this one.

Jinja's sandbox limits neither time nor memory. That process, which holds nothing that matters, has limits of both.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import resource
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from winobench.base import json_files, options
from winobench.base.errors import InputError

# Each sample has words that no template holds.
SYSTEM, USER, ANSWER = "qzsystem", "qzuser", "qzanswer"
SAMPLES = (
    [("user", USER)],
    [("system", SYSTEM), ("user", USER)],
    [("user", USER), ("assistant", ANSWER), ("user", USER)],
    [("system", SYSTEM), ("user", USER), ("assistant", ANSWER), ("user", USER)],
)
# The longest templates run some hundred lines a turn. Jinja names all code that it makes of a text after this file.
_MOST_LINES, _JINJA_FILE = 500_000, "<template>"
# Of the process: the time of the import is not among the seconds, the memory that it takes is not among the bytes.
_SECONDS, _SECONDS_WITH_IMPORT, _BYTES, _MOST_LETTERS = 5, 60, 2**30, 1_000_000
_Rendered = tuple[str | None, str]


def messages(turns: Any) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in turns]


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Ends a template after many lines of Jinja's Python. One line may take long: `try_samples` comes first."""
    lines = 0

    def of_line(frame: types.FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        if lines > _MOST_LINES:
            raise RuntimeError(f"it continues after {_MOST_LINES:,} lines")
        return of_line

    def of_call(frame: types.FrameType, event: str, argument: Any) -> Any:
        return of_line if frame.f_code.co_filename == _JINJA_FILE else None

    before = sys.gettrace()
    sys.settrace(of_call)
    try:
        yield
    finally:
        sys.settrace(before)


def try_samples(template: str, arguments: Mapping[str, Any], where: str) -> tuple[_Rendered, ...]:
    rendered = _try(json.dumps([template, dict(arguments)]))
    if isinstance(rendered, str):
        raise InputError(_cannot(where, rendered), code="conversation-refused")
    first = next((text for text, _ in rendered if text is not None), None)
    if first is None:
        reason = f"it refuses every conversation: {rendered[0][1]}"
        raise InputError(_cannot(where, reason), code="conversation-refused")
    if USER not in first:
        raise InputError(_cannot(where, "it leaves out the text of the user's turn"), code="conversation-refused")
    return rendered


def _cannot(where: str, reason: str) -> str:
    return (
        f"the chat template of {where} cannot be used ({reason}): correct it. A language model can do without"
        " (--chat_template=plain)"
    )


@functools.lru_cache(64)
def _try(request: str) -> tuple[_Rendered, ...] | str:
    """Returns the process's answer, or the reason why it ended."""
    # The library warns of packages that it does not find.
    environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "error", "JAX_PLATFORMS": "cpu"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=request.encode(),
            capture_output=True,
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=_SECONDS_WITH_IMPORT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it takes more than {_SECONDS_WITH_IMPORT} seconds"
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    if done.returncode == 0 and lines:
        answer = json_files.parse(lines[-1])
        return answer if isinstance(answer, str) else tuple((text, reason) for text, reason in answer)
    if done.returncode > 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no words"]
        return f"the process that tries it ended with {done.returncode}: {options.quote(words[-1])}"
    return f"it takes more than {_SECONDS} seconds or {_BYTES // 2**20:,} MiB of memory"


def _render_samples() -> None:
    """Reads a template and its arguments from standard input, and prints what `_try` returns as JSON."""
    request = json_files.parse(sys.stdin.read())
    from transformers.utils.chat_template_utils import render_jinja_template

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # systems that do not say how much is taken have the limit of time alone
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        _limit(resource.RLIMIT_AS, _BYTES + pages * resource.getpagesize())
    spent = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, _SECONDS + 1 + int(spent.ru_utime + spent.ru_stime))
    print(json.dumps(rendered(*request, render_jinja_template)))


def rendered(template: str, arguments: Mapping[str, Any], render: Callable[..., Any]) -> tuple[_Rendered, ...] | str:
    """The samples by this template, or why it cannot be used."""
    results: list[_Rendered] = []
    for sample in SAMPLES:
        try:
            with bounded():
                (text,), _ = render([messages(sample)], chat_template=template, add_generation_prompt=True, **arguments)
        except MemoryError:
            return f"it takes more than {_BYTES // 2**20:,} MiB of memory"
        # The library passes on what the template's own code raises.
        except Exception as error:
            results.append((None, (str(error).strip() or type(error).__name__).splitlines()[0][:300]))
            continue
        if len(text) > _MOST_LETTERS:
            return f"it makes more than {_MOST_LETTERS:,} letters of a short conversation"
        results.append((text, ""))
    return tuple(results)


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


if __name__ == "__main__":
    _render_samples()
