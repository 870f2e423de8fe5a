"""Images as PNG: records of training sets, and sheets that show a training's progress."""

from __future__ import annotations

import io
import pathlib

import numpy as np


def encode_png(image: np.ndarray) -> np.ndarray:
    """uint8 [height, width, 3] to the bytes of a PNG file, uint8 [num_bytes]."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    return np.frombuffer(buffer.getvalue(), np.uint8)


def decode_png(data: np.ndarray) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data.tobytes())).convert("RGB"))


def save_images(images: np.ndarray, path: pathlib.Path, columns: int = 8) -> None:
    """Saves images [count, height, width, 3] in [-1, 1] as one image, row by row."""
    from PIL import Image

    images = np.clip(np.asarray(images, np.float32) * 127.5 + 127.5, 0, 255).astype(np.uint8)
    count, height, width, _ = images.shape
    rows = -(-count // columns)
    grid = np.zeros((rows, columns, height, width, 3), np.uint8)
    grid.reshape(-1, height, width, 3)[:count] = images
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(grid.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, 3)).save(path)
