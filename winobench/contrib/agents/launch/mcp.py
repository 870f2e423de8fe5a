"""Serve runs to agents by the Model Context Protocol: winobench mcp RUNS [RUNS ...]"""

from __future__ import annotations

import os

from absl import flags

from winobench.base.errors import InputError
from winobench.base.files import user_path

from . import configuration, listing

USAGE = """
Serves winobench to an agent by the Model Context Protocol, over standard input and output. The agent lists tasks and
models, follows runs, and reads their results and questions. The words are folders of runs, or folders that hold runs.
An agent's program starts the command, so it is a line of that program's settings. It needs the extra mcp.

  winobench mcp runs                               the agent reads the runs in runs/
  winobench mcp runs/a runs/b                      two runs
  winobench mcp runs --allow_runs                  it may also start evaluations, one at a time

The server only reads unless --allow_runs is given. Then an evaluation uses this computer, loads models, and may call a
hosted model with your keys. Its folder lies in the first folder of the command.
"""

_ALLOW_RUNS = flags.DEFINE_bool("allow_runs", False, "Let the agent start evaluations.")


def main(words: list[str]) -> None:
    if not words:
        raise InputError("no folder is named: winobench mcp RUNS [RUNS ...]", code="nothing-named")
    for word in words:
        if not os.path.isdir(user_path(word)):
            raise InputError(
                f"{word} is not a folder: name a run's folder, or one that holds runs", code="no-such-folder"
            )
    # Late, so that --help answers at once.
    from winobench.contrib.agents import server

    server.make(words, listing.data_sets, listing.models, allow_runs=_ALLOW_RUNS.value).run()


if __name__ == "__main__":
    configuration.start_without_config(main, usage=USAGE, takes_words=True)
