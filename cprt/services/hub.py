"""Speaking to the Hugging Face Hub: a few seconds of patience, and the Hub's own reason in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from cprt.models.rate_limiter import root_cause, system_words

_TRIES = 3  # failures in a row after which nobody waits any longer
_SECONDS = 10  # to connect; the library has no limit, and a network that swallows packets takes minutes


@cache
def limit_patience() -> None:
    """Make huggingface_hub, and transformers through it, give up after some seconds without network or a working Hub.

    Left alone, each file that a model may have is asked for six times: 150 seconds and 68 lines for a processor. What
    is in the cache is still found.
    """
    import httpx2
    from huggingface_hub import set_client_factory
    from huggingface_hub.errors import OfflineModeIsEnabled
    from huggingface_hub.utils import hf_raise_for_status, logging
    from huggingface_hub.utils._http import hf_request_event_hook

    failures = 0

    class Client(httpx2.Client):
        def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
            nonlocal failures
            try:
                response = super().send(request, **options)  # type: ignore[arg-type]
            except (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
                failures += 1
                if failures < _TRIES:
                    raise
                # The one error that the library takes as final, and after which it looks into the cache.
                raise OfflineModeIsEnabled(_unreachable(request.url.host, error)) from error
            failures = failures + 1 if response.status_code >= 500 else 0
            if failures >= _TRIES:
                response.read()
                hf_raise_for_status(response)
            return response

    def client() -> httpx2.Client:
        limit = httpx2.Timeout(None, connect=_SECONDS, read=60)
        return Client(event_hooks={"request": [hf_request_event_hook]}, follow_redirects=True, timeout=limit)

    set_client_factory(client)
    logging.set_verbosity_error()


def reason(error: BaseException) -> str:
    """What went wrong, in one line: the Hub's own words where it gave any, else the first line of ``error``."""
    import httpx2
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    for cause in _chain(error):
        if isinstance(cause, GatedRepoError):
            found = re.match(r"(https?://[^/]+/)(?:api/models/)?([^/]+/[^/?]+)", str(cause.response.url))
            page = found[1] + found[2] if found else "its page on the Hub"
            return f"it is gated: ask for access at {page}, then log in with `hf auth login`"
        if isinstance(cause, OfflineModeIsEnabled):
            return _line(str(cause))
        # A file that is not there is told better by the library that looked for it, but for the Hub's own.
        told = isinstance(error, (HfHubHTTPError, LocalEntryNotFoundError))
        if isinstance(cause, HfHubHTTPError) and (cause.response.status_code != 404 or told):
            said = cause.server_message or ""
            if cause is not error and isinstance(error, ValueError):  # it tells what its check of a card found
                said = said or str(error)
            return _line(f"the Hub answered {cause.response.status_code}" + (f": {said}" if said else ""))
    if isinstance(error, httpx2.TransportError):
        return _line(_unreachable(error.request.url.host, error))
    first, *rest = str(error).strip().splitlines() or [type(error).__name__]
    return _line(" ".join([first, *rest]) if first.endswith(":") else first)


def _unreachable(host: str, error: Exception) -> str:
    return f"{host} cannot be reached ({system_words(root_cause(error)) or error})"


def may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed later: the network, the Hub itself or its pace was at fault."""
    from huggingface_hub.errors import HfHubHTTPError

    status = next((cause.response.status_code for cause in _chain(error) if isinstance(cause, HfHubHTTPError)), None)
    return not isinstance(error, ValueError) if status is None else status in (408, 409, 412, 429) or status >= 500


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _line(text: str) -> str:
    text = re.sub(r"\?[^\s'\"]*", "", text)  # a query may be signed
    return " ".join(text.split()).rstrip(".")
