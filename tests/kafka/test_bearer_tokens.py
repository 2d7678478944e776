"""Kordon's own log-in by OAUTHBEARER: where tokens come from, what bounds there are, what real brokers take."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.codecs import apis
from kordon.codecs.messages import api
from kordon.proxy.config.config import Upstream, UpstreamSasl
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka import bearer_tokens, token_request
from kordon.proxy.kafka.bearer_tokens import BearerTokens
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.testing.broker_features import PEM_FILES
from kordon.testing.cluster import Cluster
from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.token_endpoint import AUDIENCE, CLIENT_ID, CLIENT_SECRET, ISSUER, Issuer, TokenEndpoint, json_answer
from kordon.testing.waiting import wait_until

TOKEN_SECONDS, ENDED_TOKENS = 15, 2
TOKEN = "e30.eyJzdWIiOiJrb3Jkb24ifQ.c2ln"


@pytest.fixture
async def endpoint() -> AsyncGenerator[TokenEndpoint, None]:
    async with TokenEndpoint().serve() as served:
        served.answer = json_answer({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 300})
        yield served


def sasl_of(url: str, folder: Path, **more: Any) -> UpstreamSasl:
    secret = folder / "secret"
    secret.write_text(f"{CLIENT_SECRET}\n")
    given = {"mechanism": "OAUTHBEARER", "token_url": url, "client_id": CLIENT_ID, "client_secret_file": secret}
    return UpstreamSasl.model_validate(given | more)


async def failure(tokens: BearerTokens) -> str:
    with pytest.raises(UpstreamUnavailable) as raised:
        await tokens.get()
    return str(raised.value)


async def test_the_endpoint_is_asked_by_client_credentials(endpoint: TokenEndpoint, tmp_path: Path) -> None:
    """As RFC 6749 has it, with the secret in the header and the scope in the form; redirected to nowhere."""
    assert await BearerTokens(sasl_of(endpoint.url, tmp_path, scope="kafka write")).get() == TOKEN
    (asked,) = endpoint.asked
    head, _, form = asked.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /oauth2/token HTTP/1.1\r\nHost: localhost:")
    basic = re.search(rb"Authorization: Basic (\S+)", head)
    assert basic is not None
    assert base64.b64decode(basic[1]).decode() == f"{CLIENT_ID}:{CLIENT_SECRET}"
    assert form == b"grant_type=client_credentials&scope=kafka+write"


async def test_many_log_ins_share_a_token(endpoint: TokenEndpoint, tmp_path: Path) -> None:
    """Those that begin at once ask once; so do later ones, until most of the token's life is over."""
    tokens = BearerTokens(sasl_of(endpoint.url, tmp_path))
    assert await asyncio.gather(*(tokens.get() for _ in range(20))) == [TOKEN] * 20
    assert await tokens.get() == TOKEN
    assert len(endpoint.asked) == 1


async def test_a_token_is_replaced_before_its_end(
    endpoint: TokenEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At four fifths of its life; if the endpoint is away then, the old one serves to its end, and no longer."""
    now = 1000.0
    monkeypatch.setattr(f"{bearer_tokens.__name__}.time.monotonic", lambda: now)
    tokens = BearerTokens(sasl_of(endpoint.url, tmp_path))
    assert await tokens.get() == TOKEN
    now += 239
    assert await tokens.get() == TOKEN
    assert len(endpoint.asked) == 1
    now += 2
    endpoint.answer = json_answer({}, "503 Service Unavailable")
    assert await tokens.get() == TOKEN
    now += 2
    assert await tokens.get() == TOKEN
    assert len(endpoint.asked) == 3
    now += 60
    assert "503: check upstream.sasl.token_url" in await failure(tokens)
    endpoint.answer = json_answer({"access_token": "new", "expires_in": 300})
    now += 2
    assert await tokens.get() == "new"


async def test_after_a_failure_the_endpoint_has_its_rest(endpoint: TokenEndpoint, tmp_path: Path) -> None:
    """Twenty connections that wait for a token hear of one failure, and do not ask one after the other."""
    endpoint.answer = json_answer({}, "500 Internal Server Error")
    tokens = BearerTokens(sasl_of(endpoint.url, tmp_path))
    outcomes = await asyncio.gather(*(tokens.get() for _ in range(20)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {UpstreamUnavailable}
    assert len(endpoint.asked) == 1


async def test_a_token_that_a_broker_refused_is_not_used_again(endpoint: TokenEndpoint, tmp_path: Path) -> None:
    """The keys of the login service may have changed."""
    tokens = BearerTokens(sasl_of(endpoint.url, tmp_path))
    tokens.forget(await tokens.get())
    await tokens.get()
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize("pieces_of", [0, 1, 7])
@pytest.mark.parametrize(
    ("head", "body", "keeps_open"),
    [
        ("Content-Length: {length}", b"{json}", True),
        ("Transfer-Encoding: chunked", b"{size}\r\n{json}\r\n0\r\n\r\n", True),
        ("X-Length: none", b"{json}", False),
    ],
    ids=["by its length", "in chunks", "to the end of the connection"],
)
async def test_an_answer_may_come_in_any_form_of_http(
    endpoint: TokenEndpoint, tmp_path: Path, head: str, body: bytes, keeps_open: bool, pieces_of: int
) -> None:
    """However it is cut, and also from a server that keeps the connection open."""
    value = json.dumps({"access_token": TOKEN}).encode()
    whole = body.replace(b"{json}", value).replace(b"{size}", f"{len(value):x}".encode())
    endpoint.answer = f"HTTP/1.1 200 OK\r\n{head.format(length=len(whole))}\r\n\r\n".encode() + whole
    endpoint.keeps_open, endpoint.pieces_of = keeps_open, pieces_of
    assert await BearerTokens(sasl_of(endpoint.url, tmp_path)).get() == TOKEN


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            json_answer({"error": "invalid_client", "error_description": "no \x1b[2K"}, "401 Unauthorized"),
            r"401 invalid_client no \u001b[2K: check upstream.sasl.client_id, client_secret_file and scope",
        ),
        (b"HTTP/1.1 302 Found\r\nLocation: https://new/\r\nContent-Length: 0\r\n\r\n", "redirects to https://new/"),
        (json_answer({}, "404 Not Found"), "404: check upstream.sasl.token_url"),
        (json_answer({"token": 1}), "no JSON with an access_token"),
        (json_answer([]), "no JSON with an access_token"),
        (json_answer({"access_token": "a\1b"}), "what is there is no token"),
        (json_answer({"access_token": ""}), "what is there is no token"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{}", "the answer is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}", "no JSON with an access_token"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "the answer is no HTTP"),
        (b"", "the connection ended without an answer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n0\r\n\r\n", "the answer is no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "the answer is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + bytes(100_000), "larger than 65,536 bytes"),
        (b"x" * 100_000, "larger than 65,536 bytes"),
        (json_answer({"access_token": TOKEN, "x": [[]] * 5000}).replace(b"[]", b"[" * 10), "no JSON"),
    ],
    ids=lambda value: value[:24].decode(errors="replace") if isinstance(value, bytes) else "",
)
async def test_each_bad_answer_is_named(endpoint: TokenEndpoint, tmp_path: Path, answer: bytes, said: str) -> None:
    """With the address and what to do; nothing of it is taken for a token."""
    endpoint.answer = answer
    told = await failure(BearerTokens(sasl_of(endpoint.url, tmp_path)))
    assert told.startswith(f"token endpoint {endpoint.url}")
    assert said in told
    assert CLIENT_SECRET not in told


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"])
async def test_an_endpoint_that_says_nothing_holds_nobody_up(
    endpoint: TokenEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    """Nor does one that stops in the middle: there is one bound on the whole question."""
    monkeypatch.setattr(token_request, "TOKEN_SECONDS", 0.2)
    endpoint.answer, endpoint.keeps_open = answer, True
    assert "no whole answer in 0.2 s" in await failure(BearerTokens(sasl_of(endpoint.url, tmp_path)))


async def test_nobody_listens(tmp_path: Path) -> None:
    """The address and the reason."""
    told = await failure(BearerTokens(sasl_of("http://127.0.0.1:1/token", tmp_path)))
    assert re.fullmatch(r"token endpoint http://127.0.0.1:1/token: connect.* \(upstream.sasl.token_url\)", told)


async def test_the_certificate_of_the_endpoint_is_checked(tmp_path: Path) -> None:
    """By `token_ca`, and by the host's name; without it by the system's authorities, which do not know this one."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with TokenEndpoint().serve(context) as served:
        served.answer = json_answer({"access_token": TOKEN})
        assert await BearerTokens(sasl_of(served.url, tmp_path, token_ca=tmp_path / "ca.pem")).get() == TOKEN
        assert "the certificate is not accepted" in await failure(BearerTokens(sasl_of(served.url, tmp_path)))
        other = served.url.replace("localhost", "127.0.0.1")
        named = BearerTokens(sasl_of(other, tmp_path, token_ca=tmp_path / "ca.pem"))
        assert "the certificate is not accepted" in await failure(named)
        assert len(served.asked) == 1


async def test_the_secret_is_read_for_each_question(endpoint: TokenEndpoint, tmp_path: Path) -> None:
    """It may be replaced while Kordon runs; a file that is missing or empty is named."""
    tokens = BearerTokens(sasl_of(endpoint.url, tmp_path))
    tokens.forget(await tokens.get())
    (tmp_path / "secret").write_text("another")
    tokens.forget(await tokens.get())
    assert f"{CLIENT_ID}:another" in [
        base64.b64decode(re.findall(rb"Basic (\S+)", asked)[0]).decode() for asked in endpoint.asked
    ]
    (tmp_path / "secret").write_text("\n")
    assert await failure(tokens) == f"upstream.sasl.client_secret_file {tmp_path}/secret: is empty"


async def test_a_token_file_is_read_for_each_log_in(tmp_path: Path) -> None:
    """Kubernetes replaces its tokens; what is no token goes to no broker."""
    file = tmp_path / "token"
    tokens = BearerTokens(UpstreamSasl.model_validate({"mechanism": "OAUTHBEARER", "token_file": file}))
    named = f"upstream.sasl.token_file {file}: "
    assert await failure(tokens) == f"{named}no such file or directory"
    for text in ("first\n", "second"):
        file.write_text(text)
        assert await tokens.get() == text.strip()
    for data, said in ((b"", "is empty"), (b"x" * 70_000, "is larger than 65,536 bytes"), (b"\xff", "is no text"),
                       (b"a\x01b", "what is there is no token"), (b"a\nb", "what is there is no token")):  # fmt: skip
        file.write_bytes(data)
        assert await failure(tokens) == f"{named}{said}"


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def cluster(issuer: Issuer) -> Generator[Cluster, None, None]:
    """One broker whose own validator checks tokens against the issuer's key."""
    if PEM_FILES.is_missing:
        pytest.skip(PEM_FILES.reason)
    folder = make_folder("kordon-keys-")
    issuer.write_keys(folder / "jwks.json")
    keys = f"file://{folder}/jwks.json"
    config = {
        "authorizer.class.name": "",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.clock.skew.seconds": "0",
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
    with Cluster.start(listeners=("PLAINTEXT", "SASL_PLAINTEXT"), config=config, jvm=[allowed]) as started:
        yield started
    remove_folder(folder)


@pytest.fixture
async def signing(issuer: Issuer) -> AsyncIterator[TokenEndpoint]:
    """Hands out tokens that hold for fifteen seconds, of which three are left for another log-in."""
    async with TokenEndpoint().serve() as served:
        served.issuer = (issuer, TOKEN_SECONDS)
        yield served


def client_of(cluster: Cluster, sasl: UpstreamSasl) -> UpstreamClient:
    address = HostPort.parse(cluster.bootstrap("SASL_PLAINTEXT"))
    return UpstreamClient(address, Upstream(bootstrap=(address,), sasl=sasl), None)


@pytest.mark.broker
async def test_a_connection_outlives_its_tokens(cluster: Cluster, signing: TokenEndpoint, tmp_path: Path) -> None:
    """The broker ends sessions with their tokens (KIP-368); the connection goes on with others, unnoticed."""
    async with client_of(cluster, sasl_of(signing.url, tmp_path)) as client:
        while len(signing.asked) <= ENDED_TOKENS:
            assert (await client.ask(api(apis.METADATA), 5, {"topics": [{"name": "t"}]})).topics[0].name == "t"
            await asyncio.sleep(0.05)


@pytest.mark.broker
@pytest.mark.parametrize("claims", [{"aud": "others"}, {"iss": "https://elsewhere"}, {"seconds": -60}, {"other": True}])
async def test_a_token_that_brokers_refuse_is_named(
    cluster: Cluster, issuer: Issuer, tmp_path: Path, claims: dict[str, Any]
) -> None:
    """Another audience, another issuer, its end, another key: the message names the broker and what to compare."""
    signer = Issuer() if claims.pop("other", False) else issuer
    file = tmp_path / "token"
    file.write_text(signer.token(**claims))
    sasl = UpstreamSasl.model_validate({"mechanism": "OAUTHBEARER", "token_file": file})
    with pytest.raises(UpstreamUnavailable, match=r"the broker refuses the token: .*invalid_token.*compare its issuer"):
        async with client_of(cluster, sasl):
            pass


@pytest.mark.broker
def test_kordon_manages_topics_with_tokens_as_its_log_in(cluster: Cluster, issuer: Issuer, tmp_path: Path) -> None:
    """All its connections log in so, and go on when their tokens have ended; clients log in for themselves."""
    endpoint = TokenEndpoint()
    endpoint.issuer = (issuer, TOKEN_SECONDS)
    with endpoint.serve_beside() as signing:
        sasl = sasl_of(signing.url, tmp_path).model_dump(mode="json", exclude_defaults=True)
        with ProxyProcess.start(cluster.bootstrap("SASL_PLAINTEXT"), config={"upstream": {"sasl": sasl}}) as proxy:
            login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
            login |= {"sasl.username": "alice", "sasl.password": "alice-secret"}
            admin = AdminClient({"bootstrap.servers": proxy.bootstrap, **login})
            wanted = NewTopic("by-token", 3, 1, config={"kordon.virtual.partitions": "12"})
            admin.create_topics([wanted])["by-token"].result(60)
            wait_until("two tokens have ended", lambda: len(signing.asked) > ENDED_TOKENS)
            assert len(admin.list_topics("by-token", timeout=90).topics["by-token"].partitions) == 12
            assert proxy.topic("by-token")["held"] == []
            assert proxy.status()["unready"] == []
            assert proxy.events("cluster_unreachable") == proxy.events("lease_not_renewed") == []
