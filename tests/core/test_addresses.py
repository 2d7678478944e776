"""Where clients find each broker: one place for each, the same in every replica."""

import pytest

from kordon.proxy.core.addresses import HIGHEST_PORT, NO_PORT, Advertised


def test_each_broker_has_a_port_of_its_own() -> None:
    """The base port and the node id, or what is given for it."""
    advertised = Advertised("kordon", 9092, {3: 7000})
    assert [advertised.of(node_id) for node_id in (0, 1, 3)] == [("kordon", 9092), ("kordon", 9093), ("kordon", 7000)]
    assert advertised.at("other").of(1) == ("other", 9093)


@pytest.mark.parametrize(("node_id", "port"), [(-1, NO_PORT), (1, 1), (HIGHEST_PORT, HIGHEST_PORT), (1 << 20, NO_PORT)])
def test_what_is_no_port_is_not_told(node_id: int, port: int) -> None:
    """A client would dial another broker, or nobody; the node id is told as unready instead."""
    assert Advertised("kordon", 0).port_of(node_id) == port


def test_names_tell_brokers_apart_on_one_port() -> None:
    """By the TLS server name."""
    advertised = Advertised("kordon", 9092, {1: 7000}, sni_pattern="b-$(node_id).kordon")
    assert [advertised.of(node_id) for node_id in (0, 1)] == [("b-0.kordon", 9092), ("b-1.kordon", 9092)]
