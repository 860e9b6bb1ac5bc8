"""How each kind of memory answers and learns in a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.memory.chat.memory import ChatMemory
    from holdfast.memory.memory import Memory
    from holdfast.streams import Item

Fact = tuple[str, str]  # a question and its answer


class Voice(Protocol):
    """A memory in a conversation. answered, forgotten: what the help says of its answers."""

    answered: str
    forgotten: str

    def answer(self, question: str) -> str:
        """The answer, with a remark on where it comes from if it was not taught."""

    def missed(self) -> tuple[Item, ...]:
        """The facts that the weights do not give."""

    def nothing_missed(self) -> str:
        """What is said when there are none."""

    def teach(self, fact: Fact) -> list[str]:
        """Teach a fact; lines on what was learned."""


def voice_of(memory: Memory | ChatMemory, *, taught_only: bool) -> Voice:
    """The voice of a memory of either kind."""
    from holdfast.memory.memory import Memory

    if isinstance(memory, Memory):
        return EmbeddedVoice(memory)
    return ChatVoice(memory, taught_only=taught_only)


class EmbeddedVoice:
    """A memory on the embedded model."""

    answered = "it is answered, or it was not taught"
    forgotten = "what was taught and is not recalled"

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def answer(self, question: str) -> str:
        from holdfast.memory.telling import untaught

        reply = self._memory.reply(question)
        if reply.taught is False:
            return untaught(self._memory, reply)
        return reply.answer or f"it gave no answer; it wrote: {reply.text}"

    def missed(self) -> tuple[Item, ...]:
        return self._memory.forgotten()

    def nothing_missed(self) -> str:
        return f"nothing; all {len(self._memory.facts)} facts are recalled"

    def teach(self, fact: Fact) -> list[str]:
        from holdfast.cli.progress import showing
        from holdfast.memory.telling import lesson_lines

        memory = self._memory
        planned = len(memory.plan([fact]).tasks)
        with showing(memory.directory.name, memory.horizon, planned, memory.directory) as progress:
            return lesson_lines(memory.learn([fact], progress))


class ChatVoice:
    """A memory on a chat model; with ``taught_only`` the model's own answers are left out."""

    answered = "what was not taught is answered by the model itself, and marked"
    forgotten = "what was taught and comes from the list, since the weights give something else"

    def __init__(self, memory: ChatMemory, *, taught_only: bool) -> None:
        self._memory, self._taught_only = memory, taught_only

    def answer(self, question: str) -> str:
        from holdfast.cli.chat_memory import source_line, untaught_line

        self._memory.refresh()  # another process may have taught it meanwhile
        answer = self._memory.reply(question)
        if self._taught_only and not answer.taught:
            return untaught_line(self._memory, answer)
        remark = source_line(answer)
        return f"{answer.text}\n  ({remark})" if remark else answer.text

    def missed(self) -> tuple[Item, ...]:
        return self._memory.missed()

    def nothing_missed(self) -> str:
        from holdfast.streams.batches import newest

        learned = newest(self._memory.tasks[: self._memory.horizon])
        return f"nothing; all {len(learned)} facts are answered from the weights"

    def teach(self, fact: Fact) -> list[str]:
        from holdfast.cli.chat_memory import WorkBars
        from holdfast.core.files import InUseError
        from holdfast.memory.chat.detached import start_learning
        from holdfast.memory.chat.telling import outcome_lines

        try:
            with WorkBars() as report:
                return outcome_lines(self._memory.learn([fact], report=report))
        except InUseError:
            self._memory.write_facts([fact])
            start_learning(self._memory.directory)
            return ["another process learns here; this fact is on file and learned next"]
