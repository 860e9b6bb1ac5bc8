"""Writers of candidates: the protocol, and the language model as a writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from experiments.paper.llm_qa.prompt import Request, prompt_for
from holdfast.builders.text_model import Failure, SamplingParameters, TextModel

# A high temperature, so that repeated requests on one topic give new names; ten records take up
# to about 900 tokens.
WRITING = SamplingParameters(temperature=0.9, top_p=0.95, max_new_tokens=1536)


class Writer(Protocol):
    """Replies to requests with text, as a language model would.

    name, settings: recorded beside the replies (settings as JSON values); a directory of replies
    is refused to a writer with others. kind: whether a model or a grammar writes, recorded in the
    stream's ``about``. batch: the preferred number of requests per call.
    """

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Literal["model", "grammar"]: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    @property
    def batch(self) -> int: ...

    def write(self, requests: Sequence[Request]) -> Iterator[tuple[int, str | Failure]]:
        """Yield (place in ``requests``, reply) in any order, each place once.

        Raises HoldfastError when the writer as a whole fails, at once or later.
        """
        ...


class ModelWriter:
    """A language model as the writer.

    model: on this machine or behind an endpoint. sampling: its ``samples`` is replaced by 1 and
    its ``seed`` by the stream's.
    """

    kind: Literal["model", "grammar"] = "model"

    def __init__(self, model: TextModel, sampling: SamplingParameters = WRITING) -> None:
        self._model = model
        self._sampling = sampling

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def settings(self) -> Mapping[str, Any]:
        return self._sampling.model_dump(mode="json", exclude={"samples", "seed"})

    @property
    def batch(self) -> int:
        return self._model.batch

    def write(self, requests: Sequence[Request]) -> Iterator[tuple[int, str | Failure]]:
        """Send the model one prompt per request."""
        if not requests:
            return
        sampling = self._sampling.model_copy(update={"samples": 1, "seed": requests[0].seed})
        prompts = [prompt_for(request) for request in requests]
        for place, answer in self._model.answer(prompts, sampling):
            yield place, answer if isinstance(answer, Failure) else answer[0]
