"""A slow evaluation to be killed: python -m tests.evaluation.killed_run WORKDIR"""

import sys

from tests.evaluation import fakes
from winobench.evaluation import evaluate
from winobench.runs import error_parts

TASKS = (fakes.text_task(), fakes.image_task(), fakes.square_task())
ARGUMENTS = {"num_samples": 5, "limit": 5, "seed": 3}


def main(workdir):
    error_parts._SECONDS_BETWEEN_PARTS = 0.1
    scorer = fakes.FakeScorer(seconds_a_batch=0.03)
    evaluate.evaluate(scorer, TASKS, workdir, progress=False, **ARGUMENTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
