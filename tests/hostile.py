"""Run folders that somebody wants to do harm with, or that are broken."""

import json
import os
from pathlib import Path

from test_compare import write_run

SCRIPT = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
SECRET = "the-secret-outside"


def names(folder: Path) -> Path:
    """A run whose every text is a script, markup, a formula or a control sequence."""
    bad = SCRIPT.replace("/", "\\")
    write_run(folder, algorithm=bad, env=f"[red]$\\frac{{{bad}$", note="[/nope]\x1b[31m$_{")
    facts = json.loads((folder / "run.json").read_text())
    facts |= {
        "device": SCRIPT,
        "git": SCRIPT,
        "command": SCRIPT,
        "versions": {SCRIPT: SCRIPT},
        "started": SCRIPT,
    }
    facts["origins"] = {"run": {"env": f"preset {SCRIPT}"}}
    (folder / "run.json").write_text(json.dumps(facts))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(row | {f"eval/{SCRIPT}": 1.0, "__proto__": 2.0}) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def outside(folder: Path) -> Path:
    """A file that nobody may read: it is next to the folder of runs, and is what each link leads to."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(f'[run]\nalgorithm = "{SECRET}"\nenv = "{SECRET}"\n')
    (folder / "run.json").write_text(json.dumps({"status": SECRET, "seeds": [0]}))
    (folder / "metrics.jsonl").write_text('{"seed": 0, "env_steps": 1, "eval/' + SECRET + '": 1.0}\n')
    (folder / "watch.html").write_text(f'<script id="data" type="text/plain">{SECRET}</script>')
    return folder


def linked(folder: Path, elsewhere: Path, *files: str) -> Path:
    """A sound run some files of which are links to another place."""
    write_run(folder)
    for name in files:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(elsewhere / name)
    return folder


def changed(folder: Path, file: str, content: bytes | str) -> Path:
    """A sound run one file of which holds something else."""
    write_run(folder)
    (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def facts_with(folder: Path, **facts) -> Path:
    """A sound run but for some facts of run.json."""
    write_run(folder)
    known = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(known | facts))
    return folder


def config_with(folder: Path, old: str, new: str) -> Path:
    """A sound run but for a line of config.toml."""
    write_run(folder)
    text = (folder / "config.toml").read_text()
    assert old in text
    (folder / "config.toml").write_text(text.replace(old, new))
    return folder


DEEP = "[" * 100_000
BROKEN = {
    "json cut off": lambda f: changed(f, "run.json", '{"status": "fin'),
    "json of a list": lambda f: changed(f, "run.json", "[1, 2]"),
    "json too deep": lambda f: changed(f, "run.json", DEEP),
    "binary facts": lambda f: changed(f, "run.json", os.urandom(4096)),
    "binary config": lambda f: changed(f, "config.toml", b"\x00\xff" * 2000),
    "config too deep": lambda f: changed(f, "config.toml", f"a = {DEEP}"),
    "config without tables": lambda f: changed(f, "config.toml", "run = 3\n"),
    "empty config": lambda f: changed(f, "config.toml", ""),
    "binary metrics": lambda f: changed(f, "metrics.jsonl", b"\x00\xff\n" * 500),
    "rows of junk": lambda f: changed(f, "metrics.jsonl", '{"seed": "x"}\n[]\n3\n{"env_steps": -1}\n'),
    "metrics too deep": lambda f: changed(f, "metrics.jsonl", DEEP + "\n" + DEEP + "\n"),
    "seeds of scripts": lambda f: facts_with(f, seeds=[SCRIPT]),
    "version of a script": lambda f: facts_with(f, env_version=SCRIPT),
    "lists for texts": lambda f: facts_with(f, command=[1], status={"a": 1}, started=7),
    "final of a list": lambda f: facts_with(f, final=[1, 2]),
    "final without seeds": lambda f: facts_with(f, final={"last": {"episodes": 3, "seeds": []}}),
    "final not finite": lambda f: facts_with(
        f, final={"last": {"episodes": 3, "seeds": [{"seed": s, "win_rate": float("nan")} for s in range(5)]}}
    ),
    "steps of a text": lambda f: config_with(f, "steps = 500000", 'steps = "many"'),
    "huge steps": lambda f: config_with(f, "steps = 500000", "steps = 1" + "0" * 4000),
}
