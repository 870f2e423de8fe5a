"""What tests expect of errors: which fault it is, and what the message names, not the prose around it."""

import contextlib
import re
from collections.abc import Iterator

import pytest

from winobench.base.errors import InputError


def names(*words: str) -> str:
    """A pattern for `pytest.raises` that a message matches if it is one line and has all of these words.

    Args:
      *words: names of fields, values as they are printed, files, numbers, flags; each must stand by itself.
    """

    def alone(word: str) -> str:
        before = r"(?<![\w])" if re.match(r"\w", word) else ""
        after = r"(?![\w])" if re.search(r"\w$", word) else ""
        return f"(?=.*{before}{re.escape(word)}{after})"

    return rf"\A{''.join(map(alone, words))}[^\n]+\Z"


@contextlib.contextmanager
def raises(code: str, *words: str, kind: type[InputError] = InputError) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """Like `pytest.raises`: what is run under it must raise an InputError of this code, in one line with these words.

    Args:
      code: the error's `code`, which tells it from the others that the same call can raise.
      *words: what the message names, as for `names`.
      kind: the class of the error.
    """
    with pytest.raises(kind, match=names(*words)) as caught:
        yield caught
    assert caught.value.code == code, f"the error has the code {caught.value.code!r}: {caught.value}"
