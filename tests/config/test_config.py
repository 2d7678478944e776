"""What configuration is taken, and how each mistake in it is told."""

import datetime
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kordon.proxy.config.config import Config
from kordon.proxy.config.config_load import ConfigError, load, load_config
from kordon.proxy.config.config_options import differences, options
from kordon.proxy.config.config_source import FLAGS, Origin, dotted, read_sources, variable_of
from kordon.proxy.config.host_port import HostPort

MINIMAL = """\
upstream:
  bootstrap: kafka:9092
listen:
  address: 0.0.0.0:19092
"""
Tell = Callable[..., list[str]]
Issue = Callable[..., tuple[Path, Path]]
DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.fixture
def mistakes(tmp_path: Path) -> Tell:
    """Tells the mistakes of a file's text, without the folder in front of its name."""

    def tell(text: str, environment: Mapping[str, str] | None = None) -> list[str]:
        file = tmp_path / "k.yaml"
        file.write_text(text)
        with pytest.raises(ConfigError) as raised:
            load_config(file, environment or {})
        return [str(problem).replace(f"{tmp_path}/", "") for problem in raised.value.problems]

    return tell


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., Config]:
    def read(text: str, environment: Mapping[str, str] | None = None) -> Config:
        file = tmp_path / "k.yaml"
        file.write_text(text)
        return load_config(file, environment or {})

    return read


# Addresses


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("kafka:9092", "kafka", 9092),
        ("10.0.0.7:1", "10.0.0.7", 1),
        ("[::1]:65535", "::1", 65535),
        ("[FE80:0:0::1]:9092", "fe80::1", 9092),
        (" kafka:9092 ", "kafka", 9092),
    ],
)
def test_address_is_read(text: str, host: str, port: int) -> None:
    """Names, IPv4 and bracketed IPv6 addresses are taken, the last in its shortest form."""
    assert HostPort.parse(text) == HostPort(host, port)


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("kafka", "write host:port, for example kafka:9092"),
        ("", "for example localhost:9092"),
        ("kafka:", "from 1 to 65535, not ''"),
        ("kafka:0", "from 1 to 65535, not '0'"),
        ("kafka:65536", "from 1 to 65535"),
        ("kafka:٣", "from 1 to 65535"),
        ("kafka:-1", "from 1 to 65535"),
        (":9092", "write 0.0.0.0:9092 for all interfaces"),
        ("::1:9092", "put an IPv6 address in brackets"),
        ("[kafka]:9092", "'kafka' is no IPv6 address"),
        ("SASL_SSL://kafka:9092", "write 'kafka:9092' without the scheme"),
        ("kaf ka:9092", "'kaf ka' is no host name"),
        ("a/b:9092", "'a/b' is no host name"),
        (f"{'x' * 254}:9092", "is no host name"),
    ],
)
def test_address_that_is_none_is_told_with_its_cure(text: str, cure: str) -> None:
    """Each way to write an address wrongly has words of its own."""
    with pytest.raises(ValueError, match=r".") as raised:
        HostPort.parse(text)
    assert cure in str(raised.value)


@given(st.ip_addresses(), st.integers(1, 65535))
def test_address_survives_its_text(ip: object, port: int) -> None:
    """What an address prints is read as the same address."""
    address = HostPort(str(ip), port)
    assert HostPort.parse(str(address)) == address


@given(st.text())
def test_any_text_is_an_address_or_a_told_mistake(text: str) -> None:
    """No text makes the reader fail in another way than by its one error."""
    try:
        address = HostPort.parse(text)
    except ValueError:
        return
    assert HostPort.parse(str(address)) == address


# Sources and their order


def test_defaults_are_those_of_the_design(loaded: Callable[..., Config]) -> None:
    """Two lines suffice; the rest are defaults."""
    config = loaded(MINIMAL)
    assert config.upstream.bootstrap == (HostPort("kafka", 9092),)
    assert (config.workers, config.limits.frame_bytes, config.admin.address) == (1, 104_857_600, None)
    assert (config.listen.first_broker_port, config.listen.port_of(2)) == (19093, 19095)


def test_flag_wins_over_variable_over_file(tmp_path: Path) -> None:
    """Later sources win option by option; what they do not name stays."""
    file = tmp_path / "k.yaml"
    file.write_text(MINIMAL + "workers: 2\nlog: {level: debug}\nlimits: {idle_ms: 5}\n")
    environment = {"KORDON_WORKERS": "3", "KORDON_LOG__LEVEL": "warning", "PATH": "/bin"}
    config = load_config(file, environment, {("workers",): "4", ("log", "format"): None})
    assert (config.workers, config.log.level, config.limits.idle_ms) == (4, "warning", 5)


def test_environment_alone_suffices() -> None:
    """A container needs no file; lists and maps have a one-line form, and an empty variable unsets."""
    config = load_config(
        None,
        {
            "KORDON_UPSTREAM__BOOTSTRAP": "a:1,[::1]:2",
            "KORDON_UPSTREAM__BROKERS": "1=b1:9092, 2=b2:9092",
            "KORDON_UPSTREAM__TLS__VERIFY": "false",
            "KORDON_LISTEN__ADDRESS": "0.0.0.0:9092",
            "KORDON_LISTEN__PORTS": "7=9100",
            "KORDON_LISTEN__ADVERTISE": "",
        },
    )
    assert config.upstream.bootstrap == (HostPort("a", 1), HostPort("::1", 2))
    assert config.upstream.brokers == {1: HostPort("b1", 9092), 2: HostPort("b2", 9092)}
    assert config.upstream.tls is not None
    assert (config.upstream.tls.verify, config.listen.port_of(7), config.listen.advertise) == (False, 9100, None)


def test_variables_that_kubernetes_sets_are_left_alone(loaded: Callable[..., Config]) -> None:
    """A Service named kordon puts KORDON_PORT and the like into every pod; they are no mistakes of ours."""
    loaded(
        MINIMAL,
        {
            "KORDON_PORT": "tcp://10.0.0.1:9092",
            "KORDON_SERVICE_HOST": "10.0.0.1",
            "KORDON_SERVICE_PORT_KAFKA": "9092",
            "KORDON_ADMIN_PORT_9190_TCP_ADDR": "10.0.0.1",
        },
    )


@pytest.mark.parametrize("key", list(options()), ids=dotted)
def test_every_option_has_a_variable(key: tuple[str, ...]) -> None:
    """The value of an option's variable arrives at the option, and the variable is the place it is told with."""
    source = read_sources(None, {variable_of(key): "some text"}, {}, frozenset(options()))
    assert source.place_of(key) == Origin(variable_of(key))
    value: object = source.values
    for name in key:
        assert isinstance(value, dict)
        value = value[name]
    assert value == "some text"


def test_tls_files_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    """A configuration folder can be moved as a whole."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    file = tmp_path / "k.yaml"
    file.write_text(MINIMAL.replace("listen", "  tls: {ca: ca.pem}\nlisten"))
    config = load_config(file, {})
    assert config.upstream.tls is not None
    assert config.upstream.tls.ca == tmp_path / "ca.pem"


def test_secrets_show_nowhere(loaded: Callable[..., Config]) -> None:
    """Neither the printed configuration nor a difference holds the password."""
    config = loaded(MINIMAL.replace("listen", "  sasl: {mechanism: PLAIN, username: u, password: hunter2}\nlisten"))
    assert "hunter2" not in repr(config) + str(config) + config.model_dump_json()
    assert config.upstream.sasl is not None
    assert config.upstream.sasl.password is not None
    assert config.upstream.sasl.password.get_secret_value() == "hunter2"


def test_secret_of_the_wrong_type_is_not_shown(mistakes: Tell) -> None:
    """A password that is a number is told without the number."""
    told = mistakes(MINIMAL.replace("listen", "  sasl: {mechanism: PLAIN, username: u, password: 4711}\nlisten"))
    assert told == ["k.yaml:3:51: upstream.sasl.password: must be text; put it in quotes"]


def test_config_is_frozen(loaded: Callable[..., Config]) -> None:
    """Nobody changes a configuration that others look at."""
    with pytest.raises(ValidationError, match="frozen"):
        loaded(MINIMAL).limits.idle_ms = 1


# Mistakes


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("limits: {frame_byte: 1}", "5:10: limits.frame_byte: no such option; did you mean frame_bytes?"),
        ("limit: {idle_ms: 1}", "5:1: limit: no such option; did you mean limits?"),
        ("frame_bytes: 1", "5:1: frame_bytes: does not belong here; did you mean limits.frame_bytes?"),
        ("nonsense: 1", "5:1: nonsense: no such option; there are upstream, listen, admin"),
        ("limits: {frame_bytes: 64 MiB}", "5:23: limits.frame_bytes: must be a whole number of bytes: 67108864,"),
        ("limits: {idle_ms: 1.5s}", "5:19: limits.idle_ms: must be a whole number of milliseconds: 1500, not '1.5s'"),
        ("limits: {idle_ms: 1.5}", "5:19: limits.idle_ms: must be a whole number of milliseconds, not 1.5"),
        ("limits: {connections: yes}", "5:23: limits.connections: a whole number is needed here"),
        ("limits: {connections: 0}", "5:23: limits.connections: must be at least 1, not 0"),
        ("workers: 1000", "5:10: workers: must be at most 256, not 1000"),
        ("workers: ~", "5:10: workers: must be a whole number, not nothing"),
        ("log: debug", "5:6: log: is a section with level, format; write those, indented, below it, not 'debug'"),
        ("log: {level: inof}", "5:14: log.level: must be 'debug', 'info', 'warning' or 'error', not 'inof'; did you"),
        ("log: {level: INFO}", "did you mean info?"),
        ("admin: {address: 9190}", "5:18: admin.address: must be host:port, not 9190"),
        ("workers: 1\nworkers: 2", "6:1: workers: is given twice, first in line 5"),
        (
            "log:\n\tlevel: info",
            "6:1: is no YAML: found character '\\t' that cannot start any token; indent with spaces",
        ),
        ("admin: {address: [::1]:9190}", "put an address with brackets in quotes"),
        ("log: {level: info", "is no YAML"),
        ("drain: {timeout_ms: 2026-13-45}", "5:21: drain.timeout_ms: must be a whole number of milliseconds"),
        ("? [a]\n: 1", "no such option"),
    ],
)
def test_mistake_is_told_with_place_and_cure(mistakes: Tell, lines: str, told: str) -> None:
    """A mistake after the four good lines is the only one told: line, column, path, what would be right."""
    (only,) = mistakes(MINIMAL + lines)
    assert told in only
    assert only.startswith("k.yaml:")


@pytest.mark.parametrize(
    ("listen", "told"),
    [
        ("  advertise: 0.0.0.0", "4:14: listen.advertise: clients cannot connect to 0.0.0.0"),
        ("  advertise: kordon:9092", "4:14: listen.advertise: write the host only: kordon"),
        ("  base_port: 19092", "4:14: listen.base_port: is the bootstrap listener's port"),
        ("  ports: {1: 19092}", "4:14: listen.ports.1: puts node 1 on port 19092, which is that of the bootstrap"),
        ("  ports: {1: 7000, 2: 7000}", "4:23: listen.ports.2: puts node 2 on port 7000, which is that of node 1"),
        ("  ports: {-1: 7000}", "listen.ports.-1: must be at least 0"),
        ("  ports: 1:7000", "4:10: listen.ports: write node_id=value pairs"),
        ("  sni: {bootstrap: k.x, broker: b.x}", "listen.sni.broker: must contain $(node_id)"),
        ("  sni: {bootstrap: k.x, broker: b$(node_id).x}", "4:3: listen.sni: needs listen.tls"),
    ],
)
def test_listen_mistake_is_told(mistakes: Tell, listen: str, told: str) -> None:
    """What is wrong with where clients connect is told at its place."""
    text = f"upstream: {{bootstrap: kafka:9092}}\nlisten:\n  address: 0.0.0.0:19092\n{listen}\n"
    assert any(told in problem for problem in mistakes(text))


def test_given_brokers_count_for_overlapping_ports(mistakes: Tell) -> None:
    """Node ids known from upstream.brokers are checked like those of listen.ports."""
    text = (
        "upstream: {bootstrap: 'a:1', brokers: {5: 'a:1', 70000: 'b:1'}}\n"
        "listen: {address: '0.0.0.0:19092', ports: {1: 19098}}\n"
    )
    told = mistakes(text)
    assert "puts node 5 on port 19098, which is that of node 1" in told[0]
    assert "puts node 70000 on port 89093, beyond 65535" in told[1]


@pytest.mark.parametrize("address", ["127.0.0.1:19092", "localhost:19092", "'[::1]:19092'"])
def test_kordon_is_not_its_own_bootstrap(mistakes: Tell, address: str) -> None:
    """Naming the own listener as the cluster would wait for itself for ever."""
    (only,) = mistakes(MINIMAL.replace("kafka:9092", address))
    assert "is where Kordon itself listens" in only


def test_admin_address_is_not_a_clients_port(mistakes: Tell) -> None:
    """The admin pages cannot share the bootstrap port."""
    (only,) = mistakes(MINIMAL + "admin: {address: 127.0.0.1:19092}\n")
    assert only == "k.yaml:5:18: admin.address: is the port of listen.address; choose another one"


def test_admin_address_among_brokers_ports_is_a_warning(tmp_path: Path) -> None:
    """A port that some broker may get one day is said, but not refused."""
    file = tmp_path / "k.yaml"
    file.write_text(MINIMAL.replace("0.0.0.0", "127.0.0.1") + "admin: {address: 127.0.0.1:19100}\n")
    (warning,) = load(file, {}).warnings
    assert "the port that a broker with node id 7 would get" in str(warning)


def test_limits_that_contradict_each_other_are_told(mistakes: Tell) -> None:
    """A header cannot be larger than its frame, nor one address have more connections than all."""
    told = mistakes(
        MINIMAL + "limits: {frame_bytes: 2048, header_bytes: 4096, connections: 5, connections_per_address: 6}\n"
    )
    assert [problem.partition(": ")[2] for problem in told] == [
        "limits.header_bytes: is more than limits.frame_bytes (2048)",
        "limits.connections_per_address: is more than limits.connections (5)",
    ]


def test_all_mistakes_are_told_at_once_in_order(mistakes: Tell) -> None:
    """One run shows what is wrong everywhere, values, keys, combinations and variables alike."""
    text = "upstream: {bootstrap: kafka}\nlisten: {address: 'x:0', adress: 2, base_port: 0}\nlimits: {idle_ms: no}\n"
    told = mistakes(text, {"KORDON_LIMITS__IDLE": "5", "KORDON_DRAIN__SPREAD_MS": "soon"})
    assert [problem.split(": ")[0] for problem in told] == [
        "KORDON_DRAIN__SPREAD_MS",
        "KORDON_LIMITS__IDLE",
        "k.yaml:1:23",
        "k.yaml:2:19",
        "k.yaml:2:26",
        "k.yaml:2:48",
        "k.yaml:3:19",
    ]
    assert "did you mean KORDON_LIMITS__IDLE_MS?" in told[1]


def test_missing_options_are_named_with_all_ways_to_give_them() -> None:
    """An empty configuration asks for its two required options, not for their sections."""
    with pytest.raises(ConfigError) as raised:
        load_config(None, {})
    bootstrap, listen = sorted(map(str, raised.value.problems), reverse=True)
    assert bootstrap.startswith("upstream.bootstrap: is required")
    assert "--bootstrap or KORDON_UPSTREAM__BOOTSTRAP" in bootstrap
    assert "--listen or KORDON_LISTEN__ADDRESS" in listen


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe\x00", "is no UTF-8 text (byte 0)"),
        (b"- a\n- b\n", "must hold sections"),
        (b"a: \x01", "is no text"),
        (b"a: &x [*x]\n", "is nested too deeply, or an anchor contains itself"),
        (b"a: 1\n---\nb: 2\n", "is no YAML"),
        (b"a: !!python/object/apply:os.system [x]\n", "no such option"),
        (b"[" * 3000, "is nested too deeply"),
    ],
)
def test_file_that_is_no_configuration_is_told(tmp_path: Path, content: bytes | None, told: str) -> None:
    """Whatever the file holds, the outcome is a told mistake."""
    file = tmp_path / "k.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r".") as raised:
        load_config(file, {})
    assert told in str(raised.value)


@given(st.text(alphabet="abc:{}[]-&*!?|>#\n\t '\"1,", max_size=60))
def test_any_yaml_text_is_told_or_taken(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """No text of YAML's own characters escapes the one error."""
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        load_config(file, {})


# Certificates


@pytest.fixture
def issue(tmp_path: Path) -> Issue:
    authority = trustme.CA()

    def write(name: str, *hosts: str, days: int = 365) -> tuple[Path, Path]:
        now = datetime.datetime.now(datetime.UTC)
        leaf = authority.issue_cert(
            *(hosts or ("kordon",)),
            not_before=now - datetime.timedelta(days=400),
            not_after=now + datetime.timedelta(days=days),
        )
        certificate, key = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        certificate.write_bytes(leaf.cert_chain_pems[0].bytes())
        key.write_bytes(leaf.private_key_pem.bytes())
        return certificate, key

    return write


def with_tls(certificate: object, key: object, more: str = "") -> str:
    """The minimal file, with TLS towards clients in line 5."""
    return f"{MINIMAL}  tls: {{certificate: {certificate}, key: {key}{more}}}\n"


def test_certificate_that_fits_is_taken(loaded: Callable[..., Config], issue: Issue) -> None:
    """A valid pair of files is no mistake."""
    assert loaded(with_tls(*issue("good"))).listen.tls is not None


def test_key_of_another_certificate_is_told(mistakes: Tell, issue: Issue) -> None:
    """A mixed-up key is found before the first client finds it."""
    (only,) = mistakes(with_tls(issue("a")[0], issue("b")[1]))
    assert "listen.tls.key: b.key does not belong to the certificate a.pem" in only


def test_expired_certificate_is_told(mistakes: Tell, issue: Issue) -> None:
    """An expired certificate is no certificate."""
    (only,) = mistakes(with_tls(*issue("old", days=-1)))
    assert "listen.tls.certificate: old.pem expired on " in only


def test_certificate_that_ends_soon_or_names_others_is_a_warning(tmp_path: Path, issue: Issue) -> None:
    """A certificate in its last days, or for another name than clients are told, is said but taken."""
    file = tmp_path / "k.yaml"
    file.write_text(with_tls(*issue("soon", "other.example.com", days=3)) + "  advertise: kordon.example.com\n")
    expires, names = map(str, load(file, {}).warnings)
    assert "soon.pem expires on " in expires
    assert "soon.pem does not stand for kordon.example.com" in names


def test_wildcard_certificate_covers_sni_names(tmp_path: Path, issue: Issue) -> None:
    """One wildcard stands for the bootstrap and every broker's name."""
    file = tmp_path / "k.yaml"
    sni = "  sni: {bootstrap: kafka.example.com, broker: broker-$(node_id).example.com}\n"
    file.write_text(with_tls(*issue("wild", "*.example.com")) + sni)
    assert load(file, {}).warnings == ()


def test_files_that_cannot_be_used_are_told_each(tmp_path: Path, mistakes: Tell, issue: Issue) -> None:
    """Missing, empty and encrypted files have words of their own."""
    certificate, key = issue("good")
    (tmp_path / "empty.pem").touch()
    told = mistakes(with_tls("none.pem", "none.key"))
    assert [problem.split("listen.tls.")[1] for problem in told] == [
        "certificate: none.pem cannot be read: No such file or directory",
        "key: none.key cannot be read: No such file or directory",
    ]
    assert "empty.pem holds no PEM certificate" in mistakes(with_tls("empty.pem", key))[0]
    assert "empty.pem holds no usable PEM key" in mistakes(with_tls(certificate, "empty.pem"))[0]
    plain = serialization.load_pem_private_key(key.read_bytes(), None)
    encrypted = plain.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    key.write_bytes(encrypted)
    assert "good.key is encrypted; give a key without a passphrase" in mistakes(with_tls(certificate, key))[0]


def test_client_auth_and_its_authorities_belong_together(mistakes: Tell, issue: Issue) -> None:
    """Asking for certificates nobody has signed, and authorities for certificates nobody asks for, are mistakes."""
    certificate, key = issue("good")
    assert "required needs client_ca" in mistakes(with_tls(certificate, key, ", client_auth: required"))[0]
    assert (
        "has no effect with client_auth none" in mistakes(with_tls(certificate, key, f", client_ca: {certificate}"))[0]
    )


def test_upstream_certificate_needs_its_key(mistakes: Tell, issue: Issue) -> None:
    """Half a pair towards brokers is told, with the other half's name."""
    certificate, _ = issue("good")
    (only,) = mistakes(MINIMAL.replace("listen", f"  tls: {{certificate: {certificate}}}\nlisten"))
    assert "upstream.tls.certificate: needs key beside it" in only


def test_dangerous_but_possible_settings_are_warnings() -> None:
    """Unverified brokers and a password in the clear are said, not refused."""
    minimal = {"KORDON_UPSTREAM__BOOTSTRAP": "a:1", "KORDON_LISTEN__ADDRESS": "127.0.0.1:9092"}
    (unverified,) = load(None, minimal | {"KORDON_UPSTREAM__TLS__VERIFY": "false"}).warnings
    assert "lets anybody pose as a broker" in str(unverified)
    sasl = {f"KORDON_UPSTREAM__SASL__{name}": name for name in ("USERNAME", "PASSWORD")}
    (clear,) = load(None, minimal | sasl | {"KORDON_UPSTREAM__SASL__MECHANISM": "PLAIN"}).warnings
    assert "sends the password unencrypted" in str(clear)


_TOKENS = "mechanism: OAUTHBEARER, token_url: 'https://login/token', client_id: k, client_secret_file: secret"


@pytest.mark.parametrize(
    ("sasl", "told"),
    [
        ("mechanism: PLAIN, username: u", "mechanism: PLAIN needs password beside it"),
        ("mechanism: SCRAM-SHA-512, password: p", "mechanism: SCRAM-SHA-512 needs username beside it"),
        ("mechanism: OAUTHBEARER", "mechanism: needs either token_url or token_file beside it"),
        (f"{_TOKENS}, token_file: t", "mechanism: needs either token_url or token_file beside it"),
        (_TOKENS.replace("client_id: k, ", ""), "token_url: needs client_id beside it"),
        (_TOKENS.replace(", client_secret_file: secret", ""), "token_url: needs client_secret_file beside it"),
        (
            _TOKENS.replace("secret'", "gone'").replace("file: secret", "file: gone"),
            "client_secret_file: gone cannot be read",
        ),
        (
            _TOKENS.replace("https:", "ftp:"),
            "token_url: must be an address such as https://login.example.com/oauth2/token",
        ),
        (
            _TOKENS.replace("login/", "u:p@login/"),
            "token_url: must be an address such as https://login.example.com/oauth2/token",
        ),
        (
            _TOKENS.replace("login/", "login:x/"),
            "token_url: must be an address such as https://login.example.com/oauth2/token",
        ),
        (f"{_TOKENS}, extensions: {{a-b: c}}", None),
    ],
)
def test_a_log_in_that_cannot_be_is_told(mistakes: Tell, tmp_path: Path, sasl: str, told: str | None) -> None:
    """What a mechanism needs beside it, and tokens from nowhere or from two places."""
    (tmp_path / "secret").write_text("s")
    (only,) = mistakes(MINIMAL.replace("listen", f"  sasl: {{{sasl}}}\nlisten"))
    assert ": upstream.sasl." in only
    assert told is None or only.partition(": upstream.sasl.")[2].replace(f"{tmp_path}/", "") == told


def test_tokens_and_secrets_in_the_clear_are_warnings(tmp_path: Path) -> None:
    """On the way to brokers and to the endpoint; on this host nobody listens. So is what has no effect."""
    (tmp_path / "secret").write_text("s")

    def warned(sasl: str) -> list[str]:
        file = tmp_path / "k.yaml"
        file.write_text(MINIMAL.replace("listen", f"  sasl: {{{sasl}}}\n  tls: {{}}\nlisten"))
        told = [str(each).partition("upstream.")[2] for each in load(file, {}).warnings]
        return [each for each in told if each]

    assert warned(_TOKENS) == warned(_TOKENS.replace("https://login", "http://localhost")) == []
    (clear,) = warned(_TOKENS.replace("https:", "http:"))
    assert clear.startswith("sasl.token_url: sends the client's secret unencrypted")
    (useless,) = warned("mechanism: PLAIN, username: u, password: p, token_file: t")
    assert useless.startswith("sasl.token_file: has no effect with PLAIN")


def test_extensions_of_a_log_in_fit_in_a_variable() -> None:
    """As name=value pairs."""
    variables = {"BOOTSTRAP": "a:1", "SASL__MECHANISM": "OAUTHBEARER", "SASL__TOKEN_FILE": "t"}
    given = {f"KORDON_UPSTREAM__{name}": value for name, value in variables.items()}
    given |= {"KORDON_UPSTREAM__SASL__EXTENSIONS": "logicalCluster=lkc-1, identityPoolId=pool-2"}
    config = load(None, given | {"KORDON_LISTEN__ADDRESS": "127.0.0.1:9092"}).config
    assert config.upstream.sasl is not None
    assert config.upstream.sasl.extensions == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}


# The decision log


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("{to: files}", "decisions.to: files needs decisions.folder: where are they to lie?"),
        ("{to: files, folder: gone}", "decisions.folder: gone is no folder"),
        ("{to: files, folder: ., files: 3}", None),
        ("{to: files, folder: ., files: 1}", "decisions.files: must be at least 2, not 1"),
        ("{to: kafka}", "decisions.to: must be 'none', 'topic' or 'files', not 'kafka'"),
        ("{run_ms: 5}", "decisions.run_ms: must be at least 10, not 5"),
        ("{queue_bytes: 100}", "decisions.queue_bytes: must be at least 65536, not 100"),
    ],
)
def test_decision_log_that_cannot_be_is_told(mistakes: Tell, section: str, told: str | None) -> None:
    """Before it runs: a missing folder, values that make no sense, and two workers with too few files."""
    workers = "" if told else "workers: 2\n"
    (only,) = mistakes(MINIMAL + workers + f"decisions: {section}\n")
    problem = told or "decisions.files: is less than two for each of the 2 workers, which would remove each other's"
    assert only.partition(": ")[2] == problem


def test_folder_of_decisions_is_relative_to_the_file_that_names_it(
    loaded: Callable[..., Config], tmp_path: Path
) -> None:
    """As certificates are."""
    assert loaded(MINIMAL + "decisions: {to: files, folder: .}\n").decisions.folder == tmp_path


def test_a_wildcard_address_that_nobody_can_be_told_is_a_warning() -> None:
    """Without `advertise`, clients are told whatever address they reached Kordon at."""
    wild = {"KORDON_UPSTREAM__BOOTSTRAP": "a:1", "KORDON_LISTEN__ADDRESS": "0.0.0.0:9092"}
    (warning,) = load(None, wild).warnings
    assert "listen.advertise: is not set" in str(warning)
    assert load(None, wild | {"KORDON_LISTEN__ADVERTISE": "kafka.example.com"}).warnings == ()
    assert load(None, wild | {"KORDON_LISTEN__ADDRESS": "127.0.0.1:9092"}).warnings == ()


def test_decisions_of_nothing_are_a_warning() -> None:
    """Without managed topics there are none; a folder without files is forgotten."""
    minimal = {"KORDON_UPSTREAM__BOOTSTRAP": "a:1", "KORDON_LISTEN__ADDRESS": "127.0.0.1:9092"}
    off = {"KORDON_DECISIONS__TO": "topic", "KORDON_ORDERING__ENABLED": "false"}
    (nothing,) = load(None, minimal | off).warnings
    assert "records nothing with ordering.enabled false" in str(nothing)
    (folder,) = load(None, minimal | {"KORDON_DECISIONS__FOLDER": "/tmp"}).warnings
    assert "has no effect with decisions.to none" in str(folder)


# Options as a list


def test_differences_name_what_changed(loaded: Callable[..., Config]) -> None:
    """A reload is told which options differ, and which of them a running proxy can take over."""
    old = loaded(MINIMAL)
    new = loaded(MINIMAL.replace("19092", "19192") + "limits: {idle_ms: 7}\n")
    assert {dotted(option.key): option.reloads for option in differences(old, new)} == {
        "listen.address": False,
        "limits.idle_ms": True,
    }


def test_flags_belong_to_options() -> None:
    """Each flag sets an option there is."""
    assert FLAGS.keys() <= options().keys()


def documented() -> dict[str, list[str]]:
    """Rows of the tables of docs/configuration.md by option."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in DOCS.read_text().splitlines()
            if line.startswith("| `")]  # fmt: skip
    return {row[0].strip("`"): row[1:] for row in rows if len(row) == 6}


def test_documented_options_are_those_there_are() -> None:
    """The manual has a row for each option and none for others."""
    assert documented().keys() == {dotted(key) for key in options()}


@pytest.mark.parametrize("key", list(options()), ids=dotted)
def test_option_is_documented_as_it_is(key: tuple[str, ...]) -> None:
    """Type, unit, default, reload and variable of the manual's row are the code's."""
    option = options()[key]
    assert documented()[dotted(key)] == [
        option.type + (f", {option.unit}" if option.unit else ""),
        f"`{option.default}`" if option.default else "required",
        "yes" if option.reloads else "no",
        f"`{variable_of(key)}`",
        option.description,
    ]
