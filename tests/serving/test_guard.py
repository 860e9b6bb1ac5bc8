"""Who may ask: hosts, pages of other sites, proxies, and what every response carries."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from holdfast.core.errors import HoldfastError
from holdfast.serving.application import OPEN_PATHS, application
from holdfast.serving.guard import Guard
from holdfast.serving.listening import Address, bind, host_name, key_for
from tests.serving.test_batcher import Writing

CROSS = {"Sec-Fetch-Site": "cross-site"}


def client(address: Address, *proxied: str, key: str | None = None) -> TestClient:
    """A client of an application behind the guard, addressed as the server printed it."""
    service = Writing()
    inside = application(service, "m", teach=False)  # type: ignore[arg-type]
    hosts = {*address.names, *proxied} if address.is_local else None
    guard = Guard(inside, key=key, hosts=hosts, proxied=proxied, open_paths=OPEN_PATHS)
    return TestClient(guard, base_url=address.url, raise_server_exceptions=False)


@pytest.fixture
def here() -> Address:
    address = bind("127.0.0.1", 0)
    address.listener.close()
    return address


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.2", "localhost", "LOCALHOST", "127.1", "0.0.0.0"]
)
def test_the_printed_address_always_works(host: str) -> None:
    address = bind(host, 0)
    address.listener.close()
    assert client(address).get("/health").status_code == 200
    page = client(address).get("/health", headers={"Origin": address.url})
    assert page.status_code == 200
    assert "0.0.0.0" not in address.url


def test_behind_a_proxy(here: Address) -> None:
    """It may pass the host on, or write its own."""
    name = "memory.example.org"
    forwarded = {"Host": f"{name}:8443", "Origin": f"https://{name}:8443"}
    rewritten = {"Origin": f"https://{name}"}
    for headers in (forwarded, rewritten):
        assert client(here).get("/v1/models", headers=headers).status_code == 403
        assert client(here, name).get("/v1/models", headers=headers).status_code == 200
    told = client(here).get("/health", headers={"Host": name}).json()["error"]["message"]
    assert "--allow-host" in told
    other = {"Origin": "https://other.example.org"}
    assert client(here, name).get("/v1/models", headers=other).status_code == 403
    assert key_for(here, None) is None
    assert key_for(here, None, proxied=True) is not None  # others reach it


@pytest.mark.parametrize(
    "wrong", ["", "https://a.b", "a.b:80", "a b", "*.b", "\N{LATIN SMALL LETTER E WITH ACUTE}.b"]
)
def test_what_is_no_name_of_a_host(wrong: str) -> None:
    with pytest.raises(HoldfastError, match="is no name of a host; give it without scheme"):
        host_name(wrong)
    assert host_name(" Memory.Example.ORG. ") == "memory.example.org"


def test_a_page_of_another_site_gets_nothing_but_may_link_here(here: Address) -> None:
    asked = client(here)
    for path in ("/facts", "/v1/models", "/page.js", "/health"):
        refused = asked.get(path, headers=CROSS)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin")
    assert asked.get("/", headers={**CROSS, "Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert (
        asked.get("/v1/models", headers={**CROSS, "Sec-Fetch-Mode": "navigate"}).status_code == 403
    )
    assert asked.get("/v1/models", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert asked.get("/v1/models", headers={"Sec-Fetch-Site": "none"}).status_code == 200


def test_every_response_has_the_headers(here: Address) -> None:
    asked = client(here, key="mine")
    for path in ("/", "/page.js", "/health", "/v1/models", "/nothing"):
        headers = asked.get(path).headers
        assert headers.get_list("x-content-type-options") == ["nosniff"]
        assert headers.get_list("cross-origin-resource-policy") == ["same-origin"]
        assert headers.get_list("cache-control") == ["no-store"]


def test_a_wrong_origin_is_refused_before_the_key(here: Address) -> None:
    for origin in ("http://[::1", "http://[", "null", "]["):
        refused = client(here, key="mine").get("/v1/models", headers={"Origin": origin})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin")
