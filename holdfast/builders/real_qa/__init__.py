"""Real-QA: facts of ten public question sets, filtered against one model."""

from holdfast.builders.real_qa.build import RealQASettings, build
from holdfast.builders.real_qa.candidate import CandidateItem, Left, SourceRecords
from holdfast.builders.real_qa.contamination import SAMPLING, known
from holdfast.builders.real_qa.sources import SOURCES, find_files, read_files, read_hub

__all__ = [
    "SAMPLING",
    "SOURCES",
    "CandidateItem",
    "Left",
    "RealQASettings",
    "SourceRecords",
    "build",
    "find_files",
    "known",
    "read_files",
    "read_hub",
]
