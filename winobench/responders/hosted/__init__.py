"""Models behind an API that write: OpenAI's, Anthropic's, and any server with OpenAI's protocol.

    openai:gpt-4o-mini                              OPENAI_API_KEY
    anthropic:claude-haiku-4-5                      ANTHROPIC_API_KEY
    openai:Qwen/Qwen3-8B@http://localhost:8000/v1   OPENAI_API_KEY where it is set. A local server needs none

The official clients send the calls, with their own retries off: `calls` repeats a call after an error and after an
incomplete answer alike, within the same limits. A call begins only when the answers
before it have been taken, so that a kill loses no more answers than ``concurrency``. The first Ctrl-C begins no new
call, and waits a few seconds for those under way, which are paid for. Keys go nowhere but into the requests' headers.
If a server sends one back, it is blanked. An answer that is too large, too deep or too late is a failed call.
"""

from winobench.responders.hosted.model import HostedModel
from winobench.responders.hosted.prices import PRICES, PRICES_DATE, cost
from winobench.responders.hosted.providers import APIS, model_names

__all__ = ["APIS", "PRICES", "PRICES_DATE", "HostedModel", "cost", "model_names"]
