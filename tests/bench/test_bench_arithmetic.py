"""The bench reads the tools' words and judges medians rightly."""

from pathlib import Path

import pytest

from kordon.bench import results
from kordon.bench.contenders import Peer, PeerError
from kordon.bench.live import live_figures
from kordon.bench.loads import ToolError, read_consumed, read_produced
from kordon.bench.paced import percentiles
from kordon.bench.picture import draw
from kordon.bench.plan import PROFILES, Live
from kordon.bench.report import report
from kordon.bench.requests import CASES, beside_idle
from kordon.bench.resizes import Sample, Stream, Window, living_on, pauses, sealed_by, summary, turns_on
from kordon.bench.results import DIRECT, FLOOR, KORDON, MANAGED, RECORDED, Measurement, Results
from kordon.bench.verdicts import Verdict, verdicts

PRODUCED = """\
100000 records sent, 19996.0 records/sec (9.53 MB/sec), 3.1 ms avg latency, 301.00 ms max latency, \
2 ms 50th, 9 ms 95th, 120 ms 99th, 260 ms 99.9th.
60000 steady state records sent, 10001.7 records/sec (4.77 MB/sec), 2.0 ms avg latency, 20.00 ms max latency, \
2 ms 50th, 3 ms 95th, 7 ms 99th, 18 ms 99.9th.
"""
CONSUMED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, \
fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-01-01 00:00:00:000, 2026-01-01 00:00:04:000, 476.8372, 119.2, 1000000, 250000.0, 3000, 1000, 476.8372, 1000000.0
"""


def run_of(figures: dict[str, list[dict[str, float]]]) -> Results:
    """Makes results: for each contender its figures of the base case, round by round."""
    made = Results("test", "2026-01-01T00:00:00+00:00", 3, "base", "latency", "1000 idle", "1000 idle over TLS", {})
    for contender, rounds in figures.items():
        for number, each in enumerate(rounds, 1):
            case = "latency" if results.P99_MS in each else "1000 idle" if results.IDLE_MB in each else "base"
            made.measurements.append(Measurement(case, contender, number, each))
    return made


def throughput(produce: float, consume: float, cpu: float = 1.0) -> dict[str, float]:
    """Makes the figures of one round."""
    return {
        results.PRODUCE_MB: produce,
        results.CONSUME_MB: consume,
        results.PRODUCE_CPU: cpu,
        results.CONSUME_CPU: cpu,
    }


def outcome(made: Results, part: str) -> Verdict:
    """Finds the one verdict whose name has this part."""
    (found,) = [each for each in verdicts(made) if part in each.what]
    return found


def test_steady_state_is_read_and_warm_up_is_not() -> None:
    """The producer's last summary counts."""
    assert read_produced(PRODUCED)["p99"] == "7"
    assert read_produced(PRODUCED.splitlines()[0])["p99"] == "120"


def test_consumer_speed_leaves_out_the_time_to_join() -> None:
    """500 MB in the one second of fetching are 500 MB/s, though the tool ran four seconds."""
    assert read_consumed(CONSUMED, 1_000_000) == pytest.approx(500, rel=1e-4)


def test_missing_records_are_no_figure() -> None:
    """A consumer that timed out has not measured anything."""
    with pytest.raises(ToolError, match="only 1000000 of 1000001"):
        read_consumed(CONSUMED, 1_000_001)
    with pytest.raises(ToolError):
        read_consumed("", 1)
    with pytest.raises(ToolError):
        read_produced("java.lang.OutOfMemoryError")


def test_medians_decide_and_not_one_bad_round() -> None:
    """One slow round of three changes no verdict, two do."""
    direct = [throughput(100, 400)] * 3
    good = run_of({DIRECT: direct, KORDON: [throughput(96, 370), throughput(40, 100), throughput(99, 361)]})
    assert outcome(good, "produced, of direct") == Verdict("throughput produced, of direct", ">= 0.95", "0.96", True)
    assert outcome(good, "consumed, of direct").reached
    bad = run_of({DIRECT: direct, KORDON: [throughput(96, 370), throughput(94, 350), throughput(94, 350)]})
    assert not outcome(bad, "produced, of direct").reached
    assert not outcome(bad, "consumed, of direct").reached


def test_processor_time_is_compared_with_the_floor() -> None:
    """1.35 times the floor's is the most."""
    floor = [throughput(1, 1, cpu=0.6)]
    assert outcome(run_of({FLOOR: floor, KORDON: [throughput(1, 1, cpu=0.80)]}), "GB produced").reached
    assert not outcome(run_of({FLOOR: floor, KORDON: [throughput(1, 1, cpu=0.82)]}), "GB consumed").reached


def test_added_latency_must_stay_within_the_spread_of_direct() -> None:
    """Direct between 9 and 12 ms allows 3 ms above its median of 10."""
    direct = [{results.P99_MS: value} for value in (9.0, 10.0, 12.0)]
    assert outcome(run_of({DIRECT: direct, KORDON: [{results.P99_MS: 13.0}]}), "p99").reached
    assert not outcome(run_of({DIRECT: direct, KORDON: [{results.P99_MS: 14.0}]}), "p99").reached


def test_the_median_has_a_bar_of_its_own() -> None:
    """A fifth of a millisecond."""
    direct = [{results.P99_MS: 1.0, results.P50_MS: 0.1}]
    for own, reached in ((0.29, True), (0.31, False)):
        made = run_of({DIRECT: direct, KORDON: [{results.P99_MS: 1.0, results.P50_MS: own}]})
        assert outcome(made, "p50 added").reached is reached


def test_percentiles_are_of_all_requests() -> None:
    """In milliseconds."""
    assert percentiles([number / 1000 for number in range(1, 101)]) == {"p50_ms": 51, "p95_ms": 96, "p99_ms": 100}


def test_idle_memory_has_a_ceiling() -> None:
    """A hundred MB are too many."""
    assert outcome(run_of({KORDON: [{results.IDLE_MB: 99.0}]}), "memory").reached
    assert not outcome(run_of({KORDON: [{results.IDLE_MB: 100.0}]}), "memory").reached


def test_managed_topics_are_compared_with_direct_and_untouched_ones() -> None:
    """0.8 and 0.6 of direct throughput, twice the processor time of what passes untouched."""
    made = run_of({})
    made.managed = ("V = 24",)
    for contender, figures in (
        (DIRECT, throughput(100, 400)),
        (KORDON, throughput(100, 400, cpu=0.8)),
        (MANAGED, throughput(80, 239, cpu=1.6)),
    ):
        made.measurements.append(Measurement("V = 24", contender, 1, figures))
    assert outcome(made, "produced to managed topics, of direct").reached
    assert not outcome(made, "consumed from managed topics, of direct").reached
    assert outcome(made, "GB produced to managed topics, of the untouched path's").reached
    assert "| V = 24 | managed | 80 (80-80) |" in report(made, "picture.svg")


def test_the_decision_log_is_held_against_the_same_work_without_it() -> None:
    """A twentieth of the processor's time for managed topics, produced and consumed alike."""
    made = run_of({})
    made.log = "V = 24"
    for contender, rounds in ((MANAGED, (1.9, 1.6, 1.5)), (RECORDED, (1.65, 2.9, 1.6))):
        for number, cpu in enumerate(rounds, 1):
            made.measurements.append(Measurement("V = 24", contender, number, throughput(80, 239, cpu=cpu)))
    assert outcome(made, "produced with decisions on record").reached
    assert outcome(made, "consumed with decisions on record").got == "1.03"
    page = report(made, "picture.svg")
    assert "| managed, on record | 1.65 (1.60-2.90) |" in page
    assert "Connections and sizes" not in page
    made.measurements.append(Measurement("V = 24", RECORDED, 4, throughput(80, 239, cpu=2.0)))
    assert not outcome(made, "consumed with decisions on record").reached


def test_requests_are_compared_with_themselves_beside_a_managed_topic() -> None:
    """1.05 of what they take while nothing is managed; what a managed topic's own take is told and decides nothing."""
    made = run_of({})
    made.requests = ("Produce",)
    for contender, cpu in ((results.KORDON, 100.0), (results.BESIDE, 104.0), (results.MANAGED, 300.0)):
        made.measurements.append(Measurement("Produce", contender, 1, {results.REQUEST_US: cpu}))
    assert outcome(made, "beside a managed topic").reached
    assert "| Produce | 100 (100-100) | 104 (104-104) | 300 (300-300) |" in report(made, "picture.svg")
    made.measurements.append(Measurement("Produce", results.BESIDE, 2, {results.REQUEST_US: 120.0}))
    assert not outcome(made, "beside a managed topic").reached


@pytest.mark.parametrize(("rate", "most"), [(0, 2), (100, 3)])
def test_waiting_consumers_are_compared_with_those_of_ordinary_topics(rate: int, most: int) -> None:
    """Twice what these take where nothing comes, and three times where few records do."""
    made = run_of({})
    case = Live(2, 8, 1, rate, 5).name
    made.live = (case,)
    for contender, cpu in ((results.KORDON, 10.0), (results.MANAGED, 10.0 * most)):
        figures = live_figures(Live(2, 8, 1, rate, 5), cpu * 1000, 8.0)
        made.measurements.append(Measurement(case, contender, 1, figures))
    assert outcome(made, "waiting consumers").reached
    told = f"| {case} | 10.0 (10.0-10.0) | {10.0 * most} ({10.0 * most}-{10.0 * most}) | 8.0 / 8.0 |"
    of_each = f"1250 / {1250 * most} | {'100 / 300' if rate else '- / -'} |"
    assert f"{told} {of_each}" in report(made, "picture.svg")
    made.measurements.append(Measurement(case, results.MANAGED, 2, {results.LIVE_CPU: 10.0 * most + 1}))
    assert not outcome(made, "waiting consumers").reached


@pytest.mark.parametrize("profile", PROFILES)
def test_no_two_parts_of_a_plan_measure_under_one_name(profile: str) -> None:
    """Figures are found again by the names of their cases."""
    plan = PROFILES[profile]
    loads = (plan.base, *plan.matrix, *plan.managed, plan.log)
    names = [
        case.name
        for cases in (loads, plan.resizes, plan.holding, plan.live, plan.transactions, plan.audit)
        for case in cases
    ]
    names += CASES
    assert len(set(names)) == len(names)


def test_the_sdk_is_compared_with_aiokafka_on_the_same_topic(tmp_path: Path) -> None:
    """0.9 of what aiokafka's own clients reach through the same Kordon; what a bare broker gives decides nothing."""
    made = run_of({})
    made.sdk = ("SDK", "gate", "heartbeat")
    for contender, figures in (
        (results.AIOKAFKA_DIRECT, throughput(50, 90)),
        (results.AIOKAFKA_MANAGED, throughput(20, 40)),
        (results.SDK, throughput(18, 35)),
    ):
        made.measurements.append(Measurement("SDK", contender, 1, figures))
    made.measurements.append(Measurement("heartbeat", results.WORKER, 1, {results.HEARTBEAT_US: 250.0}))
    made.measurements.append(Measurement("gate", results.WORKER, 1, {results.GATE_US: 20.0}))
    assert outcome(made, "produced by the SDK").reached
    assert not outcome(made, "consumed by the SDK").reached
    page = report(made, "picture.svg")
    assert "| SDK | 18.0 (18.0-18.0) |" in page
    assert "| gate | 20.0 |\n| heartbeat | 250.0 |\n" in page
    draw(made, tmp_path / "picture.svg")
    assert "aiokafka, managed" in (tmp_path / "picture.svg").read_text()


def test_transactions_are_compared_with_direct_ones(tmp_path: Path) -> None:
    """Transactions a second as a share of direct, and processor time over that of the same topic without them."""
    made = run_of({})
    made.transactions = ("small", "large")
    for contender, rate, cpu in ((DIRECT, 200.0, 0.0), (MANAGED, 150.0, 4.0), (results.PLAIN, 400.0, 3.0)):
        figures = {results.TRANSACTIONS: rate, results.P50_MS: 4.0, results.P99_MS: 9.5}
        figures |= {results.PRODUCE_CPU: cpu} if cpu else {}
        made.measurements.append(Measurement("small", contender, 1, figures))
    page = report(made, "picture.svg")
    assert "| small | direct | 200 (200-200) | 4.0 (4.0-4.0) | 9.5 (9.5-9.5) | - | 1.00 | - |" in page
    assert (
        "| small | managed | 150 (150-150) | 4.0 (4.0-4.0) | 9.5 (9.5-9.5) | 4.00 (4.00-4.00) | 0.75 | 1.33 |" in page
    )
    assert "| small | managed, without transactions | 400 (400-400) |" in page
    assert not outcome(made, "transactions/s on managed topics, of direct, small").reached
    write = outcome(made, "p99 of a commit in ms, small")
    assert (write.wanted, write.got, write.reached) == ("<= 13.5, direct and one acknowledged write", "9.5", True)
    assert outcome(made, "processor time of that without transactions, small").got == "1.33"
    assert "Connections and sizes" not in page
    made.save(tmp_path / "raw.json")
    assert report(Results.load(tmp_path / "raw.json"), "picture.svg") == page


@pytest.mark.parametrize(("fetch_us", "thousand_us", "reached"), [(1_000, 300.0, True), (600, 700.0, False)])
def test_gate_and_heartbeats_have_their_bars(fetch_us: float, thousand_us: float, reached: bool) -> None:
    """5 % of a Fetch for a topic changed most often, a fifth of a core for the largest group, 1.5 of a small one's."""
    made = run_of({})
    made.sdk = ("SDK", "few changes", "many changes", "heartbeat of few", "heartbeat of many")
    cores = thousand_us * 1_000 / 3 / 1e6
    for case, contender, figures in (
        ("SDK", results.SDK, {results.FETCH_US: fetch_us}),
        ("few changes", results.WORKER, {results.GATE_US: 1.0}),
        ("many changes", results.WORKER, {results.GATE_US: 40.0}),
        ("heartbeat of few", results.WORKER, {results.HEARTBEAT_MOVED_US: 290.0, results.HEARTBEATS_CORES: 0.001}),
        (
            "heartbeat of many",
            results.WORKER,
            {results.HEARTBEAT_MOVED_US: thousand_us, results.HEARTBEATS_CORES: cores},
        ),
    ):
        made.measurements.append(Measurement(case, contender, 1, figures))
    found = [each.reached for each in verdicts(made)]
    assert found == [reached] * 3


def test_pauses_have_a_bound_and_bystanders_none() -> None:
    """Sealed partitions wait 15 ms longer than others at most; others no longer than when nothing is resized."""
    quiet = summary(results.QUIET, [0.004])
    for sealed, others, reached in ((24.0, 9.0, True), (24.3, 9.1, False)):
        made = run_of({})
        made.resizes = ("resizes",)
        here = quiet | summary(results.SEALED, [sealed / 1000]) | summary(results.OTHERS, [others / 1000])
        made.measurements.append(Measurement("resizes", MANAGED, 1, here))
        assert outcome(made, "sealed partitions").reached is reached
        assert outcome(made, "p99 pause of connections").reached is reached


def test_a_pause_is_the_longest_wait_of_a_sealed_partition_beyond_the_usual() -> None:
    """A growth from 6 to 7 seals partition 0; what waits on partition 1 then is none of it."""
    stream = Stream("127.0.0.1:1", "topic", turns_on({0, 1}, most=8))
    quiet, change = Window(0, 1, 6, frozenset()), Window(1, 2, 6, sealed_by(6, 7))
    mine, other = living_on({0})[0], living_on({1})[0]
    stream.samples = [
        *(Sample(v, 0.5, 0.003) for v in (mine, other)),
        *(Sample(mine, 1.1, seconds) for seconds in (0.004, 0.033, 0.002)),
        Sample(other, 1.1, 0.5),
    ]
    assert pauses(stream, [change], [quiet]) == [pytest.approx(0.030)]
    bystander = Stream("127.0.0.1:1", "topic", turns_on({2, 3}, most=6))
    bystander.samples = [Sample(v, sent, 0.003) for v in bystander.partitions for sent in (0.5, 1.5)]
    assert pauses(bystander, [change], [quiet]) == [0.0]
    assert sealed_by(7, 6) == {0, 6}


def test_what_was_not_measured_is_not_judged() -> None:
    """No verdict without figures on both sides."""
    assert verdicts(run_of({KORDON: [throughput(1, 1)]})) == []


def test_results_survive_their_file_and_make_a_page(tmp_path: Path) -> None:
    """A run saved and loaded is the same run; its page and picture show every contender, direct first."""
    made = run_of({KORDON: [throughput(96, 370)], "other proxy": [throughput(50, 100)], DIRECT: [throughput(100, 400)]})
    made.save(tmp_path / "run.json")
    loaded = Results.load(tmp_path / "run.json")
    assert loaded == made
    assert loaded.contenders(loaded.base) == [DIRECT, KORDON, "other proxy"]
    page = report(loaded, "docs/picture.svg")
    assert "| other proxy | 50 (50-50) | 100 (100-100) |" in page
    assert "| throughput produced, of direct | >= 0.95 | 0.96 | reached |" in page
    draw(loaded, tmp_path / "picture.svg")
    assert "other proxy" in (tmp_path / "picture.svg").read_text()


@pytest.mark.parametrize("text", ["", "name", "name=30001", "name=port=command", "=30001=command", "name=30001="])
def test_a_peer_without_its_three_parts_is_refused(text: str) -> None:
    """The message shows how to say it."""
    with pytest.raises(PeerError, match="NAME=PORT=COMMAND"):
        Peer.parse(text)


def test_a_peers_command_may_hold_equal_signs() -> None:
    """Only the first two separate."""
    assert Peer.parse("my-proxy=30001=run --a=b {bootstrap}") == Peer("my-proxy", 30001, "run --a=b {bootstrap}")
    assert Peer.parse("my-proxy=30001=run").listener == "PEER_MY_PROXY"


@pytest.mark.parametrize("profile", ["full", "quick"])
def test_profiles_hold_what_the_bar_asks_for(profile: str) -> None:
    """At least three rounds, every number of connections with every size, a thousand idle connections."""
    plan = PROFILES[profile]
    assert plan.rounds >= 3
    assert plan.matrix_rounds >= 3
    assert (plan.base.records, plan.base.record_bytes, plan.memory.connections) == (1_000_000, 500, 1_000)
    asked = {(connections, size) for connections in (1, 10, 100) for size in (100, 1_000, 100_000)}
    assert asked <= {(case.connections, case.record_bytes) for case in plan.matrix}


@pytest.mark.parametrize(("took_us", "left_us"), [(9_000, 3_000), (6_000, 0), (5_000, 0)])
def test_what_a_process_takes_without_requests_is_taken_off(took_us: float, left_us: float) -> None:
    """Three seconds at 2 ms each; nothing takes less than nothing."""
    assert beside_idle(took_us, 3.0, 2_000) == left_us
