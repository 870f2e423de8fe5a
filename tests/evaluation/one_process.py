"""One process of an evaluation: python -m tests.evaluation.one_process WORKDIR [PROCESSES] [OPTION ...]

PROCESSES is host:port,count,number, or auto, or nothing. Of the options, ``fail`` and ``modes`` are what the last
process does otherwise. Prints one line of JSON: the results, and digests of the plan and of the noise.
"""

import functools
import json
import sys
import time

import numpy as np

from tests.evaluation import fakes
from tests.scorers import fakes as fake_models

ARGUMENTS = {"num_samples": 5, "limit": 5, "seed": 3}
# Of images 0-4 and 100-104; see test_evaluate.py.
NUM_TRIPLES = (5 * 6 + 5 * 3) * ARGUMENTS["num_samples"]
BATCH_SIZE = 2


def tasks():
    fakes.image = lambda number, size=4: fake_models.image(number)
    return [fakes.text_task(), fakes.image_task(), fakes.square_task()]


def main(workdir, processes="", *options):
    import jax

    from winobench import parallel

    if processes:
        # A killed process is missed after 100 seconds otherwise. Tests kill slow ones alone.
        seconds = 6 if "slow" in options else 12
        jax.distributed.initialize = functools.partial(jax.distributed.initialize, heartbeat_timeout_seconds=seconds)
        parallel.join_processes(processes, fault_tolerant=True)

    from winobench.evaluation import evaluate, plan
    from winobench.runs import error_parts, records
    from winobench.scorers import samples
    from winobench.scorers.diffusion_itm import DiffusionITM

    error_parts._SECONDS_BETWEEN_PARTS = 0.1

    class Scorer(DiffusionITM):
        def session(self, *arguments, **named):
            session = super().session(*arguments, **named)
            iter_errors = session.iter_errors

            def hindered(*arguments, **named):
                for number, batch in enumerate(iter_errors(*arguments, **named)):
                    if "fail" in options and number == 1 and jax.process_index() == jax.process_count() - 1:
                        raise ValueError("out of luck")
                    time.sleep(0.15 if "slow" in options else 0)
                    yield batch

            session.iter_errors = hindered
            return session

    mesh = parallel.make_mesh() if "spanning" in options else None
    scorer = Scorer(fake_models.Pipeline(), batch_size=BATCH_SIZE, mesh=mesh)
    asked = tasks()
    if "modes" in options and jax.process_index() == jax.process_count() - 1:
        options += ("race",)
    changes = {"mode": "race", "num_samples": 32, "alpha": 0.3, "rare_share": 0.5} if "race" in options else {}
    results = evaluate.evaluate(scorer, asked, workdir, progress=False, **{**ARGUMENTS, **changes})
    planned = plan.make_plan(asked, data_dir=None, limit=ARGUMENTS["limit"], normalize="auto")
    key, numbers = samples.noise_key(ARGUMENTS["seed"]), np.arange(ARGUMENTS["num_samples"])
    noise = np.asarray(jax.jit(samples.draw_noise, static_argnums=2)(key, numbers, fake_models.LATENT_SHAPE))
    print(
        json.dumps(
            {
                "results": results,
                "devices": scorer.mesh.size,
                "timesteps": scorer.choose_timesteps(ARGUMENTS["num_samples"], ARGUMENTS["seed"]).tolist(),
                "plan": records.digest([planned.image_hashes, planned.text_hashes, planned.pairs.tolist()]),
                "noise": records.digest(noise.view(np.uint32).tolist()),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
