"""What of photos, keys and this machine reaches an endpoint: nothing but what the request needs."""

from __future__ import annotations

import asyncio
import base64
import io
import logging
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from endpoints import ask, ask_text, echo, spec
from loopback import Misbehaving
from PIL import Image, PngImagePlugin

from cprt.errors import InputError
from cprt.images import load_image
from cprt.models.ask import Model
from cprt.models.endpoint import Endpoint, data_url, is_loopback
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import Request, Response

SECRET = "sk-test-5Q9vXkW2mZ8"


@pytest.mark.parametrize("image_format", ["jpeg", "png"])
def test_a_photo_travels_as_pixels_alone(photo: Path, image_format: str):
    assert b"SecretCamera" in photo.read_bytes() and b"SecretComment" in photo.read_bytes()
    sent = base64.b64decode(data_url(photo, None, image_format).split(",")[1])
    assert b"Secret" not in sent and b"Exif" not in sent and b"ICC_PROFILE" not in sent and b"iCCP" not in sent
    with Image.open(io.BytesIO(sent)) as image:
        assert image.size == (96, 160) and not image.getexif() and "dpi" not in image.info
        difference = np.abs(np.asarray(image.convert("RGB"), int) - np.asarray(load_image(photo), int))
    assert difference.mean() < 3 and (image_format == "jpeg" or difference.max() == 0)


def test_a_jpeg_of_nothing_but_pixels_goes_as_it_is(photo: Path, tmp_path: Path):
    load_image(photo).save(tmp_path / "a.jpg", quality=95)
    content = (tmp_path / "a.jpg").read_bytes()
    assert base64.b64decode(data_url(tmp_path / "a.jpg", 96 * 160, "jpeg").split(",")[1]) == content
    for smaller, image_format in ((96 * 160 - 1, "jpeg"), (None, "png")):
        sent = base64.b64decode(data_url(tmp_path / "a.jpg", smaller, image_format).split(",")[1])
        with Image.open(io.BytesIO(sent)) as image:
            assert image.width * image.height <= (smaller or 96 * 160) and image.format == image_format.upper()


def test_text_chunks_of_a_png_stay_here_and_large_photos_are_shrunk(tmp_path: Path):
    note = PngImagePlugin.PngInfo()
    note.add_text("Author", "SecretName")
    Image.new("RGBA", (300, 200), (10, 20, 30, 255)).save(tmp_path / "a.png", pnginfo=note)
    sent = base64.b64decode(data_url(tmp_path / "a.png", 15_000, "png").split(",")[1])
    with Image.open(io.BytesIO(sent)) as image:
        assert image.size == (150, 100) and image.mode == "RGB" and image.getpixel((7, 7)) == (10, 20, 30)
    assert b"SecretName" not in sent


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://[::1]:8/v1", True),
        ("http://localhost:8/v1", True),
        ("http://LocalHost./v1", True),
        ("http://evil.localhost/v1", False),
        ("http://0.0.0.0:8/v1", False),
        ("http://10.0.0.7:8/v1", False),
        ("http://127.0.0.1.example.com/v1", False),
        ("http://localhost.example.com/v1", False),
        ("https://api.example.com/v1", False),
    ],
)
def test_what_is_on_this_machine(url: str, local: bool):
    assert is_loopback(url) is local
    if local:
        assert not Endpoint(spec(url)).is_remote
    else:
        with pytest.raises(InputError, match="images would leave this one; set --allow_remote true") as caught:
            Endpoint(spec(url))
        assert "example" not in str(caught.value)
        assert Endpoint(spec(url), allow_remote=True).is_remote


def test_neither_a_proxy_nor_a_redirect_carries_photos_away(monkeypatch):
    with Misbehaving(echo) as elsewhere, Misbehaving(echo) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{elsewhere.port}")
        assert ask(server, [ask_text("a")])[0].text == "A"
        elsewhere_too = spec(server.url.replace("127.0.0.1", "[::ffff:127.0.0.1]"), api_key_env="JUDGE_KEY")
        monkeypatch.setenv("JUDGE_KEY", SECRET)

        async def by_plain_http() -> Response:
            async with Endpoint(elsewhere_too, allow_remote=True) as endpoint:
                return await endpoint.ask(ask_text("b"))

        assert asyncio.run(by_plain_http()).text == "B"  # a proxy would see the key

        async def redirect(body: Any, writer: Any) -> None:
            location = elsewhere.url.encode()
            writer.write(b"HTTP/1.1 307 X\r\nlocation: %b/chat/completions\r\ncontent-length: 0\r\n\r\n" % location)

        server._respond = redirect  # type: ignore[method-assign]
        assert ask(server, [ask_text("c")]) == [Response(error="HTTP 307")]
    assert elsewhere.bodies == []


def test_only_the_named_key_is_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with Misbehaving(echo) as server:
        ask(server, [ask_text("a")])
        assert SECRET not in server.headers[0]
        monkeypatch.setenv("JUDGE_KEY", "sk-other-key-8421")
        ask(server, [ask_text("b")], api_key_env="JUDGE_KEY")
        assert (
            "authorization: bearer sk-other-key-8421" in server.headers[1].lower() and SECRET not in server.headers[1]
        )
    monkeypatch.delenv("JUDGE_KEY")
    with pytest.raises(InputError, match="the environment variable JUDGE_KEY with the key is not set"):
        Endpoint(spec("http://127.0.0.1:1/v1", api_key_env="JUDGE_KEY"))


def test_nothing_of_openais_environment_or_of_this_machine_is_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-secret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Team: team-secret\nAuthorization: Bearer header-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    with Misbehaving(echo) as server:
        ask(server, [ask_text("a")])
        (head,) = server.headers
    names = {line.partition(":")[0].lower() for line in head.splitlines()[1:] if line}
    assert names == {"host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length"}
    assert "secret" not in head


@pytest.mark.parametrize("key", ["sk-1\nX-Evil: 1", "sk-1\rx", "sk 1", "sk-\u00e9", "sk-\x7f", "sk-\x01"])
def test_a_key_that_no_header_takes_is_one_line_without_it(monkeypatch, key: str):
    monkeypatch.setenv("JUDGE_KEY", key)
    with pytest.raises(InputError) as caught:
        Endpoint(spec("http://127.0.0.1:1/v1", api_key_env="JUDGE_KEY"))
    assert str(caught.value).startswith("judge: what is in the environment variable JUDGE_KEY is no key")
    assert "sk" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_key_from_a_file_may_end_in_a_line_break(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-1234\n")
    with Misbehaving(echo) as server:
        ask(server, [ask_text("a")], api_key_env="JUDGE_KEY")
    assert "authorization: bearer sk-1234\r\n" in server.headers[0].lower()


ADDRESSES = {
    True: (
        "http://127.0.0.1:8000/v1 http://localhost http://[::1]:8000/v1 https://api.example.com:443/v1/ HTTP://a_b.c:1 "
        "http://example.com./v1 http://[::ffff:10.0.0.1]/v1 https://x.example/openai/deployments/a-b/%41"
    ).split(),
    False: [
        *"http:// http://[::1 http://[::1]x http://[zz]:1/ http://a:99999/v1 http://a:0/v1 http://a:b/v1 http://a:-1".split(),
        *"http://a..b/v1 http://.a/v1 http://-a/v1 //a/v1 a:1/v1 ftp://a/v1 file:///etc http://u@a/v1 http://u:p@a".split(),
        *"http://a/v1?k=v http://a/v1#f http://a\\b/v1 http://[fe80::1%eth0]/v1 http://a:１/v1 http://ä.example/".split(),
        *("http://a b/v1", "http://a/v 1", " http://a/v1", "http://a/v1\n", "http://a\t/v1", "http://a/\x00", ""),
    ],
}


@pytest.mark.parametrize(("good", "url"), [(good, url) for good, urls in ADDRESSES.items() for url in urls])
def test_addresses(good: bool, url: str):
    if good:
        assert httpx2.URL(spec(url).base_url).host
    else:
        with pytest.raises(InputError, match=r"^spec: field 'base_url': must be http\(s\)://[^\n]*$"):
            spec(url)


def test_nothing_secret_is_logged_or_kept(photo: Path, tmp_path: Path, monkeypatch, caplog, capfd):
    """The server sends the whole request back in its error, key and photo included."""
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    monkeypatch.setenv("OPENAI_LOG", "debug")
    caplog.set_level(logging.DEBUG)
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]}]

    def fails(who: str, earlier: int) -> str | None:
        return "500" if earlier < 2 else None

    with Misbehaving(echo, fails) as server, ResponseCache(tmp_path / "answers.jsonl") as cache:
        for retries in (0, 1):
            model = Model(spec(server.url, api_key_env="JUDGE_KEY", retries=retries))
            model.ask([Request(messages, (photo,))], cache, "asking")
    captured = capfd.readouterr()
    written = (tmp_path / "answers.jsonl").read_text()
    assert '"error": "HTTP 500: failed at [...]' in written and '"text": "A"' in written
    for text in (written, captured.out, captured.err, caplog.text):
        for secret in (SECRET, "base64", "/9j/", "127.0.0.1", str(server.port)):
            assert secret not in text
