"""Whether the application is alive (KIP-509, case 4), by a clock that the test sets."""

from kordon.client.sources.liveness import Liveness


def test_an_application_that_does_nothing_is_warned_of_and_taken_for_dead() -> None:
    """Once after half of the time, and after all of it."""
    liveness = Liveness(10.0, now=100.0)
    assert liveness.seconds_left(100.0) == 5.0
    assert not liveness.is_to_be_warned(104.9)
    assert liveness.is_to_be_warned(105.0)
    assert not liveness.is_to_be_warned(106.0)
    assert liveness.seconds_left(106.0) == 4.0
    assert not liveness.is_dead(109.9)
    assert liveness.is_dead(110.0)


def test_whoever_says_that_it_is_alive_is() -> None:
    """From then on, with a warning of its own."""
    liveness = Liveness(10.0, now=0.0)
    assert liveness.is_to_be_warned(6.0)
    liveness.alive(6.0)
    assert not liveness.is_dead(15.9)
    assert liveness.is_to_be_warned(11.0)
    assert liveness.is_dead(16.0)


def test_whoever_waits_for_the_producer_is_alive() -> None:
    """For as long as that takes; its time begins when all of its calls have returned."""
    liveness = Liveness(10.0, now=0.0)
    liveness.begin()
    liveness.begin()
    liveness.end(3.0)
    assert not liveness.is_dead(500.0)
    assert not liveness.is_to_be_warned(500.0)
    assert liveness.seconds_left(500.0) == 5.0
    liveness.end(500.0)
    assert not liveness.is_dead(509.9)
    assert liveness.is_dead(510.0)
