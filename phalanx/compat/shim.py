"""`python -m phalanx.compat.shim DIR`: write the packages that programs for SMAC import.

The packages `smac` and `smacv2` in DIR provide the classes of `phalanx.compat`. PyMARL2 and on-policy have
copies of SMAC's class in their own source trees, which a package cannot replace. Python runs
`sitecustomize.py` at start-up, which redirects the imports of these copies.
"""

import sys
from pathlib import Path

from phalanx.errors import PhalanxError

MARK = '"""Written by python -m phalanx.compat.shim."""\n\n'

MAPS = "from phalanx.compat.maps import get_map_params, get_smac_map_registry\n"
SMAC, SMACV2 = "from phalanx.compat.smac import *\n", "from phalanx.compat.smacv2 import *\n"

# Modules of other programs that hold a copy of SMAC's class, and what stands in for them.
COPIES = {
    "envs.starcraft.StarCraft2Env": "phalanx.compat.smac",
    "onpolicy.envs.starcraft2.StarCraft2_Env": "phalanx.compat.on_policy",
    "onpolicy.envs.starcraft2.smac_maps": "phalanx.compat.maps",
}

SITE = f'''import importlib.abc
import importlib.util
import sys

COPIES = {COPIES!r}


class Copies(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers imports of these modules with phalanx's."""

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in COPIES else None

    def exec_module(self, module):
        exec(f"from {{COPIES[module.__name__]}} import *", vars(module))


sys.meta_path.insert(0, Copies())
'''

FILES = {
    "smac/__init__.py": "",
    "smac/env/__init__.py": SMAC,
    "smac/env/multiagentenv.py": SMAC,
    "smac/env/starcraft2/__init__.py": SMAC,
    "smac/env/starcraft2/starcraft2.py": SMAC,
    "smac/env/starcraft2/maps/__init__.py": MAPS,
    "smac/env/starcraft2/maps/smac_maps.py": MAPS,
    "smacv2/__init__.py": "",
    "smacv2/env/__init__.py": SMACV2,
    "smacv2/env/multiagentenv.py": SMACV2,
    "smacv2/env/starcraft2/__init__.py": SMACV2,
    "smacv2/env/starcraft2/starcraft2.py": SMACV2,
    "smacv2/env/starcraft2/wrapper.py": SMACV2,
    "smacv2/env/starcraft2/maps/__init__.py": MAPS,
    "smacv2/env/starcraft2/maps/smac_maps.py": MAPS,
    "sitecustomize.py": SITE,
}


def write(folder: str | Path) -> Path:
    """Write the packages into `folder`, over those that an earlier version wrote; returns the folder."""
    folder = Path(folder).absolute()
    for name, text in FILES.items():
        path = folder / name
        try:
            if path.exists() and not path.read_text("utf-8").startswith(MARK):
                raise PhalanxError(f"{path} is there already, and is not ours: choose another folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(MARK + text, "utf-8")
        except OSError as error:
            raise PhalanxError(f"cannot write {path}: {error.strerror}") from None
    return folder


def main(words: list[str]) -> int:
    """The command; returns its exit code."""
    if len(words) != 1 or words[0].startswith("-"):
        wants_help = words in (["-h"], ["--help"])
        usage = (
            "usage: python -m phalanx.compat.shim DIR\n\nWrites the packages smac and smacv2 into DIR, for"
        )
        usage += " programs that import them: see docs/battle.md."
        print(usage, file=sys.stdout if wants_help else sys.stderr)
        return 0 if wants_help else 2
    try:
        folder = write(words[0])
    except PhalanxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {folder}: start the program with PYTHONPATH={folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
