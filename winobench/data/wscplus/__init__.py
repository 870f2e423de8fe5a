"""WSC+: sentences with a pronoun and two candidates, most of them written by language models (Zahraei and Emami 2024).

The data are one CSV file of 3,026 rows, which the user brings. Only identifiers of the rows of the validation set are
shipped. This package recovers what the file leaves open:

* **text**: some cells were decoded by the wrong table once or more, so that an apostrophe has become ``â€™`` or
  worse. `repair` undoes that cell by cell. ``Item.original`` keeps the cell.
* **splits**: the 26 rows of the generator ``Human`` are the few-shot set. The 700 questions of the published result
  files are the validation set. They were taken from 699 rows of the data, whose identifiers are in
  ``assets/wscplus/validation_ids.json``: 688 are as they were asked, 11 were edited, and the last question is another
  wording of a row. Only the result files have it. The rest is the test set (2,301 rows).
* **pairs**: rows of traditional pairs are neighbours (682 pairs, and 6 among the few-shot examples).

Source: P. S. Zahraei and A. Emami, "WSC+: Enhancing The Winograd Schema Challenge Using Tree-of-Experts", EACL 2024,
arXiv 2401.17703.
"""

from winobench.data.wscplus.files import (
    COLUMNS,
    FILE_NAME,
    RESULT_FILES,
    data_file,
    read,
    read_rows,
    result_file,
    write,
)
from winobench.data.wscplus.items import (
    ASSETS,
    GENERATORS,
    NEITHER,
    SPLITS,
    TYPES,
    UNTYPED,
    WSC285_PRONOUNS,
    Item,
    composition,
    post_filtering,
    pronoun_counts,
    types_by_generator,
    validation_ids,
)
from winobench.data.wscplus.results import join, validation
from winobench.data.wscplus.text import normalize, repair

__all__ = [
    "ASSETS",
    "COLUMNS",
    "FILE_NAME",
    "GENERATORS",
    "NEITHER",
    "RESULT_FILES",
    "SPLITS",
    "TYPES",
    "UNTYPED",
    "WSC285_PRONOUNS",
    "Item",
    "composition",
    "data_file",
    "join",
    "normalize",
    "post_filtering",
    "pronoun_counts",
    "read",
    "read_rows",
    "repair",
    "result_file",
    "types_by_generator",
    "validation",
    "validation_ids",
    "write",
]
