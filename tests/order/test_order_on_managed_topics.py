"""Everything at once on a managed topic: growth and shrink, a killed proxy, members that come and go."""

import io

import pytest
from rich.console import Console

from kordon.testing.broker_features import NEW_GROUPS
from kordon.testing.demo_growing import grow_and_shrink

pytestmark = [
    pytest.mark.broker,
    pytest.mark.deep,
    pytest.mark.timeout(900),
    pytest.mark.skipif(NEW_GROUPS.is_missing, reason=NEW_GROUPS.reason),
]


def test_growth_shrink_and_a_killed_proxy_break_no_promise() -> None:
    """The second half of the demo: three kinds of producers and of groups, members coming and going."""
    told = io.StringIO()
    wrong = grow_and_shrink(Console(file=told, width=140))
    assert wrong == [], told.getvalue()
