"""Flags to a config, for all launchers.

``--config`` takes the name of a file in ``configs/`` or a path, with an argument after a colon for configs that have
several forms (``--config=gdbench:full``); ``--config.<field>=<value>`` overrides a field. What is wrong is said in one
line, with exit status 2. ``ml_collections.config_flags`` would want paths, report a missing file at first use, and
answer a misspelt field with a traceback, which is why the flags are resolved here and only the config itself is
``ml_collections``'.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib.util
import inspect
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import ml_collections
from absl import app, flags, logging

from launch import BAD_INPUT, INTERRUPTED, missing_package, odd_setting, output, refused_environment
from launch.overrides import KIND, OVERRIDE, flat, override, set_field
from winobench.base import options, registry
from winobench.base.errors import InputError
from winobench.base.files import LARGEST, size_in_words, user_path
from winobench.runs import settings

CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "configs"
"""The folder of the configs that can be named."""

T = TypeVar("T")

_LONGEST_PATH_SHOWN = 300
_LONGEST_WORD = 600
_LONGEST_LINE = 1_400

flags.DEFINE_string("config", None, "Name of a file in configs/, or a path. An argument may follow after a colon.")


def config_names(launcher: str | None = None) -> list[str]:
    """The names that ``--config`` knows."""
    names = sorted(path.stem for path in CONFIGS.glob("*.py") if not path.stem.startswith("_"))
    if launcher is None:
        return names
    return [name for name in names if _launcher_of(_execute(CONFIGS / f"{name}.py")) in (None, launcher)]


def load(
    spec: str, overrides: Iterable[tuple[str, str]] = (), launcher: str | None = None
) -> ml_collections.ConfigDict:
    """Loads a config and overrides fields of it."""
    module, argument = _load_module(spec, launcher)
    config = _made(module, spec.partition(":")[0], argument)
    if KIND not in config:
        config[KIND] = getattr(_stand_in(module, config), "get_config", ml_collections.ConfigDict)().get(KIND)
    config.lock()
    for field, text in overrides:
        override(config, field, text)
    declared = _declared(module, config)
    for field, value in check(config, declared).items():
        set_field(config, field, value)
    values = flat(config)
    cases = {settings.SAMPLES, settings.DIFFUSION, values.get("sampling.mode")}
    settings.check_cases(declared, values, cases, prefix="--config.")
    if callable(getattr(module, "check", None)):
        module.check(config)
    return config


def check(config: ml_collections.ConfigDict, declared: Mapping[str, dataclasses.Field]) -> dict[str, Any]:
    """Checks every field of a config that is a declared option. Returns dotted field -> value as it is used."""
    found = {}
    for field, value in flat(config).items():
        if field in declared:
            about = declared[field].metadata
            found[field] = about["range"].check(f"--config.{field}", value)
            if "read" in about and value is not None:
                about["read"](value)
    return found


def options_of(spec: str) -> Mapping[str, dataclasses.Field]:
    """Dotted field -> option of a config: from its own ``SETTINGS``, or from its `_stand_in`."""
    module, argument = _load_module(spec)
    return _declared(module, _made(module, spec.partition(":")[0], argument))


def read_settings(config: ml_collections.ConfigDict, kind: type[T], group: str = "") -> T:
    """A dataclass of options with a config's values."""
    values = flat(config)
    prefix = f"{group}." if group else ""
    return kind(**{field.name: values[name] for name, field in options.declared(kind, prefix).items()})


def chosen_name(default: str) -> str:
    """The config's name without its form, for the beginning of a folder's name."""
    return registry.model_label((flags.FLAGS.config or default).removesuffix(".py").partition(":")[0])


def require(config: ml_collections.ConfigDict, fields: Iterable[str]) -> None:
    """Refuses a config that lacks fields, such as one that was written for another launcher."""
    known = flat(config)
    for field in fields:
        if field not in known:
            raise InputError(
                f"the config has no field {field!r}, which this launcher needs. configs/ has examples.",
                code="unknown-field",
            )


def plain(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """The config as nested dictionaries of JSON values, without its `KIND`."""
    return {name: _jsonable(value) for name, value in config.items() if name != KIND}


def start(main: Callable[[ml_collections.ConfigDict], None], *, launcher: str | None, default: str, usage: str) -> None:
    """Runs a launcher: parses the flags, loads the config, and calls ``main`` with it.

    Bad input of any kind, here or in ``main``, becomes ``error: <one sentence>`` on stderr and exit status 2.
    """
    _run(main, lambda argv: _parse(argv, launcher, default, usage))


def start_without_config(main: Callable[[list[str]], None], *, usage: str, takes_words: bool = False) -> None:
    """Runs a launcher that has flags but no config. Otherwise as ``start``.

    Args:
      takes_words: whether there may be such words, as in ``launch.report RUN [RUN ...]``.
    """
    del flags.FLAGS.config

    def parse(argv: Sequence[str]) -> list[str]:
        wants_help, words = _parse_flags(argv)
        if not takes_words:
            _refuse_words(words)
        if wants_help:
            _print_flags(usage)
        return words

    _run(main, parse)


def start_passing_on(main: Callable[[list[tuple[str, str]]], None], *, usage: str) -> None:
    """Runs a launcher that hands its config on to another one. Otherwise as ``start``."""

    def parse(argv: Sequence[str]) -> list[tuple[str, str]]:
        rest, overrides = _split(argv)
        wants_help, words = _parse_flags(rest)
        _refuse_words(words)
        if wants_help:
            _print_flags(usage)
        return overrides

    _run(main, parse)


def _print_flags(usage: str) -> None:
    """Prints the help of a launcher without fields of a config, and exits."""
    own = _own_flags()
    width = max(len(flag.name) for flag in own)
    print("\n".join([usage.strip(), "", "Flags:", *(f"  --{flag.name:<{width}}  {flag.help}" for flag in own)]))
    sys.exit(0)


def _run(main: Callable[[Any], None], parse: Callable[[Sequence[str]], Any]) -> None:
    """Calls ``main`` with what ``parse`` makes of the command line."""
    parsed: list[Any] = []

    def parse_flags(argv: Sequence[str]) -> list[str]:
        _check_surroundings()
        parsed.append(parse(argv))
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
    except InputError as error:
        output.tell(f"error: {in_one_line(error)}")
        sys.exit(BAD_INPUT)
    except Exception as error:
        sentence = missing_package(error) or refused_environment(error) or _refused_backend(error)
        if sentence is None:
            raise
        output.tell(f"error: {in_one_line(sentence)}")
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        output.tell("interrupted")
        sys.exit(INTERRUPTED)


def _refused_backend(error: Exception) -> str | None:
    """One sentence on a variable that Matplotlib reads when it is imported, though only files are drawn here."""
    if not isinstance(error, ValueError) or not str(error).startswith("Key backend:"):
        return None
    return f"MPLBACKEND={os.environ.get('MPLBACKEND')} is not a backend of Matplotlib: unset it."


def in_one_line(error: BaseException | str) -> str:
    """An error's sentence, with the middle of words cut out that nobody could read: names that are data by mistake."""
    half = _LONGEST_WORD // 2
    words = str(error).split()
    line = " ".join(word if len(word) <= _LONGEST_WORD else f"{word[:half]}[...]{word[-half:]}" for word in words)
    half = _LONGEST_LINE // 2
    return line if len(line) <= _LONGEST_LINE else f"{line[:half]} [...] {line[-half:]}"


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


def _parse(argv: Sequence[str], launcher: str | None, default: str, usage: str) -> ml_collections.ConfigDict:
    """Parses the flags into ``flags.FLAGS`` and returns the config."""
    rest, overrides = _split(argv)
    wants_help, words = _parse_flags(rest)
    spec = flags.FLAGS.config or default
    config = load(spec, overrides, launcher)
    if wants_help:
        print(_help(spec, config, launcher, usage))
        sys.exit(0)
    _refuse_words(words)
    return config


def _refuse_words(words: Sequence[str]) -> None:
    if words:
        raise InputError(
            f"{words[0]!r} is not a flag: flags start with --, and --help lists them.", code="no-such-flag"
        )


def _parse_flags(argv: Sequence[str]) -> tuple[bool, list[str]]:
    """Parses the flags into ``flags.FLAGS``. Returns whether help is requested, and the words that are not flags."""
    wants_help = any(word in ("--help", "-help", "-h", "--helpfull", "--helpshort") for word in argv[1:])
    rest = [word for word in argv if word not in ("--help", "-help", "-h", "--helpfull", "--helpshort")]
    try:
        return wants_help, flags.FLAGS(rest)[1:]
    except flags.UnrecognizedFlagError as error:
        near = difflib.get_close_matches(error.flagname, flags.FLAGS, n=1)
        hint = f"did you mean --{near[0]}?" if near else "--help lists the flags."
        raise InputError(f"there is no flag --{error.flagname}: {hint}", code="no-such-flag") from error
    except flags.Error as error:
        raise InputError(f"{str(error).rstrip('.')}; --help lists the flags.", code="bad-flag") from error


def _split(argv: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Parts the overrides of config fields from the other words of a command line."""
    rest: list[str] = []
    overrides: list[tuple[str, str]] = []
    words = iter(argv)
    for word in words:
        match = OVERRIDE.fullmatch(word)
        if match is None:
            rest.append(word)
            continue
        field, text = match.groups()
        if text is None:
            text = next(words, None)
            if text is None:
                raise InputError(
                    f"--config.{field} lacks a value: write --config.{field}=<value>.", code="missing-value"
                )
        overrides.append((field, text))
    return rest, overrides


def _load_module(spec: str, launcher: str | None = None) -> tuple[Any, str | None]:
    """The module of a config, and its argument."""
    name, colon, argument = spec.partition(":")
    is_path = name.endswith(".py") or "/" in name
    path = pathlib.Path(user_path(name)) if is_path else CONFIGS / f"{name}.py"
    if not is_path and name not in config_names():
        known = registry.near_first(name, config_names(launcher))
        choices = f"choose one of {', '.join(known)}, or name a file" if known else "name a file"
        raise InputError(f"config {name!r} is unknown: {choices}.", code="unknown-name")
    # os.path, unlike pathlib, takes a name that is too long for a path as one that is not there.
    if not os.path.isfile(path):
        known = ", ".join(config_names(launcher))
        shown = path if len(str(path)) <= _LONGEST_PATH_SHOWN else options.shown(str(path))
        raise InputError(
            f"config file {shown} does not exist: name another one, or one of {known}.", code="no-such-file"
        )
    if path.suffix != ".py":
        raise InputError(f"config file {path} is not a Python file: its name must end with .py.", code="bad-file-name")
    if os.path.getsize(path) > LARGEST:
        raise InputError(f"config file {path} has more than {size_in_words(LARGEST)}.", code="too-large")
    module = _execute(path)
    if launcher is not None and _launcher_of(module) not in (None, launcher):
        raise InputError(
            f"config {name!r} is for python -m launch.{_launcher_of(module)}, not for launch.{launcher}.",
            code="config-of-another-launcher",
        )
    return module, argument if colon else None


def _execute(path: pathlib.Path) -> Any:
    """Runs a config file and returns its module."""
    module_spec = importlib.util.spec_from_file_location(f"winobench_config_{path.stem}", path)
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module  # where dataclasses look for what they are made of
    try:
        module_spec.loader.exec_module(module)
    except (SyntaxError, ImportError) as error:
        raise InputError(f"config file {path} cannot be loaded: {error}.", code="broken-config-file") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too: it is the launcher that ends, and says why
        raise InputError(
            f"config file {path} cannot be loaded: {_described(error)}.", code="broken-config-file"
        ) from error
    if not callable(getattr(module, "get_config", None)):
        raise InputError(f"config file {path} has no function get_config.", code="broken-config-file")
    return module


def _launcher_of(module: Any) -> str | None:
    launcher = getattr(module, "LAUNCHER", None)
    return None if launcher == "generate" else launcher  # of configs from before there were five launchers


def _made(module: Any, name: str, argument: str | None) -> ml_collections.ConfigDict:
    """What a config's module makes."""
    if argument is not None and not inspect.signature(module.get_config).parameters:
        raise InputError(f"config {name!r} takes no argument: leave out {':' + argument!r}.", code="bad-argument")
    try:
        config = module.get_config() if argument is None else module.get_config(argument)
    except ValueError as error:  # the config's own words about its argument
        raise InputError(str(error), code="bad-argument") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise InputError(
            f"get_config of config {name!r} fails: {_described(error)}.", code="broken-config-file"
        ) from error
    if not isinstance(config, ml_collections.ConfigDict):
        raise InputError(
            f"get_config of config {name!r} returns a {type(config).__name__}, but must return an"
            " ml_collections.ConfigDict.",
            code="broken-config-file",
        )
    return config


def _declared(module: Any, config: ml_collections.ConfigDict) -> Mapping[str, dataclasses.Field]:
    """The options of a config. A user's own config may have none: its fields are checked as its `_stand_in`'s."""
    own = getattr(module, "SETTINGS", None)
    if own is not None and not (isinstance(own, type) and dataclasses.is_dataclass(own)):
        raise InputError(
            f"SETTINGS of the config file is {options.shown(own)}, but must be a dataclass of options, made by"
            " winobench.base.options.option",
            code="bad-settings",
        )
    own = own or getattr(_stand_in(module, config), "SETTINGS", None)
    return options.declared(own) if own else {}


def _stand_in(module: Any, config: ml_collections.ConfigDict) -> Any:
    """The first config in ``configs/`` for the same launcher all of whose fields a user's config has; None if none."""
    fields = set(flat(config))
    for path in sorted(CONFIGS.glob("[!_]*.py")):
        other = _execute(path)
        if _launcher_of(module) in (None, _launcher_of(other)) and set(flat(other.get_config())) <= fields:
            return other
    return None


def _described(error: BaseException) -> str:
    """An error of other code for a sentence: its kind, what it states, and where it rose."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = (
        "" if trace is None else f" (line {trace.tb_lineno} of {pathlib.Path(trace.tb_frame.f_code.co_filename).name})"
    )
    try:
        said = " ".join(str(error).split())
    except Exception:  # an error of other code may not even be able to say what it is
        said = ""
    said = said if len(said) <= 200 else f"{said[:197]}..."
    return f"{type(error).__name__}{f': {said}' if said else ''}".rstrip(".") + line


def _help(spec: str, config: ml_collections.ConfigDict, launcher: str | None, usage: str) -> str:
    values = flat(config)
    explained = {name: field.metadata["help"] for name, field in options_of(spec).items()}
    width = max(map(len, values), default=0) + len("--config.")
    lines = [usage.strip(), "", "Flags:"]
    lines += [f"  --{flag.name:<{width - 2}}  {flag.help}" for flag in _own_flags()]
    lines += ["", f"Fields of --config={spec} (value now; type none where a field may be empty):"]
    # In the order in which the config explains them; ConfigDict itself knows no order.
    for field in dict.fromkeys([*(name for name in explained if name in values), *values]):
        value = values[field]
        text = str(value).lower() if isinstance(value, bool) or value is None else str(value)
        lines.append(f"  {'--config.' + field:<{width}}  {text:<12}  {explained.get(field, '')}".rstrip())
    lines += ["", f"Configs: {', '.join(config_names(launcher))}"]
    return "\n".join(lines)


def _own_flags() -> list[flags.Flag]:
    """The launcher's flags and this module's, without those of the libraries."""
    own = [flag for module in (sys.modules["__main__"].__name__, __name__) for flag in _flags_of(module)]
    return [flag for flag in own if flag.name in flags.FLAGS]


def _flags_of(module: str) -> list[flags.Flag]:
    by_module = flags.FLAGS.flags_by_module_dict()
    return by_module.get(sys.argv[0] if module == "__main__" else module, [])


def _jsonable(value: Any) -> Any:
    if isinstance(value, ml_collections.ConfigDict):
        return {name: _jsonable(item) for name, item in value.items()}
    return [_jsonable(item) for item in value] if isinstance(value, (tuple, list)) else value
