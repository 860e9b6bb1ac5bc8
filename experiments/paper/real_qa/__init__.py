"""Real-QA: facts of ten public question sets, filtered against one model."""

from experiments.paper.real_qa.build import RealQASettings, build
from experiments.paper.real_qa.candidate import CandidateItem, Left, SourceRecords
from experiments.paper.real_qa.contamination import SAMPLING, known
from experiments.paper.real_qa.records import find_files, read_files, read_hub
from experiments.paper.real_qa.sources import SOURCES

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
