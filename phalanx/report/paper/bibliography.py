"""What a comparison has to cite: its algorithms, options, environments and statistics, and nothing else."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from phalanx.report.compare import Trained

FILE = Path(__file__).with_name("literature.bib")

ALGORITHMS: dict[str, tuple[str, ...]] = {
    "coma": ("foerster2018coma",),
    "ddpg": ("lillicrap2016ddpg",),
    "ddqn": ("hasselt2016ddqn",),
    "facmac": ("peng2021facmac",),
    "heuristic": ("phalanx",),
    "ia2c": ("mnih2016a3c", "papoudakis2021benchmarking"),
    "ippo": ("schulman2017ppo", "dewitt2020ippo"),
    "iql": ("tampuu2017iql", "hasselt2016ddqn"),
    "maa2c": ("mnih2016a3c", "papoudakis2021benchmarking"),
    "maddpg": ("lowe2017maddpg",),
    "mappo": ("schulman2017ppo", "yu2022mappo"),
    "mappo_distil": ("yu2022mappo", "aitchison2022dna"),
    "masac": ("haarnoja2018sac", "lowe2017maddpg"),
    "matd3": ("fujimoto2018td3", "ackermann2019matd3"),
    "ppo": ("schulman2017ppo",),
    "qmix": ("rashid2018qmix",),
    "qplex": ("wang2021qplex",),
    "random": ("phalanx",),
    "rand": ("phalanx",),
    "sac": ("haarnoja2018sac",),
    "td3": ("fujimoto2018td3",),
    "vdn": ("sunehag2018vdn",),
}
# Options of algorithms that are methods of their own, where they are not off.
OPTIONS: dict[str, tuple[str, ...]] = {
    "dueling": ("wang2016dueling",),
    "icm": ("pathak2017icm",),
    "priority": ("schaul2016priority",),
    "rnd": ("burda2019rnd",),
}
# By the beginning of a name; the longest that fits counts.
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "battle/": ("samvelyan2019smac",),
    "battle/v2_": ("ellis2023smacv2",),
    "classic/": ("towers2024gymnasium",),
    "debug/": ("phalanx",),
    "football/": ("kurach2020football",),
    "game/": ("phalanx",),
    "gym/": ("towers2024gymnasium",),
    "gymnax/": ("lange2022gymnax",),
    "jaxmarl/": ("rutherford2024jaxmarl",),
    "jaxmarl/mpe_": ("rutherford2024jaxmarl", "lowe2017maddpg"),
    "jaxmarl/overcooked": ("rutherford2024jaxmarl", "carroll2019overcooked"),
    "jaxmarl/smax_": ("rutherford2024jaxmarl", "samvelyan2019smac"),
    "jumanji/": ("bonnet2024jumanji",),
    "jumanji/LevelBasedForaging": ("bonnet2024jumanji", "papoudakis2021benchmarking"),
    "jumanji/RobotWarehouse": ("bonnet2024jumanji", "papoudakis2021benchmarking"),
    "lbf/": ("christianos2020seac", "papoudakis2021benchmarking"),
    "ma_gym/": ("koul2019magym",),
    "mpe/": ("lowe2017maddpg",),
    "pettingzoo/": ("terry2021pettingzoo",),
    "pettingzoo/mpe2.": ("terry2021pettingzoo", "lowe2017maddpg"),
    "rware/": ("christianos2020seac", "papoudakis2021benchmarking"),
    "smac/": ("samvelyan2019smac",),
    "smaclite/": ("michalski2023smaclite",),
    "smacv2/": ("ellis2023smacv2",),
    "switch/": ("koul2019magym",),
}


def of_algorithm(name: str) -> tuple[str, ...]:
    """The entries for an algorithm; none for one that is not of phalanx."""
    return ALGORITHMS.get(name, ())


def of_environment(name: str) -> tuple[str, ...]:
    """The entries for an environment; none for one that is not of phalanx."""
    fitting = [begin for begin in ENVIRONMENTS if name.startswith(begin)]
    return ENVIRONMENTS[max(fitting, key=len)] if fitting else ()


def of_options(run: Trained) -> dict[str, tuple[str, ...]]:
    """The options of a run that have entries."""
    return {name: keys for name, keys in OPTIONS.items() if run.config.get("algorithm", {}).get(name)}


def without_entry(runs: Iterable[Trained]) -> list[str]:
    """The user's own algorithms and environments, which have no entries here."""
    names = dict.fromkeys(name for run in runs for name in (run.algorithm, run.task))
    return [name for name in names if not (of_algorithm(name) or of_environment(name))]


@cache
def entries() -> dict[str, str]:
    """Every entry of literature.bib, by its key."""
    parts = re.split(r"^(?=@)", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {part[part.index("{") + 1 : part.index(",")]: part.strip() + "\n" for part in parts}


def cited(text: str) -> list[str]:
    """The keys that a LaTeX text cites, in their order."""
    found = re.findall(r"\\cite\{([^}]*)\}", text)
    return list(dict.fromkeys(key for keys in found for key in keys.split(",")))


def bibtex(text: str) -> str:
    """A BibTeX file with the entries that a LaTeX text cites."""
    return "\n".join(entries()[key] for key in sorted(cited(text)))
