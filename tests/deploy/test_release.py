"""A release, as far as it can be made here: its packages, and the workflow that makes and publishes it."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def workflow() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    return document


def run(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a step's script as the workflow does."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHON": sys.executable, **variables}
    return subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as it stands, in a folder of its own."""
    folder = tmp_path_factory.mktemp("release") / "kordon"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "bench-results")
    shutil.copytree(ROOT, folder, symlinks=True, ignore=left_out)
    return folder


@pytest.mark.slow
def test_the_workflow_makes_the_packages_and_their_checksums(checkout: Path) -> None:
    """Its own step, as it stands there, where no tag is: the notes are those of what is not released yet."""
    (step,) = [each for each in workflow()["jobs"]["packages"]["steps"] if each.get("name") == "Make the packages"]
    done = run(step["run"], checkout, TAG="", DRY_RUN="--dry-run")
    assert done.returncode == 0, done.stderr
    names = {each.name for each in (checkout / "dist").iterdir()}
    packages = {f"kordon-{VERSION}-py3-none-any.whl", f"kordon-{VERSION}.tar.gz", f"kordon-chart-{VERSION}.tgz"}
    assert names == {"NOTES.md", "SHA256SUMS", *packages}
    assert run("sha256sum --check SHA256SUMS", checkout / "dist").returncode == 0
    assert (checkout / "dist" / "NOTES.md").read_text().lstrip().startswith("### ")
    with tarfile.open(checkout / "dist" / f"kordon-chart-{VERSION}.tgz") as chart:
        files = {each.name for each in chart if each.isfile()}
        assert not any(each.issym() or each.islnk() for each in chart), "nobody has what a link leads to"
    assert {"kordon/Chart.yaml", "kordon/files/alerts.yml", "kordon/files/dashboards/managed.json"} <= files


@pytest.mark.parametrize(
    ("tag", "says"), [("v99.0.0", f"but pyproject.toml says {VERSION}: tag v{VERSION}"), (f"v{VERSION}", "has nothing")]
)
def test_a_tag_that_does_not_fit_makes_nothing(checkout: Path, tmp_path: Path, tag: str, says: str) -> None:
    """It names the version of the package, and the changelog says what is in it."""
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(re.sub(rf"^## \[?{re.escape(VERSION)}.*$", "## another", changelog.read_text(), flags=re.M))
    done = run(f"deploy/release {tag} {tmp_path / 'dist'}", checkout)
    assert done.returncode == 1
    assert says in done.stderr
    assert not [*(tmp_path / "dist").glob("*.whl")]


def test_nothing_is_published_that_was_not_tested_or_is_not_wanted() -> None:
    """Publishing waits for the tests, the packages and the images, needs a tag, and has to be switched on."""
    jobs = workflow()["jobs"]
    assert set(jobs["publish"]["needs"]) == {"test", "packages", "images"}
    assert jobs["images"]["needs"] == "test"
    assert jobs["test"]["steps"][-1] == {"run": ".ci/run"}
    allowed = "github.ref_type == 'tag' && vars.PUBLISH == 'true'"
    assert jobs["publish"]["if"] == allowed
    pushes = [step["with"]["push"] for step in jobs["images"]["steps"] if "push" in step.get("with", {})]
    assert pushes == [f"${{{{ {allowed} }}}}"]


def test_images_are_built_of_stages_that_there_are_for_both_architectures() -> None:
    """The last stage is the proxy's."""
    job = workflow()["jobs"]["images"]
    stages = set(re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text(), flags=re.M))
    assert {each["target"] for each in job["strategy"]["matrix"]["include"]} <= stages | {""}
    (build,) = [step for step in job["steps"] if step.get("uses", "").startswith("docker/build-push-action")]
    assert build["with"]["platforms"] == "linux/amd64,linux/arm64"
    assert build["with"]["sbom"] is True


def test_no_action_is_taken_without_a_version() -> None:
    """What `main` is may change at any time."""
    uses = [step["uses"] for job in workflow()["jobs"].values() for step in job["steps"] if "uses" in step]
    assert [each for each in uses if not re.fullmatch(r"[\w./-]+@(v\d+|release/v\d+)", each)] == []
