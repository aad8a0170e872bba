"""What the pages say is what the code and the data say."""

import importlib.util
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from conftest import build

from phalanx import cli, registry
from phalanx.config import Option, RunConfig, options_of
from phalanx.training.evaluate import Played, summary

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# The page of each algorithm, by the page of its family; what all have in common stands in README.md.
FAMILIES = {
    "actor_critic.md": {
        "ppo": "ppo.md",
        "ippo": "ippo.md",
        "mappo": "mappo.md",
        "ia2c": "a2c.md",
        "maa2c": "a2c.md",
        "coma": "coma.md",
        "mappo_distil": "mappo_distil.md",
    },
    "q_learning.md": {
        "iql": "iql.md",
        "ddqn": "ddqn.md",
        "vdn": "vdn.md",
        "qmix": "qmix.md",
        "qplex": "qplex.md",
    },
    "off_policy.md": {
        "ddpg": "ddpg.md",
        "maddpg": "ddpg.md",
        "td3": "td3.md",
        "matd3": "td3.md",
        "sac": "sac.md",
        "masac": "sac.md",
        "facmac": "facmac.md",
    },
}
# Where to look an algorithm up: what is said later is more particular.
PAGES = {
    name: ("README.md", family, page) for family, pages in FAMILIES.items() for name, page in pages.items()
}


@pytest.mark.parametrize(
    "page", ["battle.md", "mpe.md", "opponents.md", "results.md", "search.md", "studies.md"]
)
def test_a_page_has_the_tables_of_the_code(page):
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert tables.fill(page) == (DOCS / page).read_text(encoding="utf-8"), "run: python docs/tables.py"


def text_of(page: str) -> str:
    return (DOCS / "algorithms" / page).read_text(encoding="utf-8")


def options_told(page: str) -> dict[str, str]:
    """The rows `| --option | default | ...` of a page."""
    return dict(re.findall(r"^\| `--([\w-]+)` \| (.*?) \|", text_of(page), re.MULTILINE))


def metrics_told(page: str) -> set[str]:
    """The rows `| metric | ...` of a page."""
    return set(re.findall(r"^\| `([a-z_]+)` \|", text_of(page), re.MULTILINE))


def flags_of(text: str) -> set[str]:
    """The options that a text names in backticks, but those of environments."""
    spans = re.findall(r"`[^`\n]+`", text)
    return {flag.removeprefix("no-") for span in spans for flag in re.findall(r"--(?!env\.)([\w-]+)", span)}


def flags_known(algorithms) -> set[str]:
    """The options of runs of these algorithms, and of commands that pages of algorithms name."""
    classes = [RunConfig, *(registry.algorithm_config(name) for name in algorithms)]
    return {name.replace("_", "-") for cls in classes for name in options_of(cls)} | {
        "preset",
        "help",
        "metric",
    }


def says(cell: str, opt: Option, algorithm: str) -> bool:
    """Whether a cell tells an option's default; in `obs (ia2c), state (maa2c)` each has its own."""
    own = re.search(rf"(\S+) \(`{algorithm}`\)", cell)
    cell = own[1] if own else cell
    if opt.default is None:
        return cell == "-"
    if opt.kind is bool:
        return cell == ("yes" if opt.default else "no")
    return float(cell) == opt.default if opt.kind in (int, float) else cell == (opt.default or "-")


@pytest.mark.parametrize("name", PAGES)
def test_every_algorithm_has_its_page(name):
    assert f"phalanx train {name} " in text_of(PAGES[name][-1])


def test_no_algorithm_that_learns_is_without_a_page():
    assert set(registry.algorithms()) - {"random", "rand", "heuristic"} == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_every_option_and_its_default_is_on_its_page_or_a_common_one(name):
    told = {flag: cell for page in PAGES[name] for flag, cell in options_told(page).items()}
    for opt in options_of(registry.algorithm_config(name)).values():
        flag = opt.name.replace("_", "-")
        assert flag in told, f"docs/algorithms has no row for --{flag} of {name}"
        assert says(told[flag], opt, name), f"the default of --{flag} of {name} is not {told[flag]}"


@pytest.mark.parametrize("page", dict.fromkeys(page for pages in PAGES.values() for page in pages))
def test_a_page_names_only_options_that_there_are(page):
    assert flags_of(text_of(page)) <= flags_known(name for name, pages in PAGES.items() if page in pages)


# The page for users of PyMARL


def rows_of_pymarl() -> list[tuple[str, str]]:
    """What is there and what is here, of every row of the page's tables."""
    text = (DOCS / "from-pymarl.md").read_text(encoding="utf-8")
    return [(there, here) for there, here in re.findall(r"^\| (.+?) \| (.+?) \|$", text, re.MULTILINE)]


def pymarl_page() -> str:
    """What the page says of phalanx: without PyMARL's own command and names."""
    text = (DOCS / "from-pymarl.md").read_text(encoding="utf-8")
    text = re.sub(r"^python .*", "", text, flags=re.MULTILINE)
    return re.sub(r"^\| .+? \| (.+?) \|$", r"\1", text, flags=re.MULTILINE)


def help_of(command: str, capsys) -> str:
    with pytest.raises(SystemExit):
        cli.run([command, "--help"])
    return capsys.readouterr().out


def flags_in(text: str) -> set[str]:
    found = re.findall(r"(?<![\w-])--(?!env\.)([a-z][\w-]*)", text)
    return {flag.removeprefix("no-") for flag in found}


def test_the_page_for_pymarl_names_only_commands_that_there_are_with_their_options(capsys):
    code = "\n".join(re.findall(r"^```.*?^```|`[^`\n]+`", pymarl_page(), re.MULTILINE | re.DOTALL))
    found = re.findall(r"\bphalanx ([a-z-]+)([^`\n]*)", code.replace("\\\n", " "))
    assert {"train", "eval", "resume", "watch", "record", "plot"} <= {command for command, _ in found}
    trains = flags_known(FAMILIES["q_learning.md"]) | {"config", "out"}
    for command, words in found:
        assert command in cli.COMMANDS
        known = trains if command == "train" else flags_in(help_of(command, capsys))
        assert flags_in(words) <= known, f"phalanx {command} {words}"


def test_the_page_for_pymarl_names_only_options_that_there_are(capsys):
    text = pymarl_page()
    of_commands = {flag for name in ("eval", "resume", "watch") for flag in flags_in(help_of(name, capsys))}
    learners = flags_known(["mappo", *FAMILIES["q_learning.md"]])
    assert flags_in(text) <= learners | of_commands | {"config", "out", "metric"}
    assert {"wandb", "epsilon-steps", "gif"} <= flags_in(text)
    of_env = {flag.removeprefix("no-").replace("-", "_") for flag in re.findall(r"--env\.([\w-]{2,})", text)}
    assert of_env <= set(registry.env_options("battle/3m"))


def test_the_page_for_pymarl_denies_nothing_that_there_is():
    """A setting that the page calls unsupported is no option by the same name, such as use_wandb."""
    denied = [there for there, here in rows_of_pymarl() if re.match("not (supported|there)", here)]
    names = {name.removeprefix("use_") for there in denied for name in re.findall(r"`(\w+)`", there)}
    assert "layer_norm" in names  # the rows are found
    known = flags_known(FAMILIES["q_learning.md"])
    assert not {name.replace("_", "-") for name in names} & (known | set(cli.COMMANDS))


def test_the_page_for_pymarl_names_presets_environments_files_and_metrics_that_there_are():
    text = pymarl_page()
    presets = set(re.findall(r"--preset (\w+)", text)) - {"none"} | set(re.findall(r"preset `(\w+)`", text))
    assert presets == {"pymarl", "pymarl2"}
    teams = set(FAMILIES["q_learning.md"]) - {"ddqn"}  # which PyMARL does not have
    of = {f"{algorithm}/{preset}" for algorithm in teams for preset in presets}
    assert of <= set(registry.presets())
    envs = set(re.findall(r"`?\b((?:battle|mpe|switch)/\w+)", text)) - {"battle/v2_"}
    assert envs <= set(registry.envs())
    for path in re.findall(r"`(phalanx/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
    algorithms = {word for words in re.findall(r"phalanx train (\w+)", text) for word in words.split()}
    assert algorithms <= set(registry.algorithms())
    metrics = jax.eval_shape(build("qmix", "debug/two_step").init, jnp.int32(0)).tally.metrics
    assert set(re.findall(r"`learn/(\w+)`", text)) <= set(metrics)
    spec = registry.make_env("battle/3m", {}).spec
    played = summary(Played(jnp.zeros((2, spec.n_agents)), jnp.ones(2), jnp.zeros(2, bool)), spec)
    assert set(re.findall(r"`eval/(\w+)`", text)) == set(played)
    assert set(re.findall(r"`train/(\w+)`", text)) <= set(played)


@pytest.mark.parametrize("name", PAGES)
def test_every_metric_is_on_its_page_or_a_common_one(name):
    env = "debug/roles" if name in FAMILIES["actor_critic.md"] else "debug/two_step"
    metrics = jax.eval_shape(build(name, env).init, jnp.int32(0)).tally.metrics
    logged = {metric.partition("/")[0] for metric in metrics}
    assert logged == {metric for page in PAGES[name] for metric in metrics_told(page)}


def commands() -> list[str]:
    """Every `phalanx train ...` in the code blocks of the pages.

    But for those with a word to be filled in, with a Python that is not here, with the preset of a search, or
    with a class of an example: test_extend.py and test_site.py run these.
    """
    found = []
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        for block in re.findall(r"^```.*?^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            found += re.findall(r"^phalanx train .*", block.replace("\\\n", " "), re.MULTILINE)
    return [
        line
        for line in dict.fromkeys(found)
        if not re.search(r"\b(ALGORITHM|ENV|RUN|MAP)\b|\w:[A-Z]|--worker-python|preset\.toml", line)
    ]


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_pages_would_run(line, monkeypatch):
    """Up to where it would begin to compile: options, preset, values and sizes are right."""
    begun = []
    monkeypatch.setattr(
        "phalanx.api.train_setup", lambda setup, *_: begun.append(setup) or SimpleNamespace(folder="RUN")
    )
    monkeypatch.setattr("phalanx.hosts.join", lambda where: None)
    words = shlex.split(line, comments=True)
    assert cli.run(words[1:]) == 0
    assert len(begun) == ("--help" not in words)
