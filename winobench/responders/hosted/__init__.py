"""Language models behind an API: OpenAI's, Anthropic's, and any server that speaks OpenAI's protocol.

    openai:gpt-4o-mini                              OPENAI_API_KEY
    anthropic:claude-haiku-4-5                      ANTHROPIC_API_KEY
    openai:Qwen/Qwen3-8B@http://localhost:8000/v1   OPENAI_API_KEY where it is set. A local server needs none

The official clients send the calls, with their own retries off. `calls` repeats a call after an error and after an
incomplete answer alike, within the same limits, and pauses all calls together. An answer is passed on as the text that
the server sent, before anything is parsed. Calls run in an event loop in its own thread. A call begins only when
the answers before it have been taken, so that a kill loses no more answers than ``concurrency``. The first Ctrl-C
begins no new call, and waits a few seconds for those under way, which are paid for. It also waits while an answer is
being stored.

Keys come from the environment and go nowhere but into the requests' headers. Should a server send one back, written
out or in JSON's escapes, it is blanked.

What a server sends is not trusted. A call has a limit of time, and its answer one of size (``bounded``). Texts are
turned into such that UTF-8 can hold, and are read with bounds (`winobench.base.json_files`). An answer that cannot be
read is a failed call with its reason, and the run continues. A body of status 200 may hold an error, which counts as
one of the status that it names. It may also hold an incomplete answer, out of which nothing is read (``bodies``).

Images are read when their turn comes, and only their paths and SHA-256 are ever recorded.

Files: ``providers`` (modules that register themselves in `APIS`), ``api``, ``bodies`` and ``waits`` (what protocols
share), ``model``, ``calls`` (attempts, pauses, interrupts), ``images`` and ``choices`` (questions about images, with
options), ``prices``.
"""

from winobench.responders.hosted.model import HostedModel
from winobench.responders.hosted.prices import PRICES, PRICES_DATE, cost
from winobench.responders.hosted.providers import APIS, model_names

__all__ = ["APIS", "PRICES", "PRICES_DATE", "HostedModel", "cost", "model_names"]
