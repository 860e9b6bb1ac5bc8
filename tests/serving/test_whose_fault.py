"""A memory that is gone, a full disk and a held lock: whose fault it was, and what is kept."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Memory
from holdfast.core.files import InUseError, alone
from holdfast.memory.chat.memory import ChatMemory
from holdfast.memory.chat.states import lesson_states
from holdfast.serving.background import BackgroundTeacher
from holdfast.serving.refusal import RefusalError, refusal_of
from tests.memory.memories import MONDAY, WEDNESDAY, config
from tests.serving.chat_memories import FACTS, LATER, MORE, copied, taught_chat_memory, when
from tests.serving.served import Served, serving

Fact = tuple[str, str]


@pytest.fixture(scope="session")
def chat_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from taught_chat_memory(tmp_path_factory)


@pytest.fixture
def embedded_place(backbone_directory: Path, tmp_path: Path) -> Path:
    place = tmp_path / "small" / "m"
    Memory(place, config(backbone_directory)).learn(MONDAY)
    return place


@pytest.fixture(params=["embedded", "chat"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "embedded":
        return request.getfixturevalue("embedded_place")
    return copied(request.getfixturevalue("chat_place"), tmp_path / "m")


def teach(server: Served, fact: Fact, query: str = "?wait=true") -> tuple[int, Any]:
    return server.post(f"/facts{query}", {"question": fact[0], "answer": fact[1]})


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
def test_a_memory_that_is_gone_is_not_made_anew(how: str, place: Path) -> None:
    away = place.parent / "away"
    with serving(place, "--teach") as server:
        shutil.copytree(place, away) if how == "removed" else place.rename(away)
        if how == "removed":
            shutil.rmtree(place)
        if how == "replaced":
            shutil.copytree(away, place)
        before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
        status, told = teach(server, WEDNESDAY[0])
        assert status == 410 and "was moved or removed" in told["error"]["message"]
        assert server.request("GET", "/lessons")[0] == 410
        after = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
        assert after == before and place.exists() == (how == "replaced")


def test_a_new_memory_is_held_from_its_first_lesson_on(chat_place: Path, tmp_path: Path) -> None:
    place = tmp_path / "m"
    model = ChatMemory(chat_place).model
    with serving(place, "--teach", "--model", model) as server:
        assert teach(server, MORE[0])[0] == 200
        place.rename(tmp_path / "away")
        assert teach(server, LATER[0])[0] == 410
        assert not place.exists()


def test_an_opened_memory_is_not_made_anew(chat_place: Path, tmp_path: Path) -> None:
    from holdfast.core.errors import HoldfastError

    place = copied(chat_place, tmp_path / "m")
    memory = ChatMemory(place)
    place.rename(tmp_path / "away")
    for call in (memory.learn, memory.write_facts):
        with pytest.raises(HoldfastError, match="was moved or removed"):
            call(LATER)
    assert not place.exists()


def test_a_lesson_does_not_end_in_a_new_directory(backbone_directory: Path, tmp_path: Path) -> None:
    """Moved while it is learned."""
    from holdfast.core.errors import HoldfastError
    from holdfast.learning.progress import Progress

    class Moving(Progress):
        def task_begun(self, task: int, horizon: int) -> None:
            (tmp_path / "m").rename(tmp_path / "away")

    memory = Memory(tmp_path / "m", config(backbone_directory))
    with pytest.raises(HoldfastError, match="was moved or removed"):
        memory.learn(MONDAY, Moving())
    assert not (tmp_path / "m").exists()


def test_learn_only_an_existing_memory(holdfast, embedded_place: Path, tmp_path: Path) -> None:
    said = holdfast("learn", tmp_path / "none", "Who rows?", "Una", "--existing")
    assert said.status == 2 and "no such memory" in said.err and said.err.count("\n") == 1
    assert not (tmp_path / "none").exists()
    assert holdfast("learn", embedded_place, "Who rows?", "Una", "--existing").status == 0


def test_a_memory_with_a_linked_part_is_not_taught(holdfast, place: Path, tmp_path: Path) -> None:
    part = "lessons" if (place / "memory.json").exists() else "state"
    (place / part).rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / ".hidden").write_text("theirs")
    (place / part).symlink_to(tmp_path / "elsewhere")
    said = holdfast("serve", place, "--teach", "--port", "0")
    assert said.status == 2 and f"{place / part}: is a link to" in said.err
    assert said.err.count("\n") == 1 and (tmp_path / "elsewhere" / ".hidden").exists()


@pytest.mark.parametrize("kept", [False, True])
def test_a_full_disk(kept: bool, place: Path) -> None:
    """507, and the facts are learned later exactly if it says so."""
    # Room for the list of facts, or not even for that.
    weights = max(path.stat().st_size for path in place.rglob("*.safetensors"))
    with serving(place, "--teach") as server:
        room = weights // 2 if (place / "memory.json").exists() else weights - 1
        limits = (room if kept else 60, resource.RLIM_INFINITY)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limits)
        status, told = teach(server, WEDNESDAY[0])
        assert status == 507, told
        assert told["error"]["code"] == "no_space" and told["error"]["kept"] is kept
        then = "on file and learned by the next lesson" if kept else "not kept; send them again"
        assert told["error"]["message"].endswith(f"; the facts are {then}")
        assert (WEDNESDAY[0][0] in (place / "facts.jsonl").read_text()) is kept
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
        assert teach(server, ("Who rows?", "Una"))[0] == 200
    asked = [item.question for item in _opened(place).facts]
    assert (WEDNESDAY[0][0] in asked) is kept


def _opened(place: Path) -> Memory | ChatMemory:
    from holdfast.memory.opening import open_memory

    return open_memory(place)


def test_a_held_lock(embedded_place: Path) -> None:
    """503 with Retry-After, as nobody did anything wrong."""
    body = json.dumps({"question": "Who rows?", "answer": "Una"}).encode()
    with serving(embedded_place, "--teach") as server:
        request = urllib.request.Request(
            f"{server.url}/facts", body, {"Content-Type": "application/json"}
        )
        with alone(embedded_place), pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        told = json.loads(refused.value.read())["error"]
        assert refused.value.code == 503 and refused.value.headers["Retry-After"]
        assert (told["code"], told["kept"]) == ("busy", False)
        with urllib.request.urlopen(request, timeout=60) as response:
            assert response.status == 200


def test_a_held_list_of_facts(tmp_path: Path) -> None:
    async def held(_: Any) -> Any:
        raise InUseError("m: another process is writing here")

    teacher = BackgroundTeacher(tmp_path, held)
    with pytest.raises(RefusalError) as refused:
        asyncio.run(teacher.teach([FACTS[0]], 0, wait=False))
    assert refused.value.status == 503 and refused.value.kept is False
    assert refused.value.headers()["Retry-After"]


def test_what_the_caller_did_wrong_stays_400(chat_place: Path, tmp_path: Path) -> None:
    for text in ("facts.jsonl line 2: is no JSON", 'item 1: "No space left on device" is no fact'):
        assert refusal_of(text, kept=False).status == 400
    place = copied(chat_place, tmp_path / "m")
    with serving(place, "--teach") as server:
        assert server.post("/facts", {"question": "Who?"})[0] == 400
        assert teach(server, LATER[0], "")[0] == 202
        when(place, lambda states: states[-1].state == "learned")
    assert len(lesson_states(place)) == 2
