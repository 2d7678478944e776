"""BENCHMARKS.md: what was measured, against the bar, and how to measure it again."""

from __future__ import annotations

from typing import Final

from kordon.bench import results
from kordon.bench.results import DIRECT, FLOOR, KORDON, MANAGED, Results, Spread, ratio
from kordon.bench.verdicts import verdicts

_FIGURES: Final = (
    (results.PRODUCE_MB, "produce MB/s", 0),
    (results.CONSUME_MB, "consume MB/s", 0),
    (results.PRODUCE_CPU, "CPU s/GB produced", 2),
    (results.CONSUME_CPU, "CPU s/GB consumed", 2),
    (results.RSS_MB, "peak memory MB", 0),
)

_LIVE_FIGURES: Final = ((results.LIVE_FETCHES, 1), (results.LIVE_FETCH_US, 0), (results.LIVE_RECORD_US, 0))
_SDK_FIGURES: Final = (
    (results.PRODUCE_MB, "produce MB/s", 1),
    (results.CONSUME_MB, "consume MB/s", 1),
    (results.PRODUCE_CLIENT_CPU, "client's CPU s/GB produced", 1),
    (results.CONSUME_CLIENT_CPU, "client's CPU s/GB consumed", 1),
    (results.PRODUCE_CPU, "Kordon's CPU s/GB produced", 2),
    (results.CONSUME_CPU, "Kordon's CPU s/GB consumed", 2),
    (results.FETCH_US, "Kordon's CPU µs per Fetch", 0),
)
_GROUP_FIGURES: Final = (
    (results.RECORDS, "records/s", 0),
    (results.INVERSIONS, "begun before an earlier one of their key", 0),
    (results.REPEATS, "begun again", 0),
    (results.OTHERS_KEEP, "of that, other keys while one is blocked", 2),
)
_ACKNOWLEDGED_FIGURES: Final = (
    (results.ACKNOWLEDGED_US, "CPU µs each", 2),
    (results.RANGES, "ranges", 0),
    (results.COMMIT_BYTES, "bytes of a commit", 0),
    (results.TAKEN_ON, "records started behind them", 0),
)
_TRANSACTION_FIGURES: Final = (
    (results.TRANSACTIONS, "transactions/s", 0),
    (results.P50_MS, "commit p50 ms", 1),
    (results.P99_MS, "commit p99 ms", 1),
    (results.PRODUCE_CPU, "Kordon's CPU s/GB", 2),
)
_AUDIT_FIGURES: Final = (
    (results.AUDIT_DECISIONS, "decisions per CPU s", 0),
    (results.AUDIT_MB, "MB of topic data per CPU s", 0),
    (results.AUDIT_SIZE, "decisions in a micro-batch", 0),
    (results.AUDIT_FIRST_CPU, "the first one, CPU s", 1),
    (results.AUDIT_FLOOR_CPU, "an idle one, CPU s", 2),
    (results.AUDIT_STATE_MIDDLE_MB, "state halfway, MB", 2),
    (results.AUDIT_STATE_MB, "at the end", 2),
    (results.AUDIT_PSS_MB, "peak memory (PSS), MB", 0),
    (results.AUDIT_JVM_MB, "of it the JVM", 0),
    (results.AUDIT_FINDINGS, "findings", 0),
    (results.AUDIT_UNKNOWN, "unknown", 0),
)
_CPU: Final = (results.PRODUCE_CPU, results.CONSUME_CPU)
_SOURCE_FIGURES: Final = (
    (results.TRANSACTIONS, "transactions/s", 1),
    (results.REBALANCE_SECONDS, "shared out after s", 2),
    (results.CPU_MS, "CPU ms of the client", 1),
    (results.TAKEOVER_SECONDS, "silent s", 1),
    (results.DOUBLED, "records doubled", 0),
)
_PART_FIGURES: Final = (
    (results.PART_COUNT, "number", 0),
    (results.PART_BYTES, "bytes of one", 0),
    (results.PART_US, "CPU µs of one", 2),
)
_PROXY_FIGURES: Final = (
    (results.SCALE_TOGETHER_S, "s until all serve", 2),
    (results.SCALE_FENCE_MS, "fence, ms", 0),
    (results.SCALE_DEAD_S, "s for a change, one has died", 1),
    (results.SCALE_CPU_MS, "CPU ms of one proxy for a change", 1),
    (results.SCALE_RECORDS, "records for it", 0),
)
_WHO_PAUSES: Final = (
    (results.SEALED, "sealed partitions"),
    (results.OTHERS, "connections that carry nothing sealed"),
    (results.QUIET, "all, between two resizes"),
)
_PAUSES: Final = ["case", "whose writes", "p50 ms", "p99 ms", "most ms"]

_HOW: Final = """\
## How it is measured

- One machine runs client, proxy and broker, so a proxy's work takes from the throughput of the others: absolute
  figures say little, ratios within one run say much. In each round every contender has its turn; the order rotates.
- Figures are medians of the rounds, with the least and the most in brackets. MB are 10^6 bytes of record values,
  GB 10^9.
- **Base case**: Kafka's own `kafka-producer-perf-test` and `kafka-consumer-perf-test`; acks=all, batch.size 64 KB,
  linger 5 ms, 6 partitions, one broker. A run in front of the first round warms the broker up and is not counted.
- **Matrix**: librdkafka, as many producers and then as many consumers as the case says, in one process
  (`bench/load.py`). With 100 B records the Python around librdkafka, not the broker, is what limits.
- **Managed topics**: V virtual partitions on U = V/4 partitions; *direct* and *kordon* have a topic with V partitions,
  *direct, U* has one with U, *managed* is Kordon with a managed one. What is read per byte given is what Kordon reads
  from the broker over what it gives out to all consumers.
- **Decision log**: two Kordons with managed topics by turns, one of which (*managed, on record*) writes its decisions
  to their topic besides. That costs less than what a machine's restlessness makes in one round, so there are many.
- **At rest**: in a Kordon just started, each virtual partition gets a record and a consumer that has read it and waits
  for more. Its resident memory less that before, with connections, cache and all that comes with the first records.
- **Pauses**: idempotent librdkafka producers send a record to each physical partition a hundred times a second
  through every proxy, to its virtual ones by turns, while the topic goes 6 → 7 → 8 → 7 → 6. A pause is, per resize
  and sealed partition, the longest time from send to acknowledgement less the median of quiet times. Producers on
  connections of their own write to partitions that are not sealed; between the resizes all are measured likewise, so
  that the machine's own pauses are seen.
- **SDK**: records with a thousand keys, idempotently, then read by one member of a group: by `OrderedProducer` and
  `OrderedConsumer` on a managed topic (6 partitions, V = 24), by aiokafka's own clients through the same Kordon on such
  a topic, of which they see the 24, and by these on the bare broker (6 partitions). What is asked for is a ratio of the
  first two: the same proxy, the same topic, so that the clients are compared. Gate and heartbeats are measured in one
  process, without sockets, brokers simulated: CPU time of a worker. The gate is held against what a worker took for
  each Fetch of the SDK in this run, which brings megabytes, as its consumer is behind; of one that brings little, say
  the microseconds more. Each of the group's members owns a partition and asks for ten others.
- **Transactions**: one producer sends records with a thousand keys to 12 partitions, and commits one transaction after
  the other; acks=all, linger 5 ms. *direct* and *kordon* have an ordinary topic with 12 partitions, *managed* one with
  V = 12 on 3 partitions. *managed, without transactions* sends the same there idempotently, and waits for its answers
  where the others commit. The time of a commit is that from asking for it until it is confirmed, and what is unsent is
  sent in it. Each producer begins with transactions that count for processor time alone: it warms up, and the first
  one of a managed topic waits for its layout. What a transaction costs does not depend on its records, so it is most
  of a small one's processor time and little of a large one's. An *acknowledged write* is the median of what the same
  producer waits for without transactions.
- **Sources**: `SourceProducer` and `OrderedProducer` send the same transactions by turns, one after the other, from
  this process (`bench/sources.py`). Then one more member joins a group, all of which are in one process, with a
  heartbeat each half second; it is over when each has its share. Of two programs that share a source that grows 20
  times a second, one is killed; what is silent is its part of the source, by the times of records, and a session lasts
  from the last heartbeat. The programs with Java's clients are those of docs/sources.md. Kafka Connect has two
  distributed workers with exactly-once support and a connector that counts, and is told to rebalance at once
  (scheduled.rebalance.max.delay.ms=0; 5 minutes by default).
- **Groups**: handlers wait 20 ms for each record of a topic of 3 partitions, or of V = 96 virtual ones on 3
  (`bench/peers.py`). A stock consumer and a member of a share group work on one record at a time, all of them in one
  process on librdkafka. Share groups of brokers have no order, and those of Kordon keep that of keys. A process with
  a `CooperativeConsumer`, or with Confluent's Parallel Consumer 0.5.3.3 in the order of keys, works on as many as the
  case says. Records a second are those from when every process has had one, until the time is over or 95 % are
  handled. Order and repeats are counted in each process. Then the handler of one of the keys does not end for a
  while.
- **Acknowledgements**: twice as many records are in hand, and every second one is acknowledged, in an order that is
  drawn (`bench/acknowledging.py`). The processor time is the least of 20 rounds in one process without a broker.
- **Audit**: a day that was made up, in which everything holds (`bench/audit_day.py`). Topics grow three times and
  shrink once; a worker is killed within a change; 200 idempotent producers write to all streams by turns; stock groups
  and one of the dialect read them, one reader five minutes behind; one topic is written by clients of the dialect;
  transactional producers ask for identities. Each second has, of each stream, one acknowledged run of 4 batches of 16
  KiB and one delivery, and of each partition a delivery to the dialect's group. Decisions come from files, batches from
  bytes as brokers answer with them, by the auditor's own sources; all rules and summaries run, with the heap and the
  limits that they have by default. *Per CPU second*: over the processor time of the driver, its JVM and the Python
  workers, for both together, in the second half of the day. *An idle one*: the dearest of micro-batches with one second
  of one stream, behind the day, from the tenth on. Memory is PSS, of all these processes at the time when it was most.
  `benchmarks.json` has each micro-batch.
- **Single requests**: plain connections send prepared requests of one kind (`bench/requests.py`), by turns while
  nothing is managed and beside a managed topic. What is told of Produce is told of each batch. A Fetch names 384
  partitions. *At rest* it waits 5 ms for nothing. *With news* a record comes while it waits, and that Produce counts
  too.
- **Waiting consumers**: some on librdkafka have read all and wait (`bench/live.py`), while one partition after another
  gets a record. The topics are ordinary or managed by turns, with as many partitions for clients. *CPU per Fetch* and
  *per record* is all that the proxy takes meanwhile, over the Fetch requests that it gets and the records that come.
- **CPU s/GB**: user and kernel time of the proxy's processes while a load runs, divided by the bytes of its values.
- **Latency**: from send to acknowledgement (acks=all) as one connection sees it that sends a thousand requests a
  second, with ten records each (`bench/paced.py`). Its clock counts nanoseconds. If an answer is late, the requests
  behind it count from when they were due.
- **Idle memory**: resident memory of the proxy's processes with connections that have had one answer and say nothing.
- **The floor** (`bench/floor.py`) is a relay on uvloop that reads each frame's header and does nothing else. It is the
  least a proxy in Python can cost. It rewrites no addresses: it leads to a listener of the broker that advertises the
  floor's own port.

## Repeat it

    make bench                                      # the quick profile
    make bench BENCH_ARGS='--profile full'          # more rounds, more data
    make bench BENCH_ARGS='--only managed --only resizes'   # these parts alone, into bench-results/
    make bench BENCH_ARGS='--profile full --only latency --only resizes'   # a quarter of an hour, on a quiet machine
    make bench BENCH_ARGS="--peer 'NAME=PORT=COMMAND {bootstrap}'"

A peer is started by its command in front of the same broker and measured in the same rounds. `{bootstrap}` stands for
the broker's address, `{advertising}` for that of a listener that advertises the peer's own port, for peers that rewrite
nothing. Each run writes its raw figures (`docs/benchmarks.json`) beside the picture;
`python -m kordon.bench --from docs/benchmarks.json` draws both anew.
"""


def report(figures: Results, picture: str) -> str:
    """Writes the page."""
    lines = [
        "# Benchmarks",
        "",
        "Kordon between real clients and a real broker, beside the same traffic without it.",
        "",
    ]
    lines += _bar(figures)
    lines += [f"![throughput, processor time and latency of each contender]({picture})", ""]
    lines += _base(figures) + _latency(figures) + _memory(figures)
    lines += _managed(figures) + _log(figures) + _resizes(figures) + _holding(figures)
    lines += _requests(figures) + _live(figures) + scale_tables(figures)
    lines += _sdk_tables(figures) + _groups(figures) + _transactions(figures)
    lines += _sources(figures) + _audit_table(figures) + _matrix(figures)
    lines += [*_machine(figures), _HOW]
    return "\n".join(lines)


def _bar(figures: Results) -> list[str]:
    lines = ["## Kordon against the bar", ""]
    rows = [
        [each.what, each.wanted, each.got, "reached" if each.reached else "**not reached**"]
        for each in verdicts(figures)
    ]
    return lines + _table(["", "wanted", "measured", ""], rows)


def _base(figures: Results) -> list[str]:
    names = ["contender", *(title for _, title, _ in _FIGURES), "produce / consume of direct"]
    rows: list[list[str]] = []
    for contender in figures.contenders(figures.base):
        cells = [_shown(figures.spread(figures.base, contender, figure), digits) for figure, _, digits in _FIGURES]
        rows.append([contender, *cells, _of_direct(figures, figures.base, contender)])
    return _section(f"Base case: {figures.base}, {figures.rounds} rounds", names, rows)


def _latency(figures: Results) -> list[str]:
    case, percentiles = figures.latency, (results.P50_MS, results.P99_MS)
    rows = [
        [contender, *(_shown(figures.spread(case, contender, name), 2) for name in percentiles)]
        for contender in figures.contenders(case)
    ]
    return _section(case.capitalize(), ["contender", "p50 ms", "p99 ms"], rows)


def _memory(figures: Results) -> list[str]:
    rows = [
        [contender, case, _shown(figures.spread(case, contender, results.START_MB), 0), _shown(idle, 0)]
        for case in (figures.memory, figures.memory_tls)
        for contender in figures.contenders(case)
        if (idle := figures.spread(case, contender, results.IDLE_MB))
    ]
    return _section("Memory", ["contender", "with", "before, MB", "then, MB"], rows)


def _managed(figures: Results) -> list[str]:
    rows: list[list[str]] = []
    for case in figures.managed:
        for contender in figures.contenders(case):
            cells = [_shown(figures.spread(case, contender, figure), digits) for figure, _, digits in _FIGURES[:4]]
            cpu = (ratio(figures, case, contender, figure, KORDON) for figure in _CPU)
            relative = " / ".join(_number(value) for value in cpu) if contender == MANAGED else "-"
            read = _middle(figures.spread(case, contender, results.AMPLIFICATION), 2)
            rows.append([case, contender, *cells, _of_direct(figures, case, contender), relative, read])
    names = ["case", "contender", *(title for _, title, _ in _FIGURES[:4]), "produce / consume of direct"]
    return _section("Managed topics", [*names, "CPU of the untouched path's", "bytes read per byte given"], rows)


def _log(figures: Results) -> list[str]:
    rows = [
        [contender, *(_shown(figures.spread(figures.log, contender, figure), 2) for figure in _CPU)]
        for contender in figures.contenders(figures.log)
    ]
    names = ["contender", "CPU s/GB produced", "CPU s/GB consumed"]
    return _section(f"What the decision log costs: {figures.log}", names, rows)


def _resizes(figures: Results) -> list[str]:
    rows: list[list[str]] = []
    for case in figures.resizes:
        for who, title in _WHO_PAUSES:
            spreads = [figures.spread(case, MANAGED, f"{who}_{figure}_ms") for figure in ("p50", "p99", "max")]
            if all(spreads):
                rows.append([case, title, *(_middle(spread, 0) for spread in spreads)])
    return _section("Pauses of writes while a managed topic grows and shrinks", _PAUSES, rows)


def _holding(figures: Results) -> list[str]:
    rows: list[list[str]] = []
    for case in figures.holding:
        spreads = [figures.spread(case, MANAGED, name) for name in (results.HELD_MB, results.HELD_KB, results.IDLE_CPU)]
        if all(spreads):
            rows.append([case, *(_middle(spread, 1) for spread in spreads)])
    names = ["managed", "memory, MB", "KB per virtual partition", "CPU ms/s while nobody writes"]
    return _section("What virtual partitions cost that are at rest", names, rows)


def _requests(figures: Results) -> list[str]:
    """Draws what single requests take; nothing where that was not measured."""
    who = (results.KORDON, results.BESIDE, MANAGED)
    rows: list[list[str]] = []
    for case in figures.requests:
        spreads = [figures.spread(case, contender, results.REQUEST_US) for contender in who]
        if any(spreads):
            rows.append([case, *(_shown(spread, 0) for spread in spreads)])
    names = ["request", "ordinary, nothing managed", "ordinary, beside a managed topic", "managed"]
    return _section("CPU µs of single requests", names, rows)


def _live(figures: Results) -> list[str]:
    rows: list[list[str]] = []
    for case in figures.live:
        ordinary, managed = (figures.spread(case, each, results.LIVE_CPU) for each in (KORDON, MANAGED))
        if ordinary is not None and managed is not None:
            of_each = (
                " / ".join(_middle(figures.spread(case, who, figure), digits) for who in (KORDON, MANAGED))
                for figure, digits in _LIVE_FIGURES
            )
            rows.append([case, _shown(ordinary, 1), _shown(managed, 1), *of_each])
    each_of = ("Fetch/s", "CPU µs per Fetch", "CPU µs per record")
    names = ["case", "ordinary, CPU ms/s", "managed, CPU ms/s", *(f"{each}, ordinary / managed" for each in each_of)]
    return _section("What waiting consumers cost", names, rows)


def _sdk_tables(figures: Results) -> list[str]:
    """Draws the SDK beside aiokafka, and what gate and heartbeats cost; nothing where that was not measured."""
    if not figures.sdk or figures.sdk[0] not in figures.cases():
        return []
    case, *of_worker = figures.sdk
    rows: list[list[str]] = []
    for contender in figures.contenders(case):
        cells = [_shown(figures.spread(case, contender, figure), digits) for figure, _, digits in _SDK_FIGURES]
        shares = (
            ratio(figures, case, contender, figure, results.AIOKAFKA_MANAGED)
            for figure in (results.PRODUCE_MB, results.CONSUME_MB)
        )
        rows.append([contender, *cells, " / ".join(_number(share) for share in shares)])
    names = ["clients", *(title for _, title, _ in _SDK_FIGURES), "produce / consume of aiokafka's, managed"]
    lines = [f"## {case}: OrderedProducer and OrderedConsumer beside aiokafka's own", "", *_table(names, rows)]
    costs = [row for each in of_worker for row in _costs(figures, each)]
    return lines + _table(["what it costs a worker", "CPU µs"], costs) if costs else lines


def _costs(figures: Results, case: str) -> list[list[str]]:
    titles = (
        (results.GATE_US, case),
        (results.HEARTBEAT_US, case),
        (results.HEARTBEAT_MOVED_US, f"{case}, that tells another position"),
    )
    spreads = [(title, figures.spread(case, results.WORKER, figure)) for figure, title in titles]
    return [[title, _middle(spread, 1)] for title, spread in spreads if spread is not None]


def _transactions(figures: Results) -> list[str]:
    """Draws what transactions cost; nothing where that was not measured."""
    rows: list[list[str]] = []
    for case in figures.transactions:
        for contender in figures.contenders(case):
            cells = (_shown(figures.spread(case, contender, name), digits) for name, _, digits in _TRANSACTION_FIGURES)
            share = (
                "-" if contender == results.PLAIN else _number(ratio(figures, case, contender, results.TRANSACTIONS))
            )
            over = ratio(figures, case, contender, results.PRODUCE_CPU, results.PLAIN)
            rows.append([case, contender, *cells, share, _number(over if contender == results.MANAGED else None)])
    names = ["case", "contender", *(title for _, title, _ in _TRANSACTION_FIGURES)]
    names += ["transactions/s of direct", "CPU over that without"]
    return _section("Transactions", names, rows)


def _sources(figures: Results) -> list[str]:
    """Draws what producers in a group cost, and how they take over; nothing where that was not measured."""
    lines: list[str] = []
    for case in figures.sources:
        rows: list[list[str]] = []
        found = figures.contenders(case)
        titles = [each for each in _SOURCE_FIGURES if any(figures.spread(case, name, each[0]) for name in found)]
        for contender in found:
            cells = (_shown(figures.spread(case, contender, name), digits) for name, _, digits in titles)
            rows.append([contender, *cells])
        lines += _section(case, ["producers", *(title for _, title, _ in titles)], rows)
    return lines


def _groups(figures: Results) -> list[str]:
    """Draws how groups work on slow records; nothing where that was not measured."""
    lines: list[str] = []
    for titles, column, cases in (
        (_GROUP_FIGURES, "group", figures.cooperative[:-1]),
        (_ACKNOWLEDGED_FIGURES, "by hand", figures.cooperative[-1:]),
    ):
        for case in cases:
            rows = [
                [each, *(_shown(figures.spread(case, each, figure), digits) for figure, _, digits in titles)]
                for each in figures.contenders(case)
            ]
            lines += _section(case, [column, *(title for _, title, _ in titles)], rows)
    return lines


def _audit_table(figures: Results) -> list[str]:
    """Draws what an audit costs; nothing where that was not measured."""
    rows = [
        [
            case,
            *(_middle(figures.spread(case, results.AUDITOR, figure), digits) for figure, _, digits in _AUDIT_FIGURES),
        ]
        for case in figures.audit
        if case in figures.cases()
    ]
    return _section("The auditor", ["case", *(title for _, title, _ in _AUDIT_FIGURES)], rows)


def _matrix(figures: Results) -> list[str]:
    cases = [case for case in figures.cases() if _is_matrix(figures, case)]
    if not cases:
        return []
    lines = ["## Connections and sizes of records", ""]
    lines += ["Throughput as a share of direct, and processor time as a multiple of the floor's.", ""]
    others = [contender for contender in figures.contenders(cases[0]) if contender != DIRECT]
    names = ["case", "direct MB/s, produce / consume", *(f"{each}, of direct" for each in others)]
    names.append("Kordon's CPU, of the floor's")
    rows: list[list[str]] = []
    for case in cases:
        direct = " / ".join(
            _middle(figures.spread(case, DIRECT, figure), 0) for figure in (results.PRODUCE_MB, results.CONSUME_MB)
        )
        shares = [_of_direct(figures, case, each) for each in others]
        cpu = (ratio(figures, case, KORDON, figure, FLOOR) for figure in (results.PRODUCE_CPU, results.CONSUME_CPU))
        rows.append([case, direct, *shares, " / ".join(_number(value) for value in cpu)])
    return lines + _table(names, rows)


def _is_matrix(figures: Results, case: str) -> bool:
    special = {figures.base, figures.latency, figures.memory, figures.memory_tls, figures.log}
    others = (figures.managed, figures.resizes, figures.holding, figures.sdk, figures.transactions)
    return case not in special.union(*others, figures.sources, figures.cooperative, figures.audit, figures.scale)


def scale_tables(figures: Results) -> list[str]:
    """Draws what parts of a proxy cost by their number, and changes by the number of proxies."""
    tables: list[str] = []
    for title, cases, columns in (
        ("Parts of a proxy by their number", figures.scale[:-1], _PART_FIGURES),
        ("Proxies in virtual time", figures.scale[-1:], _PROXY_FIGURES),
    ):
        rows = [
            [case, number, *(_middle(figures.spread(case, number, name), digits) for name, _, digits in columns)]
            for case in cases
            for number in figures.contenders(case)
        ]
        tables += _section(title, ["what", "about", *(name for _, name, _ in columns)], rows)
    return tables


def _machine(figures: Results) -> list[str]:
    lines = ["## Where", ""]
    lines += [f"- {name}: {fact}" for name, fact in figures.machine.items()]
    minutes = figures.took_seconds / 60
    lines += [f"- profile `{figures.profile}`, begun {figures.started}, {minutes:.0f} minutes", ""]
    return lines


def _of_direct(figures: Results, case: str, contender: str) -> str:
    return " / ".join(
        _number(ratio(figures, case, contender, figure)) for figure in (results.PRODUCE_MB, results.CONSUME_MB)
    )


def _shown(spread: Spread | None, digits: int) -> str:
    """Writes a figure as `median (least-most)`, a dash where there is none."""
    if spread is None:
        return "-"
    return f"{spread.median:.{digits}f} ({spread.least:.{digits}f}-{spread.most:.{digits}f})"


def _middle(spread: Spread | None, digits: int) -> str:
    return "-" if spread is None else f"{spread.median:.{digits}f}"


def _number(value: float | None) -> str:
    """Writes a ratio, a dash where there is none."""
    return "-" if value is None else f"{value:.2f}"


def _section(title: str, names: list[str], rows: list[list[str]]) -> list[str]:
    """Draws a table below its title; nothing where there are no rows."""
    return [f"## {title}", "", *_table(names, rows)] if rows else []


def _table(names: list[str], rows: list[list[str]]) -> list[str]:
    """Draws a table in Markdown, with an empty line behind it."""
    ruler = ["---"] * len(names)
    return [*("| " + " | ".join(row) + " |" for row in [names, ruler, *rows]), ""]
