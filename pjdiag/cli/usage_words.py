"""What the parser of the command line refuses, in our words.

Typer hands on the words of what it converts with, which differ from version to version; those that
are known are said plainly, everything else stays as it is.
"""

import re
from collections.abc import Sequence
from typing import Any

from pjdiag.checkpoint.text import near

CHOICES = re.compile(r"(?:Value error, )?(?P<found>'[^']*') is not one of (?P<names>'.+')")
WHOLE = re.compile(r"valid integer", re.IGNORECASE)
NUMBER = re.compile(r"valid (?:number|float)", re.IGNORECASE)
BOUND = re.compile(r"should be (?P<which>less|greater) than or equal to (?P<bound>[-\d.e+]+)")
TOO_LARGE = "Unable to parse input string as an integer, exceeded maximum size"
PART = re.compile(r"(?:order|fj|lc|sector|band):\w+|alibi|t5_bias")
"""What ``pjdiag loo --remove`` takes."""


def usage_message(error: Any, arguments: Sequence[str]) -> str:
    """The message and hint for an error of the parser of click or Typer."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "pjdiag"
    parameter = getattr(error, "param", None)
    given = _given(parameter, arguments)
    names = getattr(parameter, "opts", None)
    raw = " ".join(str(getattr(error, "message", "")).split()).rstrip(".")
    said = _said(max(names, key=len), raw, given) if names else None
    if said is not None:
        message, hint = said
        return f"{message}. Next: {hint or f'see `{where} --help`'}"
    message = error.format_message().replace("Value error, ", "").strip().rstrip(".")
    if given is not None and given not in message:
        message = f"{message}; found {given!a}"
    told = " ".join(message.split())
    return f"{told}{'' if told.endswith('?') else '.'} Next: see `{where} --help`"


def _said(option: str, raw: str, given: str | None) -> tuple[str, str] | None:
    """Message and hint in our words; None where the parser's are not known.

    >>> _said("--by", "Value error, 'modle' is not one of 'model', 'layer', 'head'", "modle")
    ("--by is 'modle'; expected model, layer or head", 'pass --by model')
    >>> _said("--order", "Input should be a valid integer, unable to parse", "two")
    ("--order is 'two'; expected a whole number", '')
    """
    if choices := CHOICES.search(raw):
        names = re.findall(r"'([^']*)'", choices["names"])
        found = choices["found"][1:-1]
        close = near(found, names)
        listed = " or ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
        hint = f"pass {option} {close[0]}" if close else ""
        return f"{option} is {found!a}; expected {listed}", hint
    what = f"{option} is {given!a}" if given is not None else f"{option} of a settings file"
    if WHOLE.search(raw) or raw.startswith(TOO_LARGE):
        part = option == "--order" and PART.fullmatch(given or "")
        hint = f"to remove that part of the running model pass --remove {given}" if part else ""
        return f"{what}; expected a whole number", hint
    if NUMBER.search(raw):
        return f"{what}; expected a number", ""
    if bound := BOUND.search(raw):
        which = "most" if bound["which"] == "less" else "least"
        return f"{what}; expected at {which} {bound['bound']}", ""
    return None


def _given(parameter: Any, arguments: Sequence[str]) -> str | None:
    """The value that was typed for an option, which the parser's message may leave out."""
    names = set(getattr(parameter, "opts", ()))
    for position, word in enumerate(arguments):
        option, separator, value = word.partition("=")
        if option in names:
            return value if separator else next(iter(arguments[position + 1 :]), None)
    return None
