"""`kordon topics` when something is wrong: one clear line, exit code 1 or 2, and nothing changed by accident."""

import json
import os
import re
import signal
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kordon.codecs.headers import build_response_header, parse_request_header
from kordon.codecs.messages import request, response
from kordon.proxy.commands.cli import main
from kordon.proxy.commands.topics_progress import ProgressLines
from kordon.testing.certificates import Certificates, make_certificates

METADATA, API_VERSIONS, DESCRIBE_CONFIGS, CREATE_PARTITIONS, INCREMENTAL_ALTER = 3, 18, 32, 37, 44
LIST_OFFSETS, OFFSET_FETCH, LIST_GROUPS, DESCRIBE_LOG_DIRS = 2, 9, 16, 35
VERSIONS = {
    API_VERSIONS: 4, METADATA: 9, 17: 1, 36: 2, DESCRIBE_CONFIGS: 4, CREATE_PARTITIONS: 3, INCREMENTAL_ALTER: 1,
    LIST_OFFSETS: 5, OFFSET_FETCH: 8, LIST_GROUPS: 3, DESCRIBE_LOG_DIRS: 3,
}  # fmt: skip
PARTITIONS = 3
"""Of the topic that is not managed yet."""
INITIAL = 3
"""Partitions that the managed topic began with."""
Answer = Callable[[Any], Mapping[str, Any]]


class FakeKordon:
    """Answers what it is told to; `asked` are the requests by api key."""

    def __init__(self, counts: tuple[int, int] | None = (12, 4), certificates: Certificates | None = None) -> None:
        self.counts = counts
        self.log_ins: list[bytes] = []
        self._context: ssl.SSLContext | None = None
        if certificates is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificates.server, certificates.server_key)
        self.asked: list[tuple[int, Any]] = []
        self.refusal: tuple[int, str | None] = (0, None)
        self.silent = False
        self.records = 0
        """In each partition; the logs begin at offset 5."""
        self.commits: dict[str, int] = {}
        """By group, the offset in each partition."""
        self.bytes: int | None = 1_000
        """Of each partition; None: who asks may not know."""
        self.unled: set[int] = set()
        """Partitions without a leader."""
        self.connections = 0
        self.states: list[str] = []
        """What is told of the state, one after the other; the last one again and again."""
        self.on_state: Callable[[int], None] = lambda _: None
        """Called with how many are left, once a state is asked for."""
        self.done = threading.Event()
        """Partitions are not made before."""
        self.done.set()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def bootstrap(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    @property
    def changes(self) -> list[int]:
        """Api keys of what would have changed something."""
        changing = [each for each in self.asked if each[0] in (CREATE_PARTITIONS, INCREMENTAL_ALTER)]
        return [key for key, value in changing if not value.validate_only]

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        threads: list[threading.Thread] = []
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                break
            self.connections += 1
            threads.append(threading.Thread(target=self._serve_one, args=[connection]))
            threads[-1].start()
        for each in threads:
            each.join()

    def _serve_one(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # a client that does not trust the certificate goes away
            secured = self._context.wrap_socket(connection, server_side=True) if self._context else connection
            self._answer_all(secured)

    def _answer_all(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as incoming:
            while size := incoming.read(4):
                self._answer(connection, memoryview(incoming.read(struct.unpack(">i", size)[0])))

    def _answer(self, connection: socket.socket, frame: memoryview) -> None:
        header, at = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        value = request(key).parse(version, frame[at:])
        self.asked.append((key, value))
        if self.silent and key == CREATE_PARTITIONS:
            connection.shutdown(socket.SHUT_RDWR)
            return
        if key == CREATE_PARTITIONS:
            self.done.wait()
        body = response(key).build(version, self._fields(key, value))
        head = build_response_header(key, version, header.correlation_id)
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def _fields(self, key: int, value: Any) -> Mapping[str, Any]:
        code, message = self.refusal
        match key:
            case 18:
                rows = [{"api_key": key, "min_version": 0, "max_version": last} for key, last in VERSIONS.items()]
                return {"error_code": 0, "api_keys": rows}
            case 3:
                return self._metadata(["orders"] if value.topics is None else [topic.name for topic in value.topics])
            case 2 | 9 | 16 | 35:
                return self._holding(key, value)
            case 17:
                return {"error_code": 0, "mechanisms": ["PLAIN"]}
            case 36:
                self.log_ins.append(bytes(value.auth_bytes))
                return {"error_code": 0, "error_message": None, "auth_bytes": b"", "session_lifetime_ms": 0}
            case 32:
                return {
                    "results": [self._configs(each.resource_name, each.configuration_keys) for each in value.resources]
                }
            case 37:
                return {"results": [{"name": value.topics[0].name, "error_code": code, "error_message": message}]}
            case _:
                row = {"resource_type": 2, "resource_name": value.resources[0].resource_name}
                return {"responses": [{**row, "error_code": code, "error_message": message}]}

    def _holding(self, key: int, value: Any) -> Mapping[str, Any]:
        """What the topic holds, and for whom."""
        if key == DESCRIBE_LOG_DIRS:
            return self._log_dirs(value)
        if key == LIST_GROUPS:
            return {"error_code": 0, "groups": [{"group_id": name, "protocol_type": ""} for name in self.commits]}
        if key == OFFSET_FETCH:
            return {"groups": [self._commits(each.group_id) for each in value.groups]}
        rows = [{"name": row.name, "partitions": list(map(self._offset, row.partitions))} for row in value.topics]
        return {"topics": rows}

    def _metadata(self, topics: list[str]) -> dict[str, Any]:
        count = PARTITIONS if self.counts is None else self.counts[0]
        rows = [
            {"error_code": 0, "partition_index": number, "leader_id": -1 if number in self.unled else 1,
             "leader_epoch": 0, "replica_nodes": [1], "isr_nodes": [1], "offline_replicas": []}
            for number in range(count)
        ]  # fmt: skip
        port = self._socket.getsockname()[1]
        return {
            "throttle_time_ms": 0, "cluster_id": "fake", "controller_id": 1,
            "brokers": [{"node_id": 1, "host": "127.0.0.1", "port": port, "rack": None}],
            "topics": [{"error_code": 0, "name": name, "is_internal": False, "partitions": rows} for name in topics],
        }  # fmt: skip

    def _offset(self, row: Any) -> dict[str, int]:
        offset = 5 if row.timestamp == -2 else 5 + self.records
        return {"partition_index": row.partition_index, "error_code": 0, "timestamp": -1, "offset": offset,
                "leader_epoch": 0}  # fmt: skip

    def _commits(self, group: str) -> dict[str, Any]:
        rows = [
            {"partition_index": number, "committed_offset": self.commits[group], "committed_leader_epoch": -1,
             "metadata": "", "error_code": 0}
            for number in range(PARTITIONS)
        ]  # fmt: skip
        return {"group_id": group, "error_code": 0, "topics": [{"name": "orders", "partitions": rows}]}

    def _log_dirs(self, asked: Any) -> dict[str, Any]:
        if self.bytes is None:
            return {"error_code": 31, "results": []}
        has = PARTITIONS if self.counts is None else self.counts[1]
        rows = [
            {"partition_index": number, "partition_size": self.bytes, "offset_lag": 0, "is_future_key": False}
            for number in asked.topics[0].partitions if number < has
        ]  # fmt: skip
        topics = [{"name": asked.topics[0].topic, "partitions": rows}]
        return {"error_code": 0, "results": [{"error_code": 0, "log_dir": "/data", "topics": topics}]}

    def _configs(self, topic: str, keys: list[str]) -> dict[str, Any]:
        names = ("kordon.virtual.partitions", "kordon.undeleted.partition.count", "kordon.initial.partition.count")
        counts = map(str, (*self.counts, INITIAL) if self.counts else ())
        found = list(zip(names, counts, strict=False))
        if keys == ["kordon.state"]:
            found = [("kordon.state", self._state())] if self.states else []
        configs: list[dict[str, Any]] = [
            {"name": name, "value": count, "read_only": False, "is_sensitive": False, "synonyms": [],
             "config_type": 3, "documentation": None}
            for name, count in found
        ]  # fmt: skip
        return {
            "error_code": 29 if topic == "secret" else 0,
            "error_message": "no right" if topic == "secret" else None,
            "resource_type": 2,
            "resource_name": topic,
            "configs": configs,
        }

    def _state(self) -> str:
        state = self.states[0]
        if len(self.states) > 1:
            del self.states[0]
        self.on_state(len(self.states))
        return state


@contextmanager
def faked(counts: tuple[int, int] | None = (12, 4), certificates: Certificates | None = None) -> Iterator[FakeKordon]:
    fake = FakeKordon(counts, certificates)
    try:
        yield fake
    finally:
        fake.close()


@pytest.fixture
def fake() -> Iterator[FakeKordon]:
    """A Kordon with a topic of 12 virtual partitions on 4."""
    with faked() as started:
        yield started


def run(*arguments: str, answer: str | None = None) -> Result:
    """`kordon topics …`."""
    return CliRunner().invoke(main, ["topics", *arguments], input=answer, catch_exceptions=False)


def failed(*arguments: str) -> str:
    """What a command says that fails with one line."""
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.output
    return result.stderr


@pytest.mark.parametrize(
    "command", [[], ["list"], ["describe"], ["explain"], ["manage"], ["grow"], ["shrink"], ["unmanage"]]
)
def test_help_of_topics_has_examples(command: list[str]) -> None:
    """Every help shows commands to copy."""
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert result.stdout.count("\n    kordon topics ") >= 2


def test_commands_of_topics_are_among_all_commands() -> None:
    """`kordon --help` names the group, though its module is loaded late."""
    shown = CliRunner().invoke(main, ["--help"]).stdout
    assert re.search(r"^  topics +Shows managed topics", shown, re.MULTILINE)


def test_a_growth_is_a_request_for_partitions(fake: FakeKordon) -> None:
    """CreatePartitions with the new count, as any admin client would send it."""
    result = run("grow", "orders", "6", "--bootstrap", fake.bootstrap)
    assert result.stdout.startswith("orders has 6 partitions, 4 before (")
    ((key, asked),) = [each for each in fake.asked if each[0] not in (API_VERSIONS, METADATA, DESCRIBE_CONFIGS)]
    assert (key, asked.topics[0].name, asked.topics[0].count, asked.validate_only) == (37, "orders", 6, False)


@pytest.mark.parametrize(
    ("command", "operation", "value"),
    [(["manage", "orders", "--virtual", "12"], 0, "12"), (["unmanage", "orders"], 1, None)],
)
def test_managing_is_a_change_of_a_config(command: list[str], operation: int, value: str | None) -> None:
    """IncrementalAlterConfigs sets or deletes `kordon.virtual.partitions`, and nothing else."""
    with faked((12, 12) if command[0] == "unmanage" else None) as fake:
        assert run(*command, "--yes", "--bootstrap", fake.bootstrap).exit_code == 0
        ((key, asked),) = [each for each in fake.asked if each[0] not in (API_VERSIONS, METADATA, DESCRIBE_CONFIGS)]
    (resource,) = asked.resources
    (config,) = resource.configs
    assert (key, resource.resource_type, resource.resource_name) == (44, 2, "orders")
    assert (config.name, config.config_operation, config.value) == ("kordon.virtual.partitions", operation, value)


@pytest.mark.parametrize("command", ["grow", "shrink", "unmanage"])
def test_an_ordinary_topic_is_left_alone(command: str) -> None:
    """A broker would grow it and break the order of its keys, so it is not asked."""
    with faked(None) as fake:
        count = [] if command == "unmanage" else ["6"]
        assert "orders is not managed" in failed(command, "orders", *count, "--bootstrap", fake.bootstrap)
        assert fake.changes == []


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["grow", "orders", "3"], "so the command is: kordon topics shrink orders 3"),
        (["shrink", "orders", "6"], "so the command is: kordon topics grow orders 6"),
        (["manage", "orders", "--virtual", "24", "--yes"], "orders has 12 virtual partitions, and that number"),
    ],
)
def test_what_was_not_meant_is_not_done(fake: FakeKordon, command: list[str], says: str) -> None:
    """A growth to fewer partitions, or the reverse, is a slip; V never changes."""
    assert says in failed(*command, "--bootstrap", fake.bootstrap)
    assert fake.changes == []


@pytest.mark.parametrize(("command", "says"), [("manage", "Kafka Streams"), ("unmanage", "offsets that groups")])
def test_what_it_means_is_said_first(command: str, says: str) -> None:
    """Managing a topic and letting it go are asked back, and no answer is no (ASKED-BACK)."""
    with faked(None if command == "manage" else (12, 12)) as fake:
        virtual = ["--virtual", "12"] if command == "manage" else []
        for answer in ("n\n", ""):
            result = run(command, "orders", *virtual, "--bootstrap", fake.bootstrap, answer=answer)
            assert result.exit_code == 1
            assert says in result.stdout
        assert fake.changes == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--virtual", "12"], ["about 75 % of its new records wait", "after 7 min 0 s at the earliest", "--quiesced"]),
        (["--virtual", "48", "--transition", "30"], ["about 94 % of its new records wait", "readers after 30 s"]),
        (["--virtual", "12", "--quiesced"], ["about 75 % of its new records wait until\n    every group has read"]),
        (["--virtual", "3"], ["No record waits"]),
    ],
)
def test_how_many_records_wait_for_a_takeover_and_how_long_is_said_first(options: list[str], says: list[str]) -> None:
    """The share of keys that get new partitions, and the time for which clients may still have the old view."""
    with faked(None) as fake:
        result = run("manage", "orders", *options, "--bootstrap", fake.bootstrap, answer="n\n")
    assert [said for said in says if said not in result.stdout] == []


def test_a_refusal_is_told_by_name_and_reason(fake: FakeKordon) -> None:
    """Kafka's name of the error, then what the other side says."""
    fake.refusal = (60, "a change of orders is under way")
    said = failed("grow", "orders", "6", "--bootstrap", fake.bootstrap)
    assert said == "REASSIGNMENT_IN_PROGRESS: a change of orders is under way\n"
    fake.refusal = (29, None)
    assert failed("grow", "orders", "6", "--bootstrap", fake.bootstrap) == "TOPIC_AUTHORIZATION_FAILED\n"
    assert failed("grow", "secret", "6", "--bootstrap", fake.bootstrap) == "TOPIC_AUTHORIZATION_FAILED: no right\n"


def test_a_broker_in_place_of_a_kordon_is_recognised() -> None:
    """A broker does not know Kordon's config."""
    with faked(None) as fake:
        fake.refusal = (40, "Unknown topic config name: kordon.virtual.partitions")
        said = failed("manage", "orders", "--virtual", "12", "--yes", "--bootstrap", fake.bootstrap)
        assert said.endswith(f"; is {fake.bootstrap} a broker, not a Kordon?\n")


def test_a_kordon_that_goes_away_is_one_line(fake: FakeKordon) -> None:
    """What was asked may still happen; it is said what was under way."""
    fake.silent = True
    said = failed("grow", "orders", "6", "--bootstrap", fake.bootstrap)
    assert said.startswith(f"growing orders to 6 partitions: {fake.bootstrap}: CreatePartitions: ")


def test_nobody_there_is_one_line(fake: FakeKordon) -> None:
    """A port where nobody listens, or somebody who is no Kafka server."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    said = failed("grow", "orders", "6", "--bootstrap", f"127.0.0.1:{port}")
    assert said.startswith(f"no Kordon answers at 127.0.0.1:{port}: connection refused; check --bootstrap")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "name a Kordon: --bootstrap HOST:PORT or the variable KORDON_BOOTSTRAP"),
        (["--bootstrap", "kordon"], "--bootstrap: the port is missing"),
        (["--bootstrap", "k:1", "--certificate", __file__], "--certificate and --key go together"),
        (["--bootstrap", "k:1", "--sasl-mechanism", "PLAIN"], "need --username"),
        (["--bootstrap", "k:1", "--ca", "/nowhere"], "'/nowhere' does not exist"),
        (["--config", "/nowhere"], "/nowhere"),
    ],
)
def test_a_command_line_that_is_wrong_is_a_usage_error(flags: list[str], says: str) -> None:
    """What is missing is named, with exit code 2."""
    result = CliRunner(env={"KORDON_CONFIG": ""}).invoke(main, ["topics", "grow", "orders", "6", *flags])
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_variable_says_where_a_kordon_is(fake: FakeKordon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody types the same option for each command; a configuration that is named on the command line wins."""
    monkeypatch.setenv("KORDON_BOOTSTRAP", fake.bootstrap)
    assert run("grow", "orders", "6").stdout.startswith("orders has 6 partitions")
    help_ = run("grow", "--help").stdout
    assert [
        name for name in ("BOOTSTRAP", "CONFIG", "USERNAME", "PASSWORD_FILE") if f"KORDON_{name}" not in help_
    ] == []
    monkeypatch.setenv("KORDON_BOOTSTRAP", "127.0.0.1:1")
    file = tmp_path / "kordon.yaml"
    file.write_text(f"upstream: {{bootstrap: 'kafka:9092'}}\nlisten: {{address: '{fake.bootstrap}'}}\n")
    assert run("grow", "orders", "6", "--config", str(file)).exit_code == 0
    monkeypatch.setenv("KORDON_CONFIG", str(file))
    assert "no Kordon answers at 127.0.0.1:1" in failed("grow", "orders", "6")


def test_a_log_in_may_be_in_variables(fake: FakeKordon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the user, and the file with the password."""
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    monkeypatch.setenv("KORDON_BOOTSTRAP", fake.bootstrap)
    monkeypatch.setenv("KORDON_USERNAME", "admin")
    monkeypatch.setenv("KORDON_PASSWORD_FILE", str(password))
    assert run("grow", "orders", "6", "--sasl-mechanism", "PLAIN").exit_code == 0
    assert fake.log_ins == [b"\0admin\0s3cret"]


def test_the_configuration_of_a_kordon_says_where_it_is(fake: FakeKordon, tmp_path: Path) -> None:
    """On a Kordon's own host its configuration suffices."""
    file = tmp_path / "kordon.yaml"
    port = fake.bootstrap.rpartition(":")[2]
    file.write_text(f"upstream: {{bootstrap: 'kafka:9092'}}\nlisten: {{address: '0.0.0.0:{port}'}}\n")
    assert run("grow", "orders", "6", "--config", str(file)).stdout.startswith("orders has 6 partitions")


# While something lasts

LEASE = "growing 4 -> 6: waits for the lease of host-2, at most"
HOLDS = "growing 4 -> 6: holds the writes of partitions that change"
SETTLED = "serving 6 of 12, settled"
WATCH = "growing orders to 6 partitions continues without this command; kordon topics watch orders shows it\n"


@pytest.fixture
def slow(fake: FakeKordon, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKordon]:
    """A Kordon that makes partitions only when its state has been asked for until the last one."""
    for name in ("LOOK_SECONDS", "QUIET_SECONDS"):
        monkeypatch.setattr(f"kordon.proxy.commands.topics_progress.{name}", 0.01)
    fake.states = [f"{LEASE} 12 s more", f"{LEASE} 11 s more", HOLDS, HOLDS, HOLDS]
    fake.on_state = lambda left: fake.done.set() if left == 1 else None
    fake.done.clear()
    yield fake
    fake.done.set()


def test_what_a_change_waits_for_is_a_line_at_each_change(slow: FakeKordon) -> None:
    """With the owner and the bound; in a pipe, seconds that run down are no change."""
    result = run("grow", "orders", "6", "--bootstrap", slow.bootstrap)
    assert result.stderr.splitlines() == [f"orders: {LEASE} 12 s more", f"orders: {HOLDS}"]
    assert result.stdout.startswith("orders has 6 partitions, 4 before (")


def test_lines_are_objects_for_programs(slow: FakeKordon) -> None:
    """Each with its time; the last one says what has come of it."""
    result = run("grow", "orders", "6", "--json", "--bootstrap", slow.bootstrap)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["topic"], each.get("state")) for each in lines] == [
        ("orders", f"{LEASE} 12 s more"),
        ("orders", HOLDS),
        ("orders", None),
    ]
    assert lines[-1]["done"] == "orders has 6 partitions, 4 before"
    assert all(datetime.fromisoformat(each["at"]).tzinfo for each in lines)
    assert result.stderr == ""


def test_a_terminal_has_one_line_that_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """And erased in the end, so that what has come of it stands alone."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with CliRunner().isolation() as (_, written, _), ProgressLines("growing orders") as lines:
        lines.tell("orders", f"{LEASE} 12 s more")
    text = written.getvalue().decode()
    assert LEASE in text
    assert text.count("\x1b[2K") >= 1


def test_nobody_has_to_wait(slow: FakeKordon) -> None:
    """The command ends as soon as the change is written down, and says how to look."""
    slow.on_state = lambda _: None
    slow.states = [HOLDS]
    result = run("grow", "orders", "6", "--no-wait", "--bootstrap", slow.bootstrap)
    assert (result.exit_code, result.stdout) == (0, WATCH)
    assert slow.changes == [CREATE_PARTITIONS]


def test_who_does_not_wait_is_still_told_of_a_refusal(fake: FakeKordon) -> None:
    """It comes before the change is written down."""
    fake.refusal = (37, "13 partitions would stay empty")
    said = failed("grow", "orders", "13", "--no-wait", "--bootstrap", fake.bootstrap)
    assert said == "INVALID_PARTITIONS: 13 partitions would stay empty\n"


def test_ctrl_c_says_what_goes_on_without_the_command(slow: FakeKordon) -> None:
    """What was asked for is done by the cluster; what was not asked for yet is not."""
    slow.on_state = lambda _: os.kill(os.getpid(), signal.SIGINT)
    slow.states = [HOLDS]
    result = run("grow", "orders", "6", "--bootstrap", slow.bootstrap)
    assert (result.exit_code, result.stdout) == (130, WATCH)


def test_watching_ends_when_nothing_is_left_to_wait_for(slow: FakeKordon) -> None:
    """One topic, or all; what is settled already takes one line."""
    slow.states = [f"{LEASE} 12 s more", HOLDS, SETTLED]
    result = run("watch", "orders", "--bootstrap", slow.bootstrap)
    assert (result.exit_code, result.stdout) == (0, f"orders: {SETTLED}\n")
    assert result.stderr.splitlines() == [f"orders: {LEASE} 12 s more", f"orders: {HOLDS}", f"orders: {SETTLED}"]
    slow.states = [HOLDS, SETTLED]
    result = run("watch", "--bootstrap", slow.bootstrap)
    assert (result.exit_code, result.stdout) == (0, "1 managed topic, nothing to wait for\n")
    assert result.stderr.splitlines() == [f"orders: {HOLDS}", f"orders: {SETTLED}"]


def test_watching_an_ordinary_topic_says_that_it_is_one(fake: FakeKordon) -> None:
    fake.states = []
    assert "orders is not managed" in failed("watch", "orders", "--bootstrap", fake.bootstrap)


TAKEOVER = "being taken over: waits for 1 of 5 groups: mailer has 4 records to go"
AGAIN = "run this command again when that is over; kordon topics watch shows it\n"
PLANNED = "orders: grow from 4 to 6 partitions: 4 of 12 virtual partitions move\n"


@pytest.fixture
def growing(slow: FakeKordon, tmp_path: Path) -> list[str]:
    """The arguments that have a topic grow that is being taken over."""
    slow.done.set()
    slow.states = [TAKEOVER, TAKEOVER, SETTLED]
    (tmp_path / "topics.yaml").write_text("topics: [{name: orders, partitions: 6, virtual_partitions: 12}]")
    return ["apply", str(tmp_path / "topics.yaml"), "--yes", "--bootstrap", slow.bootstrap]


def test_a_growth_of_a_file_waits_for_the_takeover(slow: FakeKordon, growing: list[str]) -> None:
    """And says what for, as a growth does."""
    result = run(*growing)
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [f"orders: {TAKEOVER}", f"orders: {SETTLED}"]
    assert result.stdout.startswith(f"{PLANNED}orders: done: grow from 4 to 6 partitions")
    assert slow.changes == [CREATE_PARTITIONS]


def test_topics_of_a_file_are_waited_for_side_by_side(
    slow: FakeKordon, growing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each grows when it is settled, and what one waits for is not told again because another is."""
    monkeypatch.setattr("kordon.proxy.commands.topics_progress.QUIET_SECONDS", 60)  # so that growths look at no state
    Path(growing[1]).write_text(
        "topics: [{name: orders, partitions: 6, virtual_partitions: 12},"
        " {name: prices, partitions: 6, virtual_partitions: 12}]"
    )
    slow.states = [TAKEOVER, TAKEOVER, SETTLED, TAKEOVER, SETTLED, TAKEOVER, SETTLED]
    result = run(*growing)
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [f"prices: {TAKEOVER}", f"prices: {SETTLED}"]
    assert re.findall(r"(\w+): done", result.stdout) == ["orders", "prices"]


def test_who_does_not_wait_is_told_what_is_left(slow: FakeKordon, growing: list[str]) -> None:
    """With an exit code of its own: nothing has failed, and the same command is to be run again."""
    result = run(*growing, "--no-wait")
    assert (result.exit_code, result.stderr, slow.changes) == (3, "", [])
    assert result.stdout == (
        f"{PLANNED}"
        "orders: not done yet: grow from 4 to 6 partitions: 4 of 12 virtual partitions move\n"
        f"orders: {TAKEOVER}\n"
        f"{AGAIN}"
    )


def test_a_growth_of_a_file_goes_on_without_who_does_not_wait(slow: FakeKordon, growing: list[str]) -> None:
    """Kordon does it, so nothing is left."""
    slow.states, slow.on_state = [SETTLED, HOLDS], lambda _: slow.done.clear()
    result = run(*growing, "--no-wait")
    assert result.exit_code == 0, result.output
    assert "continues without this command; kordon topics watch orders shows it\n" in result.stdout


def test_ctrl_c_during_a_takeover_says_what_is_left(slow: FakeKordon, growing: list[str]) -> None:
    slow.states = [TAKEOVER] * 3
    slow.on_state = lambda left: os.kill(os.getpid(), signal.SIGINT) if left == 1 else None
    result = run(*growing)
    assert (result.exit_code, slow.changes) == (130, [])
    assert result.stdout.endswith(f"orders: not done yet: {PLANNED.removeprefix('orders: ')}{AGAIN}")


def test_a_topic_that_was_let_go_meanwhile_does_not_grow(slow: FakeKordon, growing: list[str]) -> None:
    """A broker would grow it, and break the order of its keys."""

    def let_go(_: int) -> None:
        slow.counts = None

    slow.on_state = let_go
    result = run(*growing)
    assert (result.exit_code, slow.changes) == (1, [])
    assert result.stderr.endswith("virtual partitions move: the topic is not managed any more\n")


def test_a_kordon_that_goes_away_meanwhile_is_one_line(
    slow: FakeKordon, growing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kordon.proxy.commands.topics_progress._PATIENCE_SECONDS", 0.0)
    slow.states = [TAKEOVER] * 3

    def go_away(left: int) -> None:
        if left == 1:
            raise OSError

    slow.on_state = go_away
    result = run(*growing)
    assert (result.exit_code, slow.changes) == (1, [])
    assert result.stderr.count("orders: grow from 4 to 6 partitions: ") == 1


def test_a_look_before_a_change_takes_one_connection() -> None:
    """Each costs a log-in; what is only told to be confirmed is not asked where nobody confirms."""
    with faked(None) as fake:
        run("manage", "orders", "--virtual", "12", "--yes", "--bootstrap", fake.bootstrap)
        assert fake.connections == 2
        asked = [key for key, _ in fake.asked if key != API_VERSIONS]
        assert asked == [DESCRIBE_CONFIGS, METADATA, INCREMENTAL_ALTER]


# TLS and SASL


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_tls_and_log_in_are_those_of_the_flags(certificates: Certificates, tmp_path: Path) -> None:
    """The password is read from a file, without the end of its line, and sent by TLS."""
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    who = ("--sasl-mechanism", "PLAIN", "--username", "admin", "--password-file", str(password))
    with faked(certificates=certificates) as fake:
        result = run("grow", "orders", "6", "--bootstrap", fake.bootstrap, "--ca", str(certificates.ca), *who)
        assert result.stdout.startswith("orders has 6 partitions"), result.output
        assert fake.log_ins == [b"\0admin\0s3cret"]


def test_a_password_is_asked_for_once(fake: FakeKordon) -> None:
    """Without a file it is typed, and does not appear."""
    who = ("--sasl-mechanism", "PLAIN", "--username", "admin")
    result = run("manage", "orders", "--virtual", "12", "--bootstrap", fake.bootstrap, *who, answer="s3cret\n")
    assert result.stdout == "orders is managed already, with 12 virtual partitions\n"
    assert "s3cret" not in result.output
    assert fake.log_ins == [b"\0admin\0s3cret"]


@pytest.mark.parametrize(
    ("authority", "says"),
    [
        ("other_ca", "the certificate is not accepted"),
        ("server_key", "--key cannot be used: TLS: "),
        (None, "no Kordon answers"),
    ],
)
def test_tls_that_fails_is_one_line(certificates: Certificates, authority: str | None, says: str) -> None:
    """An authority that did not sign, a file that is no authority, and no TLS where there is some."""
    flags = () if authority is None else ("--ca", str(getattr(certificates, authority)))
    with faked(certificates=certificates) as fake:
        assert says in failed("grow", "orders", "6", "--bootstrap", fake.bootstrap, *flags)
        assert fake.changes == []


def test_the_log_in_of_a_kordon_is_in_its_configuration(fake: FakeKordon, tmp_path: Path) -> None:
    """On a Kordon's own host its own log-in is used, unless flags name another."""
    file = tmp_path / "kordon.yaml"
    sasl = "{mechanism: PLAIN, username: kordon, password: own}"
    file.write_text(f"upstream: {{bootstrap: 'kafka:9092', sasl: {sasl}}}\nlisten: {{address: '{fake.bootstrap}'}}\n")
    assert run("grow", "orders", "6", "--config", str(file)).exit_code == 0
    assert fake.log_ins == [b"\0kordon\0own"]


# what would be done


GROWTH = [
    "orders: 4 → 6 partitions; clients go on seeing 12",
    "4 of 12 virtual partitions move, 33 % of the keys:",
    "  6-7 from partition 1 to 4",
    "  10-11 from partition 2 to 5",
    "Writes to partitions 1-2 are held for some milliseconds; others are not touched. No group rebalances, and none is"
    " waited for.",
    "Partitions 1-2 lie on broker 1, 2.0 kB: nothing of that is copied.",
    "The brokers get partitions 4-5 of orders, unless they have them already.",
    "Nothing was changed. To do it: kordon topics grow orders 6",
]


@pytest.mark.parametrize("command", [["plan", "orders", "6"], ["grow", "orders", "6", "--dry-run"]])
def test_a_plan_says_what_moves_where_and_changes_nothing(fake: FakeKordon, command: list[str]) -> None:
    """A growth halves runs of virtual partitions; the command that does it is named, and says the same itself."""
    result = run(*command, "--bootstrap", fake.bootstrap)
    assert (result.exit_code, result.stdout.splitlines()) == (0, GROWTH)
    assert fake.changes == []
    assert (CREATE_PARTITIONS, 6, True) in [
        (key, asked.topics[0].count, asked.validate_only) for key, asked in fake.asked if key == CREATE_PARTITIONS
    ]


@pytest.mark.parametrize("command", ["plan", "shrink"])
def test_a_plan_of_a_shrink_names_what_is_retired(fake: FakeKordon, command: str) -> None:
    """Runs of virtual partitions are joined again."""
    flags = ["--dry-run"] if command == "shrink" else []
    shrunk = run(command, "orders", "3", "--bootstrap", fake.bootstrap, *flags).stdout
    assert "  2-3 from partition 3 to 0\n" in shrunk
    assert "Writes to partitions 0, 3 are held" in shrunk
    assert "\nPartition 3 is retired: its records stay readable" in shrunk
    assert run(command, "orders", "4", "--bootstrap", fake.bootstrap, *flags).stdout == (
        "orders has 4 partitions already\n"
    )
    assert fake.changes == []


def test_a_plan_that_cannot_be_says_what_can(fake: FakeKordon) -> None:
    assert failed("plan", "orders", "2", "--bootstrap", fake.bootstrap) == (
        "orders cannot have 2 partitions: 2 partitions are fewer than the 3 the topic began with, which is the least"
        " there can be\n"
    )
    for command in (["plan"], ["grow", "--dry-run"]):
        assert "would stay empty" in failed(*command, "orders", "13", "--bootstrap", fake.bootstrap)
    assert "so the command is: kordon topics shrink orders 3" in failed(
        "grow", "orders", "3", "--dry-run", "--bootstrap", fake.bootstrap
    )
    with faked(None) as unmanaged:
        assert "is not managed" in failed("plan", "orders", "6", "--bootstrap", unmanaged.bootstrap)


def test_one_is_no_plural() -> None:
    """Of partitions that are wanted, are there, move and are retired."""
    with faked((6, 4)) as fake:
        assert failed("plan", "orders", "1", "--bootstrap", fake.bootstrap).startswith(
            "orders cannot have 1 partition: 1 partition is fewer than the 3 the topic began with"
        )
        shrunk = run("plan", "orders", "3", "--bootstrap", fake.bootstrap).stdout
    assert "1 of 6 virtual partitions moves, 17 % of the keys:" in shrunk
    assert "Partition 3 is retired: its records" in shrunk


def test_a_dry_run_of_managing_says_what_is_there_and_what_waits() -> None:
    """Records, bytes, brokers, how far each group is; then what managing says before it asks."""
    with faked(None) as fake:
        fake.records, fake.commits = 400, {"mailer": 405, "report": 5, "odd\x1b[2K\nname": 404}
        command = ("manage", "orders", "--virtual", "12", "--bootstrap", fake.bootstrap)
        dry = run(*command, "--dry-run")
        assert (dry.exit_code, fake.changes) == (0, [])
        lines = dry.stdout.splitlines()
        assert lines[:3] == [
            "orders: 3 partitions on broker 1, 1,200 records, 3.0 kB",
            "Groups that are behind, and waited for: 2 of 3: report has 1,200 records to go,"
            " odd\\u001b[2K\\u000aname has 3 records to go",
            "Managing orders with 12 virtual partitions means:",
        ]
        assert lines[-1] == "Nothing was changed. To do it: kordon topics manage orders --virtual 12"
        asked = run(*command, answer="n\n").stdout.splitlines()
        assert asked[: len(lines) - 1] == lines[:-1]


@pytest.mark.parametrize(
    ("commits", "says"),
    [
        ({}, "No group has committed offsets, so none is waited for."),
        ({"mailer": 406}, "No group has anything left to read, so none is waited for: mailer"),
        ({"mailer": 405}, "Groups that are behind, and waited for: 1 of 1: mailer has 3 records to go"),
        ({f"g{n:02}": 5 for n in range(12)}, "waited for: 12 of 12: g00 has 1,203 records to go, g01 has"),
    ],
)
def test_groups_are_named_with_what_they_have_to_go(commits: dict[str, int], says: str) -> None:
    """Of many, the first."""
    with faked(None) as fake:
        fake.records, fake.commits = 401, commits
        line = run("manage", "orders", "--virtual", "12", "--dry-run", "--bootstrap", fake.bootstrap).stdout.split(
            "\n"
        )[1]
    assert says in line
    assert line.endswith(", 2 more") == (len(commits) > 10)


@pytest.mark.parametrize(
    ("flags", "percent", "seconds", "command"),
    [
        ([], 75, 420, ""),
        (["--transition", "30"], 75, 30, " --transition 30"),
        (["--deliver"], 0, 420, " --deliver"),
        (["--janitor"], 75, 420, " --janitor"),
    ],
)
def test_a_dry_run_is_an_object_for_programs(flags: list[str], percent: int, seconds: int, command: str) -> None:
    """One line, with what a person is told."""
    with faked(None) as fake:
        fake.records, fake.commits = 2, {"mailer": 6}
        result = run(
            "manage", "orders", "--virtual", "12", "--dry-run", "--json", *flags, "--bootstrap", fake.bootstrap
        )
        (sent,) = [asked for key, asked in fake.asked if key == INCREMENTAL_ALTER]
        dry = run("manage", "orders", "--virtual", "12", "--dry-run", *flags, "--bootstrap", fake.bootstrap)
    (line,) = map(json.loads, result.stdout.splitlines())
    assert (result.exit_code, line["topic"], line["refused"]) == (0, "orders", [])
    found = line["dry_run"]
    assert (found["do"], found["partitions"], found["virtual_partitions"]) == ("manage", 3, 12)
    assert (found["records"], found["bytes"], found["groups"]) == (6, 3000, {"mailer": 3})
    assert (found["waiting_percent"], found["transition_seconds"]) == (percent, seconds)
    assert sent.validate_only
    assert dry.stdout.endswith(f"kordon topics manage orders --virtual 12{command}\n")


def test_who_is_said_not_to_write_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """--quiesced is proven as Kordon proves it: nothing may be written for a while."""
    monkeypatch.setattr("kordon.proxy.controller.takeovers.PROOF_SECONDS", 0.01)
    with faked(None) as fake:
        fake.records = 1
        command = ("manage", "orders", "--virtual", "12", "--quiesced", "--dry-run", "--bootstrap", fake.bootstrap)
        assert run(*command).exit_code == 0

        class Growing(int):
            """More of them each time."""

            def __radd__(self, other: int) -> int:
                fake.records = Growing(self + 1)
                return other + int(self)

        fake.records = Growing(1)
        result = run(*command)
    assert result.exit_code == 1
    assert "It would be refused now: somebody writes to orders" in result.stderr


def test_a_dry_run_of_letting_go_names_the_groups(fake: FakeKordon) -> None:
    """Their offsets go with the topic's face."""
    fake.commits = {"mailer": 5}
    dry = run("unmanage", "orders", "--dry-run", "--bootstrap", fake.bootstrap)
    assert (dry.exit_code, fake.changes) == (0, [])
    assert "orders is an ordinary topic with 4 partitions" in dry.stdout
    assert "\nGroups with committed offsets: mailer\n" in dry.stdout
    assert dry.stdout.endswith("Nothing was changed. To do it: kordon topics unmanage orders\n")
    fake.commits = {}
    result = run("unmanage", "orders", "--dry-run", "--json", "--bootstrap", fake.bootstrap)
    found = json.loads(result.stdout)
    assert (found["dry_run"]["do"], found["dry_run"]["groups"], found["refused"]) == ("unmanage", [], [])


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        ((87, "orders has an open transaction"), "orders has an open transaction"),
        ((29, None), "TOPIC_AUTHORIZATION_FAILED; you lack Alter on orders: give it by kafka-acls.sh"),
        ((29, "Topic authorization failed."), "you lack Alter on orders: give it by kafka-acls.sh"),
        ((29, "growing orders to 6 partitions"), "TOPIC_AUTHORIZATION_FAILED: growing orders to 6 partitions"),
        ((7, "orders-1 has no leader"), "orders-1 has no leader; kordon status shows which brokers are up"),
    ],
)
def test_what_would_be_refused_is_said_with_its_cure(
    fake: FakeKordon, refusal: tuple[int, str | None], says: str
) -> None:
    """Below what would be done; the exit code is that of the refusal."""
    fake.refusal, fake.states = refusal, ["growing 4 -> 6: waits for the controller"]
    result = run("grow", "orders", "6", "--dry-run", "--bootstrap", fake.bootstrap)
    lines = ["orders now: growing 4 -> 6: waits for the controller", *GROWTH[:-1]]
    assert (result.exit_code, result.stdout.splitlines(), fake.changes) == (1, lines, [])
    assert result.stderr.startswith("It would be refused now: ")
    assert says in result.stderr
    told = run("grow", "orders", "6", "--dry-run", "--json", "--bootstrap", fake.bootstrap)
    assert told.exit_code == 1
    assert says in json.loads(told.stdout)["refused"][0]


@pytest.mark.parametrize(
    "command", [["manage", "secret", "--virtual", "12"], ["grow", "secret", "6"], ["unmanage", "secret"]]
)
def test_a_topic_that_may_not_be_seen_is_refused_before_anything_is_told(fake: FakeKordon, command: list[str]) -> None:
    """One line, as the command itself says it."""
    assert failed(*command, "--dry-run", "--bootstrap", fake.bootstrap) == "TOPIC_AUTHORIZATION_FAILED: no right\n"
    result = run(*command, "--dry-run", "--json", "--bootstrap", fake.bootstrap)
    assert (result.exit_code, json.loads(result.stdout)["dry_run"]) == (1, {})


def test_what_nobody_tells_is_named_and_no_refusal() -> None:
    """Without the right to describe the cluster there are no bytes; without a leader there are no records."""
    with faked(None) as fake:
        fake.bytes, fake.unled = None, {1}
        dry = run("manage", "orders", "--virtual", "12", "--dry-run", "--bootstrap", fake.bootstrap)
    assert dry.exit_code == 0
    lines = dry.stdout.splitlines()
    assert lines[:2] == ["orders: 3 partitions on broker 1", "No broker leads partition 1 now."]
    assert any(line.startswith("Not known: records: orders-1 has no leader") for line in lines)
    assert any(line.endswith("CLUSTER_AUTHORIZATION_FAILED") for line in lines if line.startswith("Not known: bytes:"))
