"""A download goes on where it stopped, is checked, and is looked for where pip would look."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.reporting import silent
from holdfast.model.sources import download as module
from holdfast.model.sources.download import (
    Network,
    UnreachableError,
    download,
    network_of_pip,
)
from tests.model.standins import Server
from tests.refused import line_of

BODY = bytes(range(251)) * 4_000  # 1,004,000 bytes without a period that a block has
DIGEST = hashlib.sha256(BODY).hexdigest()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSES", (0.0, 0.0))


@pytest.fixture
def url(server: Server) -> str:
    server.files["/file"] = BODY
    return f"{server.url}/file"


def arrived(url: str, to: Path, report=silent) -> bytes:
    download(Network(()), url, to, len(BODY), DIGEST, report)
    return to.read_bytes()


def test_what_is_there_already_is_not_sent_again(server, url, tmp_path) -> None:
    """And progress counts bytes of the whole."""
    seen: list[tuple[int, int, str]] = []
    (tmp_path / "x.part").write_bytes(BODY[:700_001])
    assert arrived(url, tmp_path / "x", report=lambda *args: seen.append(args)) == BODY
    assert sum(server.sent) == len(BODY) - 700_001
    assert not (tmp_path / "x.part").exists()
    assert seen[0] == (700_001, len(BODY), "downloading")
    assert seen[-1] == (len(BODY), len(BODY), "downloading")
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


def test_a_dropped_connection_is_taken_up(server, url, tmp_path) -> None:
    server.drop_at = 300_000
    assert arrived(url, tmp_path / "x") == BODY
    assert [ask for _, _, ask, _ in server.requests] == [None, "bytes=300000-"]


def test_a_server_without_ranges_sends_all_again(server, url, tmp_path) -> None:
    server.ranges = False
    (tmp_path / "x.part").write_bytes(b"?" * 500)
    assert arrived(url, tmp_path / "x") == BODY


def test_a_file_with_another_digest_is_refused_and_sent_again(url, tmp_path) -> None:
    (tmp_path / "x.part").write_bytes(b"?" * 1000)
    line = line_of(arrived, url, tmp_path / "x")
    assert "is not the file that is expected" in line and DIGEST in line
    assert list(tmp_path.iterdir()) == []
    assert arrived(url, tmp_path / "x") == BODY


def test_a_server_that_refuses_is_named_and_what_came_is_kept(server, url, tmp_path) -> None:
    (tmp_path / "x.part").write_bytes(BODY[:1000])
    with pytest.raises(UnreachableError, match="/gone: 404"):
        arrived(f"{server.url}/gone", tmp_path / "x")
    assert len(server.requests) == 1
    with pytest.raises(UnreachableError, match="refused"):
        arrived("http://127.0.0.1:9/x", tmp_path / "x")
    assert (tmp_path / "x.part").read_bytes() == BODY[:1000]


def test_a_full_disk_is_one_line_and_what_came_is_kept(url, tmp_path, disk_of) -> None:
    with disk_of(500_000), pytest.raises(HoldfastError, match=r"cannot be written .*too large"):
        arrived(url, tmp_path / "x")
    assert 0 < (tmp_path / "x.part").stat().st_size <= 500_000
    assert arrived(url, tmp_path / "x") == BODY


def page(server: Server, path: str, link: str) -> None:
    server.files[path] = f'<a href="other-1.0.whl">o</a><a href="{link}">x</a>'.encode()


def test_a_file_is_found_on_the_first_index_that_has_it(server) -> None:
    page(server, "/empty/it/", "it-2.0.whl")
    page(server, "/full/it/", "../../blobs/it-1.0.whl#sha256=12")
    network = Network((f"{server.url}/empty", f"{server.url}/full/"))
    assert network.find("it", "it-1.0.whl") == f"{server.url}/blobs/it-1.0.whl"


@pytest.mark.parametrize("with_page", [True, False])
def test_an_index_and_a_link_may_be_folders(tmp_path, with_page: bool) -> None:
    folder = tmp_path / "simple" / "it"
    folder.mkdir(parents=True)
    place = tmp_path / "it-1.0.whl" if with_page else folder / "it-1.0.whl"
    place.write_bytes(BODY)
    if with_page:
        (folder / "index.html").write_text('<a href="../../it-1.0.whl">it</a>')
    for index in (folder.parent.as_uri(), str(folder.parent)):
        url = Network((index,)).find("it", "it-1.0.whl")
        assert url == place.as_uri()
        assert arrived(url, tmp_path / "copy") == BODY
    for link in (folder.as_uri(), str(folder)):
        network = Network(("http://127.0.0.1:9",), (link,))  # links are looked at first
        assert network.find("it", "it-1.0.whl") == place.as_uri()


def test_nowhere_and_no_answer_are_two_things(server) -> None:
    with pytest.raises(HoldfastError, match="is on none of the indexes") as raised:
        Network((server.url, "/no/folder")).find("it", "it-1.0.whl")
    assert not isinstance(raised.value, UnreachableError)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9/it/: "):
        Network(("http://127.0.0.1:9",)).find("it", "it-1.0.whl")


def test_credentials_are_sent_to_their_host_and_never_shown(server) -> None:
    page(server, "/simple/it/", f"{server.url}/it-1.0.whl")
    with_user = server.url.replace("//", "//me:s%20cret@")
    network = Network((f"{with_user}/simple",))
    url = network.find("it", "it-1.0.whl")
    expected = f"Basic {base64.b64encode(b'me:s cret').decode()}"
    with pytest.raises(UnreachableError) as raised:
        download(network, url, Path("x"), 5, DIGEST, silent)
    assert [authorization for *_, authorization in server.requests] == [expected] * 2
    assert "cret" not in str(raised.value)


def test_the_settings_are_those_of_pip(tmp_path, monkeypatch) -> None:
    """Of its file and of the environment, which wins."""
    for name in ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX", "CERT", "PROXY"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    monkeypatch.delenv("PIP_DEFAULT_TIMEOUT", raising=False)
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://one.example/simple\ntimeout = 7\n"
        "[install]\ntrusted-host = c.example\n[download]\nproxy = http://p.example:1\n"
        "find-links =\n    /a\n    https://b.example/\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    settings = network_of_pip()
    assert settings.indexes[0] == "https://one.example/simple"  # this machine may name more
    assert (settings.proxy, settings.timeout) == ("http://p.example:1", 7.0)
    assert "c.example" in settings.trusted
    assert settings.links == ("/a", "https://b.example/")
    monkeypatch.setenv("PIP_INDEX_URL", "https://two.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://three.example https://four.example")
    assert network_of_pip().indexes == (
        "https://two.example/simple",
        "https://three.example",
        "https://four.example",
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert network_of_pip().indexes == ()


def test_a_pip_is_found_where_this_interpreter_has_none(monkeypatch) -> None:
    """In an environment without pip: another one, or the wheel that Python carries."""
    real = module.importlib.util.find_spec
    monkeypatch.setattr(
        module.importlib.util, "find_spec", lambda name: None if name == "pip" else real(name)
    )
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    monkeypatch.setenv("PIP_INDEX_URL", "https://one.example/simple")
    pip = module._pip()
    if pip is None:
        pytest.skip("this Python carries no pip")
    assert module._configured(pip)["index-url"] == "https://one.example/simple"
    monkeypatch.setattr(module, "_pip", lambda: None)
    assert network_of_pip().indexes == ("https://one.example/simple",)
    monkeypatch.delenv("PIP_INDEX_URL")
    with pytest.raises(HoldfastError, match="set PIP_INDEX_URL"):
        network_of_pip()
