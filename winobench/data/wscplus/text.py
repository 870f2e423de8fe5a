"""Repair of wrongly decoded text, and what copies of one sentence have in common."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any


def repair(text: str) -> str:
    """Undoes wrong decodings of UTF-8, by Latin-1, Windows-1252 or Mac Roman, however often they happened.

    Only sequences are touched that are UTF-8 of one character if a table is applied backwards: of the Latin-1
    supplement (two bytes, as for ``é``), from U+2000 to U+2FFF (three bytes, as for ``’``), or in one of the two other
    tables. Such sequences (``Ã©``, ``â€™``, ``‚Äô``) do not occur in clean English or Western European text, which is
    left as it is. Control characters from U+0080 to U+009F that remain are read as Windows-1252. The result is a fixed
    point.
    """
    if text.isascii():
        return text
    while True:
        for sequences, decode in _wrong_decodings():
            repaired = sequences.sub(decode, text)
            if repaired != text:
                break
        else:
            return text
        text = repaired


@functools.cache
def _wrong_decodings() -> tuple[tuple[re.Pattern[str], Any], ...]:
    decodings: list[tuple[re.Pattern[str], Any]] = []
    for encoding in ("latin-1", "cp1252", "mac_roman"):
        # Bytes that Windows-1252 leaves open come through as control characters.
        table = [bytes([byte]).decode(encoding, "replace") for byte in range(256)]
        table = [chr(byte) if character == "\ufffd" else character for byte, character in enumerate(table)]
        byte_of = {character: byte for byte, character in enumerate(table)}
        inner = "[" + re.escape("".join(table[0x80:0xC0])) + "]"
        # What a first wrong decoding makes of some bytes has itself two bytes that begin otherwise.
        of_tables = {c for name in ("cp1252", "mac_roman") for c in bytes(range(128, 256)).decode(name, "ignore")}
        others = ["".join(table[byte] for byte in c.encode()) for c in sorted(of_tables) if 0xFF < ord(c) < 0x800]
        ways = (f"[{table[0xC2]}{table[0xC3]}]{inner}", f"{table[0xE2]}{inner}{{2}}", *map(re.escape, others))
        sequences = re.compile("|".join(ways))

        def decode(match: re.Match[str], byte_of: Mapping[str, int] = byte_of) -> str:
            try:
                return bytes(byte_of[character] for character in match[0]).decode()
            except UnicodeDecodeError:
                return match[0]

        decodings.append((sequences, decode))

    def as_windows(match: re.Match[str]) -> str:
        decoded = match[0].encode("latin-1").decode("cp1252", "replace")
        return match[0] if decoded == "\ufffd" else decoded

    decodings.append((re.compile("[\x80-\x9f]"), as_windows))
    return tuple(decodings)


def normalize(text: str) -> str:
    """Without what differs between copies of one text: repaired, lower case, ASCII letters and digits, single spaces"""
    return " ".join(re.findall("[a-z0-9]+", repair(text).lower()))
