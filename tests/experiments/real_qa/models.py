"""Language models that say what a test wants them to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from holdfast.builders.text_model import Answer, Failure, Prompt, SamplingParameters

Reply = str | Failure


class Scripted:
    """Says of each prompt what ``reply`` says of it, in reverse order; notes what it was asked."""

    name = "scripted"

    def __init__(self, reply: Callable[[Prompt], Reply], batch: int = 4) -> None:
        self.reply = reply
        self.batch = batch
        self.asked: list[str] = []

    def answer(
        self, prompts: Sequence[Prompt], sampling: SamplingParameters
    ) -> Iterator[tuple[int, Answer]]:
        for place in reversed(range(len(prompts))):
            self.asked.append(prompts[place].name)
            reply = self.reply(prompts[place])
            yield place, reply if isinstance(reply, Failure) else [reply] * sampling.samples
