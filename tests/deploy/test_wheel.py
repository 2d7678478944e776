"""What `pip install kordon` brings: what users need, and no rigs."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools import build_meta; build_meta.build_wheel('dist')"


def test_the_wheel_has_what_users_need_and_no_rigs(tmp_path: Path) -> None:
    """One of the rigs is a proxy that breaks promises on purpose."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    subprocess.run([sys.executable, "-c", BUILD], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packages = {"/".join(Path(name).parts[:2]) for name in names if name.startswith("kordon/") and name.count("/") > 1}
    assert packages == {f"kordon/{name}" for name in ("client", "codecs", "proxy", "spark_jobs")}
    assert "kordon/py.typed" in names
    assert "kordon/spark_jobs/log4j2.properties" in names
