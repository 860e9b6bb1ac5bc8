"""Texts that the untouched model writes itself: questions with its answers, and longer chats.

They stand for all that the model knows. An adapter of all facts is trained to keep the answers in
them (self-written replay, the paper's data anchor, and distillation on it, its function anchor).
They are written once per model, into the cache.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from pydantic import TypeAdapter

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json, write_json
from holdfast.core.reporting import CountReport, silent
from holdfast.core.seeding import derive, generator
from holdfast.memory.library import ENTITY, invented_name, relations
from holdfast.model.chat import ChatForm
from holdfast.model.generation.sampling import nucleus_sample
from holdfast.model.reading import UNREAD, PromptReader
from holdfast.model.sources.cache import cache_directory, unwritable

_VERSION = 3
_BEGINNINGS = (
    *("What is", "What are", "What does", "What was", "What kind of", "Who", "Who is", "Who was"),
    *("Where is", "Where do", "When did", "When is", "How many", "How do", "How does", "How long"),
    *("Which", "Why do", "Why is", "Name", "Tell me", "In which", "Is", "Do"),
)
_BATCH = 32
_PART = 256  # the least texts of a part
_TOP_P = 0.95
_DIGEST = "sha256"  # the key of the digest of the rest of the file


@dataclass(frozen=True)
class OwnTextSettings:
    """short: questions with a given beginning; named: questions about invented names; chats:
    questions without one; tokens, chat_tokens: the most of an answer; question: the most sampled
    tokens of a question.
    """

    short: int = 320
    named: int = 160
    chats: int = 64
    question: int = 24
    tokens: int = 12
    chat_tokens: int = 40


@dataclass(frozen=True)
class Turn:
    """Token ids: of a question after the prefix, and of its answer after the invocation.

    kind: ``short``, ``named``, ``chats`` or ``replaced`` (of run.py) of an own text, else ``fact``;
    the answer of an own text has the end token if that came within the limit.
    """

    kind: str = field(compare=False)
    question: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.question) + len(self.answer)


def bare_question(form: ChatForm, text: Turn) -> tuple[int, ...]:
    """The tokens of a text's question, without the end of the user's turn."""
    return text.question[: len(text.question) - len(form.user_end)]


@dataclass
class _Part:
    """What is written of a part. wanted: how many of its :data:`_Wanted` have their questions;
    questions: kinds and token ids; texts: of the first questions.
    """

    wanted: int = 0
    questions: list[tuple[str, list[int]]] = field(default_factory=list)
    texts: list[Turn] = field(default_factory=list)


@dataclass
class _Written:
    """The contents of the cache: whole parts and their texts, and what is begun of the next."""

    parts: int = 0
    texts: list[Turn] = field(default_factory=list)
    begun: _Part = field(default_factory=_Part)


# Texts to be written: their kind, the beginning of a short question, how many.
_Wanted = tuple[str, str, int]


def own_texts(
    reader: PromptReader,
    fingerprint: str,
    settings: OwnTextSettings,
    report: CountReport = silent,
) -> list[Turn]:
    """The texts of a model, from the cache or written now; no adapter may act.

    A call after a kill continues behind the last batch in the cache. report(done, total): texts.
    Raises HoldfastError if the cache cannot be written.
    """
    form = reader.form
    template = [form.prefix, form.user_end, form.invocation]
    key = sha256_of([_VERSION, asdict(settings), _BEGINNINGS, template])[:8]
    path = cache_directory() / "own" / f"{fingerprint[:16]}-{key}.json"
    written = _read(path)
    total = settings.short + settings.named + settings.chats
    # Progress counts a question and its answer as half a text each.
    halves = 2 * len(written.texts) + len(written.begun.questions) + len(written.begun.texts)

    def keep(count: int) -> None:
        nonlocal halves
        halves += count
        values = asdict(written)
        try:
            write_json(path, {**values, _DIGEST: sha256_of(values)}, parents=True)
        except HoldfastError as error:
            raise unwritable(path.parent, error.__cause__ or error) from error
        report(min(halves // 2, total), total)

    for part in _parts(settings)[written.parts :]:
        _write(reader, part, settings, written.begun, keep)
        written.texts += written.begun.texts
        written.parts, written.begun = written.parts + 1, _Part()
        keep(0)
    return written.texts


def _parts(settings: OwnTextSettings) -> list[list[_Wanted]]:
    """All texts to write, in parts; each but the last has at least ``_PART`` texts."""
    each, more = divmod(settings.short, len(_BEGINNINGS))
    short = [("short", text, each + (number < more)) for number, text in enumerate(_BEGINNINGS)]
    wanted = [("named", "", settings.named), *short, ("chats", "", settings.chats)]
    parts: list[list[_Wanted]] = [[]]
    for texts in wanted:
        if sum(count for _, _, count in parts[-1]) >= _PART:
            parts.append([])
        parts[-1].append(texts)
    return parts


def _read(path: Path) -> _Written:
    """What is in the cache; nothing if it is missing or damaged, perhaps to other JSON."""
    try:
        cached = read_json(path)
        if cached.pop(_DIGEST) == sha256_of(cached):
            return TypeAdapter(_Written).validate_python(cached)
    except (HoldfastError, AttributeError, KeyError, TypeError, ValueError):
        pass
    return _Written()


def _write(
    reader: PromptReader,
    part: Sequence[_Wanted],
    settings: OwnTextSettings,
    begun: _Part,
    keep: Callable[[int], None],
) -> None:
    """Write what ``begun`` lacks of a part; keep(count): so many more questions or answers."""

    def limit(kind: str) -> int:
        return settings.chat_tokens if kind == "chats" else settings.tokens

    for kind, beginning, count in part[begun.wanted :]:
        if kind == "named":
            written = _questions_about_invented_names(reader, count)
        else:
            written = _write_questions(reader, beginning, count, settings)
        begun.questions += [(kind, question) for question in written]
        begun.wanted += 1
        keep(count)
    for begin in range(len(begun.texts), len(begun.questions), _BATCH):
        group = begun.questions[begin : begin + _BATCH]
        longest = limit(group[-1][0])  # chats come last and may be longer
        answers = reply_tokens(reader, [question for _, question in group], longest)
        for (kind, question), answer in zip(group, answers, strict=True):
            begun.texts.append(Turn(kind, tuple(question), tuple(answer[: limit(kind)])))
        keep(len(group))


def reply_tokens(
    reader: PromptReader, questions: Sequence[Sequence[int]], limit: int
) -> list[list[int]]:
    """The untouched model's replies, of at most ``limit`` tokens; an end within them is kept."""
    answers = []
    for answer in reader.decode(reader.read(questions), limit, batch=_BATCH):
        answers.append(answer if len(answer) == limit else [*answer, reader.form.end])
    return answers


def _questions_about_invented_names(reader: PromptReader, count: int) -> list[list[int]]:
    """Questions of the library about invented names."""
    draw = random.Random(derive(0, "own", "named"))
    questions = []
    for _ in range(count):
        relation = draw.choice(relations())
        name = invented_name(draw, relation.kind)
        questions.append(reader.form.question(draw.choice(relation.wordings).replace(ENTITY, name)))
    return questions


def _write_questions(
    reader: PromptReader, beginning: str, count: int, settings: OwnTextSettings
) -> list[list[int]]:
    """Sample questions that the model writes after a beginning, or the prefix, each once."""
    form = reader.form
    begin = form.question(beginning)[: -len(form.user_end) or None] if beginning else []
    sampler = generator(0, "own", beginning)
    questions: dict[str, list[int]] = {}
    for start in range(0, count, _BATCH):
        rows = min(_BATCH, count - start)
        written: list[list[int]] = [list(begin) for _ in range(rows)]
        if not begin:
            first = _sample(_first_logits(reader).expand(rows, -1), sampler)
            written = [[token] for token in first.tolist()]
        ends = set(form.stops) | set(form.user_end[:1])
        unfinished = [True] * rows
        for tokens in _sample_continuations(reader, written, sampler, settings.question):
            for row, token in enumerate(tokens):
                if unfinished[row] and token not in ends:
                    written[row].append(token)
                    unfinished[row] = "?" not in form.tokenizer.decode([token])
                else:
                    unfinished[row] = False
        for ids in written:
            text = form.tokenizer.decode(ids, skip_special_tokens=True).split("\n")[0].strip()
            if text:
                questions.setdefault(text, form.question(text))
    return list(questions.values())


def _first_logits(reader: PromptReader) -> torch.Tensor:
    """Next-token logits [1, vocabulary] after the prefix."""
    with torch.no_grad():
        ids = torch.tensor([reader.form.prefix])
        logits: torch.Tensor = reader.model(ids, logits_to_keep=1).logits[:, -1]
    return logits


def _sample_continuations(
    reader: PromptReader, written: list[list[int]], sampler: torch.Generator, limit: int
) -> list[list[int]]:
    """Sample continuations of rows of equal length that follow the prefix: [steps][rows]."""
    steps: list[list[int]] = []

    def choose(logits: torch.Tensor, _: int) -> torch.Tensor:
        chosen = _sample(logits, sampler)
        steps.append(chosen.tolist())
        return chosen

    for _ in reader.steps([UNREAD] * len(written), limit, choose, begin=written):
        pass
    return steps


def _sample(logits: torch.Tensor, sampler: torch.Generator) -> torch.Tensor:
    """Tokens [rows] from logits [rows, vocabulary] at temperature 1."""
    noise = torch.rand(len(logits), generator=sampler)
    return nucleus_sample(logits, noise, _TOP_P, None)
