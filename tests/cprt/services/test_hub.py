"""A Hub that is away, broken or asks for a permit: one line that says so, in seconds, and no line beside it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cprt.errors import InputError
from cprt.models.checkpoint import load_processor, revision_of

Answer = tuple[int, dict[str, str], object]


@pytest.fixture
def hub(monkeypatch) -> Iterator[Callable[[Answer | None], str]]:
    """Starts a Hub that gives one answer to everything, or (None) is not there; returns its address."""
    from huggingface_hub import constants

    servers = []

    def start(answer: Answer | None) -> str:
        class Handler(BaseHTTPRequestHandler):
            def respond(self) -> None:
                assert answer is not None
                status, headers, content = answer
                data = json.dumps(content).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_POST = do_HEAD = respond

            def log_message(self, *words: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        url = f"http://127.0.0.1:{server.server_address[1]}"
        if answer is None:
            server.server_close()
        else:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            servers.append(server)
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        return url

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "answer, reason",
    [
        (None, "127.0.0.1 cannot be reached (Connection refused)"),
        ((500, {}, {"error": "Internal Error"}), "the Hub answered 500"),
        ((503, {}, {}), "the Hub answered 503"),
        (
            (403, {"X-Error-Code": "GatedRepo"}, {"error": "Access to this model is restricted."}),
            "it is gated: ask for access at URL/some-org/model, then log in with `hf auth login`",
        ),
    ],
)
@pytest.mark.parametrize("load", [revision_of, load_processor])
def test_one_line_in_seconds(hub, capfd, waited, answer, reason, load):
    """A processor has eight files, each of which is asked for."""
    url = hub(answer)
    with pytest.raises(InputError) as caught:
        load("some-org/model")
    assert sum(waited) < 10
    assert str(caught.value) == f"some-org/model: cannot be loaded as a model ({reason.replace('URL', url)})"
    assert capfd.readouterr() == ("", "")
