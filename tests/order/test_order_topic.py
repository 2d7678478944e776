"""The topic of a run of order is resized as the manual says, also where that takes its time."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.order import run


def answered(*codes: int | None) -> list[Future[None]]:
    """What becomes of one request after the other: an error, or nothing."""
    answers = [Future[None]() for _ in codes]
    for answer, code in zip(answers, codes, strict=True):
        if code is None:
            answer.set_result(None)
        else:
            answer.set_exception(KafkaException(KafkaError(code)))
    return answers


@pytest.mark.parametrize(
    ("codes", "is_resized"),
    [
        ([None], True),
        ([KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT, None], True),
        ([KafkaError.REQUEST_TIMED_OUT, KafkaError.INVALID_PARTITIONS], False),
    ],
)
def test_who_is_told_that_a_change_goes_on_asks_again(
    codes: list[int | None], *, is_resized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kordon ends the wait after 60 s (docs/managing.md); a refusal is one at once."""
    answers, asked = answered(*codes), list[tuple[str, int]]()

    def resize(_: AdminClient, topic: str, partitions: int) -> Future[None]:
        asked.append((topic, partitions))
        return answers[len(asked) - 1]

    monkeypatch.setattr(run, "resize", resize)
    monkeypatch.setattr(run, "AdminClient", dict)  # made of the same settings; it asks nobody
    topic = run.Topic("127.0.0.1:1", "orders")
    if is_resized:
        topic.resize(6)
    else:
        with pytest.raises(RuntimeError, match="orders was not resized"):
            topic.resize(6)
    assert asked == [("orders", 6)] * len(codes)
