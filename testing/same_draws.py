"""Hypothesis that draws the same examples for the same test, wherever it stands and whatever else is imported.

Among what it draws Hypothesis mixes constants that it finds in modules of the project. So an example depends on each
constant of the product, on the modules that other tests have imported, and on the folder of the checkout: modules below
a folder named `test` do not count. Whoever adds a constant would be refused for a test that he never touched.
"""

import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants


def leave_out_constants_of_the_project(patch: pytest.MonkeyPatch) -> None:
    """Has Hypothesis find no constants in modules; raises AttributeError."""
    patch.setattr(providers, "_get_local_constants", Constants)
