"""What `make try` and the demo count is judged by these plays."""

from kordon.testing.key_order import KeyOrder


def written(count: int) -> KeyOrder:
    order = KeyOrder()
    for number in range(count):
        order.wrote("a", number)
    return order


def test_records_read_in_order_are_only_counted() -> None:
    order = written(3)
    for number in range(3):
        order.took("a", number, (0, number))
    assert (order.read, order.out_of_order, order.doubled, order.missing, order.again) == (3, 0, 0, 0, 0)
    assert order.first_breach is None
    assert order.holds


def test_each_record_behind_a_later_one_of_its_key_is_out_of_order() -> None:
    order = written(3)
    for number, place in ((2, (1, 0)), (0, (0, 0)), (1, (0, 1))):
        order.took("a", number, place)
    assert (order.read, order.out_of_order, order.missing) == (3, 2, 0)
    assert str(order.first_breach) == "a: #2, #0"
    assert not order.holds


def test_another_key_has_an_order_of_its_own() -> None:
    order = written(2)
    order.wrote("b", 0)
    for key, number, place in (("a", 0, (0, 0)), ("a", 1, (0, 1)), ("b", 0, (0, 2))):
        order.took(key, number, place)
    assert order.out_of_order == 0


def test_what_was_acknowledged_and_not_read_is_missing() -> None:
    order = written(3)
    order.took("a", 1, (0, 0))
    assert order.missing == 2
    assert not order.holds


def test_a_record_may_be_read_before_its_acknowledgement_is_seen() -> None:
    order = KeyOrder()
    order.took("a", 0, (0, 0))
    order.wrote("a", 0)
    assert (order.missing, order.read) == (0, 1)


def test_a_record_that_stands_twice_is_doubled_and_one_that_is_delivered_twice_is_not() -> None:
    order = written(1)
    for place in ((0, 0), (0, 0), (0, 1)):
        order.took("a", 0, place)
    assert (order.read, order.again, order.doubled) == (1, 1, 1)
    assert not order.holds
