"""Streams of question-answer tasks: generated, read from files, ordered, rendered as tokens."""

from holdfast.streams.hf_dataset import read_dataset, write_dataset
from holdfast.streams.item import Item, braces_balance
from holdfast.streams.load import StreamConfig, load_stream, read_stream
from holdfast.streams.released import read_released, write_released
from holdfast.streams.rows import read_jsonl, write_jsonl
from holdfast.streams.stream import QuestionRegistry, Stream, Task, reorder, task_order
from holdfast.streams.symbol_qa import symbol_qa
from holdfast.streams.template import Template, Tokenizer

__all__ = [
    "Item",
    "QuestionRegistry",
    "Stream",
    "StreamConfig",
    "Task",
    "Template",
    "Tokenizer",
    "braces_balance",
    "load_stream",
    "read_dataset",
    "read_jsonl",
    "read_released",
    "read_stream",
    "reorder",
    "symbol_qa",
    "task_order",
    "write_dataset",
    "write_jsonl",
    "write_released",
]
