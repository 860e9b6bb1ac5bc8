"""The topics of LLM-QA, one for each task, and the prompts for facts about them."""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random

from holdfast.builders.text_model import Prompt
from holdfast.core.seeding import derive


@dataclass(frozen=True)
class Topic:
    """What the facts of one task are about.

    phrase: names the topic and its task; noun: for one entity of the topic, in the singular;
    family: the key of its question frames in the offline grammar.
    """

    phrase: str
    noun: str
    family: str


@cache
def topics() -> tuple[Topic, ...]:
    """The 100 topics, related ones near one another as in the paper; the list is our own.

    Source: app:data-llm.
    """
    text = (files("experiments.paper.llm_qa") / "topics.txt").read_text(encoding="utf-8")
    return tuple(Topic(*line.split("\t")) for line in text.splitlines())


SYSTEM = (
    "You invent facts for a test of memory. Nothing you write may exist: no real person, place, "
    "organisation, work or event, and nothing from a known story. You reply with JSON alone."
)

# Facets of a fact. Each request names two of them and a few initial letters, drawn at random, so
# that a model invents different names for repeated requests on one topic.
FACETS = (
    "makers, owners and founders",
    "years and dates",
    "counts and measures",
    "materials and colours",
    "the places where they are found",
    "habits and rules",
    "accidents and repairs",
    "prices, prizes and gifts",
    "sounds, smells and tastes",
    "sayings and nicknames",
    "plants and animals",
    "tools and parts",
    "weather and seasons",
    "rivals and friends",
)
LETTERS_HINTED = 4
FACETS_HINTED = 2


@dataclass(frozen=True)
class Request:
    """A request for facts on one topic, by one prompt.

    task: from 1, in the order of the topics; number: of the request within its task, from 1;
    candidates: how many facts; seed: the stream's.
    """

    task: int
    topic: Topic
    number: int
    candidates: int
    seed: int


def prompt_for(request: Request) -> Prompt:
    """The chat prompt for a request; it depends on the request alone.

    Source: app:data-llm (the requirements; the wording is our own).
    """
    random = Random(derive(request.seed, "llm-qa prompt", request.topic.phrase, request.number))
    letters = ", ".join(random.sample(string.ascii_uppercase, LETTERS_HINTED))
    facets = " and ".join(random.sample(FACETS, FACETS_HINTED))
    count = request.candidates
    text = f"""Topic: {request.topic.phrase}.

Invent {count} facts on this topic. Write each as a JSON object with exactly these three texts:
"entity": the name of one {request.topic.noun} that you make up;
"question": a question about that entity which has one short answer;
"answer": that answer.

Rules:
- Every entity and every fact is made up. Use no real person, place, organisation, work or event.
- Every object has another entity, with a distinctive name.
- The question contains the entity exactly as "entity" spells it.
- The answer is particular (a name, a year, a number, a material) and cannot be guessed.
- The answer has at most eight words.
- No text contains a line break.
- Let some names begin with {letters}; let some facts be about {facets}.

Reply with one JSON array of {count} objects and nothing else."""
    return Prompt(f"llm-qa {request.task} {request.number}", text, SYSTEM)
