"""`kordon topics` when something is wrong: one clear line, exit code 1 or 2, and nothing changed by accident."""

import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kordon.codecs.headers import build_response_header, parse_request_header
from kordon.codecs.messages import request, response
from kordon.proxy.commands.cli import main
from kordon.testing.certificates import Certificates, make_certificates

API_VERSIONS, DESCRIBE_CONFIGS, CREATE_PARTITIONS, INCREMENTAL_ALTER = 18, 32, 37, 44
VERSIONS = {API_VERSIONS: 4, 17: 1, 36: 2, DESCRIBE_CONFIGS: 4, CREATE_PARTITIONS: 3, INCREMENTAL_ALTER: 1}
Answer = Callable[[Any], Mapping[str, Any]]


class FakeKordon:
    """Answers what it is told to, one connection after the other; `asked` are the requests by api key."""

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
        return [key for key, _ in self.asked if key in (CREATE_PARTITIONS, INCREMENTAL_ALTER)]

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
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
        body = response(key).build(version, self._fields(key, value))
        head = build_response_header(key, version, header.correlation_id)
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def _fields(self, key: int, value: Any) -> Mapping[str, Any]:
        code, message = self.refusal
        match key:
            case 18:
                rows = [{"api_key": key, "min_version": 0, "max_version": last} for key, last in VERSIONS.items()]
                return {"error_code": 0, "api_keys": rows}
            case 17:
                return {"error_code": 0, "mechanisms": ["PLAIN"]}
            case 36:
                self.log_ins.append(bytes(value.auth_bytes))
                return {"error_code": 0, "error_message": None, "auth_bytes": b"", "session_lifetime_ms": 0}
            case 32:
                return {"results": [self._configs(value.resources[0].resource_name)]}
            case 37:
                return {"results": [{"name": value.topics[0].name, "error_code": code, "error_message": message}]}
            case _:
                row = {"resource_type": 2, "resource_name": value.resources[0].resource_name}
                return {"responses": [{**row, "error_code": code, "error_message": message}]}

    def _configs(self, topic: str) -> dict[str, Any]:
        names = ("kordon.virtual.partitions", "kordon.undeleted.partition.count")
        found = zip(names, self.counts or (), strict=False)
        configs: list[dict[str, Any]] = [
            {"name": name, "value": str(count), "read_only": False, "is_sensitive": False, "synonyms": [],
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
    ((key, asked),) = [each for each in fake.asked if each[0] not in (API_VERSIONS, DESCRIBE_CONFIGS)]
    assert (key, asked.topics[0].name, asked.topics[0].count, asked.validate_only) == (37, "orders", 6, False)


@pytest.mark.parametrize(
    ("command", "operation", "value"),
    [(["manage", "orders", "--virtual", "12"], 0, "12"), (["unmanage", "orders"], 1, None)],
)
def test_managing_is_a_change_of_a_config(command: list[str], operation: int, value: str | None) -> None:
    """IncrementalAlterConfigs sets or deletes `kordon.virtual.partitions`, and nothing else."""
    with faked((12, 12) if command[0] == "unmanage" else None) as fake:
        assert run(*command, "--yes", "--bootstrap", fake.bootstrap).exit_code == 0
        ((key, asked),) = [each for each in fake.asked if each[0] not in (API_VERSIONS, DESCRIBE_CONFIGS)]
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
        (["grow", "orders", "3"], "that would be: kordon topics shrink orders 3"),
        (["shrink", "orders", "6"], "that would be: kordon topics grow orders 6"),
        (["manage", "orders", "--virtual", "24", "--yes"], "orders has 12 virtual partitions for good"),
    ],
)
def test_what_was_not_meant_is_not_done(fake: FakeKordon, command: list[str], says: str) -> None:
    """A growth to fewer partitions, or the reverse, is a slip; V never changes."""
    assert says in failed(*command, "--bootstrap", fake.bootstrap)
    assert fake.changes == []


@pytest.mark.parametrize(("command", "says"), [("manage", "Kafka Streams"), ("unmanage", "Offsets that groups")])
def test_what_it_means_is_said_first(command: str, says: str) -> None:
    """Managing a topic and letting it go are asked back, and no answer is no (ASKED-BACK)."""
    with faked(None if command == "manage" else (12, 12)) as fake:
        virtual = ["--virtual", "12"] if command == "manage" else []
        for answer in ("n\n", ""):
            result = run(command, "orders", *virtual, "--bootstrap", fake.bootstrap, answer=answer)
            assert result.exit_code == 1
            assert says in result.stdout
        assert fake.changes == []


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
        ([], "name a Kordon: --bootstrap HOST:PORT"),
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


def test_the_configuration_of_a_kordon_says_where_it_is(fake: FakeKordon, tmp_path: Path) -> None:
    """On a Kordon's own host its configuration suffices."""
    file = tmp_path / "kordon.yaml"
    port = fake.bootstrap.rpartition(":")[2]
    file.write_text(f"upstream: {{bootstrap: 'kafka:9092'}}\nlisten: {{address: '0.0.0.0:{port}'}}\n")
    assert run("grow", "orders", "6", "--config", str(file)).stdout.startswith("orders has 6 partitions")


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
