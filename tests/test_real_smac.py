"""The own classes of SMAC and SMACv2 behind the adapters, on a program that speaks the game's protocol.

They are not in the package registry, so this runs only where PHALANX_SMAC_PYTHON names a Python that has
both: see docs/smac.md.
"""

import os
import subprocess
from pathlib import Path

import pytest

import phalanx

PYTHON = os.environ.get("PHALANX_SMAC_PYTHON")
REAL = Path(__file__).parent / "real"


@pytest.mark.skipif(not PYTHON, reason="PHALANX_SMAC_PYTHON is not set")
@pytest.mark.parametrize("family", ["smac", "smacv2"])
def test_the_real_class_on_a_stand_in_for_the_game(tmp_path, family):
    program = tmp_path / "Versions" / "Base75689" / "SC2_x64"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{PYTHON}\n" + (REAL / "starcraft_game.py").read_text())
    program.chmod(0o755)
    maps = tmp_path / "Maps" / "SMAC_Maps"
    maps.mkdir(parents=True)
    for name in ("3m", "2s3z", "32x32_flat"):
        (maps / f"{name}.SC2Map").touch()
    package = Path(phalanx.__file__).parent
    ran = subprocess.run(
        [PYTHON, REAL / "play_smac.py", package, family],
        env={**os.environ, "SC2PATH": str(tmp_path), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "wins" in ran.stdout
