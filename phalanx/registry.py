"""Names to modules, by path: `mappo` is `algorithms/mappo.py`, `switch/2` is `envs/switch.py`.

A module that is several things (`algorithms/a2c.py` is `ia2c` and `maa2c`) lists them in `NAMES`. There is no
other list to edit. `gym/CartPole-v1` is `envs/host/gym.py`: families of host environments, and compiled ones
with `OPEN = True`, also take names that only their package knows. Names and one-line descriptions are read
from the source files without running them, so that listing costs no import of JAX.

Code outside of phalanx is reached in two ways: by a name with a colon, `package.module:Class`, or by a name
that an installed package defines as an entry point (`plugins.py`), in one of the groups `phalanx.algorithms`,
`phalanx.envs` and `phalanx.presets`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import logging
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.config import TABLES, Layer, Option, convert, options_of, passed_on
from phalanx.errors import PhalanxError, suggest
from phalanx.imports import import_class, is_subclass
from phalanx.plugins import external as external_name
from phalanx.plugins import installed, listed, package_of

if TYPE_CHECKING:
    from phalanx.algorithms.base import Algorithm, AlgorithmConfig
    from phalanx.envs.base import Env
    from phalanx.envs.host.base import HostSource
    from phalanx.types import EnvSpec

logger = logging.getLogger(__name__)

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
    value = _assigned(tree, "NAMES")
    names = ast.literal_eval(value) if value else {}
    return names if isinstance(names, dict) else dict.fromkeys(names, _first_line(tree))


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """What a module assigns to `name`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return node.value
    return None


# Names


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
    return listed("algorithms", {name: line for name, (_, line) in sorted(_algorithm_modules().items())})


@cache
def _built_in_envs() -> dict[str, str]:
    """Those of a family are its `NAMES`."""
    found = {}
    for family, source in _modules("envs", NOT_ENVS).items():
        tree = ast.parse(source.read_text(encoding="utf-8"))
        found |= {f"{family}/{name}": line for name, line in _names(tree).items()}
    return found


def compiled_envs() -> list[str]:
    """The names of all environments that are compiled, and part of phalanx."""
    return list(_built_in_envs())


@cache
def _host_families() -> dict[str, dict[str, str]]:
    """The families of host environments: of each, some names and a line about them."""
    found = {}
    for family, source in _modules("envs/host", set()).items():
        names = _names(ast.parse(source.read_text(encoding="utf-8")))
        if names:
            found[family] = {f"{family}/{name}": line for name, line in names.items()}
    return found


@cache
def host_envs() -> dict[str, str]:
    """Environments that are Python programs: some names of each family, and a line about each."""
    return {name: line for names in _host_families().values() for name, line in names.items()}


@cache
def _open_families() -> frozenset[str]:
    """Families that also have names beyond their `NAMES`, which only their package knows: `OPEN = True`."""
    found = set()
    for family, source in _modules("envs", NOT_ENVS).items():
        value = _assigned(ast.parse(source.read_text(encoding="utf-8")), "OPEN")
        if isinstance(value, ast.Constant) and value.value is True:
            found.add(family)
    return frozenset(found)


@cache
def envs() -> dict[str, str]:
    """Every environment's name and a line about it."""
    return listed("envs", {**_built_in_envs(), **host_envs()})


def _is_open(env: str) -> bool:
    """Whether a name is for its family to know: `jaxmarl/ANYTHING`."""
    family, _, variant = env.partition("/")
    return bool(variant) and family in _open_families()


def is_built_in(env: str) -> bool:
    """Whether an environment is compiled, and part of phalanx."""
    return env in _built_in_envs() or (_is_open(env) and env not in installed("envs"))


def _is_hosted(env: str) -> bool:
    """Whether a name is of a family of host environments."""
    family, _, variant = env.partition("/")
    return bool(variant) and ":" not in env and family in _host_families() and env not in installed("envs")


def _preset_folders() -> Iterator[tuple[str, Path]]:
    """Folders that hold ALGORITHM/NAME.toml, each with the package that it is from."""
    yield "phalanx", ROOT / "presets"
    for entry in (entry for entries in installed("presets").values() for entry in entries):
        try:
            spec = importlib.util.find_spec(entry.value)
            if spec is None or not (spec.submodule_search_locations or spec.origin):
                raise ModuleNotFoundError(f"No module named {entry.value!r}")
        except Exception as error:  # importing a package may raise anything
            logger.warning("the presets of the package %s are left out: %s", package_of(entry), error)
            continue
        folders = spec.submodule_search_locations or [Path(str(spec.origin)).parent]
        yield from ((package_of(entry), Path(folder)) for folder in folders)


@cache
def _preset_files() -> dict[str, dict[str, Path]]:
    """The file of every preset, ALGORITHM/NAME, by the package that it is from."""
    found: dict[str, dict[str, Path]] = {}
    for package, folder in _preset_folders():
        for path in sorted(folder.glob("*/*.toml")):
            found.setdefault(f"{path.parent.name}/{path.stem}", {})[package] = path
    for algorithm, other in _borrowed_presets().items():
        for name in [each for each in found if each.startswith(f"{other}/")]:
            found.setdefault(f"{algorithm}/{name.partition('/')[2]}", found[name])
    return found


@cache
def _borrowed_presets() -> dict[str, str]:
    """Algorithms that have the presets of another one besides their own: what modules list as `PRESETS`."""
    found = {}
    for source in _modules("algorithms", NOT_ALGORITHMS).values():
        value = _assigned(ast.parse(source.read_text(encoding="utf-8")), "PRESETS")
        found |= ast.literal_eval(value) if value else {}
    return found


@cache
def presets() -> dict[str, str]:
    """Every preset, as ALGORITHM/NAME, and its first comment line."""
    found = {}
    for name, files in _preset_files().items():
        package, path = list(files.items())[-1]
        first = path.read_text(encoding="utf-8", errors="replace").split("\n")[0].lstrip("# ")
        found[name] = first if package == "phalanx" else f"{first} (of the package {package})"
    return found


@cache
def references() -> dict[str, str]:
    """Every reference result's id, and a line about it."""
    found = {}
    for path in sorted((ROOT / "references").glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        mean, steps = sum(result["scores"]) / len(result["scores"]), result["config"]["run"]["steps"]
        name = result["metric"].removeprefix("eval/").replace("_", " ")
        found[path.stem] = f"greedy {name} {mean:.3g} after {steps:,} steps, {len(result['scores'])} seeds"
    return found


def require_reference(name: str) -> None:
    """Refuse an id that is none."""
    if name not in references():
        raise PhalanxError(f"there is no reference result {name!r}.{suggest(name, references())}")


def algorithm(name: str) -> type[Algorithm]:
    """The class of an algorithm."""
    external = external_name("algorithms", name, _algorithm_modules())
    if external:
        from phalanx.algorithms.base import Algorithm, AlgorithmConfig

        target, origin = external
        found = import_class(target, Algorithm, "algorithm", origin)
        if not issubclass(getattr(found, "Config", object), AlgorithmConfig):
            raise PhalanxError(
                f"{target}.Config{origin} must be a subclass of phalanx.algorithms.base.AlgorithmConfig"
            )
        return found
    if name not in algorithms():
        raise PhalanxError(f"unknown algorithm {name!r}.{suggest(name, algorithms())}")
    found, _ = _algorithm_modules()[name]
    module = importlib.import_module(f"phalanx.algorithms.{found}")
    return module.ALGORITHMS[name] if hasattr(module, "ALGORITHMS") else module.ALGORITHM


def algorithm_config(name: str) -> type[AlgorithmConfig]:
    """The class of an algorithm's options: of `CONFIGS` where algorithms differ only in their defaults."""
    cls = algorithm(name)
    if name not in _algorithm_modules():
        return cls.Config
    module = importlib.import_module(cls.__module__)
    return getattr(module, "CONFIGS", {}).get(name, cls.Config)


def _env_entry(name: str) -> tuple[type[Env | HostSource], Mapping[str, Any]]:
    """The class of an environment, or of its adapter, and the fields that its name fixes."""
    family, _, variant = name.partition("/")
    if _is_hosted(name):
        return importlib.import_module(f"phalanx.envs.host.{family}").Adapter, {"variant": variant}
    external = external_name("envs", name, {**_built_in_envs(), **host_envs()})
    if external:
        from phalanx.envs.base import Env
        from phalanx.envs.host import own

        target, origin = external
        if is_subclass(target, Env, "environment", origin):
            return import_class(target, Env, "environment", origin), {}
        return own.Adapter, {"variant": target}
    if name not in envs() and not _is_open(name):
        raise PhalanxError(f"unknown environment {name!r}.{suggest(name, envs())}")
    return importlib.import_module(f"phalanx.envs.{family}").entry(variant)


def env_options(name: str, given: Iterable[str] = ()) -> dict[str, Option]:
    """What can be set about an environment.

    An adapter passes options on that it does not know: such names among those `given` are options too.
    """
    cls, fixed = _env_entry(name)
    known = {key: opt for key, opt in options_of(cls).items() if key not in fixed}
    if "extra" in getattr(cls, "__dataclass_fields__", ()):
        known |= {key: passed_on(key) for key in given if key not in known}
    return known


def build_env(name: str, **options: Any) -> Env | HostSource:
    """Build an environment from its name and options, which are checked."""
    known = env_options(name, options)
    for option in options:
        if option not in known:
            raise PhalanxError(f"{name} has no option {option!r}.{suggest(option, known)}")
    return make_env(name, {key: convert(known[key], raw, "argument") for key, raw in options.items()})


def make_env(name: str, options: Mapping[str, Any]) -> Any:
    """Build an environment from its name and checked options: an `Env`, or a `HostTask`."""
    from phalanx.envs.host.base import HostEnv
    from phalanx.envs.host.task import HostTask

    cls, fixed = _env_entry(name)
    if is_built_in(name):
        return cls(**fixed, **options)
    if issubclass(cls, HostEnv):
        known = options_of(cls)
        fields = {**fixed, **{key: value for key, value in options.items() if key in known}}
        extra = {key: value for key, value in options.items() if key not in known}
        return HostTask(
            name, f"{cls.__module__}:{cls.__qualname__}", {**fields, **({"extra": extra} if extra else {})}
        )
    try:
        return cls(**options)
    except Exception as error:  # a user's constructor may raise anything
        raise PhalanxError(f"cannot build {name!r}: {type(error).__name__}: {error}") from None


@cache
def _preset_envs(name: str) -> tuple[str, ...]:
    """The environments (or patterns, `*`) that a preset names as its own, `[for] envs = [...]`."""
    files = _preset_files()[name].values()
    return tuple(env for path in files for env in read_toml(path).get("for", {}).get("envs", ()))


def preset(algorithm: str, env: str, wanted: str) -> Layer | None:
    """The preset to lay over the defaults.

    `auto` takes the one of this algorithm that names the environment as its own, or else the one for the
    environment's family, if there is one; `none` takes none, FILE.toml is read, any other name must exist.
    """
    if wanted == "none":
        return None
    if wanted.endswith(".toml"):
        return _preset_layer(wanted, Path(wanted), algorithm)
    mine = [name for name in presets() if name.startswith(f"{algorithm}/")]
    if wanted == "auto":
        named = [name for name in mine if any(fnmatchcase(env, each) for each in _preset_envs(name))]
        name = named[0] if named else f"{algorithm}/{env.partition('/')[0]}"
    else:
        name = f"{algorithm}/{wanted}"
    if name not in mine:
        if wanted == "auto":
            return None
        known = ["auto", "none", *(each.partition("/")[2] for each in mine)]
        raise PhalanxError(f"{algorithm} has no preset {wanted!r}.{suggest(wanted, known)}")
    files = _preset_files()[name]
    if len(files) > 1:
        raise PhalanxError(f"the preset {name} is defined by {' and by '.join(files)}: uninstall one of them")
    (path,) = files.values()
    return _preset_layer(name, path, algorithm)


def _preset_layer(name: str, path: Path, algorithm: str) -> Layer:
    """A preset as its file says; `[for]` names environments, `[search]` what was spent to find it."""
    values = read_toml(path)
    tuning = values.get("search", {})
    if tuning and not all(isinstance(tuning.get(each), int) for each in ("settings", "env_steps")):
        raise PhalanxError(
            f"{path}: [search] must say settings and env_steps, as `phalanx search` writes them"
        )
    found_for = tuning.get("algorithm", algorithm)
    if name.endswith(".toml") and found_for != algorithm:
        raise PhalanxError(f"the preset {name} was found for {found_for}, not for {algorithm}")
    tables = {table: values[table] for table in values if table not in ("for", "search")}
    return Layer(f"preset {name}", tables, tuning)


def read_toml(path: Path, tables: tuple[str, ...] = TABLES) -> dict[str, Any]:
    """Read a file of tables, such as a configuration; say in one line what is wrong with it."""
    try:
        return parse_toml(path.read_bytes(), path, tables)
    except OSError as error:
        raise PhalanxError(f"cannot read {path}: {error.strerror}") from None


def parse_toml(content: bytes, path: Path, tables: tuple[str, ...] = TABLES) -> dict[str, Any]:
    """The tables in the content of a file; `path` is named where it is wrong."""
    try:
        values = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise PhalanxError(f"{path} is not valid TOML: {error}") from None
    for table, entries in values.items():
        if not isinstance(entries, dict):
            known = " or ".join(f"[{each}]" for each in tables)
            raise PhalanxError(f"{path}: {table!r} must be in a table: {known}")
    return values


def require_fit(name: str, spec: EnvSpec) -> None:
    """Raise an error if an algorithm does not support an environment, and list those that do."""
    if spec.action_kind not in algorithm(name).action_kinds:
        fitting = [each for each in _algorithm_modules() if spec.action_kind in algorithm(each).action_kinds]
        raise PhalanxError(
            f"{name} has no {spec.action_kind} actions, which {spec.name} needs; "
            + (f"these do: {', '.join(fitting)}" if fitting else "no algorithm of phalanx does")
        )
