"""What an endpoint is called, and what is wrong with it before anything was asked."""

from __future__ import annotations

import sys

import pytest

from holdfast.builders.endpoint import Endpoint
from holdfast.builders.text_model import Prompt, SamplingParameters
from tests.serving.stand_in import Reply, endpoint, refusal, standing_in


def test_names() -> None:
    with standing_in() as server:
        assert endpoint(server).name == "first"
        assert endpoint(server, model="other").name == "other"
        for url in (server.url + "/", server.url.removesuffix("/v1")):
            assert Endpoint(url).name == "first"
        # A server that cannot list its models is asked by name.
        server.models = Reply({"detail": "no listing"}, 500)
        assert "does not list" in refusal(lambda: endpoint(server))
        other = endpoint(server, model="other")
        assert list(other.answer([Prompt("p", "text")], SamplingParameters())) == [(0, ["text:0"])]
        server.models = Reply({"data": []})
        assert "its list is empty or none); name the one" in refusal(lambda: endpoint(server))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://host/v1",
        "http://host:99999",
        "http://[::1",
        "http://two words/v1",
        "http://nul\x00/v1",
        f"http://{70 * 'a'}.com/v1",
    ],
)
def test_what_is_no_url(url: str) -> None:
    assert "http://127.0.0.1:8000/v1" in refusal(lambda: Endpoint(url))


def test_a_password_in_the_url_and_a_broken_key_are_not_shown() -> None:
    with standing_in() as server:
        url = server.url.replace("http://", "http://me:hidden@")
    assert "hidden" not in refusal(lambda: Endpoint(url, "m"))
    assert "k\u00e9y" not in refusal(lambda: Endpoint(server.url, key="k\u00e9y"))


def test_a_missing_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    assert 'pip install "holdfast[endpoint]"' in refusal(lambda: Endpoint("http://127.0.0.1:1"))
