"""LLM-QA: invented facts in natural language, written by a language model or by a grammar."""

from experiments.paper.llm_qa.generate import LLMQASettings, generate
from experiments.paper.llm_qa.prompt import Request, Topic, prompt_for, topics
from experiments.paper.llm_qa.replies import read_candidates
from experiments.paper.llm_qa.validator import Validator
from experiments.paper.llm_qa.writers import GrammarWriter, ModelWriter, Writer

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
