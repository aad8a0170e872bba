"""Names to modules, by path: `mappo` is `algorithms/mappo.py`, `switch/2` is `envs/switch.py`.

A module that is several things (`algorithms/a2c.py` is `ia2c` and `maa2c`) lists them in `NAMES`. There is no
other list to edit. Names and one-line descriptions are read from the source files without
running them, so that listing costs no import of JAX. A name with a colon, `package.module:Class`,
reaches code outside of phalanx.
"""

from __future__ import annotations

import ast
import importlib
import json
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.config import TABLES, Layer, Option, convert, options_of
from phalanx.errors import PhalanxError, suggest
from phalanx.imports import import_class

if TYPE_CHECKING:
    from phalanx.algorithms.base import Algorithm, AlgorithmConfig
    from phalanx.envs.base import Env
    from phalanx.types import EnvSpec

ROOT = Path(__file__).parent
NOT_ALGORITHMS = {"base", "shared"}
NOT_ENVS = {"base", "wrappers", "check", "host"}


def _modules(folder: str, leave_out: set[str]) -> dict[str, Path]:
    """The modules and packages in a folder of phalanx, by name."""
    found = {}
    for path in sorted((ROOT / folder).iterdir()):
        source = path / "__init__.py" if path.is_dir() else path
        if (
            source.suffix == ".py"
            and source.exists()
            and path.stem not in leave_out | {"__init__", "__pycache__"}
        ):
            found[path.stem] = source
    return found


def _first_line(tree: ast.Module) -> str:
    return (ast.get_docstring(tree) or "").split("\n")[0]


def _names(tree: ast.Module) -> dict[str, str]:
    """What a module lists as `NAMES`: a dictionary of lines, or a tuple when its docstring says it all."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "NAMES":
            names = ast.literal_eval(node.value)
            return names if isinstance(names, dict) else dict.fromkeys(names, _first_line(tree))
    return {}


@cache
def _algorithm_modules() -> dict[str, tuple[str, str]]:
    """Every algorithm's name, and its module and one line about it."""
    found = {}
    for module, source in _modules("algorithms", NOT_ALGORITHMS).items():
        tree = ast.parse(source.read_text(encoding="utf-8"))
        for name, line in (_names(tree) or {module: _first_line(tree)}).items():
            found[name] = (module, line)
    return found


@cache
def algorithms() -> dict[str, str]:
    """Every algorithm's name and a line about it: of `NAMES`, or the first of its docstring."""
    return {name: line for name, (_, line) in sorted(_algorithm_modules().items())}


@cache
def envs() -> dict[str, str]:
    """Every environment's name and a line about it: those of a family are its `NAMES`."""
    found = {}
    for family, source in _modules("envs", NOT_ENVS).items():
        tree = ast.parse(source.read_text(encoding="utf-8"))
        found |= {f"{family}/{name}": line for name, line in _names(tree).items()}
    return found


@cache
def presets() -> dict[str, str]:
    """Every preset, as ALGORITHM/NAME, and its first comment line."""
    found = {}
    for path in sorted((ROOT / "presets").glob("*/*.toml")):
        first = path.read_text(encoding="utf-8").split("\n")[0]
        found[f"{path.parent.name}/{path.stem}"] = first.lstrip("# ")
    return found


@cache
def references() -> dict[str, str]:
    """Every reference result's id, and a line about it."""
    found = {}
    for path in sorted((ROOT / "references").glob("*.json")):
        told = json.loads(path.read_text(encoding="utf-8"))
        mean, steps = sum(told["scores"]) / len(told["scores"]), told["config"]["run"]["steps"]
        name = told["metric"].removeprefix("eval/").replace("_", " ")
        found[path.stem] = f"greedy {name} {mean:.3g} after {steps:,} steps, {len(told['scores'])} seeds"
    return found


def require_reference(name: str) -> None:
    """Refuse an id that is none."""
    if name not in references():
        raise PhalanxError(f"there is no reference result {name!r}.{suggest(name, references())}")


def algorithm(name: str) -> type[Algorithm]:
    """The class of an algorithm."""
    if ":" in name:
        from phalanx.algorithms.base import Algorithm, AlgorithmConfig

        found = import_class(name, Algorithm, "algorithm")
        if not issubclass(getattr(found, "Config", object), AlgorithmConfig):
            raise PhalanxError(f"{name}.Config must be a subclass of phalanx.algorithms.base.AlgorithmConfig")
        return found
    if name not in algorithms():
        raise PhalanxError(f"unknown algorithm {name!r}.{suggest(name, algorithms())}")
    found, _ = _algorithm_modules()[name]
    module = importlib.import_module(f"phalanx.algorithms.{found}")
    return module.ALGORITHMS[name] if hasattr(module, "ALGORITHMS") else module.ALGORITHM


def algorithm_config(name: str) -> type[AlgorithmConfig]:
    """The class of an algorithm's options: of `CONFIGS` where algorithms differ only in their defaults."""
    cls = algorithm(name)
    if ":" in name:
        return cls.Config
    module = importlib.import_module(cls.__module__)
    return getattr(module, "CONFIGS", {}).get(name, cls.Config)


def _env_entry(name: str) -> tuple[type[Env], Mapping[str, Any]]:
    """The class of an environment and the fields that its name fixes."""
    if ":" in name:
        from phalanx.envs.base import Env

        return import_class(name, Env, "environment"), {}
    if name not in envs():
        raise PhalanxError(f"unknown environment {name!r}.{suggest(name, envs())}")
    family, _, variant = name.partition("/")
    return importlib.import_module(f"phalanx.envs.{family}").entry(variant)


def env_options(name: str) -> dict[str, Option]:
    """What can be set about an environment."""
    cls, fixed = _env_entry(name)
    return {key: opt for key, opt in options_of(cls).items() if key not in fixed}


def build_env(name: str, **options: Any) -> Env:
    """Build an environment from its name and options, which are checked."""
    known = env_options(name)
    for option in options:
        if option not in known:
            raise PhalanxError(f"{name} has no option {option!r}.{suggest(option, known)}")
    return make_env(name, {key: convert(known[key], raw, "argument") for key, raw in options.items()})


def make_env(name: str, options: Mapping[str, Any]) -> Env:
    """Build an environment from its name and checked options."""
    cls, fixed = _env_entry(name)
    if ":" not in name:
        return cls(**fixed, **options)
    try:
        return cls(**options)
    except Exception as error:  # a user's constructor may raise anything
        raise PhalanxError(f"cannot build {name!r}: {type(error).__name__}: {error}") from None


@cache
def _preset_envs() -> dict[str, tuple[str, ...]]:
    """The environments that presets name as theirs, `[for] envs = [...]`; most are for a family."""
    paths = sorted((ROOT / "presets").glob("*/*.toml"))
    return {
        f"{path.parent.name}/{path.stem}": tuple(read_toml(path).get("for", {}).get("envs", ()))
        for path in paths
    }


def preset(algorithm: str, env: str, wanted: str) -> Layer | None:
    """The preset to lay over the defaults.

    `auto` takes the one of this algorithm that names the environment as its own, or else the one for the
    environment's family, if there is one; `none` takes none, any other name must exist.
    """
    if wanted == "none":
        return None
    mine = [name for name in presets() if name.startswith(f"{algorithm}/")]
    if wanted == "auto":
        named = [name for name in mine if env in _preset_envs()[name]]
        name = named[0] if named else f"{algorithm}/{env.partition('/')[0]}"
    else:
        name = f"{algorithm}/{wanted}"
    if name not in mine:
        if wanted == "auto":
            return None
        known = ["auto", "none", *(each.partition("/")[2] for each in mine)]
        raise PhalanxError(f"{algorithm} has no preset {wanted!r}.{suggest(wanted, known)}")
    values = read_toml(ROOT / "presets" / f"{name}.toml")
    return Layer(f"preset {name}", {table: values[table] for table in values if table != "for"})


def read_toml(path: Path, tables: tuple[str, ...] = TABLES) -> dict[str, Any]:
    """Read a file of tables, such as a configuration; say in one line what is wrong with it."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PhalanxError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PhalanxError(f"{path} is not valid TOML: {error}") from None
    for table, entries in values.items():
        if not isinstance(entries, dict):
            known = " or ".join(f"[{each}]" for each in tables)
            raise PhalanxError(f"{path}: {table!r} must stand in a table: {known}")
    return values


def require_fit(name: str, spec: EnvSpec) -> None:
    """Refuse an algorithm that cannot play an environment, and say which could."""
    if spec.action_kind not in algorithm(name).action_kinds:
        fitting = [each for each in algorithms() if spec.action_kind in algorithm(each).action_kinds]
        raise PhalanxError(
            f"{name} has no {spec.action_kind} actions, which {spec.name} needs; "
            + (f"these do: {', '.join(fitting)}" if fitting else "no algorithm here does yet")
        )
