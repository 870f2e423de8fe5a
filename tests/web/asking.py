"""Requests to a page's server, as a browser makes them."""

import dataclasses
import http.client
import json
import re


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a server of another process is, from the address that it prints; stands for the server itself."""

    server_port: int
    token: str

    @classmethod
    def parse(cls, text):
        port, token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]+)", text).groups()
        return cls(int(port), token)


def ask(server, method, path, body=None, headers=(), token=None):
    """A request: status and text; the right token unless another one is given."""
    status, content, _ = ask_for_all(server, method, path, body, headers, token)
    return status, content.decode()


def ask_for_all(server, method, path, body=None, headers=(), token=None):
    token = server.token if token is None else token
    path = f"{path}{'&' if '?' in path else '?'}token={token}"
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    kind = {"Content-Type": "application/json"} if body is not None else {}
    text = json.dumps(body) if isinstance(body, dict) else body
    connection.request(method, path, text, {**kind, **dict(headers)})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, answer.headers


def click(server, item, label):
    return ask(server, "POST", "/label", {"item": item, "label": label})
