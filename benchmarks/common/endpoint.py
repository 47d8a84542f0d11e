"""An OpenAI-compatible endpoint in another process on this machine, as quick as one can be."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection


@contextmanager
def endpoint(text: str, delay: float) -> Iterator[str]:
    """The address of one that answers every request with ``text`` after ``delay`` seconds."""
    receive, send = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=_serve, args=(send, text, delay), daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{receive.recv()}/v1"
    finally:
        server.terminate()
        server.join()


def _serve(pipe: Connection, text: str, delay: float) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 900, "completion_tokens": 8, "total_tokens": 908}
    said = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "usage": usage, "choices": [choice]}
    content = json.dumps(said).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n".encode()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", request, re.IGNORECASE)
                assert length is not None
                await reader.readexactly(int(length[1]))
                await asyncio.sleep(delay)
                writer.write(head + content)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1024, limit=2**22)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())
