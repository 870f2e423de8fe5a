"""Where a job's data and runs lie: buckets, volumes and exports, and how a machine mounts them."""

from __future__ import annotations

import re
import shlex

from winobench.base.errors import InputError

MOUNT = "/mnt/winobench"
"""Where --store is mounted on the machines."""


_BUCKET = re.compile(r"(gs|s3|r2|cos|nebius|oci|https)://[^\W_]([^/]*[^\W_])?(/.*)?")


_VOLUME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


_EXPORT = re.compile(r"[\w.-]+:/(?!/).*")


def check_store(target: str, store: str) -> None:
    """Refuses a store that the target cannot mount."""
    if is_url(store):
        if target in ("gke", "tpu_vm") and not store.startswith("gs://"):
            raise InputError(f"--store={store}: --target={target} mounts buckets of Cloud Storage; write gs://BUCKET.")
        if not re.fullmatch(r"[\w./:-]+", store):
            raise InputError(f"--store={store} has characters that no bucket has: write letters, digits and ._-/ only.")
    elif target == "tpu_vm" and not _EXPORT.fullmatch(store):
        raise InputError(f"--store={store} is neither a bucket (gs://BUCKET) nor an NFS export (HOST:/PATH).")
    elif target == "gke" and not _VOLUME.fullmatch(store):
        raise InputError(f"--store={store} is neither a volume claim's name nor a bucket (gs://BUCKET).")
    elif target == "skypilot" and not _VOLUME.fullmatch(store):
        raise InputError(
            f"--store={store} is neither a bucket (gs://BUCKET, s3://BUCKET) nor a SkyPilot volume's name."
        )


def mount_commands(store: str) -> list[str]:
    """Commands that mount the store on a TPU VM."""
    prepare = [f"sudo mkdir -p {MOUNT}", f"if ! mountpoint -q {MOUNT}; then"]
    if not store.startswith("gs://"):
        return [
            *prepare,
            "  sudo apt-get update -q && sudo apt-get install -q -y nfs-common",
            f"  sudo mount -t nfs {shlex.quote(store)} {MOUNT}",
            "fi",
        ]
    bucket, prefix = bucket_and_prefix(store)
    key, packages = "/usr/share/keyrings/cloud.google.asc", "https://packages.cloud.google.com/apt"
    return [
        *prepare,
        "  if ! command -v gcsfuse > /dev/null; then",
        f"    curl -fsS {packages}/doc/apt-key.gpg | sudo tee {key} > /dev/null",
        f'    echo "deb [signed-by={key}] {packages} gcsfuse-$(lsb_release -c -s) main" |',
        "      sudo tee /etc/apt/sources.list.d/gcsfuse.list > /dev/null",
        "    sudo apt-get update -q && sudo apt-get install -q -y gcsfuse",
        "  fi",
        f'  sudo chown "$USER" {MOUNT}',
        f"  gcsfuse --implicit-dirs {f'--only-dir={shlex.quote(prefix)} ' if prefix else ''}{bucket} {MOUNT}",
        "fi",
    ]


def is_url(store: str | None) -> bool:
    """Whether a store is a bucket's address, and not a volume's name or an export."""
    return store is not None and _BUCKET.fullmatch(store) is not None


def bucket_and_prefix(store: str) -> tuple[str, str]:
    """A bucket's name and the folder in it, of an address such as ``gs://bucket/folder``."""
    bucket, _, prefix = store.partition("://")[2].partition("/")
    return bucket, prefix.strip("/")
