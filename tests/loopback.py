"""Endpoints on this machine for tests: one that misbehaves on purpose, and real ``transformers serve`` processes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

Answer = tuple[str | None, str]  # text, finish_reason
REFUSAL = "I'm sorry, but I can't assist with that request."
FAULTS = ("429", "429-date", "500", "reset", "stall", "empty", "cut", "blank", "html", "no-choices")


def identity(body: dict[str, Any]) -> str:
    """What tells one question from another: its messages."""
    return hashlib.sha256(json.dumps(body["messages"], sort_keys=True).encode()).hexdigest()


class Misbehaving:
    """An OpenAI-compatible endpoint in a thread of this process.

    Args:
        answer: the request's body -> text and finish_reason, or a whole (status, body) to send.
        fault: (identity of the question, number of its earlier requests) -> one of FAULTS, or None for an answer.
        delay: seconds that an answer takes.
        stall: seconds that a stalled answer takes.
    """

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], Answer | tuple[int, dict[str, Any]]],
        fault: Callable[[str, int], str | None] = lambda identity, earlier: None,
        delay: float = 0.0,
        stall: float = 30.0,
    ):
        self.answer, self.fault, self.delay, self.stall = answer, fault, delay, stall
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.times: list[float] = []
        self.answered: Counter[str] = Counter()  # identity -> good answers sent
        self.faulted: Counter[str] = Counter()  # fault -> times
        self.in_flight = self.most_in_flight = 0
        self._earlier: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Misbehaving:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _serve(self, ready: threading.Event) -> None:
        async def main() -> None:
            self._stop = asyncio.Event()
            server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await self._stop.wait()
            server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._loop.run_until_complete(main())
        self._loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(re.search(r"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
                body = json.loads(await reader.readexactly(length))
                self.times.append(time.monotonic())
                self.bodies.append(body)
                self.headers.append(head)
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    await self._respond(body, writer)
                finally:
                    self.in_flight -= 1
        writer.close()

    async def _respond(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        who = identity(body)
        fault = self.fault(who, self._earlier[who])
        self._earlier[who] += 1
        if fault is not None:
            self.faulted[fault] += 1
        if fault == "stall":
            await asyncio.sleep(self.stall)
            raise ConnectionResetError
        await asyncio.sleep(self.delay)
        if fault == "reset":
            linger = struct.pack("ii", 1, 0)  # RST instead of an orderly end
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.close()
            raise ConnectionResetError
        status, content, extra = 200, b"", ""
        answer = self.answer(body)
        if isinstance(answer[0], int):
            status, content = answer[0], json.dumps(answer[1]).encode()
        else:
            message = {"role": "assistant", "content": answer[0]}
            choice = {"index": 0, "message": message, "finish_reason": answer[1]}
            usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
            content = json.dumps(
                {
                    "id": "x",
                    "object": "chat.completion",
                    "created": 0,
                    "model": body["model"],
                    "choices": [choice],
                    "usage": usage,
                }
            ).encode()
        if fault in ("429", "429-date"):
            status, content = 429, json.dumps({"error": {"message": "slow down", "code": "rate_limit"}}).encode()
            extra = f"retry-after: {'0.2' if fault == '429' else formatdate(time.time() + 1, usegmt=True)}\r\n"
        elif fault == "500":
            # Real servers echo what they were sent, and worse.
            echo = f"failed at {self.url} with {json.dumps(body)} {self.headers[-1]}"
            status, content = 500, json.dumps({"error": {"message": echo}}).encode()
        elif fault == "empty":
            content = b""
        elif fault == "cut":
            content = content[: len(content) // 2]
        elif fault == "blank":
            content = json.dumps({"choices": [{"message": {"content": "  "}, "finish_reason": "stop"}]}).encode()
        elif fault == "html":
            content = b"<html>Bad gateway</html>"
        elif fault == "no-choices":
            content = b'{"choices": []}'
        elif status == 200:
            self.answered[who] += 1
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n{extra}\r\n"
        writer.write(head.encode() + content)
        await writer.drain()


def annotate(body: dict[str, Any]) -> Answer:
    """An annotator whose every answer follows from the question: it refuses some photos, and garbles some labels."""
    content = body["messages"][0]["content"]
    text = "\n".join(part["text"] for part in content if part["type"] == "text")
    keys = re.findall(r"^- (\w+):", text, re.MULTILINE)
    digest = hashlib.sha256(f"{identity(body)} {body['model']}".encode()).digest()
    if any(part["type"] == "image_url" for part in content):
        if digest[30] % 5 == 0:
            return REFUSAL, "stop"
        words = [("yes", "no", "unclear")[byte % 3] for byte in digest]
        return "\n".join(f"{key}: {words[i % 30]} - seen {digest.hex()[:8]}" for i, key in enumerate(keys)), "stop"
    said = dict(re.findall(r"^(\w+): (yes|no|unclear) -", text, re.MULTILINE))
    labels = {key: {"yes": 1, "no": 0, "unclear": 0.5}[said[key]] for key in keys}
    if digest[30] % 5 == 0:
        del labels[keys[-1]]
    return f"```json\n{json.dumps(labels)}\n```", "stop"


def first_try_fails(who: str, earlier: int) -> str | None:
    """Two of three questions meet a fault at first, some another at the second try; the third is answered."""
    kinds = [*FAULTS[:8], None, None, None, None]
    return kinds[int(who[earlier * 8 : earlier * 8 + 8], 16) % len(kinds)] if earlier < 2 else None


@contextlib.contextmanager
def transformers_serve(models: list[Path], logs: Path) -> Iterator[dict[Path, str]]:
    """A real ``transformers serve`` process of each model on a free port: model -> base_url. Stopped at the end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    processes: list[subprocess.Popen[bytes]] = []
    urls: dict[Path, str] = {}
    try:
        for number, model in enumerate(models):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            command = [
                str(Path(sys.executable).with_name("transformers")),
                "serve",
                str(model),
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--device",
                "cpu",
                "--dtype",
                "float32",
            ]
            with open(logs / f"serve_{number}.log", "w") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
            urls[model] = f"http://127.0.0.1:{port}/v1"
        deadline = time.monotonic() + 600
        for number, (process, url) in enumerate(zip(processes, urls.values(), strict=True)):
            health = url.removesuffix("/v1") + "/health"
            while True:
                assert process.poll() is None, (logs / f"serve_{number}.log").read_text()[-2000:]
                assert time.monotonic() < deadline, "transformers serve does not come up"
                with contextlib.suppress(OSError), urllib.request.urlopen(health, timeout=5):
                    break
                time.sleep(0.2)
        yield urls
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
