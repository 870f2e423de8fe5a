"""An evaluation of a hosted model to be killed: python -m tests.responders.hosted_run NAME FOLDER NUM CONCURRENCY"""

import sys

from tests.responders.api_server import questions
from winobench.responders.hosted import HostedModel
from winobench.runs import responses


def main(name, folder, num, concurrency):
    model = HostedModel(name, concurrency=int(concurrency), first_wait=0.01, attempts_log=f"{folder}/attempts.jsonl")
    requests = questions(int(num))
    keys = [responses.key(model.fingerprint(), request) for request in requests]
    with responses.ResponseStore(f"{folder}/responses") as store:
        missing = [index for index, key in enumerate(keys) if key not in store]
        for number, raw in model.ask([requests[index] for index in missing]):
            index = missing[number]
            store.add(keys[index], requests[index], raw, raw["seconds"])
        print(len(store))


if __name__ == "__main__":
    main(*sys.argv[1:])
