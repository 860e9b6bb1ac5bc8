"""An endpoint that answers, refuses, hangs and dies: what is asked of it, and what comes of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from typing import Any

import pytest

from holdfast.builders.endpoint import Endpoint
from holdfast.builders.text_model import Answer, Failure, Prompt, SamplingParameters
from holdfast.core.seeding import derive
from tests.serving.stand_in import (
    DROP,
    HANG,
    KEY,
    Reply,
    answering,
    choices,
    endpoint,
    in_turn,
    one_line,
    refusal,
    spoken,
    standing_in,
)


def prompts(count: int, system: str | None = None) -> list[Prompt]:
    return [Prompt(f"p{i}", f"text {i}", system) for i in range(count)]


def answers(model: Endpoint, count: int = 1, **sampling: Any) -> list[Answer]:
    """All answers, in the order of their prompts; each place came once."""
    pairs = list(model.answer(prompts(count), SamplingParameters(**sampling)))
    assert sorted(place for place, _ in pairs) == list(range(count))
    return [answer for _, answer in sorted(pairs, key=lambda pair: pair[0])]


def failure(answer: Answer) -> str:
    assert isinstance(answer, Failure)
    assert one_line(answer.reason)
    return answer.reason


def test_a_prompt_is_continued_and_its_request_says_how() -> None:
    with standing_in() as server:
        sampling = {"samples": 3, "temperature": 0.6, "top_p": 0.9, "max_new_tokens": 7, "seed": 5}
        assert answers(endpoint(server), 2, **sampling) == [["text 0:0"] * 3, ["text 1:0"] * 3]
        asked = [request for request in server.asked if request["body"]["prompt"] == "text 1"]
    assert [request["path"] for request in asked] == ["/v1/completions"] * 3
    assert asked[0]["key"] == f"Bearer {KEY}"
    seeds = [request["body"].pop("seed") for request in asked]
    assert seeds == [derive(5, "p1", number) >> 32 for number in range(3)]
    assert asked[0]["body"] == {
        "model": "first",
        "prompt": "text 1",
        "temperature": 0.6,
        "top_p": 0.9,
        "max_tokens": 7,
    }


def test_a_system_makes_it_a_chat() -> None:
    with standing_in() as server:
        [(place, answer)] = endpoint(server, model="mine").answer(
            [Prompt("p", "hello", "be brief")], SamplingParameters()
        )
        [request] = server.asked
    assert (place, answer) == (0, ["hello:0"])
    assert request["path"] == "/v1/chat/completions"
    assert request["body"]["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
    ]
    assert request["body"]["model"] == "mine"
    assert "stop" not in request["body"]


def test_texts_are_cut_at_the_first_stop_even_if_the_server_ignores_them() -> None:
    with standing_in(lambda body: choices(body, "a line\nQuestion: b#c")) as server:
        model = endpoint(server)
        assert answers(model, stop=("#", "\nQ", "\n", "x", "y", "")) == [["a line"]]
        assert answers(model, stop=("never",)) == [["a line\nQuestion: b#c"]]
        assert server.asked[0]["body"]["stop"] == ["#", "\nQ", "\n", "x"]  # at most four


def test_requests_run_together_up_to_the_concurrency() -> None:
    together = threading.Barrier(4)

    def meet(body: dict[str, Any]) -> Reply:
        together.wait(5)  # breaks unless four requests are there at once
        return answering(body)

    with standing_in(meet) as server:
        assert answers(endpoint(server, concurrency=4), 12) == [[f"text {i}:0"] for i in range(12)]
        assert server.most_at_once == 4


@pytest.mark.parametrize("trouble", [Reply("<html>Bad gateway</html>", 502), HANG])
def test_trouble_that_passes_leaves_no_trace(trouble: Reply | str) -> None:
    with standing_in(in_turn(trouble)) as server:
        assert answers(endpoint(server, timeout=1, retries=1)) == [["text 0:0"]]
        assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (Reply({"error": "oh\nno"}, 500), '500: "oh no"'),
        (Reply("<html>\nSign in</html>"), 'replied with no JSON: "<html> Sign in</html>"'),
        (DROP, "no connection"),
        (Reply('{"choices": [', 200, {"content-type": "application/json"}), "no JSON"),
        (HANG, "silent for too long"),
    ],
)
def test_trouble_that_stays_is_a_failure_of_that_prompt(trouble: Reply | str, reason: str) -> None:
    with standing_in(lambda _: trouble) as server:
        [answer] = answers(endpoint(server, timeout=0.2))
        assert reason in failure(answer)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply({"error": {"message": "too long"}}, 400), '400: "too long"'),
        (Reply({"detail": "too large"}, 413), '413: "too large"'),
        (Reply({"error": {"message": f"your {KEY}\nis out"}}), 'choices: "your [key] is out"'),
        (Reply({"choices": []}), "without choices"),
        (Reply({"choices": [{"message": {"content": None}}]}), "no text"),
        (Reply({"choices": [{"text": "", "finish_reason": "content_filter"}]}), "withheld"),
        (Reply({"choices": [{"text": "half", "finish_reason": "abort"}]}), 'finish_reason "abort"'),
        (Reply({"choices": [{"text": "a", "finish_reason": {"a": 1}}]}), "broke the text off"),
    ],
)
def test_a_refused_prompt_is_a_failure_and_the_others_are_answered(
    reply: Reply, reason: str
) -> None:
    with standing_in(lambda body: reply if "2" in spoken(body) else answering(body)) as server:
        replies = answers(endpoint(server, patience=1, concurrency=1), 4)
        assert reason in failure(replies.pop(2))
        assert replies == [["text 0:0"], ["text 1:0"], ["text 3:0"]]
        assert len(server.asked) == 4  # it is not asked again


@pytest.mark.parametrize("reason", ["length", "eos_token", "tool_calls", "", None])
def test_a_text_that_came_to_an_end_is_an_answer(reason: str | None) -> None:
    ended = Reply({"choices": [{"text": "half a", "finish_reason": reason}]})
    with standing_in(
        in_turn(Reply({"choices": [{"text": ""}]}), ended, choices({}, None))
    ) as server:
        model = endpoint(server)
        assert answers(model, samples=2) == [["", "half a"]]
        assert "no text" in failure(answers(model, samples=2)[0])  # one fails the prompt


def test_text_that_no_file_can_hold() -> None:
    with standing_in(
        lambda _: Reply('{"choices": [{"text": "a\\ud83d b\\ud83d\\ude00"}]}')
    ) as server:
        model = endpoint(server)
        assert answers(model) == [["a\ufffd b\U0001f600"]]
        [(_, answer)] = model.answer([Prompt("p", "\ud83d")], SamplingParameters())
        assert "UTF-8" in failure(answer)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply({"error": {"message": f"wrong key {KEY}"}}, 401), "refuses the key (401)"),
        (Reply({"error": {"message": "not you"}}, 403), '(403: "not you"); set OPENAI_API_KEY'),
        (Reply({"error": {"message": "no model first"}}, 404), '(404: "no model first")'),
    ],
)
def test_a_wrong_key_or_model_ends_it_at_once(reply: Reply, says: str) -> None:
    with standing_in(lambda _: reply) as server:
        model = endpoint(server, concurrency=1)
        message = refusal(lambda: answers(model, 5))
        assert says in message and server.url in message
        assert len(server.asked) == 1
        server.models = reply
        assert says in refusal(lambda: endpoint(server))


def test_an_endpoint_that_goes_down_ends_it_and_what_is_done_is_kept() -> None:
    with standing_in() as server:
        down = Reply("<html>down</html>", 503)
        server.behaviour = lambda body: answering(body) if len(server.asked) <= 5 else down
        model = endpoint(server, concurrency=1, patience=3)
        got = []

        def read() -> None:
            for place, answer in model.answer(prompts(20), SamplingParameters()):
                got.append((place, answer))

        message = refusal(read)
    assert "stopped answering" in message and "run the same command again" in message
    begun = time.monotonic()
    refused = refusal(lambda: endpoint(server))
    assert "cannot be reached" in refused and "start the server" in refused
    assert time.monotonic() - begun < 5  # the client's own attempts take 13 s
    # The prompts that it failed are not told as failures: they are to be asked again.
    assert got == [(i, [f"text {i}:0"]) for i in range(5)]
    assert len(server.asked) >= 5 + 3


def test_patience_counts_failures_in_a_row_and_across_calls() -> None:
    down = Reply({"error": "oh"}, 500)
    with standing_in(lambda body: down if "1" in spoken(body) else answering(body)) as server:
        model = endpoint(server, concurrency=1, patience=2)
        for _ in range(3):  # one failure between answers
            got = answers(model, 3)
            assert got[0] == ["text 0:0"] and got[2] == ["text 2:0"]
            assert '500: "oh"' in failure(got[1])
        server.behaviour = lambda _: down
        assert isinstance(answers(model, 1)[0], Failure)
        assert "stopped answering" in refusal(lambda: answers(model, 1))


def test_requests_that_are_all_refused_from_the_start_end_it() -> None:
    with standing_in(lambda _: Reply({"detail": "pinned to 'x'"}, 400)) as server:
        message = refusal(lambda: answers(endpoint(server, patience=3, concurrency=1), 20))
        assert "none of the first 3 prompts" in message and "pinned to 'x'" in message


@pytest.mark.parametrize("trouble", [HANG, Reply({}, 429, {"retry-after": "30"})])
def test_leaving_half_way_asks_nothing_more(trouble: Reply | str) -> None:
    with standing_in(lambda b: answering(b) if "0" in spoken(b) else trouble) as server:
        model = endpoint(server, concurrency=2, timeout=30, retries=2)
        reading = model.answer(prompts(8), SamplingParameters())
        assert next(reading) == (0, ["text 0:0"])
        start = time.monotonic()
        assert isinstance(reading, Generator)
        reading.close()
        assert time.monotonic() - start < 10
        time.sleep(0.2)
        asked = len(server.asked)
        assert asked <= 3
        time.sleep(0.6)  # past the wait for the next attempt
        assert len(server.asked) == asked


READER = """
import sys
from holdfast.builders.endpoint import Endpoint
from holdfast.builders.text_model import Prompt, SamplingParameters
model = Endpoint(sys.argv[1], timeout=60)
for _ in model.answer([Prompt(str(i), "text") for i in range(40)], SamplingParameters()):
    pass
"""


def test_an_interrupt_ends_the_program_though_its_requests_hang() -> None:
    with standing_in(lambda _: HANG) as server:
        program = subprocess.Popen(
            [sys.executable, "-c", READER, server.url], stderr=subprocess.PIPE, text=True
        )
        try:
            deadline = time.monotonic() + 60
            while len(server.asked) < 16 and time.monotonic() < deadline:
                time.sleep(0.01)
            program.send_signal(signal.SIGINT)
            _, written = program.communicate(timeout=30)
        finally:
            program.kill()
            program.wait()
        assert len(server.asked) == 16
    assert written.splitlines()[-1] == "KeyboardInterrupt"
    assert written.count("Traceback") == 1
