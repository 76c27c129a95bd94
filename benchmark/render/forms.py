"""How single numbers are printed, the same in every format."""

from __future__ import annotations

from collections.abc import Callable


def percent(share: float) -> str:
    """``81.25`` for 0.8125."""
    return f"{100 * share:.2f}"


def signed(share: float) -> str:
    """``+0.25`` or ``−0.25`` in percent."""
    text = percent(abs(share))
    return ("−" if share < 0 and float(text) else "+") + text


def p_value(p: float) -> str:
    """``0.014``, or ``< 0.001``."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def size(count: float) -> str:
    """Bytes in decimal units: ``1.23 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.4g} TB"


_FORMS: dict[str, Callable[[float], str]] = {
    "percent": percent,
    "signed": signed,
    "p": p_value,
    "size": size,
    "rank": lambda rank: f"{rank:.2f}".removesuffix(".00"),
    "share": lambda share: f"{100 * share:.1f} %",
}


def printed(value: str | float, form: str) -> str:
    """A number as text; words stay as they are.

    Args:
        form: ``percent`` and ``signed`` (of shares in 0..1, two digits), ``share`` (with its % sign), ``p``
            (a p-value), ``rank`` (a mean of ranks), ``size`` (bytes), or a format specification of Python
            such as ``.2f``.
    """
    if isinstance(value, str):
        return value
    return _FORMS[form](value) if form in _FORMS else format(value, form)


def no_formula(text: str) -> str:
    """`text` for a CSV file: what a spreadsheet would take for a formula has an apostrophe before it."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
