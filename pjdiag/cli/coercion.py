"""Typer converts values through pydantic, whose import costs as much as half a diagnosis.

Options that were left out, plain text, lists of it and paths need no conversion. They are answered
here; everything else still goes to Typer. Versions of Typer without pydantic are left as they are.
"""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

SLOT = "_runtime_param"
"""Where Typer's parameters keep their converter, made at the first value."""


class PlainValues:
    """Stands in for one parameter's converter until a value needs the real one."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """``value`` in the parameter's type."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        kind = param.type_descriptor.annotation
        if isinstance(value, str) and kind is str:
            return value
        if kind == list[str] and isinstance(value, list | tuple) and _all_text(value):
            return list(value)
        # Whether a path exists and can be read is for the reader to say.
        if isinstance(value, str | Path) and kind is Path:
            return Path(value)
        if isinstance(kind, type) and type(value) is kind and value == param.default:
            return value
        setattr(param, SLOT, None)  # Typer then makes its own
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _all_text(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def without_pydantic(command: Any) -> Any:
    """``command`` and its subcommands, plain values answered without pydantic."""
    for each in (command, *getattr(command, "commands", {}).values()):
        each.get_params = partial(_plain_params, each.get_params)
    return command


def _plain_params(get_params: Callable[[Any], list[Any]], context: Any) -> list[Any]:
    parameters = get_params(context)
    for parameter in parameters:
        if getattr(parameter, SLOT, ...) is None:
            setattr(parameter, SLOT, PlainValues())
    return parameters
