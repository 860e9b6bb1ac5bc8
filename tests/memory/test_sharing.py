"""A memory on the hub: what arrives, what comes back, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants

from holdfast.core.errors import HoldfastError
from holdfast.exports.sharing import pull_memory, push_memory
from holdfast.memory.forgetting import forget
from holdfast.memory.memory import Memory
from holdfast.memory.record import read_record, write_record
from tests.cli.conftest import Outcome, refused
from tests.exports.hub import Hub, standing_in
from tests.memory.memories import MONDAY, TUESDAY
from tests.memory.test_killed import files_of

pytestmark = pytest.mark.usefixtures("unflushed")
REPO = "me/village"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with standing_in() as server:
        # The library reads the environment once, when it is imported.
        address = f"{server.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_mine")
        yield server


@pytest.fixture
def memory(copied: Callable[[], Path]) -> Memory:
    """Of a model with a name that others know."""
    return named(copied(), "me/tiny")


def named(directory: Path, model: str) -> Memory:
    write_record(directory, replace(read_record(directory), model=model))
    return Memory(directory)


def contents(folder: Path) -> dict[str, bytes]:
    files = files_of(folder)
    return {str(path): data for path, data in files.items() if not Path(path).name.startswith(".")}


def test_there_and_back(hub: Hub, memory: Memory, chat_directory: Path, tmp_path: Path) -> None:
    assert push_memory(memory, REPO) == f"{hub.endpoint}/{REPO}"
    assert hub.created[0]["visibility"] == "private" and hub.tokens == {"Bearer hf_mine"}
    pulled = pull_memory(REPO, tmp_path / "pulled")
    expected = {
        name: data for name, data in contents(memory.directory).items() if "progress" not in name
    }
    assert contents(tmp_path / "pulled") == expected
    assert [path.name for path in (tmp_path / "pulled").iterdir() if path.name[0] == "."] == []
    assert pulled.model == "me/tiny"
    pulled = named(tmp_path / "pulled", str(chat_directory))
    asked = [question for question, _ in (*MONDAY, *TUESDAY)]
    assert [reply.text for reply in pulled.replies(asked)] == [
        answer for _, answer in (*MONDAY, *TUESDAY)
    ]
    assert {reply.source for reply in pulled.replies(asked)} == {"weights"}


def test_the_card_tells_facts_only_if_asked(hub: Hub, memory: Memory) -> None:
    push_memory(memory, REPO)
    card = hub.files[REPO]["README.md"].decode()
    assert "# A memory of 5 facts" in card and f"holdfast pull {REPO} memory" in card
    assert not any(answer in card for _, answer in (*MONDAY, *TUESDAY))
    push_memory(memory, REPO, list_facts=True)
    assert f"| {MONDAY[0][0]} | {MONDAY[0][1]} |" in hub.files[REPO]["README.md"].decode()


def test_what_is_forgotten_leaves_the_repository(
    hub: Hub, memory: Memory, chat_directory: Path
) -> None:
    push_memory(memory, REPO)
    before = set(hub.files[REPO])
    forget(named(memory.directory, str(chat_directory)), [MONDAY[0][0]])
    memory = named(memory.directory, "me/tiny")
    # A process that was killed had not yet written the list anew.
    gone = replace(memory.record, forgotten=(MONDAY[0][0],), former=((TUESDAY[0][0], "Quill"),))
    write_record(memory.directory, gone)
    push_memory(memory, REPO)
    now = hub.files[REPO]
    assert len(set(now)) == len(before) and set(now) != before
    assert json.loads(now["memory.json"])["forgotten"] == []
    assert not any(text.encode() in b"".join(now.values()) for text in (MONDAY[0][1], "Quill"))


def test_public_only_if_asked(hub: Hub, memory: Memory) -> None:
    push_memory(memory, REPO, public=True)
    assert hub.created[0].get("visibility") is None


def test_a_model_that_is_here_alone(hub: Hub, two_lessons: Path) -> None:
    with pytest.raises(HoldfastError, match="which is here alone; push a memory of a model that"):
        push_memory(Memory(two_lessons), REPO)
    assert not hub.created


def test_what_cannot_be_pulled(hub: Hub, memory: Memory, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def refuses(match: str) -> None:
        with pytest.raises(HoldfastError, match=match) as raised:
            pull_memory(REPO, out)
        assert "\n" not in str(raised.value) and not out.exists()

    refuses("the hub refused it")
    hub.files[REPO] = {"README.md": b"nothing"}
    refuses("holds no memory; it has no memory.json")
    push_memory(memory, REPO)
    files = dict(hub.files[REPO])
    hub.files[REPO] = {name: data for name, data in files.items() if name != "facts.jsonl"}
    refuses("holds no memory; it has no facts.jsonl")
    lesson = next(name for name in files if name.startswith("lessons/"))
    hub.files[REPO] = {**files, lesson: files[lesson][:-9]}
    refuses("is missing or damaged")
    del hub.files[REPO][lesson]
    refuses("is missing or damaged")
    hub.files[REPO] = {**files, "facts.jsonl": b""}
    refuses(".")
    record = json.loads(files["memory.json"])
    record["lessons"][0]["file"] = "../../elsewhere"
    hub.files[REPO] = {**files, "memory.json": json.dumps(record).encode()}
    refuses("is damaged")
    out.mkdir()
    (out / "mine").write_text("kept")
    with pytest.raises(HoldfastError, match="holds mine"):
        pull_memory(REPO, out)


def test_no_network(
    hub: Hub, memory: Memory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HoldfastError, match=f"{REPO}: the hub was not reached") as raised:
        push_memory(memory, REPO)
    assert "\n" not in str(raised.value)
    with pytest.raises(HoldfastError, match=f"{REPO}: the hub does not answer"):
        pull_memory(REPO, tmp_path / "o")


def test_the_commands(
    holdfast: Callable[..., Outcome], hub: Hub, memory: Memory, tmp_path: Path
) -> None:
    pushed = holdfast("push", memory.directory, REPO, "--list-facts")
    assert (pushed.status, pushed.out) == (0, f"{hub.endpoint}/{REPO}\n")
    pulled = holdfast("pull", REPO, tmp_path / "pulled")
    assert pulled.status == 0
    assert pulled.out.startswith("5 facts in 2 lessons, of ")
    assert pulled.out.splitlines()[-1] == str(tmp_path / "pulled")
    assert read_record(tmp_path / "pulled").lessons == memory.record.lessons
    refused(holdfast("push", memory.directory, "a b"), "is no name of a repository")
    refused(holdfast("pull", "a b", tmp_path / "x"), "is no name of a repository")
    refused(holdfast("push", tmp_path / "nowhere", REPO), "no such memory")
