"""An OpenAI-compatible endpoint as a language model, queried by parallel requests."""

from __future__ import annotations

import json
import os
import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast.builders.text_model import Answer, Failure, Prompt, SamplingParameters
from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import derive
from holdfast.streams.item import quoted

if TYPE_CHECKING:
    import openai

FIRST_WAIT = 0.5  # seconds before the first retry; each further wait is twice as long
MOST_STOPS = 4  # the protocol's limit of stop strings per request
NO_KEY = "none"  # the openai client requires a key even for servers that take none
# Finish reasons of a usable text, complete or at its length limit; others, such as "abort", fail.
ENDINGS = ["stop", "eos", "eos_token", "stop_token", "stop_sequence", "end_turn"]
ENDINGS += ["length", "max_tokens", "tool_calls", "function_call"]
EXAMPLE = "http://127.0.0.1:8000/v1"


class _RefusedError(Exception):
    """The endpoint refused the prompt or returned no text; a retry would not help."""


class _RejectedError(_RefusedError):
    """Refused for the request's content, perhaps for an option that the server lacks."""


class _TroubleError(Exception):
    """A failure that may be transient. wait: seconds that the server asked to wait, if any."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class _UnreachableError(_TroubleError):
    """No reply at all."""


class Endpoint:
    """A model behind ``/completions`` and ``/chat/completions``: a :class:`TextModel`.

    url: such as ``http://127.0.0.1:8000/v1``; a URL without a path is given ``/v1``.
    model: its identifier at the endpoint; None takes the first that the endpoint lists.
    key: None takes ``OPENAI_API_KEY`` from the environment, or none.
    concurrency: requests at once. timeout: seconds without data until a request counts as lost.
    retries: further attempts after a transient failure; the waits double from half a second, or
    are what the server asks for, up to longest_wait seconds.
    patience: the session ends when the endpoint fails this many prompts in a row.

    A request's seed is derived from the sampling's seed, the prompt's name and the number of its
    first sample, so an endpoint that honours seeds answers the same in any order and concurrency.

    Raises HoldfastError when the endpoint cannot be reached or names no model.
    Source: app:data-llm, app:data-real.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        key: str | None = None,
        concurrency: int = 16,
        timeout: float = 120.0,
        retries: int = 5,
        patience: int = 8,
        longest_wait: float = 60.0,
    ) -> None:
        for label, value, least in (
            ("concurrency", concurrency, 1),
            ("retries", retries, 0),
            ("patience", patience, 1),
        ):
            if value < least:
                raise HoldfastError(f"{label} = {value}; use {least} or more")
        if timeout <= 0:
            raise HoldfastError(f"timeout = {timeout:g} seconds; use more than 0")
        self._url, base = _checked(url)
        self._key = _key(key)
        self._concurrency = concurrency
        self._timeout = timeout
        self._retries = retries
        self._patience = patience
        self._longest_wait = longest_wait
        self._client = _client(base, self._key, timeout)
        self._lacking: set[str] = set()  # options that the server has rejected
        self._in_a_row = 0  # consecutive failed prompts
        self._has_answered = False
        self._has_replied = False  # with any JSON
        self.batch = 4 * concurrency
        self.name = self._served(model)

    def answer(
        self, prompts: Sequence[Prompt], sampling: SamplingParameters
    ) -> Iterator[tuple[int, Answer]]:
        """Yield (place in ``prompts``, answer) as they arrive, each place once.

        A prompt that the endpoint refuses, or leaves without text, gives a :class:`Failure`.
        Failures of the endpoint itself are yielded only once it answers again: if the session ends
        before that, the caller has not recorded them.

        Raises HoldfastError at once for a wrong key or model, and when ``patience`` prompts in a
        row fail because of the endpoint, or are refused before any prompt was answered.
        """
        todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        for place in range(len(prompts)):
            todo.put(place)
        done: queue.SimpleQueue[tuple[int, Answer | Exception]] = queue.SimpleQueue()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                try:
                    place = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    done.put((place, self._outcome(prompts[place], sampling, stop)))
                except Exception as error:  # noqa: BLE001 - raised again where answers are read
                    stop.set()
                    done.put((place, error))

        # Daemons, not a pool: the interpreter waits for a pool's threads when it exits, so Ctrl-C
        # would hang for as long as a silent endpoint keeps its requests open.
        for _ in range(min(self._concurrency, len(prompts))):
            threading.Thread(target=work, daemon=True).start()
        held: list[tuple[int, Answer]] = []
        try:
            for _ in prompts:
                place, outcome = done.get()
                if isinstance(outcome, Exception) and not isinstance(outcome, _TroubleError):
                    raise outcome
                self._count(outcome)
                if isinstance(outcome, _TroubleError):
                    held.append((place, Failure(str(outcome))))
                    continue
                yield from held
                held.clear()
                yield place, outcome
            yield from held
        finally:
            stop.set()

    def _outcome(
        self, prompt: Prompt, sampling: SamplingParameters, stop: threading.Event
    ) -> Answer | _TroubleError:
        texts: list[str] = []
        try:
            while len(texts) < sampling.samples:
                texts += self._samples(prompt, sampling, len(texts), stop)
        except _RefusedError as refusal:
            return Failure(str(refusal))
        except _TroubleError as trouble:
            return trouble
        return [_before(sampling.stop, text) for text in texts]

    def _count(self, outcome: Answer | _TroubleError) -> None:
        """Count consecutive failures; raise HoldfastError when they reach ``patience``."""
        self._has_answered |= isinstance(outcome, list)
        troubled = isinstance(outcome, _TroubleError)
        # A refusal counts only while no prompt has been answered: later it concerns its prompt.
        self._in_a_row = self._in_a_row + 1 if troubled or not self._has_answered else 0
        if self._in_a_row < self._patience:
            return
        if troubled and not self._has_replied:
            raise HoldfastError(
                f"{self._url} does not answer as an OpenAI-compatible endpoint ({outcome}); check "
                f"that it is one and is up, and give its URL as {EXAMPLE}"
            )
        if troubled:
            raise HoldfastError(
                f"{self._url} stopped answering ({outcome}); what is done is kept: run the same "
                "command again when it is back"
            )
        reason = outcome.reason if isinstance(outcome, Failure) else outcome
        raise HoldfastError(
            f"{self._url} answered none of the first {self._in_a_row} prompts ({reason}); check "
            "the model's name and the sampling"
        )

    def _samples(
        self, prompt: Prompt, sampling: SamplingParameters, first: int, stop: threading.Event
    ) -> list[str]:
        """The samples from number ``first`` on, or as many of them as one request returns."""
        body: dict[str, Any] = {
            "model": self.name,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "seed": derive(sampling.seed, prompt.name, first) >> 32,  # 31 bits
        }
        # Options that a server may reject; they are dropped one by one, the last first.
        options: dict[str, Any] = {}
        if sampling.stop:
            options["stop"] = list(sampling.stop[:MOST_STOPS])
        if sampling.samples - first > 1:
            options["n"] = sampling.samples - first
        options = {name: value for name, value in options.items() if name not in self._lacking}
        given = dict(options)
        while True:
            try:
                texts = self._patiently(prompt, body | options, stop)
                break
            except _RejectedError:
                if not options:
                    raise
                options.popitem()
        wanted = options.get("n", 1)
        if len(texts) < wanted:
            options.pop("n")
        self._lacking |= given.keys() - options.keys()
        return texts[:wanted]

    def _patiently(self, prompt: Prompt, body: dict[str, Any], stop: threading.Event) -> list[str]:
        """The texts of one request, retried after transient failures."""
        attempt = 0
        while True:
            try:
                return self._texts(prompt, body)
            except _TroubleError as trouble:
                # Jitter spreads the retries of requests that failed together; it changes no
                # result, so it needs no named seed.
                wait = trouble.wait or FIRST_WAIT * 2**attempt * random.uniform(0.75, 1)
                if attempt == self._retries or stop.wait(min(wait, self._longest_wait)):
                    raise
            attempt += 1

    def _texts(self, prompt: Prompt, body: dict[str, Any]) -> list[str]:
        if prompt.system is None:
            create = self._client.completions.with_raw_response.create
            reply = self._reply(create, prompt=prompt.text, **body)
        else:
            messages = [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.text},
            ]
            chat = self._client.chat.completions.with_raw_response.create
            reply = self._reply(chat, messages=messages, **body)
        choices = reply.get("choices") if isinstance(reply, dict) else None
        if not isinstance(choices, list) or not choices:
            raise _RefusedError(f"replied without choices: {self._said(reply)}")
        return [_text(choice) for choice in choices]

    def _reply(self, ask: Callable[..., Any], **body: Any) -> Any:
        """The parsed JSON reply to one request; raises this module's errors or HoldfastError."""
        import openai

        try:
            content = ask(**body).text
        except openai.APITimeoutError:
            raise _UnreachableError(f"silent for {self._timeout:g} seconds") from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise _UnreachableError(
                f"no connection: {self._said(str(cause) or repr(cause))}"
            ) from None
        except openai.APIStatusError as error:
            raise self._verdict(error) from None
        except UnicodeError:
            raise _RefusedError("the prompt holds what no UTF-8 can carry") from None
        try:
            reply = json.loads(content)
        except (ValueError, RecursionError):
            raise _TroubleError(f"replied with no JSON: {self._said(content)}") from None
        self._has_replied = True
        return reply

    def _verdict(self, error: openai.APIStatusError) -> Exception:
        status = error.status_code
        said = f"{status}: {self._said(error.body)}"
        if status in (401, 403):
            # The message about a wrong key often repeats a part of it.
            reason = status if status == 401 else said
            return HoldfastError(
                f"{self._url} refuses the key ({reason}); set OPENAI_API_KEY to one that it takes"
            )
        if status == 404:
            return HoldfastError(
                f"{self._url} has no such model or page ({said}); name a model that it serves, and "
                f"give the URL as {EXAMPLE}"
            )
        if status in (408, 409, 429) or status >= 500:
            return _TroubleError(said, _seconds(error.response.headers.get("retry-after")))
        return _RejectedError(said) if status in (400, 422) else _RefusedError(said)

    def _said(self, body: object) -> str:
        """The endpoint's error message, quoted, with the key replaced."""
        for name in ("error", "message", "detail"):
            if isinstance(body, dict) and name in body:
                body = body[name]
        said = str(body)
        return quoted(said if self._key == NO_KEY else said.replace(self._key, "[key]"), 200)

    def _served(self, model: str | None) -> str:
        """``model``, or the first one listed; requests the list either way, to see that it is up.

        With ``model`` given, a failure to list is ignored unless the endpoint is unreachable: some
        servers have no list, or refuse it to some keys.
        """
        reply: Any = None
        try:
            reply = self._reply(self._client.models.with_raw_response.list)
        except _UnreachableError as error:
            raise HoldfastError(
                f"{self._url} cannot be reached ({error}); start the server, or give its URL as "
                f"{EXAMPLE}"
            ) from None
        except HoldfastError:
            if model is None:
                raise
        except (_RefusedError, _TroubleError) as error:
            if model is None:
                raise HoldfastError(
                    f"{self._url} does not list its models ({error}); name the one to ask"
                ) from None
        if model is not None:
            return model
        try:
            return str(reply["data"][0]["id"])
        except (TypeError, LookupError):
            raise HoldfastError(f"{self._url} lists no models; name the one to ask") from None


def _client(base: str, key: str, timeout: float) -> openai.OpenAI:
    try:
        import openai
    except ImportError:
        raise HoldfastError(
            'an endpoint is asked through openai; pip install "holdfast[endpoint]"'
        ) from None
    return openai.OpenAI(
        base_url=base,
        api_key=key,
        timeout=openai.Timeout(timeout, connect=min(timeout, 10.0)),
        max_retries=0,  # our own retries stop when the caller leaves, and cover non-JSON replies
    )


def _checked(url: str) -> tuple[str, str]:
    """(The URL for messages, without credentials or query; the URL for requests)."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        usable = parts.scheme in ("http", "https") and bool(host) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise HoldfastError(f"{quoted(url)} is no URL of an endpoint; give it as {EXAMPLE}")
    path = parts.path.rstrip("/") or "/v1"
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=path, query="", fragment="")
    return shown.geturl(), parts._replace(path=path).geturl()


def _key(key: str | None) -> str:
    key = (key or os.environ.get("OPENAI_API_KEY") or "").strip() or NO_KEY
    if not (key.isascii() and key.isprintable()):
        raise HoldfastError("the endpoint's key has symbols that no key has; copy it once more")
    return key


def _text(choice: Any) -> str:
    """The text of one choice; a chat completion has it in ``message``."""
    choice = choice if isinstance(choice, dict) else {}
    ended = choice.get("finish_reason") or "stop"
    if ended == "content_filter":
        raise _RefusedError("its filter withheld the text")
    if ended not in ENDINGS:
        raise _RefusedError(f"broke the text off (finish_reason {quoted(ended)})")
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    if not isinstance(text, str):
        raise _RefusedError("replied with a choice that holds no text")
    # Replace lone surrogates, which JSON can encode and UTF-8 files cannot.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _seconds(retry_after: str | None) -> float | None:
    """Parse ``Retry-After`` in seconds; None when it is absent or, as seldom, a date."""
    try:
        return max(0.0, float(retry_after or ""))
    except ValueError:
        return None


def _before(stops: Sequence[str], text: str) -> str:
    """``text`` up to its first stop string, which some servers leave in."""
    return min((text.partition(stop)[0] for stop in stops if stop), key=len, default=text)
