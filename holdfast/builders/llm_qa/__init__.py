"""LLM-QA: invented facts in natural language, written by a language model or by a grammar."""

from holdfast.builders.llm_qa.generate import LLMQASettings, generate
from holdfast.builders.llm_qa.grammar import GrammarWriter
from holdfast.builders.llm_qa.prompt import Request, prompt_for
from holdfast.builders.llm_qa.replies import read_candidates
from holdfast.builders.llm_qa.topics import Topic, topics
from holdfast.builders.llm_qa.validator import Validator
from holdfast.builders.llm_qa.writer import ModelWriter, Writer

__all__ = [
    "GrammarWriter",
    "LLMQASettings",
    "ModelWriter",
    "Request",
    "Topic",
    "Validator",
    "Writer",
    "generate",
    "prompt_for",
    "read_candidates",
    "topics",
]
