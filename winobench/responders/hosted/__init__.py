"""Language models behind an API: OpenAI's, Anthropic's, and any server that speaks OpenAI's protocol.

    openai:gpt-4o-mini                              OPENAI_API_KEY
    anthropic:claude-haiku-4-5                      ANTHROPIC_API_KEY
    openai:Qwen/Qwen3-8B@http://localhost:8000/v1   OPENAI_API_KEY where it is set. A local server needs none

The official clients do the talking, with their own retries off: what is tried again, when and how often is decided
here alone. An answer is handed on as the text that the server sent, before anything is parsed. Calls are made by a few
threads, one each at a time, and a call is begun only when the answers before it have been taken: at no time are more
answers under way than threads, so that a kill loses no more than those. An interrupt begins no new call and waits a few
seconds for those under way, which are paid for. While an answer is being stored, it waits until that is done.

Keys come from the environment and go nowhere but into the requests' headers. Should a server send one back, written
out or in JSON's escapes, it is blanked.

What a server sends is not trusted. A call has a limit of time and of size (`winobench.responders.bounded_http`). What
comes in is turned into texts that UTF-8 can hold, and is read with bounds (`winobench.base.json_files`). An answer that
cannot be read is a failed call with its reason, and the run continues. A body of status 200 may speak of an error,
which is then one of the status that it names, or hold an incomplete answer, out of which nothing is read (``bodies``).

Images are read when their turn comes, and only their paths and SHA-256 are ever recorded.

Files: ``model`` (threads, attempts, pace, interrupts); ``api`` and ``bodies`` (what protocols share). One for each
protocol, and its line in `APIS`; ``pictures`` and ``choices`` (questions about images, with options); ``prices``.
"""

from winobench.responders.hosted.model import APIS, HostedModel, is_hosted
from winobench.responders.hosted.prices import PRICES, PRICES_DATE, cost

__all__ = ["APIS", "PRICES", "PRICES_DATE", "HostedModel", "cost", "is_hosted"]
