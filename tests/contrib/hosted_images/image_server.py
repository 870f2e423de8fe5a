"""A server on this machine that makes images by OpenAI's protocol, and fails in the ways of real ones."""

import base64
import contextlib
import email
import hashlib
import http.server
import io
import json
import threading
import time

import numpy as np
import PIL.Image

USAGE = {"input_tokens": 10, "output_tokens": 272, "total_tokens": 282}


def file_of(prompt, size=(16, 8), kind="PNG"):
    """An image file of one colour, which depends on the prompt."""
    buffer = io.BytesIO()
    PIL.Image.fromarray(np.broadcast_to(colour(prompt), (size[1], size[0], 3)).copy()).save(buffer, kind)
    return buffer.getvalue()


def colour(prompt):
    return np.frombuffer(hashlib.sha256(prompt.encode()).digest()[:3], np.uint8)


def body(**item):
    return {"created": 1760000000, "data": [item], "usage": USAGE}


def whole(prompt, **how):
    return body(b64_json=base64.b64encode(file_of(prompt, **how)).decode())


def error(message, code=None, kind="invalid_request_error", param=None, **more):
    return {"error": {"message": message, "type": kind, "param": param, "code": code, **more}}


BLOCKED = error(
    "Your request was rejected by the safety system. safety_violations=[violence].",
    "moderation_blocked",
    "image_generation_user_error",
)
AZURE = error(
    "Your request was rejected as a result of our safety system.",
    "content_policy_violation",
    inner_error={"code": "ResponsibleAIPolicyViolation", "content_filter_results": {}},
)


def fields_of(kind, content):
    """The fields of a request. A file is (its type, its content)."""
    if not kind.startswith("multipart/"):
        return json.loads(content)
    message = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + content)
    fields = {}
    for part in message.get_payload():
        data = part.get_payload(decode=True)
        is_file = part.get_filename() is not None
        name = part.get_param("name", header="content-disposition")
        fields[name] = (part.get_content_type(), data) if is_file else data.decode()
    return fields


class Server:
    """``reply`` makes (status, headers, content) of the fields of a request; ``files`` path -> the same."""

    def __init__(self, address):
        self.address, self.calls, self.keys, self.got = address, [], [], []
        self.reply = lambda fields: (200, {}, whole(fields["prompt"]))
        self.files, self.seconds, self.answered = {}, 0.0, []
        self.now = self.most = 0
        self.lock = threading.Lock()

    @property
    def prompts(self):
        return [fields["prompt"] for _, fields in self.calls]


@contextlib.contextmanager
def running():
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self):
            fields = fields_of(self.headers["Content-Type"], self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:
                server.now += 1
                server.most = max(server.most, server.now)
                server.calls.append((self.path, fields))
                server.keys.append(self.headers["Authorization"])
            try:
                time.sleep(server.seconds)
                status, headers, content = server.reply(fields)
                if self.put(status, headers, content) and status == 200:
                    server.answered.append(fields["prompt"])
            finally:
                with server.lock:
                    server.now -= 1

        def do_GET(self):
            server.got.append((self.path, self.headers["Authorization"]))
            self.put(*server.files.get(self.path, (404, {}, "no such file")))

        def put(self, status, headers, content):
            data = content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else None
            data = json.dumps(content).encode() if data is None else data
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            is_cut = int(headers.get("Content-Length", len(data))) > len(data)
            self.wfile.write(data)
            self.close_connection |= is_cut
            return not is_cut

        def log_message(self, *_):
            pass

    class Listener(http.server.ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_):
            pass

    listener = Listener(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{listener.server_port}")
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
