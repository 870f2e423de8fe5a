"""A small WSC+ in the layout of the published files: data, and recorded answers. The sentences are ours."""

import csv
import pathlib

from winobench.tasks import wscplus

COLUMNS = ("statement", "pronoun", "snippet", "options", "answer", "reason", "model", "type")
RECORDED = ("query", "ToE_query", "predicted_reason", "predicted_answer", "check", "result")


def rows(count=6):
    """Pairs, ambiguous and offensive sentences in turn; ``count`` of each."""
    for number in range(count):
        for answer, state in enumerate(("heavy", "weak")):
            statement = f"The crate {number} crushed the shelf {number} because it was too {state}."
            yield _row(statement, f"it was too {state}", ("crate", "shelf"), answer, "GPT4", "Traditional")
        statement = f"Nora met Ida at stop {number}, it was late."
        yield _row(statement, "it was late", ("Nora", "Ida"), 2, "Claude2", "Ambiguous")
        statement = f"A tall man and a short man sang song {number} when it stopped."
        yield _row(statement, "it stopped", ("tall man", "short man"), 2, "GPT3.5 Turbo", "Offensive")


def write(data_dir, count=6, said=lambda number, answer: answer):
    """Writes ``wscplus/WSC+.csv`` and, beside it, ``GPT4_results.csv`` with an answer to every sentence.

    Args:
      data_dir: the folder of all data.
      count: of each kind of sentence.
      said: (number of the row, right answer) -> the recorded one.

    Returns:
      The file of answers.
    """
    folder = pathlib.Path(data_dir) / "wscplus"
    folder.mkdir(parents=True, exist_ok=True)
    found = list(rows(count))
    _write(folder / "WSC+.csv", COLUMNS, found)
    recorded = []
    for number, row in enumerate(found):
        query = wscplus.question_text(row["pronoun"], row["snippet"], row["statement"], row["options"])
        answer = said(number, int(row["answer"]))
        recorded.append(
            {
                **row,
                "query": query,
                "ToE_query": wscplus.prompt("toe", query),
                "predicted_reason": f"Step 1: Look.\nFinal Answer: {answer}; for some reason.",
                "predicted_answer": str(answer),
                "check": "same" if answer == int(row["answer"]) else "different",
                "result": "",
            }
        )
    path = folder / "GPT4_results.csv"
    _write(path, (*COLUMNS, *RECORDED), recorded)
    return path


def _row(statement, snippet, options, answer, model, kind):
    values = (statement, "it", snippet, repr(list(options)), str(answer), "", model, kind)
    return dict(zip(COLUMNS, values, strict=True))


def _write(path, columns, found):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(found)
