"""Find numbers in texts of many languages and normalise them: ``-1234.5``, ``3/4``.

Digits of every script count. A comma, a dot, a space or an apostrophe groups thousands or begins
the decimals; where the number itself is ambiguous, the language decides.
"""

from __future__ import annotations

import functools
import re
import unicodedata

# Languages that write 1.234,5 or 1 234,5, with their thousands separators; all others: 1,234.5.
_DECIMAL_COMMA = {"de": ". ", "es": ". ", "fr": " ", "ru": " "}
_THIN = "\u2009"  # stands for every space that does not break a line
_CURRENCY = "[$€£¥₹৳฿₽₩]"

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
_SIGN = rf"(?P<sign>(?<![0-9A-Za-z_)\]}}%])-(?:{_CURRENCY}\s?)?|(?<==)\s{{0,3}}-\s{{0,3}})?"
# Python refuses to parse integers of thousands of digits, which a repetitive model may write.
_WHOLE = r"\d{1,99}"
_FRACTIONS = (
    rf"(?:(?P<whole>{_WHOLE})\s*)?\\[dtc]?frac"
    rf"\s*(?:\{{\s*(?P<top>-?{_WHOLE})\s*\}}|(?P<digit>\d))"
    r"\s*(?:\{\s*(?P<bottom>0{0,99}[1-9]\d{0,99})\s*\}|(?P<last>[1-9]))",
    rf"(?<![\d/.,])(?:(?P<units>{_WHOLE})\s)?(?P<over>{_WHOLE})/(?P<under>[1-9]\d{{0,99}})"
    r"(?!\d|[/.]\d)",
)
# Text before a number that makes it an exponent or an index; or the 2 of km2.
_EXPONENT = re.compile(r"(?<=[0-9A-Za-z)\]}])[\^_]\s*\{?\s*$")
_AREA = re.compile(r"(?<![A-Za-z])(?:[kdcm]?m|ft|in)$")


def numbers(text: str, language: str = "en") -> list[str]:
    """The numbers of a text in order.

    Each has ASCII digits without groups, a decimal point, and ``-`` for any minus sign; fractions,
    mixed ones too, have the form ``3/4``. Units, currencies, percent signs and exponents are left
    out. Number words are ignored, also beside digits: 27万 counts as 27.

    language: such as ``de``, in which 1.234 is more than a thousand; unknown ones count as English.
    """
    plain = _in_one_spelling(text)
    return [
        ("-" if match["sign"] else "") + _value(match)
        for match in _pattern(language).finditer(plain)
        if not _attached(plain[max(0, match.start() - 8) : match.start()], match[0])
    ]


def _in_one_spelling(text: str) -> str:
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    return "".join(map(_character, text)).translate(_ONE_SPELLING)


def _character(character: str) -> str:
    if character.isascii():
        return character
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    if unicodedata.name(character, "").startswith("VULGAR FRACTION"):
        return " " + unicodedata.normalize("NFKC", character)
    return character


def _attached(before: str, number: str) -> bool:
    """Whether the text ``before`` makes the number an exponent, an index or part of a unit."""
    return bool(_EXPONENT.search(before) or (number in ("2", "3") and _AREA.search(before)))


@functools.cache
def _pattern(language: str) -> re.Pattern[str]:
    comma = language in _DECIMAL_COMMA
    grouping = re.escape(_DECIMAL_COMMA.get(language, ",") + _THIN + "'")
    decimal = "[.,]" if comma else r"\."
    group = r"[1-9]\d{0,2}"
    forms = [
        # Two different marks, or one mark twice, are unambiguous.
        (rf"{group}(?:,\d{{3}})+", r"\."),
        (rf"{group}(?:\.\d{{3}})+", ","),
        (rf"{group}(?:,\d{{3}}){{2,}}(?!\d)", None),
        (rf"{group}(?:\.\d{{3}}){{2,}}(?!\d)", None),
        # Indian grouping: lakh and crore.
        (r"[1-9]\d?(?:,\d{2})+,\d{3}", r"\."),
        (r"[1-9]\d?(?:,\d{2})+,\d{3}(?!\d)", None),
        (rf"{group}(?P<mark>[{grouping}])\d{{3}}(?:(?P=mark)\d{{3}})*(?!\d)", decimal),
        (rf"{group}[{grouping}]\d{{3}}(?:[{grouping}]\d{{3}})*(?!\d)", None),
        (r"\d+", decimal),
        (r"\d+", None),
        (r"(?<![0-9A-Za-z_.])", r"\."),
    ]
    values = [
        f"(?P<i{place}>{whole})" + (f"{mark}(?P<d{place}>\\d+)" if mark else "")
        for place, (whole, mark) in enumerate(forms)
    ]
    return re.compile(_SIGN + "(?:" + "|".join([*_FRACTIONS, *values]) + ")")


def _value(match: re.Match[str]) -> str:
    given = {name: text for name, text in match.groupdict().items() if text is not None}
    under = given.get("bottom") or given.get("last") or given.get("under")
    if under:
        over = int(given.get("top") or given.get("digit") or given["over"])
        over += int(given.get("whole") or given.get("units") or 0) * int(under)
        return f"{over}/{int(under)}"
    whole = next(text for name, text in given.items() if name.startswith("i"))
    decimals = next((text for name, text in given.items() if name.startswith("d")), None)
    digits = re.sub(r"\D", "", whole).lstrip("0") or "0"
    return digits if decimals is None else f"{digits}.{decimals}"
