"""A stand-in for the part of Camunda 7's REST API that external tasks use: locks, retries, completion, in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Engine:
    """Tasks by id. Time passes only when told: `expire` ends every lock."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.done: list[tuple[str, str, dict[str, Any]]] = []
        self._mutex = threading.Lock()

    def add(self, topic: str, activity: str, instance: str, variables: dict[str, Any]) -> str:
        number = f"task-{len(self.tasks) + 1}"
        typed = {name: {"type": "Json", "value": json.dumps(value)} for name, value in variables.items()}
        self.tasks[number] = {
            "id": number,
            "topicName": topic,
            "activityId": activity,
            "processInstanceId": instance,
            "retries": None,
            "variables": typed,
            "workerId": None,
        }
        return number

    def expire(self) -> None:
        for task in self.tasks.values():
            task["workerId"] = None

    def act(self, path: str, content: dict[str, Any]) -> tuple[int, Any]:
        with self._mutex:
            parts = path.strip("/").split("/")
            if parts[-1] == "fetchAndLock":
                return 200, self._fetched(content)
            task, verb = self.tasks.get(parts[-2]), parts[-1]
            if task is None:
                return 404, {"type": "RestException"}
            if task["workerId"] != content["workerId"]:
                return 400, {"type": "BadUserRequestException"}
            task["workerId"] = None
            if verb == "failure":
                task["retries"] = content["retries"]
            else:
                del self.tasks[task["id"]]
            self.done.append((task["id"], verb, content))
            return 204, None

    def _fetched(self, content: dict[str, Any]) -> list[dict[str, Any]]:
        topics = {topic["topicName"] for topic in content["topics"]}
        free = [
            task
            for task in self.tasks.values()
            if task["workerId"] is None and task["topicName"] in topics and task["retries"] != 0
        ][: content["maxTasks"]]
        for task in free:
            task["workerId"] = content["workerId"]
        return free


@contextmanager
def served(engine: Engine) -> Iterator[str]:
    """The stand-in over HTTP; its base address."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, body = engine.act(self.path.removeprefix("/engine-rest"), content)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"" if body is None else json.dumps(body).encode())

        log_message: Callable[..., None] = lambda *_: None

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/engine-rest"
        finally:
            server.shutdown()
            thread.join()
