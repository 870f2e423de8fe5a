"""The store of a job's data and runs: a bucket or a volume, and where machines mount it."""

from __future__ import annotations

import re

from winobench.base.errors import InputError

MOUNT = "/mnt/winobench"  # on the machines

_BUCKET = re.compile(r"(gs|s3|r2|cos|nebius|oci|https)://[^\W_]([^/]*[^\W_])?(/.*)?")
_VOLUME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def check_store(store: str) -> None:
    if is_url(store) and not re.fullmatch(r"[\w./:-]+", store):
        raise InputError(f"--store={store} has characters that no bucket has: write letters, digits and ._-/ only.")
    if not is_url(store) and not _VOLUME.fullmatch(store):
        raise InputError(
            f"--store={store} is neither a bucket (gs://BUCKET, s3://BUCKET) nor a SkyPilot volume's name."
        )


def is_url(store: str | None) -> bool:
    """Whether a store is a bucket's address, and not a volume's name."""
    return store is not None and _BUCKET.fullmatch(store) is not None
