"""A slow evaluation of a text task to be killed: python -m tests.evaluation.killed_questions WORKDIR"""

import sys

from tests.evaluation import text_fakes
from winobench.evaluation import questions

PAIRS = 100


def main(workdir):
    responder = text_fakes.ScriptedResponder(seconds=0.02)
    questions.evaluate_questions(responder, [text_fakes.text_task(pairs=PAIRS)], workdir, progress=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
