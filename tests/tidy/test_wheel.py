"""The wheel holds what an installed Allswell needs besides its modules."""

import subprocess
import sys
import zipfile
from pathlib import Path

from allswell.interfaces.cli.help_pages import TOPICS

ROOT = Path(__file__).parents[2]


def test_the_wheel_ships_types_and_sql(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    shipped = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "allswell"
    wanted = {
        str(path.relative_to(package.parent))
        for pattern in ("*.py", "*.sql", "py.typed")
        for path in package.rglob(pattern)
    }
    assert wanted <= shipped
    assert "allswell/py.typed" in shipped
    assert {f"allswell/interfaces/cli/docs/{file}" for file, _ in TOPICS.values()} <= shipped
