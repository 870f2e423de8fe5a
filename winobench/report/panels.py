"""Panels as files: SVG for pages, in the page's colours, and PNG."""

from __future__ import annotations

import io
import math
import pathlib
import re
from collections.abc import Sequence
from xml.sax import saxutils

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from PIL import Image

from winobench.report.figures import VARIABLES, Mark, Panel, fitted, style, text_width

_DPI = 160
_TITLE_HEIGHT, _LEGEND_LINE, _GAP = 0.27, 0.21, 0.2  # inches, of a file's panels


def to_svg(panel: Panel, key: str, drawn: str | None = None) -> str:
    """The panel as an SVG element, in a page's own font and in the colours of its variables."""
    if drawn is None:
        with style():
            drawn = _vectors(_figure(panel))
    return _for_page(drawn, key, panel)


def to_png(
    panels: Sequence[Panel], path: pathlib.Path, *, legend: Sequence[Mark] = (), columns: int = 3
) -> dict[Panel, str]:
    """All panels in one file, with their titles and a legend."""
    columns = min(columns, len(panels))
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    handles = [mark.handle for mark in legend]
    entry = 0.65 + text_width(max((str(handle.get_label()) for handle in handles), key=len, default=""), 9)
    column = max(panel.width for panel in panels)
    width = max(columns * (column + _GAP) + _GAP, entry + 2 * _GAP)
    a_line = max(1, min(len(handles), int((width - 2 * _GAP) / entry)))
    lines = math.ceil(len(handles) / a_line)
    heights = [max(panel.height for panel in row) + _TITLE_HEIGHT for row in rows]
    height = sum(heights) + _GAP * (len(rows) + 1) + (lines * _LEGEND_LINE + _GAP if handles else 0)
    drawn, corners = {}, []
    with style():
        whole = Figure(figsize=(width, height), dpi=_DPI, facecolor="white")
        top = _GAP
        for row, row_height in zip(rows, heights, strict=True):
            for number, panel in enumerate(row):
                left = (width - panel.width) / 2 if columns == 1 else _GAP + number * (column + _GAP)
                size = min(10, max(8, 10 * panel.width / text_width(panel.title or " ", 10)))
                title = fitted(panel.title, panel.width, size)
                at = (left / width, 1 - (top + 0.04) / height)
                whole.text(*at, title, va="top", fontsize=size, fontweight="bold")
                corners.append((round(left * _DPI), round((top + _TITLE_HEIGHT) * _DPI)))
            top += row_height + _GAP
        if handles:
            anchor = (0.5, _GAP / 2 / height)
            whole.legend(
                handles=handles, loc="lower center", ncols=a_line, bbox_to_anchor=anchor, borderpad=0, borderaxespad=0
            )
        image = _pixels(whole)
        for panel, corner in zip(panels, corners, strict=True):
            figure = _figure(panel)
            pixels = _pixels(figure)
            image.paste(pixels, corner, pixels)
            drawn[panel] = _vectors(figure)
    image.convert("RGB").save(path, compress_level=4, dpi=(_DPI, _DPI))
    return drawn


def _figure(panel: Panel) -> Figure:
    """The panel's figure, on a transparent ground."""
    margins = panel.margins
    figure = Figure(figsize=(panel.width, panel.height), dpi=_DPI)
    axes = figure.add_axes(
        (
            margins.left / panel.width,
            margins.bottom / panel.height,
            1 - (margins.left + margins.right) / panel.width,
            1 - (margins.top + margins.bottom) / panel.height,
        )
    )
    figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    panel.draw(axes)
    return figure


def _vectors(figure: Figure) -> str:
    buffer = io.StringIO()
    # Not by savefig, which renders everything twice.
    FigureCanvasSVG(figure).print_svg(buffer, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return buffer.getvalue()


def _pixels(figure: Figure) -> Image.Image:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba()).copy())


def _for_page(svg: str, key: str, panel: Panel) -> str:
    """The svg element alone, with unique ids, the page's colours, and its own width as the largest."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="#|url\(#)([\w.-]+)', svg))
    svg = re.sub(
        r' id="([\w.-]+)"', lambda match: f' id="{key}-{match.group(1)}"' if match.group(1) in used else "", svg
    )
    svg = re.sub(r'(href="#|url\(#)([\w.-]+)', rf"\g<1>{key}-\g<2>", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    (view,) = re.findall(r'viewBox="[^"]+"', svg)[:1]
    pixels = round(panel.width * 96)
    head = f'<svg {view} class="figure" style="max-width:{pixels}px" role="img" aria-labelledby="{key}-title">'
    described = saxutils.escape(panel.description or panel.title, {'"': "&quot;"})
    title = f'<title id="{key}-title">{described}</title>'
    body = svg[svg.index(">") + 1 :].replace("xlink:href", "href")
    return head + title + re.sub(r"\s*\n\s*", "\n", body).strip()
