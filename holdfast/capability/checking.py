"""Compare an answer with its target by math-verify, in a separate process.

Computer algebra has no bound in time or memory. math-verify's own timeouts are signals, which
work only in the main thread and do not interrupt the computation of one large power. A process
can be killed from any thread.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import unicodedata

from holdfast.core.children import importable
from holdfast.core.errors import HoldfastError

_START_SECONDS = 120.0
_SECONDS = 10.0  # an answer that takes longer counts as wrong
_EACH_STEP_SECONDS = 3  # math-verify's own timeouts: for parsing, and for one comparison
_MEMORY_BYTES = 4 * 2**30

# The LaTeX of signs that math-verify does not parse.
_SIGNS = str.maketrans({"°": r"^\circ ", "∞": r"\infty ", "½": r"\frac12 "})
_ROOT = re.compile(r"√\s*(\d+|[a-z])")
_FULL_STOP = re.compile(r"(?<!\\right)\.\s*$")


class Checker:
    """Compares answers with targets in a process, until it is closed."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        """seconds: of one comparison. HoldfastError when math-verify is not installed."""
        if None in map(importlib.util.find_spec, ("math_verify", "antlr4")):
            raise HoldfastError(
                'checking answers needs math-verify; pip install "holdfast[capability]"'
            )
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None

    def correct(self, extracted: str | None, target: str) -> bool:
        """Whether the answer equals the target, both LaTeX or plain numbers; False for None."""
        if extracted is None or extracted == target:
            return extracted == target
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": importable()},
            )
            ready = _reply(self._process, "", _START_SECONDS)
            assert ready == "ready", "the process that checks answers did not start"
        verdict = _reply(self._process, json.dumps([extracted, target]) + "\n", self._seconds)
        if not verdict:
            self.close()
        return verdict == "true"

    def close(self) -> None:
        """End the process; the next comparison starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            # communicate() flushes stdin, which fails for input that the process never read.
            with contextlib.suppress(BrokenPipeError):
                process.communicate()


def _reply(process: subprocess.Popen[str], line: str, seconds: float) -> str:
    """The process's reply to a line; empty when it exits or is killed by the time limit."""
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line)
        process.stdin.flush()
    patience = threading.Timer(seconds, process.kill)
    patience.start()
    try:
        return process.stdout.readline().strip()
    finally:
        patience.cancel()


def equal(extracted: str, target: str) -> bool:
    """Compare by math-verify in this process; call it from the main thread only."""
    from math_verify import parse, verify

    gold, answer = (
        parse(rf"\boxed{{{_latex(text)}}}", parsing_timeout=_EACH_STEP_SECONDS)
        for text in (target, extracted)
    )
    return bool(verify(gold, answer, timeout_seconds=_EACH_STEP_SECONDS))


def _latex(text: str) -> str:
    """``text`` in signs that math-verify parses: ASCII digits, LaTeX degrees and roots."""
    digits = "".join(str(unicodedata.decimal(character, character)) for character in text)
    return _FULL_STOP.sub("", _ROOT.sub(r"\\sqrt{\1}", digits).translate(_SIGNS))


def _serve() -> None:
    """Answer each line of standard input by one of standard output, until the input ends."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    # Libraries print to the discarded standard error; only replies reach the original output.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Load and build math-verify's parsers now, outside the first comparison's time limit.
    equal("(x+1)^2", "x^2+2x+1")
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        try:
            verdict = equal(*json.loads(line))
        # Errors of the parser, of sympy, of arithmetic: what cannot be compared is not equal.
        except Exception:  # noqa: BLE001
            verdict = False
        print(json.dumps(verdict), file=replies, flush=True)


if __name__ == "__main__":
    _serve()
