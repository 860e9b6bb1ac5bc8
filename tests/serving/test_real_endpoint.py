"""The client of an endpoint against a real server of a small model, and against none at all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from transformers import GenerationConfig

from holdfast.builders.endpoint import Endpoint
from holdfast.builders.text_model import Answer, Prompt, SamplingParameters
from tests.serving.chat_memories import write_chat_model
from tests.serving.stand_in import Reply, refusal, standing_in
from tests.serving.stand_in import endpoint as stand_in

MODEL = "holdfast/small-writer"  # what the server calls the model
LONGEST_START = 240.0  # seconds; it takes about 8 on a quiet machine, and 90 on a busy one
COMMAND = "from transformers.cli.transformers import main; main()"
OPTIONS = ("--host", "127.0.0.1", "--port", "0", "--device", "cpu")
TEXTS = SamplingParameters(temperature=1.0, top_p=0.95, max_new_tokens=60, seed=3)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of transformers' server of a model with random weights, on a port of its own."""
    folder = tmp_path_factory.mktemp("endpoint")
    # The model as the hub's cache would hold it: only there does the server list models.
    repository = folder / f"models--{MODEL.replace('/', '--')}"
    model = write_chat_model(repository / "snapshots" / (40 * "0"))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(model.name)
    # A server samples only if the model's own configuration does.
    GenerationConfig(do_sample=True, top_k=0).save_pretrained(model)
    settings = {"HF_HUB_CACHE": str(folder), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    log = folder / "server.log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "serve", MODEL, *OPTIONS],
            env=os.environ | settings,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + LONGEST_START
        while not (url := re.search(r"running on (http://127\.0\.0\.1:\d+)", log.read_text())):
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        yield f"{url[1]}/v1"
    finally:
        process.kill()
        process.wait()


def chats(count: int) -> list[Prompt]:
    return [Prompt(f"facts {i}", "Write facts.", "You write JSON.") for i in range(count)]


def in_order(model: Endpoint, prompts: list[Prompt], sampling: SamplingParameters) -> list[Answer]:
    pairs = sorted(model.answer(prompts, sampling), key=lambda pair: pair[0])
    assert [place for place, _ in pairs] == list(range(len(prompts)))
    return [answer for _, answer in pairs]


def test_five_samples_are_five_texts_that_stop_where_told(endpoint: str) -> None:
    sampling = TEXTS.model_copy(update={"samples": 5, "stop": ("e", "a")})
    [texts] = in_order(Endpoint(endpoint), [Prompt("p", "Who was it? ")], sampling)
    assert isinstance(texts, list) and len(texts) == 5
    assert len(set(texts)) > 1 and any(texts)
    assert not any(stop in text for text in texts for stop in sampling.stop)


def test_one_at_a_time_the_same_seed_writes_the_same_and_chats_differ(endpoint: str) -> None:
    model = Endpoint(endpoint, concurrency=1)
    assert model.name == MODEL
    once = in_order(model, chats(12), TEXTS)
    assert all(isinstance(texts, list) and len(texts) == 1 for texts in once)
    assert len(set(map(str, once))) > 10
    assert once[:2] == in_order(model, chats(2), TEXTS)
    assert once[:2] != in_order(model, chats(2), TEXTS.model_copy(update={"seed": 4}))


def test_names() -> None:
    with standing_in() as server:
        assert stand_in(server).name == "first"
        assert stand_in(server, model="other").name == "other"
        for url in (server.url + "/", server.url.removesuffix("/v1")):
            assert Endpoint(url).name == "first"
        # A server that cannot list its models is asked by name.
        server.models = Reply({"detail": "no listing"}, 500)
        assert "does not list" in refusal(lambda: stand_in(server))
        other = stand_in(server, model="other")
        assert list(other.answer([Prompt("p", "text")], SamplingParameters())) == [(0, ["text:0"])]
        server.models = Reply({"data": []})
        assert "its list is empty or none); name the one" in refusal(lambda: stand_in(server))


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ftp://host/v1", "http://host:99999", "http://[::1",
     "http://two words/v1", "http://nul\x00/v1", f"http://{70 * 'a'}.com/v1"],
)  # fmt: skip
def test_what_is_no_url(url: str) -> None:
    assert "http://127.0.0.1:8000/v1" in refusal(lambda: Endpoint(url))


def test_a_password_in_the_url_and_a_broken_key_are_not_shown() -> None:
    with standing_in() as server:
        url = server.url.replace("http://", "http://me:hidden@")
    assert "hidden" not in refusal(lambda: Endpoint(url, "m", retries=0))
    assert "k\u00e9y" not in refusal(lambda: Endpoint(server.url, key="k\u00e9y"))


def test_a_missing_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    assert 'pip install "holdfast[endpoint]"' in refusal(lambda: Endpoint("http://127.0.0.1:1"))
