"""What installed packages add to phalanx by entry points, and names outside of it in general.

The groups are `phalanx.algorithms`, `phalanx.envs` and `phalanx.presets`. An entry point is imported when its
name is used, not before.
"""

from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from phalanx.errors import PhalanxError


@cache
def installed(kind: str) -> dict[str, list[EntryPoint]]:
    """What installed packages define in the group `phalanx.KIND`, by name. Nothing is imported."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=f"phalanx.{kind}"), key=lambda entry: (entry.name, entry.value)):
        found.setdefault(entry.name, []).append(entry)
    return found


def package_of(entry: EntryPoint) -> str:
    """The name of the package that defines an entry point."""
    return entry.dist.name if entry.dist else entry.value.partition(":")[0]


def clash(kind: str, name: str, built_in: Collection[str]) -> str | None:
    """What is wrong with a name that more than one package defines."""
    found = installed(kind).get(name, [])
    owners = [*(["phalanx"] if name in built_in else []), *map(package_of, found)]
    if len(owners) < 2:
        return None
    return (
        f"{name!r} is defined by {' and by '.join(owners)}: write {found[-1].value} for the latter, or "
        f"uninstall one of them"
    )


def listed(kind: str, built_in: Mapping[str, str]) -> dict[str, str]:
    """Names and a line about each: what is built in, then what installed packages define."""
    found = dict(built_in)
    for name, entries in installed(kind).items():
        line = f"{entries[0].value}, of the package {package_of(entries[0])}"
        found[name] = clash(kind, name, built_in) or line
    return found


def external(kind: str, name: str, built_in: Collection[str]) -> tuple[str, str] | None:
    """`package.module:Class` of a name outside of phalanx, and ` of the package P` for an entry point."""
    if ":" in name:
        return name, ""
    wrong = clash(kind, name, built_in)
    if wrong:
        raise PhalanxError(wrong)
    for entry in installed(kind).get(name, []):
        return entry.value, f" of the package {package_of(entry)}"
    return None
