"""What tests expect of messages: what they name, not the prose around it."""

import re


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
