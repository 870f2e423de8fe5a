"""A server on this machine that speaks the protocols of OpenAI and Anthropic, and fails in the ways of real ones."""

import contextlib
import http.server
import json
import math
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator

from winobench.runs.requests import Generation, Turn

KEY = "sk-test-0123456789abcdefghijklmnop"


def question(text, **options):
    return Generation((Turn("system", "Be brief."), Turn("user", text)), max_tokens=16, **options)


def questions(num):
    return [question(f"question {index}") for index in range(num)]


class Server:
    """Answers every question, unless ``script`` says otherwise.

    ``script`` holds what happens to the coming calls, an entry each: a word that `_answer` knows or a tuple (status,
    headers, body). ``seconds`` is how long each answer takes; while ``holds`` is cleared, there are none, and ``held``
    counts the calls that wait. ``answered`` lists the last user turns that a whole answer was sent to; ``most`` is how
    many calls there were at a time. ``answer`` makes the text, or the whole body, from the last user turn's content.
    ``reply`` makes status and body from all fields of a request.
    """

    def __init__(self, address: str):
        self.address = address
        self.script: list = []
        self.calls: list[tuple[str, dict, dict]] = []
        self.answered: list[str] = []
        self.seconds = 0.0
        self.headers: dict[str, str] = {}
        self.answer = lambda prompt: f"1; because of {prompt}"
        self.reply = None
        self.now = self.most = self.held = 0
        self.times: list[float] = []
        self.holds = threading.Event()
        self.holds.set()
        self.lock = threading.Lock()

    @property
    def prompts(self) -> list[str]:
        return [body["messages"][-1]["content"] for _, _, body in self.calls]


@contextlib.contextmanager
def running() -> Iterator[Server]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits for 40 ms behind its headers

        def do_POST(self):
            with server.lock:
                server.now += 1
                server.most = max(server.most, server.now)
            try:
                _answer(self, server)
            finally:
                with server.lock:
                    server.now -= 1

        def log_message(self, *_):
            pass

    class Listener(http.server.ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False  # a connection that is kept alive waits for its client

        def handle_error(self, *_):
            pass

    listener = Listener(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{listener.server_port}")
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.holds.set()
        listener.shutdown()
        thread.join()
        listener.server_close()


@contextlib.contextmanager
def running_with_keys(monkeypatch) -> Iterator[Server]:
    set_keys(monkeypatch)
    with running() as server:
        yield server


def set_keys(monkeypatch) -> None:
    """Sets the environment of clients that speak to servers on this machine."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
    # Reading the certificates of a client that will not need them takes longer than most of the tests.
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)


def openai_error(message, code=None, kind="invalid_request_error"):
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic_error(message, kind="invalid_request_error"):
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def openai_body(text, finish="stop", **message):
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1760000000, "model": "small-1"}
    message = {"role": "assistant", "content": text, "refusal": None, **message}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    usage = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
    return {**head, "choices": [choice], "usage": usage}


def likely_body(text, **probabilities):
    """A chat completion whose first token has these probabilities."""
    top = [{"token": token, "logprob": math.log(value), "bytes": None} for token, value in probabilities.items()]
    body = openai_body(text)
    body["choices"][0]["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    return body


def anthropic_body(*texts, stop="end_turn"):
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-small-1"}
    content = [{"type": "text", "text": text} for text in texts]
    usage = {"input_tokens": 12, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3, "output_tokens": 5}
    return {**head, "content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}


def _answer(handler, server):
    length = int(handler.headers["Content-Length"] or 0)
    body = json.loads(handler.rfile.read(length))
    with server.lock:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        server.calls.append((handler.path, headers, body))
        server.times.append(time.monotonic())
        step = server.script.pop(0) if server.script else "ok"
    if server.reply is not None:
        status, content = server.reply(body)
        step = (status, {}, content)
    if not server.holds.is_set():
        with server.lock:
            server.held += 1
        server.holds.wait()
    time.sleep(server.seconds)
    prompt = body["messages"][-1]["content"]
    is_openai = handler.path.endswith("/chat/completions")
    if step == "reset":
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.close_connection = True
        handler.connection.close()
        return
    if step == "close":
        handler.close_connection = True
        return
    if step == "silence":
        time.sleep(2.0)
        handler.close_connection = True
        return
    status, extra = 200, {}
    if step == "malformed":
        content = '{"id": "chatcmpl-1", "choices": [{"index": 0, "mess'
    elif step == "html":
        content = "<html><body>Bad gateway</body></html>"
    elif step == "no choices":
        content = json.dumps({"id": "x", "object": "chat.completion", "model": "small-1"})
    elif step == "refusal":
        is_ours = openai_body(None, refusal="I cannot help.") if is_openai else anthropic_body(stop="refusal")
        content = json.dumps(is_ours)
    elif isinstance(step, tuple):
        status, extra, content = step
        content = content if isinstance(content, str) else json.dumps(content)
    else:
        text = server.answer(prompt)
        content = json.dumps(text if isinstance(text, dict) else (openai_body if is_openai else anthropic_body)(text))
    data = content.encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "text/html" if step == "html" else "application/json")
    own = {"x-request-id" if is_openai else "request-id": f"req_{len(server.calls)}"}
    for name, value in {**own, **server.headers, **extra}.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    if step == "cut":
        handler.wfile.write(data[: len(data) // 2])
        handler.close_connection = True
        return
    with server.lock:
        if status == 200:
            server.answered.append(prompt)
    handler.wfile.write(data)
