"""What a spreadsheet shows of a number, a date or a text, for the formats that can be told exactly.

The codes are those of a workbook's number formats (ECMA-376, 18.8.31). A decimal point, a comma
between thousands and English names of months are what the file itself says, whatever the language
of the program that shows it.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import ROUND_HALF_UP, Decimal

_MOST_OF_GENERAL = 11  # symbols of a number that "General" shows without rounding it
_MOST_OF_PATTERN = 16  # symbols; decimals beyond those that a spreadsheet keeps are not shown
_LARGEST = 10**15  # a spreadsheet keeps 15 digits
_TOKEN = re.compile(
    r"""(?P<text>"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|\[\$(?P<currency>[^\]\-]+)(-[0-9A-Fa-f]+)?\]
        |(?P<plain>[-+$€£¥():!^&'~{}<>=\ /]))
    |(?P<mark>[.,])
    |(?P<gap>_.)
    |(?P<silent>\[(Black|Blue|Cyan|Green|Magenta|Red|White|Yellow|Color\s?\d+|\$-0*[48]09)\])
    |(?P<percent>%)
    |(?P<general>General|Standard)
    |(?P<number>[0\#](?:[0\#,]*[0\#])?(?:\.[0\#]*)?)
    |(?P<date>[yY]+|[mM]+|[dD]+|[hH]+|[sS]+)
    |(?P<cell>@)""",
    re.VERBOSE,
)
_DIGITS = re.compile(r"(?P<whole>#*0*|#,##[0#])(?P<point>\.(?P<always>0*)(?P<needed>#*))?")
_ENGLISH = re.compile(r"\[\$-0*[48]09\]")  # of the United States and of the United Kingdom
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
# 1900 was no leap year, but is one in the workbooks' calendar until March.
_CALENDAR_BEGINS = dt.datetime(1900, 3, 1)

# Built-in formats that programs show as their country has them; of the second, negative numbers.
_DATES_OF_A_COUNTRY = {"mm-dd-yy", "m/d/yy h:mm"}
_NUMBERS_OF_A_COUNTRY = {
    *("#,##0_);(#,##0)", "#,##0_);[Red](#,##0)"),
    *("#,##0.00_);(#,##0.00)", "#,##0.00_);[Red](#,##0.00)"),
}

Token = tuple[str, str]  # group of _TOKEN, text


class UnknownFormatError(Exception):
    """What the sheet shows cannot be told from the number format."""


def shown(value: object, code: str) -> str:
    """The text that a sheet shows of a cell.

    value: a text, number, truth value, date or time; code: the cell's number format, such as
    ``0.00``. Raises UnknownFormatError where the text depends on the computer, is rounded by the
    width of the column, or the code is none of those read here.
    """
    sections = _sections(code)
    if isinstance(value, str):
        return _of_text(value, sections)
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, float)):
        if value < 0 and code in _NUMBERS_OF_A_COUNTRY:
            raise UnknownFormatError
        return _of_number(_decimal(value), sections)
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return _of_date(value, code, sections)
    raise UnknownFormatError


def _sections(code: str) -> list[list[Token]]:
    """The parts for positive and negative numbers, zero and text, each as tokens."""
    sections: list[list[Token]] = [[]]
    place = 0
    while place < len(code):
        if code[place] == ";":
            sections.append([])
            place += 1
            continue
        match = _TOKEN.match(code, place)
        if match is None:
            raise UnknownFormatError
        groups = {name: text for name, text in match.groupdict().items() if text is not None}
        kind, *inner = groups  # "text" has its form behind it
        text = groups[inner[0]] if inner else match[0]
        if kind != "silent":
            sections[-1].append((kind, " " if kind == "gap" else text))
        place = match.end()
    return sections


def _of_text(value: str, sections: list[list[Token]]) -> str:
    own = [one for one in sections if ("cell", "@") in one] or sections[3:]
    if own not in ([], [[("cell", "@")]]):
        raise UnknownFormatError
    return value


def _decimal(value: float) -> Decimal:
    number = Decimal(value) if isinstance(value, int) else Decimal(f"{value:.15g}")
    if not number.is_finite() or abs(number) >= _LARGEST:
        raise UnknownFormatError
    return number


def _of_number(number: Decimal, sections: list[list[Token]]) -> str:
    section = sections[0]
    sign = "-" if number < 0 else ""
    if number < 0 and len(sections) > 1:
        section, sign = sections[1], ""
    elif number == 0 and len(sections) > 2:
        section = sections[2]
    if not section and len(sections) == 1:
        section = [("general", "General")]
    amount = abs(number) * Decimal(100) ** sum(kind == "percent" for kind, _ in section)
    kinds = [kind for kind, _ in section if kind not in ("text", "gap", "percent")]
    if kinds not in (["number"], ["general"]) and section != [("cell", "@")]:
        raise UnknownFormatError
    parts = [_part(kind, text, amount) for kind, text in section]
    return sign + "".join(parts)


def _part(kind: str, text: str, amount: Decimal) -> str:
    if kind in ("general", "cell"):
        return _general(amount)
    return _digits(amount, text) if kind == "number" else text


def _general(amount: Decimal) -> str:
    text = f"{amount.normalize():f}"
    if len(text) > _MOST_OF_GENERAL or 0 < amount < Decimal("0.0001"):
        raise UnknownFormatError
    return text


def _digits(amount: Decimal, pattern: str) -> str:
    match = _DIGITS.fullmatch(pattern)
    if match is None or len(pattern) > _MOST_OF_PATTERN:
        raise UnknownFormatError
    always, needed = len(match["always"] or ""), len(match["needed"] or "")
    rounded = amount.quantize(Decimal(1).scaleb(-always - needed), ROUND_HALF_UP)
    if amount and not rounded:  # programs differ in the sign of a zero
        raise UnknownFormatError
    whole, _, decimals = f"{rounded:f}".partition(".")
    least = match["whole"].count("0")
    whole = whole.lstrip("0").rjust(least, "0")
    if "," in match["whole"]:
        whole = f"{int(whole or 0):,}" if whole else ""
    kept = decimals[:always] + decimals[always:].rstrip("0")
    return whole + ("." + kept if match["point"] else "")


def _of_date(
    value: dt.datetime | dt.date | dt.time,
    code: str,
    sections: list[list[Token]],
) -> str:
    if code in _DATES_OF_A_COUNTRY or sections[1:] not in ([], [[("cell", "@")]]):
        raise UnknownFormatError
    parts = sections[0]
    kinds = [text.lower() for kind, text in parts if kind == "date"]
    if not kinds or any(kind not in ("date", "text", "mark") for kind, _ in parts):
        raise UnknownFormatError
    when = _moment(value)
    names = _MONTHS if _ENGLISH.search(code) else None
    written, before = [], ""
    for place, (kind, text) in enumerate(parts):
        if kind != "date":
            written.append(text)
            continue
        field = text.lower()
        behind = next((t.lower() for k, t in parts[place + 1 :] if k == "date"), "")
        if field in ("m", "mm") and (before.startswith("h") or behind.startswith("s")):
            field = field.replace("m", "i")  # minutes
        if isinstance(value, dt.time) and field[0] in "ymd":
            raise UnknownFormatError
        written.append(_field(field, when, names))
        before = field
    return "".join(written)


def _moment(value: dt.datetime | dt.date | dt.time) -> dt.datetime:
    if isinstance(value, dt.time):
        value = dt.datetime.combine(_CALENDAR_BEGINS, value)
    elif not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    if value < _CALENDAR_BEGINS or value.microsecond:
        raise UnknownFormatError
    return value


def _field(field: str, when: dt.datetime, months: tuple[str, ...] | None) -> str:
    numbers = {
        "y": when.year, "m": when.month, "d": when.day,
        "h": when.hour, "i": when.minute, "s": when.second,
    }  # fmt: skip
    if field in ("yyyy", "yy"):
        return f"{when.year:04}"[-len(field) :]
    if field in ("mmm", "mmmm") and months is not None:
        name = months[when.month - 1]
        return name[:3] if field == "mmm" else name
    if len(field) > 2 or field == "y":
        raise UnknownFormatError
    return f"{numbers[field[0]]:0{len(field)}}"
