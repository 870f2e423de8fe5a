"""Files of the Hugging Face hub, told within seconds where the hub cannot be reached.

huggingface_hub tries for a minute or more before it says so, which helps where an answer is late or lost, and only
costs time where there is no network. So the hub is asked once, for nothing, with a limit on the whole of that; where
any answer comes, files are fetched with all of the library's patience.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import re
import threading
import time
from typing import Any

SECONDS = 5.0
"""How long the hub may take for its first answer; ``HF_HUB_ETAG_TIMEOUT`` changes that."""

# How long an answer, or that there was none, is taken for the state of the network.
_SECONDS_REMEMBERED = {True: 60.0, False: 20.0}
_COMMIT = re.compile(r"[0-9a-f]{40}")
_lock = threading.Lock()
_found: dict[str, tuple[float, bool]] = {}  # address -> when it was asked, and whether it answered


def download(repo_id: str, name: str, **options: Any) -> str:
    """``huggingface_hub.hf_hub_download``, which takes the cache alone where the hub cannot be reached.

    Args:
      repo_id: owner and name.
      name: the file's name in the repository.
      options: as of that function.

    Returns:
      The file's path in the cache.

    Raises:
      What that function raises; ``LocalEntryNotFoundError`` where the hub cannot be reached and the cache lacks the
      file.
    """
    import huggingface_hub
    from huggingface_hub import errors

    if _COMMIT.fullmatch(options.get("revision") or ""):
        # A commit never changes: what the cache has of it needs no network.
        with contextlib.suppress(errors.LocalEntryNotFoundError):
            return huggingface_hub.hf_hub_download(repo_id, name, **options, local_files_only=True)
    if not is_reachable():
        options["local_files_only"] = True
    return huggingface_hub.hf_hub_download(repo_id, name, **options)


def is_reachable() -> bool:
    """Whether the hub answers, in whatever way; asked at most a few times a minute.

    True in offline mode, in which huggingface_hub asks nothing.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return True
    seconds = float(constants.HF_HUB_ETAG_TIMEOUT) if os.environ.get("HF_HUB_ETAG_TIMEOUT") else SECONDS
    address = constants.ENDPOINT
    with _lock:
        moment, answers = _found.get(address, (-math.inf, False))
        if time.monotonic() - moment >= _SECONDS_REMEMBERED[answers]:
            answers = _answers(address, seconds)
            _found[address] = time.monotonic(), answers
        return answers


def _answers(address: str, seconds: float) -> bool:
    from huggingface_hub import utils

    answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def ask() -> None:
        try:
            utils.get_session().head(address, timeout=seconds, follow_redirects=False)
            answers.put(True)
        except Exception:  # whatever the transport has to say, there was no answer
            answers.put(False)

    # In a thread: no timeout of a client covers the look-up of a name.
    threading.Thread(target=ask, daemon=True).start()
    try:
        return answers.get(timeout=seconds)
    except queue.Empty:
        return False
