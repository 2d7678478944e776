"""What Hypothesis draws for a test does not depend on the test's surroundings."""

import subprocess
import sys
from pathlib import Path

CONSTANTS = "FOUND = [{}]\n".format(", ".join(str(number * 1_000_003) for number in range(1, 500)))
DRAWN = """
import sys
import pytest
from hypothesis import given, settings, strategies as st
from kordon.testing.same_draws import leave_out_constants_of_the_project

if "--as-it-is" not in sys.argv:
    leave_out_constants_of_the_project(pytest.MonkeyPatch())
if "--import" in sys.argv:
    import constants_of_a_product

drawn = []

@settings(derandomize=True, max_examples=200, database=None)
@given(st.integers(0, 2**31))
def draw(number):
    drawn.append(number)

draw()
print(drawn)
"""


def drawn(folder: Path, *arguments: str) -> str:
    """What is drawn by a program in a folder."""
    folder.mkdir(parents=True)
    (folder / "constants_of_a_product.py").write_text(CONSTANTS)
    (folder / "drawing.py").write_text(DRAWN)
    command = [sys.executable, str(folder / "drawing.py"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=True).stdout


def test_draws_are_those_of_any_other_folder_and_product(tmp_path: Path) -> None:
    """Constants of an imported module are drawn by Hypothesis as it is, and by nobody here."""
    alone = drawn(tmp_path / "alone")
    assert alone.count(",") == 199
    assert drawn(tmp_path / "beside", "--import") == alone
    assert drawn(tmp_path / "tests" / "deeper", "--import") == alone
    assert drawn(tmp_path / "as", "--import", "--as-it-is") != alone
