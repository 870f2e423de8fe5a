"""Flags to a config, for all launchers: ``--config=NAME``, ``NAME:FORM`` or a path, and ``--<field>=<value>``.

Errors are one line, with exit status 2. ``ml_collections.config_flags`` has neither names nor such errors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import importlib.machinery
import importlib.util
import inspect
import itertools
import os
import pathlib
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import ml_collections
from absl import app, flags, logging

from winobench.base import near_names, options, registry
from winobench.base.errors import InputError
from winobench.base.files import LARGEST, size_in_words, user_path
from winobench.runs import settings

from . import BAD_INPUT, INTERRUPTED, layout, missing_package, odd_setting, output, refused_environment, renamed
from .overrides import check_name, flat, names, parted, read_text, shown, unknown

# Next to this package: at the top of a checkout, inside winobench once installed.
_CONFIGS_PACKAGE = f"{__package__}.".removesuffix("launch.") + "configs"

_LONGEST_PATH_SHOWN, _LONGEST_WORD, _LONGEST_LINE = 300, 600, 1_400
_HELP_FLAGS = ("--help", "-help", "-h", "--helpfull", "--helpshort")

flags.DEFINE_string("config", None, "Name of a file in configs/, or a path. An argument may follow after a colon.")


@functools.cache
def config_files() -> dict[str, pathlib.Path]:
    """Name -> file of each config, also of packages that plug in."""
    folders = reversed(list(importlib.import_module(_CONFIGS_PACKAGE).__path__))  # winobench's own come last, and win
    paths = [path for folder in folders for path in pathlib.Path(folder).glob("[!_]*.py")]
    return {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}


def config_names(launcher: str | None = None) -> list[str]:
    if launcher is None:
        return [*config_files()]
    return [name for name, path in config_files().items() if _launcher_of(_execute(path)) in (None, launcher)]


def load(spec: str, overrides: Iterable[tuple[str, str]] = (), launcher: str | None = None) -> Any:
    """The settings of a config: a dataclass of options with checked values."""
    return _settled(*_opened(spec, launcher), overrides)


def _opened(spec: str, launcher: str | None) -> tuple[Any, ml_collections.ConfigDict, Any]:
    """The module of a config, what it gives, and its options with their defaults."""
    module, argument = _load_module(spec, launcher)
    name = spec.partition(":")[0]
    config = _made(module, name, argument)
    holder = _holder(module, config, name, launcher)
    _check_launcher(holder, name, launcher)
    return module, config, _usual_settings(holder)


def _settled(module: Any, config: ml_collections.ConfigDict, usual: Any, overrides: Iterable[tuple[str, str]]) -> Any:
    declared, values, flag = options.declared(usual), options.values(usual), shown(usual)
    for field, value in flat(config.to_dict()).items():
        check_name(field, values)
        values[field] = value
    for field, text in overrides:
        check_name(field, values)
        values[field] = read_text(flag[field], text, declared[field].metadata["range"], values[field])
    for field, option in declared.items():
        given, about = values[field], option.metadata
        value = None if given is option.default is None else about["range"].check(f"--{flag[field]}", given)
        if type(value) is not type(given) or value != given:  # 1 stays 1 in a list of numbers
            values[field] = value
        if "read" in about and value is not None:
            about["read"](value)
    cases = {*settings.CASES} - {*settings.MODES} | {values.get("sampling.mode", "")}
    on_line, given_on_line = ({flag[field]: known[field] for field in declared} for known in (declared, values))
    settings.check_cases(on_line, given_on_line, cases, prefix="--")
    chosen = options.replaced(usual, values)
    if callable(getattr(module, "check", None)):
        module.check(chosen)
    return chosen


def launcher_of(spec: str) -> str:
    """The launcher that runs a config."""
    module, argument = _load_module(spec)
    name = spec.partition(":")[0]
    return _launcher_of(module) or _launcher_of(_holder(module, _made(module, name, argument), name, None)) or "eval"


def options_of(spec: str) -> Mapping[str, dataclasses.Field]:
    """Dotted field -> option of a config."""
    return options.declared(load(spec))


def chosen_name(default: str) -> str:
    """The config's name without its form, for the beginning of a folder's name."""
    return registry.model_label((flags.FLAGS.config or default).removesuffix(".py").partition(":")[0])


def plain(config: Any) -> dict[str, Any]:
    """Settings as nested dictionaries of JSON values."""
    named = options.values(config)
    return options.nested({name: list(value) if isinstance(value, tuple) else value for name, value in named.items()})


def start(main: Callable[[Any], None], *, launcher: str | None, default: str | None, usage: str) -> None:
    """Runs a launcher: parses the flags, and calls ``main`` with the config's settings.

    Without a default, a config must be named: one that takes hours is not begun by mistake.
    """
    _run(main, lambda argv: _parse(argv, launcher, default, usage))


def start_without_config(main: Callable[[list[str]], None], *, usage: str, takes_words: bool = False) -> None:
    """Runs a launcher that has flags, and perhaps words, but no config."""
    del flags.FLAGS.config

    def parse(argv: Sequence[str]) -> list[str]:
        wants_help, words, _ = _parse_flags(argv, None)
        if not takes_words:
            _refuse_words(words)
        if wants_help:
            _print_flags(usage)
        return words

    _run(main, parse)


def start_passing_on(main: Callable[[list[tuple[str, str]]], None], *, default: str, usage: str) -> None:
    """Runs a launcher that passes its config on to another one."""

    def parse(argv: Sequence[str]) -> list[tuple[str, str]]:
        *_, usual = _opened(_spec(argv) or default, None)
        wants_help, words, overrides = _parse_flags(argv, usual)
        _refuse_words(words)
        if wants_help:
            _print_flags(usage)
        return overrides

    _run(main, parse)


def _print_flags(usage: str) -> NoReturn:
    """Prints the help of a launcher without fields of a config, and exits."""
    columns = layout.width()
    print("\n".join([*layout.usage(usage, columns), *_flag_lines(columns)]))
    sys.exit(0)


def _flag_lines(columns: int) -> list[str]:
    return ["Flags:", *layout.described([(f"--{flag.name}", flag.help) for flag in _own_flags()], columns)]


class WordFlag(flags.Flag):
    """A flag that may have a word: ``--name=WORD``. Its value is empty for ``--name`` alone, and None without it."""

    def __init__(self, name: str, help: str):
        super().__init__(flags.ArgumentParser(), None, name, None, help, boolean=True)

    def parse(self, argument: Any) -> None:
        super().parse({"true": "", "false": None}.get(argument, argument))


def _run(main: Callable[[Any], None], parse: Callable[[Sequence[str]], Any]) -> None:
    """Calls ``main`` with what ``parse`` makes of the command line."""
    parsed: list[Any] = []

    def parse_flags(argv: Sequence[str]) -> list[str]:
        _check_surroundings()
        parsed.append(parse(renamed.words(argv)))
        return [argv[0]]

    def run(_: Sequence[str]) -> None:
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # absl would continue to show the notes of every library
        _guarded(main, parsed[0])

    with output.watched():
        app.run(run, flags_parser=functools.partial(_guarded, parse_flags))


def _guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        sentence: InputError | str | None = error if isinstance(error, InputError) else None
        sentence = sentence or missing_package(error) or refused_environment(error) or _refused_backend(error)
        sentence = sentence or _refused_path(error)
        if sentence is None:
            raise
        output.print_stderr(f"error: {in_one_line(sentence)}")
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        output.print_stderr("interrupted")
        sys.exit(INTERRUPTED)


def _refused_backend(error: Exception) -> str | None:
    """One sentence on a variable that Matplotlib reads when it is imported; None for other errors."""
    if not isinstance(error, ValueError) or not str(error).startswith("Key backend:"):
        return None
    return f"MPLBACKEND={os.environ.get('MPLBACKEND')} is not a backend of Matplotlib: unset it."


def _refused_path(error: Exception) -> str | None:
    """One sentence on a path that no file system takes; None for other errors."""
    if not isinstance(error, OSError) or error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
        return None
    return f"{error.filename} cannot be used ({error.strerror}): name another path."


def print_skipped(error: BaseException) -> None:
    """Writes to stderr why one of several folders is left out."""
    output.print_stderr(f"skipped: {in_one_line(error)}")


def in_one_line(error: BaseException | str) -> str:
    """An error's sentence, without the middle of very long words: names that are data by mistake."""
    line = " ".join(_shortened(word, _LONGEST_WORD, "[...]") for word in str(error).split())
    return _shortened(line, _LONGEST_LINE, " [...] ")


def _shortened(text: str, longest: int, gap: str) -> str:
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]}{gap}{text[-half:]}"


def _check_surroundings() -> None:
    """Raises InputError in a folder that was deleted, and under settings of JAX that runs do not allow."""
    if (sentence := odd_setting()) is not None:
        raise InputError(sentence, code="odd-setting")
    try:
        os.getcwd()
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"the working directory is gone ({reason}): change to another one with cd", code="no-working-folder"
        ) from None


def _parse(argv: Sequence[str], launcher: str | None, default: str | None, usage: str) -> Any:
    """Parses the flags into ``flags.FLAGS`` and returns the config's settings."""
    spec = _spec(argv) or default
    if spec is None:
        known = ", ".join(config_names(launcher))
        if not _wants_help(argv):
            raise InputError(f"no config is named: give --config=NAME with one of {known}.", code="nothing-named")
        _print_flags(f"{usage.strip()}\n\nConfigs: {known}. --config=NAME --help lists the fields of one.")
    module, made, usual = _opened(spec, launcher)
    wants_help, words, overrides = _parse_flags(argv, usual)
    config = _settled(module, made, usual, overrides)
    if wants_help:
        print(_help(spec, config, launcher, usage))
        sys.exit(0)
    _refuse_words(words)
    return config


def _spec(argv: Sequence[str]) -> str | None:
    """The config that a command line names last."""
    spec = None
    for word, following in zip(argv, [*argv[1:], None], strict=True):
        if match := re.fullmatch(r"--?config(?:=(.*))?", word, re.DOTALL):
            spec = following if match[1] is None else match[1]
    return spec


def _wants_help(argv: Sequence[str]) -> bool:
    return any(word in _HELP_FLAGS for word in argv[1:])


def _refuse_words(words: Sequence[str]) -> None:
    if words:
        raise InputError(
            f"{words[0]!r} is not a flag: flags start with --, and --help lists them.", code="no-such-flag"
        )


def _parse_flags(argv: Sequence[str], usual: Any) -> tuple[bool, list[str], list[tuple[str, str]]]:
    """Parses the flags into ``flags.FLAGS``.

    Returns whether help is requested, the words that are not flags, and (field, text) of fields of the config.
    """
    rest, overrides = parted([word for word in argv if word not in _HELP_FLAGS], usual)
    try:
        return _wants_help(argv), flags.FLAGS(rest)[1:], overrides
    except flags.UnrecognizedFlagError as error:
        raise _no_such_flags(error.flagname, rest, names(usual)) from error
    except flags.Error as error:
        raise InputError(f"{str(error).rstrip('.')}; --help lists the flags.", code="bad-flag") from error


def _no_such_flags(first: str, rest: Sequence[str], known: Mapping[str, str]) -> InputError:
    """The error of all unknown flags among words for absl, each with its advice."""
    left = itertools.takewhile(lambda word: word != "--", flags.FLAGS(rest, known_only=True)[1:])
    names_left = [re.sub("^--?", "", word.partition("=")[0]) for word in left if word.startswith("-")]
    errors = []
    for name in dict.fromkeys(filter(None, [first, *names_left])):
        said, otherwise = f"there is no flag --{name}", "--help lists the flags."
        errors.append(unknown(name, known, said, otherwise, others=flags.FLAGS, code="no-such-flag"))
    sentences = [str(error) for error in errors]
    message = " ".join([sentences[0], *(f"{s[0].upper()}{s[1:]}" for s in sentences[1:])])
    return InputError(message, code="no-such-flag")


def _load_module(spec: str, launcher: str | None = None) -> tuple[Any, str | None]:
    """The module of a config, and its argument."""
    name, colon, argument = spec.partition(":")
    is_path = name.endswith(".py") or "/" in name
    path = pathlib.Path(user_path(name)) if is_path else config_files().get(name)
    if path is None:
        others = config_names(launcher)
        choices = f"choose one of {', '.join(others)}, or name a file" if others else "name a file"
        hint = near_names.did_you_mean(name, others, f"{choices}.")
        raise InputError(f"config {name!r} is unknown: {hint}", code="unknown-name")
    # os.path, unlike pathlib, takes a name that is too long for a path as one that is not there.
    if not os.path.isfile(path):
        known = ", ".join(config_names(launcher))
        shown = path if len(str(path)) <= _LONGEST_PATH_SHOWN else options.quote(str(path))
        raise InputError(
            f"config file {shown} does not exist: name another one, or one of {known}.", code="no-such-file"
        )
    if path.suffix != ".py":
        raise InputError(f"config file {path} is not a Python file: its name must end with .py.", code="bad-file-name")
    if os.path.getsize(path) > LARGEST:
        raise InputError(f"config file {path} has more than {size_in_words(LARGEST)}.", code="too-large")
    module = _execute(path)
    _check_launcher(module, name, launcher)
    return module, argument if colon else None


def _check_launcher(module: Any, name: str, launcher: str | None) -> None:
    if launcher is not None and _launcher_of(module) not in (None, launcher):
        raise InputError(
            f"config {name!r} is for winobench {_launcher_of(module)}, not for winobench {launcher}.",
            code="config-of-another-launcher",
        )


def _execute(path: pathlib.Path) -> Any:
    # As a part of configs, a copy of one of its files can import from it wherever it is.
    name = f"{_CONFIGS_PACKAGE}.winobench_config_{path.stem}"
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module_spec = importlib.machinery.ModuleSpec(name, loader, origin=str(path))
    module_spec.has_location = True
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # where dataclasses look for the types of their fields
    try:
        loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too: it is the launcher that ends, and says why
        said = error if isinstance(error, SyntaxError | ImportError) else _described(error)
        raise InputError(f"config file {path} cannot be loaded: {said}.", code="broken-config-file") from error
    if not callable(getattr(module, "get_config", None)):
        raise InputError(f"config file {path} has no function get_config.", code="broken-config-file")
    return module


def _launcher_of(module: Any) -> str | None:
    launcher = getattr(module, "LAUNCHER", None)
    return "generate" if launcher == "draw" else launcher  # its old name


def _made(module: Any, name: str, argument: str | None) -> ml_collections.ConfigDict:
    if argument is not None and not inspect.signature(module.get_config).parameters:
        raise InputError(f"config {name!r} takes no argument: leave out {':' + argument!r}.", code="bad-argument")
    try:
        config = module.get_config() if argument is None else module.get_config(argument)
    except ValueError as error:  # the config's own words about its argument
        raise InputError(str(error), code="bad-argument") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        said = _described(error)
        raise InputError(f"get_config of config {name!r} fails: {said}.", code="broken-config-file") from error
    if not isinstance(config, ml_collections.ConfigDict):
        raise InputError(
            f"get_config of config {name!r} returns a {type(config).__name__}, but must return an"
            " ml_collections.ConfigDict.",
            code="broken-config-file",
        )
    return config


def _holder(module: Any, config: ml_collections.ConfigDict, name: str, launcher: str | None) -> Any:
    """The module with the ``SETTINGS`` of a config."""
    for holder in _holders(module, config, _launcher_of(module) or launcher):
        if getattr(holder, "SETTINGS", None) is not None:
            return holder
    raise InputError(
        f"config {name!r} does not say which options it has: begin with those of a config, such as gdbench.get_config()"
        " after from . import gdbench.",
        code="bad-settings",
    )


def _holders(module: Any, config: ml_collections.ConfigDict, launcher: str | None) -> Iterator[Any]:
    """A config's module, the config that it calls, its imports, and its launcher's configs."""
    yield module
    if made_by := config_files().get(vars(config).get("_made_by")):  # of `configs.forms_of`
        yield _execute(made_by)
    yield from (value for value in vars(module).values() if isinstance(value, types.ModuleType))
    if launcher is not None:
        yield from (other for other in map(_execute, config_files().values()) if _launcher_of(other) == launcher)


def _usual_settings(holder: Any) -> Any:
    """The options of a config with their defaults."""
    try:
        usual = holder.SETTINGS()
        options.declared(usual)
    except TypeError:
        raise InputError(
            f"SETTINGS of the config file is {options.quote(holder.SETTINGS)}, but must be a dataclass of options, made"
            " by winobench.base.options.option",
            code="bad-settings",
        ) from None
    return usual


def _described(error: BaseException) -> str:
    """An error of a user's code for a sentence: its kind, its text, and where it rose."""
    *_, (frame, number) = traceback.walk_tb(error.__traceback__)
    line = f" (line {number} of {pathlib.Path(frame.f_code.co_filename).name})"
    said = ""
    with contextlib.suppress(Exception):  # such an error may not even have a text
        said = " ".join(str(error).split())
    said = said if len(said) <= 200 else f"{said[:197]}..."
    return f"{type(error).__name__}{f': {said}' if said else ''}".rstrip(".") + line


def _help(spec: str, config: Any, launcher: str | None, usage: str) -> str:
    columns = layout.width()
    lines = [*layout.usage(usage, columns), *_flag_lines(columns)]
    title = f"Fields of --config={spec} (value now; type none where a field may be empty):"
    lines += ["", *layout.wrapped(title, 0, columns)]
    values, rows, flag = options.values(config), [], shown(config)
    for field, option in options.declared(config).items():
        value = values[field]
        text = str(value).lower() if isinstance(value, bool) or value is None else str(value)
        rows.append((f"--{flag[field]}", text, option.metadata["help"]))
    lines += layout.described(rows, columns)
    lines += ["", *layout.wrapped(f"Configs: {', '.join(config_names(launcher))}", 0, columns)]
    return "\n".join(lines)


def _own_flags() -> list[flags.Flag]:
    """The flags of the launcher, which are listed under its file, and of this module."""
    by_module = flags.FLAGS.flags_by_module_dict()
    own = [flag for module in (sys.argv[0], __name__) for flag in by_module.get(module, [])]
    return [flag for flag in own if flag.name in flags.FLAGS]
