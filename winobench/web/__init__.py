"""The one local server of the project: pages on this computer for one person, with safeguards against other sites."""

from winobench.web.files import content_answer, file_answer
from winobench.web.server import PORT, Server, json_answer, serve, short_json

__all__ = ["PORT", "Server", "content_answer", "file_answer", "json_answer", "serve", "short_json"]
