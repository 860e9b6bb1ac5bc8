r"""Find answers in generated text: its last complete ``\boxed{}``, or its last number.

Numbers have normal forms: ``-1234.5``, ``3/4``. Digits of every script count. A comma, a dot, a
space or an apostrophe groups thousands or begins the decimals; where the number itself is
ambiguous, the language decides. Source: app:res-capability.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Literal, TypeAlias

# "number": the answer is a number. "expression": the answer may be any LaTeX expression.
Kind: TypeAlias = Literal["number", "expression"]

_BOX = re.compile(r"\\f?box(?:ed)?(?![a-z])\s*")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"-?[\w.,/]*\w")
# A root or a power is an expression to evaluate, not a number with a unit.
_OPERATION = re.compile(r"\\sqrt|\d\s*\^\s*\{?\s*-?\d|√")

# Languages that write 1.234,5 or 1 234,5, with their thousands separators; all others: 1,234.5.
_DECIMAL_COMMA = {"de": ". ", "es": ". ", "fr": " ", "ru": " "}
_THIN = "\u2009"  # stands for every space that does not break a line
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
# Text before a number that makes it an exponent or an index; or the 2 of km2.
_EXPONENT = re.compile(r"(?<=[0-9A-Za-z)\]}])[\^_]\s*\{?\s*$")
_AREA = re.compile(r"(?<![A-Za-z])(?:[kdcm]?m|ft|in)$")


def extract(text: str, kind: Kind, language: str = "en") -> str | None:
    r"""The final answer in a text; None when it has none.

    Of several boxes the last complete one counts: a solution may box intermediate results, and a
    box that was cut off holds no answer. For an expression, the box's content is returned
    unchanged. For a number, the one number in the box is returned in normal form, without units; a
    box with several numbers, such as ``2 + 3``, or a root or a power is returned unchanged, and a
    box without a number gives None. Without a box, the text's last number is returned.

    text: the generated text, up to the stop; language: decides between 1.234 and 1,234.
    """
    box = last_box(text)
    if box is not None and kind == "expression":
        return box
    found = numbers(text if box is None else box, language)
    if box is not None and (len(found) > 1 or _OPERATION.search(box)):
        return box
    return found[-1] if found else None


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
    """The numbers of a text in order.

    Each has ASCII digits without groups, a decimal point, and ``-`` for any minus sign; fractions,
    mixed ones too, have the form ``3/4``. Units, currencies, percent signs and exponents are left
    out. Number words are ignored, also beside digits: 27万 counts as 27.

    language: such as ``de``, in which 1.234 is more than a thousand; unknown ones count as English.
    """
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    plain = "".join(map(_character, text)).translate(_ONE_SPELLING)
    found = []
    for match in _pattern(language).finditer(plain):
        before = plain[max(0, match.start() - 8) : match.start()]
        unit = match[0] in ("2", "3") and _AREA.search(before)
        if not unit and not _EXPONENT.search(before):
            found.append(("-" if match["sign"] else "") + _value(match))
    return found


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
    """Sign, fraction or number; the last group that matched a number holds its decimals."""
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
    given = {name: text for name, text in match.groupdict().items() if text is not None}
    under = given.get("bottom") or given.get("last") or given.get("under")
    if under:
        over = int(given.get("top") or given.get("digit") or given["over"])
        over += int(given.get("whole") or given.get("units") or 0) * int(under)
        return f"{over}/{int(under)}"
    # Of the groups, only those of decimals have no name, and they come last.
    named = match.lastindex is None or match.lastgroup is not None
    decimals = "" if named else match[match.lastindex or 0]
    whole = match[0].removesuffix(decimals)
    digits = re.sub(r"\D", "", whole).lstrip("0") or "0"
    return f"{digits}.{decimals}" if decimals else digits
