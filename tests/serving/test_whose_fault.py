"""A memory that is gone, a full disk and a held lock: whose fault it was, and what is kept."""

from __future__ import annotations

import asyncio
import resource
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError, InUseError
from holdfast.memory import queue
from holdfast.memory.memory import Memory
from holdfast.memory.states import lesson_states
from holdfast.serving.batcher import Batcher
from holdfast.serving.refusal import RefusalError
from holdfast.serving.teacher import Teacher
from tests.serving.chat_memories import FACTS, LATER, MORE, copied, when
from tests.serving.served import Served, serving
from tests.serving.test_batcher import Answering

Fact = tuple[str, str]


@pytest.fixture
def place(chat_memory: Path, tmp_path: Path) -> Path:
    return copied(chat_memory, tmp_path / "m")


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
        status, told = teach(server, LATER[0])
        assert status == 410 and "was moved or removed" in told["error"]["message"]
        assert server.request("GET", "/lessons")[0] == 410
        assert server.request("GET", "/facts")[0] == 410
        asked = {"model": "m", "prompt": "Who rows?"}
        assert server.post("/v1/completions", asked)[0] == 410
        after = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
        assert after == before and place.exists() == (how == "replaced")


def test_a_new_memory_is_held_from_its_first_lesson_on(chat_memory: Path, tmp_path: Path) -> None:
    place = tmp_path / "m"
    model = Memory(chat_memory).model
    with serving(place, "--teach", "--model", model) as server:
        assert teach(server, MORE[0])[0] == 200
        place.rename(tmp_path / "away")
        assert teach(server, LATER[0])[0] == 410
        assert not place.exists()


def test_an_opened_memory_is_not_made_anew(chat_memory: Path, tmp_path: Path) -> None:
    place = copied(chat_memory, tmp_path / "m")
    memory = Memory(place)
    place.rename(tmp_path / "away")
    for call in (memory.learn, memory.write_facts):
        with pytest.raises(HoldfastError, match="was moved or removed"):
            call(LATER)
    assert not place.exists()


def test_a_memory_that_is_damaged_while_its_server_starts(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each request is told so; the server, which has printed its address, goes on."""
    (place / "memory.json").write_text("{")

    async def unused(_: Any) -> Any:
        raise AssertionError

    asyncio.run(Teacher(place, unused).begin())
    assert "what is on file cannot be read" in caplog.text


def test_no_address_is_printed_where_the_memory_cannot_be_read(
    holdfast, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was told an address finds its server there."""

    def gone(_: Path) -> Any:
        raise HoldfastError("memory.json: no such file")

    monkeypatch.setattr(queue, "waiting_lessons", gone)
    said = holdfast("serve", place, "--teach", "--port", "0")
    assert said.status == 2 and "no such file" in said.err and said.out == ""


@pytest.mark.parametrize("moment", ["before", "within", "after"])
def test_a_lesson_leaves_nothing_where_its_memory_was(
    moment: str, chat_memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moved before the lesson's first step, between two, and before its commit."""
    from holdfast.core.errors import HoldfastError
    from holdfast.memory import memory as module

    place, learn_batch = copied(chat_memory, tmp_path / "m"), module.learn_batch

    def moving(*arguments: Any) -> Any:
        if moment == "before":
            place.rename(tmp_path / "away")
        learned = learn_batch(*arguments)
        if moment == "after":
            place.rename(tmp_path / "away")
        return learned

    def report(what: str, done: int, total: int) -> None:
        if moment == "within" and place.exists():
            place.rename(tmp_path / "away")

    monkeypatch.setattr(module, "learn_batch", moving)
    memory = Memory(place)
    memory.load()
    with pytest.raises(HoldfastError, match="was moved or removed meanwhile"):
        memory.learn(LATER, report=report)
    assert not place.exists()
    assert lesson_states(tmp_path / "away")[-1].state in ("waiting", "learning")


def test_learn_only_an_existing_memory(holdfast, place: Path, tmp_path: Path) -> None:
    said = holdfast("learn", tmp_path / "none", "Who rows?", "Una", "--existing")
    assert said.status == 2 and "no such memory" in said.err and said.err.count("\n") == 1
    assert not (tmp_path / "none").exists()
    assert holdfast("learn", place, "Who rows?", "Una", "--existing").status == 0


def test_a_memory_with_a_linked_part_is_not_taught(holdfast, place: Path, tmp_path: Path) -> None:
    part = "lessons"
    (place / part).rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / ".hidden").write_text("theirs")
    (place / part).symlink_to(tmp_path / "elsewhere")
    said = holdfast("serve", place, "--teach", "--port", "0")
    assert said.status == 2 and f"{place / part}: is a link to" in said.err
    assert said.err.count("\n") == 1 and (tmp_path / "elsewhere" / ".hidden").exists()


def test_a_full_disk(place: Path) -> None:
    """507, and the facts are learned later exactly if it says so."""
    # Room for the list of facts, or not even for that.
    weights = max(path.stat().st_size for path in place.rglob("*.safetensors"))
    room = weights // 2
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    with serving(place, "--teach") as server:
        for fact, kept, size in ((MORE[0], False, 60), (LATER[0], True, room)):
            limits = (size, resource.RLIM_INFINITY)
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limits)
            status, told = teach(server, fact)
            assert status == 507, told
            assert told["error"]["code"] == "no_space" and told["error"]["kept"] is kept
            assert ("learned by the next lesson" in told["error"]["message"]) is kept
            assert (fact[0] in (place / "facts.jsonl").read_text()) is kept
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
        assert teach(server, ("Who rows?", "Una"))[0] == 200
    asked = [item.question for item in Memory(place).facts]
    assert LATER[0][0] in asked and MORE[0][0] not in asked


def test_a_held_list_of_facts(tmp_path: Path) -> None:
    async def held(_: Any) -> Any:
        raise InUseError("m: another process is writing here")

    teacher = Teacher(tmp_path, held)
    with pytest.raises(RefusalError) as refused:
        asyncio.run(teacher.teach([FACTS[0]], 0, wait=False))
    assert refused.value.status == 503 and refused.value.kept is False
    assert refused.value.headers()["Retry-After"]


def test_facts_that_wait_for_the_models_thread_when_the_server_ends(tmp_path: Path) -> None:
    """A step of the model's is running, and theirs is the one behind it."""
    running, release = threading.Event(), threading.Event()

    def step(_: Any) -> None:
        running.set()
        release.wait()

    async def story() -> None:
        queue = Batcher(Answering())  # type: ignore[arg-type]
        teacher = Teacher(tmp_path, queue.call)
        stuck = asyncio.create_task(queue.call(step))
        await asyncio.to_thread(running.wait)
        request = asyncio.create_task(teacher.teach([FACTS[0]], 0, wait=False))
        await asyncio.sleep(0.3)
        queue.end()
        teacher.ending()
        try:
            await asyncio.wait_for(request, 5)
        finally:
            release.set()
            await stuck

    with pytest.raises(RefusalError) as refused:
        asyncio.run(story())
    assert refused.value.status == 503 and refused.value.kept is False


def test_the_end_does_not_wait_for_a_lesson_that_goes_on(tmp_path: Path) -> None:
    async def story() -> float:
        teacher: Any = Teacher(tmp_path, lambda _: None)
        begin = "trap '' TERM; echo; exec sleep 30"
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("sh", "-c", begin, stdout=pipe)
        assert process.stdout is not None and await process.stdout.readline()
        teacher._process = process
        before = time.monotonic()
        await teacher.end()
        assert process.returncode == -9
        return time.monotonic() - before

    assert asyncio.run(story()) < 0.9


def test_what_the_caller_did_wrong_stays_400(chat_memory: Path, tmp_path: Path) -> None:
    place = copied(chat_memory, tmp_path / "m")
    with serving(place, "--teach") as server:
        assert server.post("/facts", {"question": "Who?"})[0] == 400
        assert teach(server, LATER[0], "")[0] == 202
        when(place, lambda states: states[-1].state == "learned")
    assert len(lesson_states(place)) == 2
