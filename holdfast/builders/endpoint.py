"""An OpenAI-compatible endpoint as a language model, called through openai's client."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from holdfast.builders.text_model import Answer, Failure, Prompt, SamplingParameters, text_before
from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import derive
from holdfast.streams.item import quoted

if TYPE_CHECKING:
    import openai

MOST_STOPS = 4  # the protocol's limit of stop strings per request
NO_KEY = "none"  # the openai client requires a key even for servers that take none
# Finish reasons of a usable text, complete or at its length limit; others, such as "abort", fail.
ENDINGS = ["stop", "eos", "eos_token", "stop_token", "stop_sequence", "end_turn"]
ENDINGS += ["length", "max_tokens", "tool_calls", "function_call"]
EXAMPLE = "http://127.0.0.1:8000/v1"


class _RefusedError(Exception):
    """The endpoint refused the prompt or returned no text."""


class _TroubleError(Exception):
    """A failure of the endpoint, not of the prompt, that outlasted the client's retries."""


# (place of a prompt, its answer or error); an error that is no _TroubleError ends the session.
Outcomes: TypeAlias = "queue.SimpleQueue[tuple[int, Answer | Exception]]"


class Endpoint:
    """A model behind ``/completions`` and ``/chat/completions``: a :class:`TextModel`.

    url: such as ``http://127.0.0.1:8000/v1``; a URL without a path is given ``/v1``.
    model: its identifier at the endpoint; None takes the first that the endpoint lists.
    key: None takes ``OPENAI_API_KEY`` from the environment, or uses no key.
    concurrency: requests at once. timeout: seconds without data until a request counts as lost.
    retries: further attempts, by the client, after a transient failure.
    patience: the session ends when the endpoint fails this many prompts in a row.

    A request's seed is derived from the sampling's seed, the prompt's name and the number of the
    sample, so an endpoint that honours seeds answers the same in any order and concurrency.

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
    ) -> None:
        try:
            import openai
        except ImportError:
            raise HoldfastError(
                'an endpoint is asked through openai; pip install "holdfast[endpoint]"'
            ) from None
        self._url, base = _checked(url)
        self._key = _key(key)
        self._concurrency = concurrency
        self._patience = patience
        self._options: dict[str, Any] = {
            "base_url": base,
            "api_key": self._key,
            "timeout": openai.Timeout(timeout, connect=min(timeout, 10.0)),
            "max_retries": retries,
        }
        self._in_a_row = 0  # consecutive failed prompts
        self._has_answered = False
        self.batch = 4 * concurrency
        self.is_chat = True
        self.name = self._served(model)

    def answer(
        self, prompts: Sequence[Prompt], sampling: SamplingParameters
    ) -> Iterator[tuple[int, Answer]]:
        """Yield (place in ``prompts``, answer) as they arrive, each place once.

        Failures of the endpoint itself are yielded only once it answers again, or at the end: if
        the session breaks off before that, the caller has not recorded them.
        Raises HoldfastError at once for a wrong key or model, and when ``patience`` prompts in a
        row fail because of the endpoint, or are refused before any prompt was answered.
        """
        import openai

        todo = iter(range(len(prompts)))  # one iterator, which the threads share
        outcomes: Outcomes = queue.SimpleQueue()
        over = threading.Event()  # no further prompt is sent
        client = openai.OpenAI(**self._options)

        def work() -> None:
            for place in todo:
                if over.is_set():
                    return
                outcome = self._outcome(client, prompts[place], sampling)
                if isinstance(outcome, Exception) and not isinstance(outcome, _TroubleError):
                    over.set()
                outcomes.put((place, outcome))

        # Daemons, so that Ctrl-C does not wait for a silent endpoint.
        for _ in range(min(self._concurrency, len(prompts))):
            threading.Thread(target=work, daemon=True).start()
        unreported: list[tuple[int, Answer]] = []
        try:
            for _ in prompts:
                place, outcome = outcomes.get()
                if isinstance(outcome, Exception) and not isinstance(outcome, _TroubleError):
                    raise outcome
                self._count(outcome)
                if isinstance(outcome, _TroubleError):
                    unreported.append((place, Failure(str(outcome))))
                    continue
                yield from unreported
                unreported.clear()
                yield place, outcome
            yield from unreported
        finally:
            over.set()
            client.close()

    def _outcome(
        self, client: openai.OpenAI, prompt: Prompt, sampling: SamplingParameters
    ) -> Answer | Exception:
        try:
            return [
                self._sample(client, prompt, sampling, number) for number in range(sampling.samples)
            ]
        except _RefusedError as refusal:
            return Failure(str(refusal))
        except Exception as error:  # noqa: BLE001 - raised where answers are read
            return error

    def _sample(
        self, client: openai.OpenAI, prompt: Prompt, sampling: SamplingParameters, number: int
    ) -> str:
        """One text, up to its first stop."""
        import openai

        body: dict[str, Any] = {
            "model": self.name,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "seed": derive(sampling.seed, prompt.name, number) >> 32,  # 31 bits
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop[:MOST_STOPS])
        reply: Any
        try:
            if prompt.system is None:
                reply = client.completions.create(prompt=prompt.text, **body)
            else:
                messages: Any = [
                    {"role": "system", "content": prompt.system},
                    {"role": "user", "content": prompt.text},
                ]
                reply = client.chat.completions.create(messages=messages, **body)
        except UnicodeError:
            raise _RefusedError("the prompt holds what no UTF-8 can carry") from None
        except openai.APIError as error:
            raise self._verdict(error) from None
        except ValueError as error:
            raise _TroubleError(f"replied with no JSON ({error})") from None
        # Some servers leave the stop in.
        return text_before(sampling.stop, self._text(reply, chat=prompt.system is not None))

    def _text(self, reply: Any, *, chat: bool) -> str:
        """The text of a reply's first choice."""
        if isinstance(reply, str):
            raise _TroubleError(f"replied with no JSON: {self._message(reply)}")
        try:
            choice = reply.choices[0]
            text = choice.message.content if chat else choice.text
        except (AttributeError, TypeError, LookupError):
            message = self._message(getattr(reply, "error", None) or reply)
            raise _RefusedError(f"replied without choices: {message}") from None
        finish = getattr(choice, "finish_reason", None) or "stop"
        if finish == "content_filter":
            raise _RefusedError("its filter withheld the text")
        if finish not in ENDINGS:
            raise _RefusedError(f"broke the text off (finish_reason {quoted(str(finish))})")
        if not isinstance(text, str):
            raise _RefusedError("replied with a choice that holds no text")
        # Replace lone surrogates, which JSON can encode and UTF-8 files cannot.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _verdict(self, error: openai.APIError) -> Exception:
        """The error to raise: a refused prompt, a failing endpoint, or a wrong key or model."""
        import openai

        if isinstance(error, openai.APITimeoutError):
            return _TroubleError("silent for too long")
        if not isinstance(error, openai.APIStatusError):
            return _TroubleError(f"no connection: {self._message(error.__cause__ or error)}")
        status, detail = error.status_code, f"{error.status_code}: {self._message(error.body)}"
        if status in (401, 403):
            # The detail about a wrong key often repeats a part of it.
            return HoldfastError(
                f"{self._url} refuses the key ({status if status == 401 else detail}); set "
                "OPENAI_API_KEY to one that it takes"
            )
        if status == 404:
            return HoldfastError(
                f"{self._url} has no such model or page ({detail}); name a model that it serves, "
                f"and give the URL as {EXAMPLE}"
            )
        transient = status in (408, 409, 429) or status >= 500
        return _TroubleError(detail) if transient else _RefusedError(detail)

    def _count(self, outcome: Answer | Exception) -> None:
        """Count consecutive failures; raise HoldfastError when they reach ``patience``."""
        self._has_answered |= isinstance(outcome, list)
        troubled = isinstance(outcome, Exception)
        # A refusal counts only while no prompt has been answered: later it concerns its prompt.
        self._in_a_row = self._in_a_row + 1 if troubled or not self._has_answered else 0
        if self._in_a_row < self._patience:
            return
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

    def _message(self, body: object) -> str:
        """The endpoint's error message, quoted, with the key replaced."""
        for name in ("error", "message", "detail"):
            if isinstance(body, dict) and name in body:
                body = body[name]
        message = str(body)
        return quoted(message if self._key == NO_KEY else message.replace(self._key, "[key]"), 200)

    def _served(self, model: str | None) -> str:
        """``model``, or the first model listed; requests the list either way, as a check.

        With ``model`` given, a failure to list is ignored unless the endpoint is unreachable: some
        servers have no list, or refuse it to some keys.
        """
        import openai

        reason: object = "its list is empty or none"
        try:
            with openai.OpenAI(**self._options) as client:
                try:
                    listed: Any = client.with_options(max_retries=0).models.list()
                except openai.APIStatusError as error:  # a busy server is asked again
                    if not isinstance(self._verdict(error), _TroubleError):
                        raise
                    listed = client.models.list()
            return model or str(listed.data[0].id)
        except openai.APIConnectionError as error:
            raise HoldfastError(
                f"{self._url} cannot be reached ({self._verdict(error)}); start the server, or "
                f"give its URL as {EXAMPLE}"
            ) from None
        except openai.APIError as error:
            reason = self._verdict(error)
        except (ValueError, AttributeError, TypeError, LookupError):
            pass
        if model is not None:
            return model
        if isinstance(reason, HoldfastError):
            raise reason
        raise HoldfastError(f"{self._url} does not list its models ({reason}); name the one to ask")


def _checked(url: str) -> tuple[str, str]:
    """(The URL for messages, without credentials or query; the URL for requests)."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        name = (parts.hostname or "").encode("idna")
        usable = parts.scheme in ("http", "https") and bool(name) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise HoldfastError(f"{quoted(url)} is no URL of an endpoint; give it as {EXAMPLE}")
    path = parts.path.rstrip("/") or "/v1"
    host = parts.netloc.rpartition("@")[2]
    public = parts._replace(netloc=host, path=path, query="", fragment="")
    return public.geturl(), parts._replace(path=path).geturl()


def _key(key: str | None) -> str:
    key = (key or os.environ.get("OPENAI_API_KEY") or "").strip() or NO_KEY
    if not (key.isascii() and key.isprintable()):
        raise HoldfastError("the endpoint's key has symbols that no key has; copy it once more")
    return key
