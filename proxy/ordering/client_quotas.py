"""Which byte rate holds for a client, and how long one that exceeds it has to wait, as brokers work both out.

The rate is the most specific one that is set. Those who share it are counted together:

    users/alice clients/app    >  users/alice clients/<default>      each user with each client id
    users/alice                                                      each user
    users/<default> clients/app  >  users/<default> clients/<default>  each user with each client id
    users/<default>                                                  each user
    clients/app  >  clients/<default>                                each client id

A client may burst for ten seconds: what was seen in a window of 10 to 11 s is divided by its length. With a rate of T
and O seen in a window of W, the wait is (O - T) / T * W, after which the same bytes amount to T.

Source: KIP-13, KIP-55, KIP-219; ClientQuotaManager, DefaultQuotaCallback, QuotaUtils, Rate and SampledStat of Kafka
4.3, with quota.window.num=11 and quota.window.size.seconds=1, the defaults.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

WINDOWS: Final = 11
WINDOW_MS: Final = 1_000
MOST_WAIT_MS: Final = 2**31 - 1
"""What throttle_time_ms can say."""
MOST_RATES: Final = 20_000
"""Users and client ids whose bytes a worker counts, of some 500 bytes each; beyond that the one that was silent for
longest is counted again, as clients can make up as many client ids as they like."""


class Default(NamedTuple):
    """Stands for all users, or all client ids, that have no quota of their own."""


DEFAULT: Final = Default()
Part = str | Default | None
"""A name, the default, or None: the quota does not speak of it."""
Sharers = tuple[str, str]
"""User and client id of those who are counted together; "" if that is any."""


class Quota(NamedTuple):
    """What holds for a client."""

    sharers: Sharers
    bytes_per_second: float


class Quotas:
    """The quotas of one kind, such as `producer_byte_rate`.

    Args:
        rates: Bytes per second by user and client id.
    """

    def __init__(self, rates: Mapping[tuple[Part, Part], float]) -> None:
        self._rates = rates
        self.names_users = any(user is not None for user, _ in rates)
        """Whether a client's user has to be known."""

    def __len__(self) -> int:
        return len(self._rates)

    def of(self, user: str, client_id: str) -> Quota | None:
        """Returns what holds for a client; None: nothing does.

        Args:
            client_id: "" if the client tells none.
        """
        for asked, sharers in _by_precedence(user, client_id):
            rate = self._rates.get(asked)
            if rate is not None:
                return Quota(sharers, rate)
        return None


def _by_precedence(user: str, client_id: str) -> Iterator[tuple[tuple[Part, Part], Sharers]]:
    for each in (user, DEFAULT):
        yield (each, client_id), (user, client_id)
        yield (each, DEFAULT), (user, client_id)
        yield (each, None), (user, "")
    yield (None, client_id), ("", client_id)
    yield (None, DEFAULT), ("", client_id)


class Rate:
    """What some clients have taken, by windows of a second."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()
        """Begin, time of the last bytes, bytes; the oldest first."""

    def take(self, count: int, now_ms: float, limit: float) -> int:
        """Counts bytes; returns the milliseconds for which their client has to wait.

        Args:
            now_ms: Of a clock that does not go back.
            limit: In bytes per second.
        """
        samples = self._samples
        while samples and now_ms - samples[0][1] >= WINDOWS * WINDOW_MS:
            samples.popleft()
        if not samples or now_ms - samples[-1][0] >= WINDOW_MS:
            samples.append([now_ms, now_ms, 0.0])
        newest = samples[-1]
        newest[1] = now_ms
        newest[2] += count
        window = self._window_ms(now_ms)
        seen = sum(each[2] for each in samples) * 1000 / window
        if seen <= limit:
            return 0
        return min(round((seen - limit) / limit * window), MOST_WAIT_MS) if limit > 0 else MOST_WAIT_MS

    def _window_ms(self, now_ms: float) -> float:
        elapsed = now_ms - self._samples[0][0]
        return elapsed + max(WINDOWS - 1 - elapsed // WINDOW_MS, 0) * WINDOW_MS


class Rates:
    """The rates of all who have quotas.

    Args:
        most: How many are kept.
    """

    def __init__(self, most: int = MOST_RATES) -> None:
        self._most = most
        self._by_sharers: OrderedDict[tuple[object, ...], Rate] = OrderedDict()
        """Who took something last comes last."""

    def __len__(self) -> int:
        return len(self._by_sharers)

    def take(self, whose: tuple[object, ...], count: int, now_ms: float, limit: float) -> int:
        """Counts bytes; see `Rate.take`.

        Args:
            whose: Names those who are counted together.
        """
        rate = self._by_sharers.get(whose)
        if rate is None:
            rate = self._by_sharers[whose] = Rate()
            if len(self._by_sharers) > self._most:
                self._by_sharers.popitem(last=False)
        else:
            self._by_sharers.move_to_end(whose)
        return rate.take(count, now_ms, limit)
