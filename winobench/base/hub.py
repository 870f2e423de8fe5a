"""Files of the Hugging Face hub. A hub that cannot be reached is noticed within seconds.

huggingface_hub tries for a minute or more. So the hub gets one request, with a limit on its whole time.
"""

from __future__ import annotations

import contextlib
import http
import math
import os
import queue
import re
import threading
import time
from typing import Any

from winobench.base.errors import InputError

SECONDS = 5.0
"""How long the hub may take for its first answer; ``HF_HUB_ETAG_TIMEOUT`` changes that."""

# How long an answer, or a missing one, counts as the state of the network.
_SECONDS_REMEMBERED = {True: 60.0, False: 20.0}
_COMMIT = re.compile(r"[0-9a-f]{40}")
_lock = threading.Lock()
_found: dict[str, tuple[float, bool]] = {}  # address -> when it was asked, and whether it answered


def download(repo_id: str, name: str, **options: Any) -> str:
    """``huggingface_hub.hf_hub_download``, which takes the cache alone where the hub cannot be reached."""
    import huggingface_hub
    from huggingface_hub import errors

    if _COMMIT.fullmatch(options.get("revision") or ""):
        # A commit never changes: what the cache has of it needs no network, and neither does a file that it lacks.
        with contextlib.suppress(errors.LocalEntryNotFoundError):
            return huggingface_hub.hf_hub_download(repo_id, name, **options, local_files_only=True)
        if huggingface_hub.try_to_load_from_cache(repo_id, name, **options) is huggingface_hub._CACHED_NO_EXIST:
            raise errors.EntryNotFoundError(f"{repo_id} has no {name}")
    if not is_reachable():
        options["local_files_only"] = True
    return huggingface_hub.hf_hub_download(repo_id, name, **options)


def refusal(error: BaseException, name: str, page: str) -> InputError | None:
    """An error with the hub's answer, or None where it has not answered at all."""
    from huggingface_hub import constants, errors

    log_in = "log in with `hf auth login` or set the environment variable HF_TOKEN"
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, errors.HfHubHTTPError | errors.FileMetadataError):
        seen = seen.__cause__
    if seen is None:
        return None
    if isinstance(seen, errors.FileMetadataError):
        return InputError(
            f"{constants.ENDPOINT} answers with something else than the files of {name}, such as a proxy's login page:"
            " open it in a browser, or correct the environment variable HF_ENDPOINT",
            code="cannot-download",
        )
    if isinstance(seen, errors.GatedRepoError):
        return InputError(
            f"{name} is gated: accept its terms at {page}, then {log_in}, and try again", code="gated-repository"
        )
    status = seen.response.status_code
    said = " ".join(str(seen.response.headers.get("X-Error-Message") or "").split())[:200]
    said = f"{status}, {said}" if said else f"{status}"
    if status == http.HTTPStatus.UNAUTHORIZED:
        return InputError(
            f"the hub refuses the access token ({said}): log in with `hf auth login` again, or correct the environment"
            " variable HF_TOKEN",
            code="key-refused",
        )
    if status == http.HTTPStatus.TOO_MANY_REQUESTS:
        return InputError(
            f"the hub takes no more requests for now ({said}): wait some minutes, and {log_in}, which raises the limit",
            code="rate-limited",
        )
    advice = f"see {page}, and use a token that may read it, or take another model"
    if "disabled" in said.lower():
        advice = f"it is disabled there, so take another model ({page} may say why)"
    if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        advice = "try again later, or use the local hub cache alone (HF_HUB_OFFLINE=1)"
    return InputError(f"the hub does not hand out files of {name} ({said}): {advice}", code="cannot-download")


def is_reachable() -> bool:
    """Whether the hub answers, in any way. Asked at most a few times a minute. True in offline mode."""
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
        except Exception:  # any error of the transport means that nobody answered
            answers.put(False)

    # In a thread: no timeout of a client covers the look-up of a name.
    threading.Thread(target=ask, daemon=True).start()
    try:
        return answers.get(timeout=seconds)
    except queue.Empty:
        return False
