r"""Find answers in generated text, and compare them with targets.

An answer is the last complete ``\boxed{}``, or the last number. Numbers have normal forms:
``-1234.5``, ``3/4``. Digits of every script count. A comma, a dot, a space or an apostrophe groups
thousands or begins the decimals; if the number itself is ambiguous, the language decides.
Source: app:res-capability.

Answers are compared by math-verify, in a separate process, which any thread can kill. Computer
algebra has no bound in time or memory, and math-verify's own timeouts are signals, which work only
in the main thread and do not interrupt the computation of one large power.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import unicodedata
from typing import Literal, TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.core.processes import importable

# "number": the answer is a number. "expression": the answer may be any LaTeX expression.
Kind: TypeAlias = Literal["number", "expression"]

_BOX = re.compile(r"\\f?box(?:ed)?(?![a-z])\s*")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"-?[\w.,/]*\w")
# A root or a power is an expression to evaluate, not a number with a unit.
_OPERATION = re.compile(r"\\sqrt|\d\s*\^\s*\{?\s*-?\d|√")

# Languages that write 1.234,5 or 1 234,5 -> their thousands separators; all others write 1,234.5.
_DECIMAL_COMMA = {"de": ". ", "es": ". ", "fr": " ", "ru": " "}
_THIN = "\u2009"  # replaces every space that does not break a line
_ONE_SPELLING = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\u207b\ufe63\uff0d", "-")
    | dict.fromkeys("\u00a0\u2007\u2008\u202f", _THIN)
    | {"\u2044": "/", "\uff0f": "/", "\uff0e": ".", "\uff04": "$"}
    # The Arabic separators of thousands and of decimals are unambiguous.
    | {"\u066c": "'", "\u066b": "."}
)
_REWRITTEN = [
    # A full-width comma ends a clause, unless the digits around it are full-width too.
    (re.compile("(?<=[\uff10-\uff19])\uff0c(?=[\uff10-\uff19]{3})"), ","),
    (re.compile(r"(?<=\d)[\u2019\u02bc](?=\d{3})"), "'"),
    # LaTeX spacing inside a number, and its escaped dollar sign before one.
    (re.compile(r"(?<=\d)(?:\{,\}|,\\!)\s*(?=\d{3})"), ","),
    (re.compile(r"(?<=\d)(?:\\[,:;! ]|~)(?=\d{3}(?!\d))"), _THIN),
    (re.compile(r"\\\$"), "$"),
]
# A minus between two terms is no sign; nor is the dash of a list item, which a space follows.
_SIGN = r"(?P<sign>(?<![0-9A-Za-z_)\]}%])-(?:[$€£¥₹৳฿₽₩]\s?)?|(?<==)\s{0,3}-\s{0,3})?"
# Python refuses to parse integers of thousands of digits, which a repetitive model may write.
_WHOLE, _NOT_ZERO = r"\d{1,99}", r"0{0,99}[1-9]\d{0,99}"
_FRACTIONS = (
    rf"(?:(?P<whole>{_WHOLE})\s*)?\\[dtc]?frac\s*(?:\{{\s*(?P<top>-?{_WHOLE})\s*\}}|(?P<digit>\d))"
    rf"\s*(?:\{{\s*(?P<bottom>{_NOT_ZERO})\s*\}}|(?P<last>[1-9]))",
    rf"(?<![\d/.,])(?:(?P<units>{_WHOLE})\s)?(?P<over>{_WHOLE})/(?P<under>[1-9]\d{{0,99}})"
    r"(?!\d|[/.]\d)",
)
# Text before a number that makes it an exponent or an index; a unit before the 2 of km2.
_EXPONENT = re.compile(r"(?<=[0-9A-Za-z)\]}])[\^_]\s*\{?\s*$")
_AREA = re.compile(r"(?<![A-Za-z])(?:[kdcm]?m|ft|in)$")


def extract(text: str, kind: Kind, language: str = "en") -> str | None:
    r"""The final answer in a text, generated up to the stop; None when it has none.

    Of several boxes the last complete one counts: a solution may box intermediate results, and a
    box that was cut off holds no answer. For an expression, the box's content is returned
    unchanged. For a number, the one number in the box is returned in normal form, without units; a
    box with several numbers, such as ``2 + 3``, or a root or a power is returned unchanged, and a
    box without a number gives None. Without a box, the text's last number is returned.
    """
    box = last_box(text)
    if box is not None and kind == "expression":
        return box
    candidates = numbers(text if box is None else box, language)
    if box is not None and (len(candidates) > 1 or _OPERATION.search(box)):
        return box
    return candidates[-1] if candidates else None


def last_box(text: str) -> str | None:
    r"""The stripped content of the last ``\boxed{}`` or ``\fbox{}`` that closes and is not empty.

    Escaped braces do not count. A box without braces, ``\boxed 7``, holds the word that follows.
    """
    content = None
    for opening in _BOX.finditer(text):
        content = _content(text, opening.end()) or content
    return content


def _content(text: str, begin: int) -> str | None:
    if text[begin : begin + 1] != "{":
        bare = _BARE.match(text, begin)
        return bare[0] if bare else None
    depth = 0
    for brace in _BRACES.finditer(text, begin):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if depth == 0:
            return text[begin + 1 : brace.start()].strip()
    return None


def numbers(text: str, language: str = "en") -> list[str]:
    """The numbers of a text in order, such as ``-1234.5``; mixed fractions too are like ``3/4``.

    Units, currencies, percent signs and exponents are left out. Number words are ignored, even next
    to digits: 27万 counts as 27. language: such as ``de``, in which 1.234 exceeds a thousand;
    unknown ones count as English.
    """
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    plain = "".join(map(_character, text)).translate(_ONE_SPELLING)
    values = []
    for match in _pattern(language).finditer(plain):
        before = plain[max(0, match.start() - 8) : match.start()]
        unit = match[0] in ("2", "3") and _AREA.search(before)
        if not unit and not _EXPONENT.search(before):
            values.append(("-" if match["sign"] else "") + _value(match))
    return values


def _character(character: str) -> str:
    if character.isascii():
        return character
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    if unicodedata.name(character, "").startswith("VULGAR FRACTION"):
        return " " + unicodedata.normalize("NFKC", character)
    return character


@functools.cache
def _pattern(language: str) -> re.Pattern[str]:
    """Matches a sign with a fraction or number; the last group of a number holds its decimals."""
    grouping = re.escape(_DECIMAL_COMMA.get(language, ",") + _THIN + "'")
    mark = "[.,]" if language in _DECIMAL_COMMA else r"\."
    group, decimals = r"[1-9]\d{0,2}", r"(\d+)"
    forms = [
        # Two different marks, or one mark twice, are unambiguous.
        rf"{group}(?:,\d{{3}})+\.{decimals}",
        rf"{group}(?:\.\d{{3}})+,{decimals}",
        rf"{group}(?:(?:,\d{{3}}){{2,}}|(?:\.\d{{3}}){{2,}})(?!\d)",
        # Indian grouping: lakh and crore.
        rf"[1-9]\d?(?:,\d{{2}})+,\d{{3}}(?:\.{decimals}|(?!\d))",
        rf"{group}(?P<mark>[{grouping}])\d{{3}}(?:(?P=mark)\d{{3}})*(?!\d){mark}{decimals}",
        rf"{group}(?:[{grouping}]\d{{3}})+(?!\d)",
        rf"\d+(?:{mark}{decimals})?",
        rf"(?<![0-9A-Za-z_.])\.{decimals}",
    ]
    return re.compile(_SIGN + "(?:" + "|".join([*_FRACTIONS, *forms]) + ")")


def _value(match: re.Match[str]) -> str:
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    under = groups.get("bottom") or groups.get("last") or groups.get("under")
    if under:
        over = int(groups.get("top") or groups.get("digit") or groups["over"])
        over += int(groups.get("whole") or groups.get("units") or 0) * int(under)
        return f"{over}/{int(under)}"
    # Of the groups, only those of decimals have no name, and they come last.
    named = match.lastindex is None or match.lastgroup is not None
    decimals = "" if named else match[match.lastindex or 0]
    whole = match[0].removesuffix(decimals)
    digits = re.sub(r"\D", "", whole).lstrip("0") or "0"
    return f"{digits}.{decimals}" if decimals else digits


_START_SECONDS = 120.0
_SECONDS = 10.0  # an answer that takes longer counts as wrong
_EACH_STEP_SECONDS = 3  # math-verify's own timeouts: for parsing, and for one comparison
_MEMORY_BYTES = 4 * 2**30

# The LaTeX of signs that math-verify does not parse.
_SIGNS = str.maketrans({"°": r"^\circ ", "∞": r"\infty ", "½": r"\frac12 "})
_ROOT = re.compile(r"√\s*(\d+|[a-z])")
_FULL_STOP = re.compile(r"(?<!\\right)\.\s*$")


class Checker:
    """Compares answers with targets in a child process, until it is closed."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        """seconds: limit of one comparison. HoldfastError if math-verify is not installed."""
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
        # Errors of the parser, sympy or arithmetic: answers that cannot be compared are not equal.
        except Exception:  # noqa: BLE001
            verdict = False
        print(json.dumps(verdict), file=replies, flush=True)


if __name__ == "__main__":
    _serve()
