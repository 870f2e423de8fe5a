"""How an example is put on a card."""

import base64
import io

from PIL import Image

from winobench.report import cards


def test_damaged_pictures_are_left_out():
    assert cards.picture_address(b"no picture", 100) is None
    buffer = io.BytesIO()
    Image.new("RGB", (300, 150), "red").save(buffer, "JPEG")
    assert cards.picture_address(buffer.getvalue()[:200], 400) is None
    address = cards.picture_address(buffer.getvalue(), 100)
    with Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))) as image:
        assert image.size == (100, 50)
