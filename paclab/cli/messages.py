"""One line for every mistake: `NAME: problem; fix`, in the words of the command that was typed.

Knows options, arguments and their spelling; knows no command's meaning. Messages name a setting as `name` in
backticks or as name=value; here they become --name and --name value, so that one text serves notebooks and commands.
"""

import inspect
import re
import typing
from pathlib import Path
from typing import Any

import typer

from paclab.errors import InputError, nearest

UsageError = typer.BadParameter.__mro__[1]  # typer carries its own copy of click or uses the package
SAME = {"folder": "out", "out": "folder"}  # a run's folder: --out when it begins, FOLDER afterwards
KINDS = {int: ("a whole number", "NUMBER"), float: ("a number", "NUMBER"), Path: ("a path", "PATH")}


def leaf(command: Any, words: list[str]) -> Any:
    """The command that these words call: the last one reached by walking down the groups."""
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    return command


def shown(parameter: Any) -> str:
    """An option as it is typed, an argument as the help page calls it."""
    if parameter.param_type_name == "argument":
        return (parameter.metavar or parameter.name).strip("[].").upper()
    return max(parameter.opts, key=len)


def spellings(command: Any) -> dict[str, tuple[str, bool]]:
    """Name of each setting of a command -> how it is typed, and whether it is a flag without a value."""
    names = {}
    for parameter in command.params:
        typed = shown(parameter)
        for name in (parameter.name, typed.lstrip("-").replace("-", "_").lower()):
            names[name] = typed, bool(getattr(parameter, "is_flag", False))
    for name, other in SAME.items():
        if name not in names and other in names:
            names[name] = names[other]
    return names


def input_line(error: InputError, command: Any) -> str:
    """A refused value, with settings spelled as options of the command."""
    names = spellings(command)

    def assigned(found: re.Match) -> str:
        typed, flag = names.get(found[1], (None, False))
        return found[0] if typed is None else typed if flag else f"{typed} {found[2]}"

    def quoted(found: re.Match) -> str:
        return names[found[1]][0] if found[1] in names else found[0]

    def spelled(text: str) -> str:
        return re.sub(r"`(\w+)`", quoted, re.sub(r"\b(\w+)=([^\s,;)]+)", assigned, text))

    name = names.get(error.parameter, (error.parameter,))[0]
    return _line(f"{name}: {spelled(error.problem)}; {spelled(error.fix)}")


def usage_line(error: Any) -> str:
    """A command line that could not be read: unknown words, missing or malformed values."""
    path = error.ctx.command_path if error.ctx else "paclab"
    command, kind = error.ctx.command if error.ctx else None, type(error).__name__
    parameter, helped = getattr(error, "param", None), f"see `{path} --help`"
    if kind == "NoSuchOption":
        close = nearest(error.option_name, [name for p in command.params for name in p.opts] if command else [])
        return _line(f"{error.option_name}: {path} has no such option; {close if 'mean' in close else helped}")
    if kind == "MissingParameter" and parameter:
        return _line(f"{shown(parameter)}: is missing; give {_example(command, parameter)}")
    if isinstance(error, typer.BadParameter) and parameter:
        problem = _malformed(error, _kind(command, parameter)[0])
        return _line(f"{shown(parameter)}: {problem}; give {_example(command, parameter)}")
    if "does not take" in error.message:
        return _line(f"{error.option_name}: takes no value; leave the value out")
    if "requires an argument" in error.message:
        return _line(f"{error.option_name}: has no value; write a value after it")
    return _line(_unknown_word(error, path, helped))


def _unknown_word(error: Any, path: str, helped: str) -> str:
    word = re.search(r"No such command '(.*?)'", error.message)
    if word:
        return f"{word[1]}: {path} has no such command; {nearest(word[1], error.ctx.command.commands)}"
    extra = re.search(r"unexpected extra argument(?:s|\(s\))? \((.*)\)", error.message)
    if extra:
        return f"{extra[1]}: {path} does not know what this is for; {helped}"
    if error.message.startswith("Missing command"):
        return f"{path}: a command is missing; choose one of: {', '.join(error.ctx.command.commands)}"
    return f"{path}: {error.message.rstrip('.')}; {helped}"


def _kind(command: Any, parameter: Any) -> tuple[type, str, str]:
    """Type of a parameter's values, that type in words, and a placeholder."""
    hint = typing.get_type_hints(inspect.unwrap(command.callback)).get(parameter.name, str)
    for kind, (words, placeholder) in KINDS.items():
        if kind is hint or kind in typing.get_args(hint):
            return kind, words, placeholder
    return str, "a value", "VALUE"


def _malformed(error: Any, kind: type) -> str:
    cause = getattr(error.__cause__, "errors", None)  # newer typer: pydantic says which value was refused
    quoted = re.match(r"'(.*)' is not ", error.message)
    value = str(cause()[0]["input"]) if cause else quoted[1] if quoted else ""
    try:
        kind(value)
    except ValueError:
        return f"{value!r} is not {KINDS[kind][0]}"
    return f"{value!r} is refused ({error.message.rstrip('.')})" if value else error.message.rstrip(".")


def _example(command: Any, parameter: Any) -> str:
    text = shown(parameter)
    if parameter.param_type_name == "option":
        text += f" {_kind(command, parameter)[2]}"
    return f"{text}: {parameter.help}" if parameter.help else text


def _line(text: str) -> str:
    return " ".join(text.split())
