"""WinoViz items: their layout in files, the annotation rules, and how harder versions are made of single-hop items.

An item is a pair of questions. Each has its own premise and both choose between the same two hypotheses, of which the
first is right for the first premise. Of one pair of premises there can be

- ``single``: hypotheses that name a visual attribute ("The tomato was red.");
- ``multi``: hypotheses that name another object with that attribute ("The tomato was the color of a fire engine.");
- ``pragmatic``: the step from the premise to its property, with hypotheses that state it ("The tomato was ripe.");
- ``visual``: the step from the property to the attribute. The premises are the sentences that state the properties, and
  the hypotheses are the single-hop item's.

``python -m winobench.data.winoviz`` checks files and builds multi-hop items.

Source: Jin et al., "WinoViz: Probing Visual Properties of Objects Under Different States", appendices A.1, A.2 and A.5.
"""

from winobench.data.winoviz.files import FILE_NAMES, item_from_json, json_line, read_items, read_text, write_items
from winobench.data.winoviz.items import ASSETS, ATTRIBUTE_KINDS, VERSIONS, Item
from winobench.data.winoviz.multi_hop import MultiHop, Prototypes, build_multi_hop, read_prototypes
from winobench.data.winoviz.rules import RULES, check_item, check_items

__all__ = [
    "ASSETS",
    "ATTRIBUTE_KINDS",
    "FILE_NAMES",
    "RULES",
    "VERSIONS",
    "Item",
    "MultiHop",
    "Prototypes",
    "build_multi_hop",
    "check_item",
    "check_items",
    "item_from_json",
    "json_line",
    "read_items",
    "read_prototypes",
    "read_text",
    "write_items",
]
