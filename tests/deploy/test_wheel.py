"""What `pip install kordon` brings: what users need, and no rigs."""

import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOADED = """
import importlib, json, pkgutil, sys
import kordon.client
for module in pkgutil.walk_packages(kordon.client.__path__, "kordon.client."):
    importlib.import_module(module.name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names)))
"""
WITHOUT_CLICK = """
import sys
sys.modules["click"] = None
from kordon.commands import main
main()
"""
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


def distributions(requirements: list[str]) -> set[str]:
    """Returns the names of what is required, as distributions are called."""
    return {requirement.partition(">")[0].partition("[")[0].partition("=")[0] for requirement in requirements}


def test_the_sdk_loads_nothing_that_only_the_proxy_needs() -> None:
    """The extra `proxy` has what the SDK's users do not install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    loaded = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True, timeout=120)
    known = packages_distributions()
    brought = {name for module in json.loads(loaded.stdout) for name in known.get(module, ())}
    assert distributions(project["dependencies"]) <= brought
    assert brought.isdisjoint(distributions(project["optional-dependencies"]["proxy"]))


def test_who_lacks_the_extra_is_told_what_to_install() -> None:
    """The command of whoever has installed the SDK alone."""
    command = [sys.executable, "-c", WITHOUT_CLICK]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert ended.stderr == "kordon: click is not installed: pip install '.[proxy]' in a clone of Kordon\n"
