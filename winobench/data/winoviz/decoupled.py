"""The two steps of a single-hop item as items of their own.

Source: Jin et al., "WinoViz: Probing Visual Properties of Objects Under Different States", appendix A.2.
"""

from __future__ import annotations

import dataclasses

from winobench.data.winoviz.items import Item, derived_id


def build_decoupled(item: Item, statements: tuple[str, str]) -> tuple[Item, Item]:
    """The two steps of a single-hop item, each by itself.

    Pragmatic reasoning finds in the premise what it means for the object. Visual knowledge reasoning finds the
    attribute from that statement.

    Returns:
      The pragmatic item (premises of ``item``, statements as hypotheses) and the visual item (statements as premises,
      hypotheses of ``item``).

    Source: appendix A.2, "Pragmatic Reasoning vs. Visual Knowledge Reasoning".
    """
    if item.version != "single":
        raise ValueError(f"{item.id} is a {item.version} item. Decoupled items are made of single-hop ones.")
    pragmatic, visual = (
        dataclasses.replace(item, id=derived_id(item.id, version), version=version, source=item.id)
        for version in ("pragmatic", "visual")
    )
    return dataclasses.replace(pragmatic, hypotheses=statements), dataclasses.replace(visual, premises=statements)
