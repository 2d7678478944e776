"""Where `kordon topics` finds the Kordon that is to change something, and as whom it asks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from pydantic import SecretStr

from kordon.proxy.config.config import WILDCARD_HOSTS, Config, HostPort, Upstream, UpstreamSasl, UpstreamTls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MECHANISM: Final = "SCRAM-SHA-512"


Command = TypeVar("Command", bound="Callable[..., Any]")


def connection_options(whom: str, bootstrap: str, config: str) -> Callable[[Command], Command]:
    """Where to connect and as whom, as options of a command.

    Args:
        whom: Who is connected to, as help names it.
        bootstrap: Help of --bootstrap.
        config: Help of --config.
    """
    a_file = click.Path(path_type=Path, exists=True, dir_okay=False)

    def decorate(command: Command) -> Command:
        for option in (
            click.option(
                "--password-file", metavar="FILE", type=a_file, help="Holds the password; else it is asked for."
            ),
            click.option("--username", metavar="NAME", help="Log in by SASL."),
            click.option(
                "--sasl-mechanism",
                type=click.Choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
                help="SASL mechanism  [default: SCRAM-SHA-512]",
            ),
            click.option("--server-name", metavar="NAME", help=f"Name to expect in {whom}'s certificate."),
            click.option("--key", metavar="FILE", type=a_file, help="The key of --certificate."),
            click.option("--certificate", metavar="FILE", type=a_file, help=f"Certificate to show to {whom} (PEM)."),
            click.option("--ca", metavar="FILE", type=a_file, help=f"Authorities of {whom}'s certificate (PEM)."),
            click.option("--tls", is_flag=True, help="Connect by TLS; the other TLS options mean it, too."),
            click.option(
                "--config",
                "file",
                metavar="FILE",
                envvar="KORDON_CONFIG",
                type=click.Path(path_type=Path),
                help=config,
            ),
            click.option("--bootstrap", metavar="HOST:PORT", help=bootstrap),
        ):
            command = option(command)
        return command

    return decorate


def target_options(command: Command) -> Command:
    """Where the Kordon is that does it, and who asks."""
    config = "Kordon's own configuration: where it listens, and its own log-in (upstream.sasl)."
    return connection_options("Kordon", "Kafka port of the Kordon that does it.", config)(command)


class TargetUnknown(Exception):  # noqa: N818 - says what is missing
    """Raised when flags and files do not say where to connect, or how; the message says what would."""


def target_of(
    environment: Mapping[str, str],
    *,
    bootstrap: str | None,
    file: Path | None,
    tls: bool,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    server_name: str | None,
    sasl_mechanism: str | None,
    username: str | None,
    password_file: Path | None,
) -> tuple[HostPort, Upstream]:
    """Makes an address and a way to connect out of Kordon's configuration and of flags, which win.

    Args:
        environment: Variables, which count as in `kordon run`.
        bootstrap: host:port of Kordon's Kafka port.
        file: Kordon's own configuration.
        tls: Whether to connect by TLS.
        ca: Of Kordon's certificate.
        certificate: To show to Kordon.
        key: Of `certificate`.
        server_name: To expect in Kordon's certificate.
        sasl_mechanism: Of the log-in.
        username: Of the log-in.
        password_file: Holds the password; it is asked for where there is none.

    Raises:
        TargetUnknown: Something is missing or wrong.
    """
    config = config_of(file, environment)
    listen = config.listen if config is not None else None
    if bootstrap is not None:
        try:
            address = HostPort.parse(bootstrap)
        except ValueError as error:
            raise TargetUnknown(f"--bootstrap: {error}") from error
    elif listen is not None:
        wildcard = listen.address.host in WILDCARD_HOSTS
        address = HostPort("127.0.0.1" if wildcard else listen.address.host, listen.address.port)
    else:
        raise TargetUnknown("name a Kordon: --bootstrap HOST:PORT, or its own configuration by --config FILE")
    by_tls = tls or any((ca, certificate, server_name)) or (listen is not None and listen.tls is not None)
    name = server_name
    if name is None and listen is not None and bootstrap is None:
        name = listen.sni.bootstrap if listen.sni is not None else listen.advertise
    if (certificate is None) != (key is None):
        raise TargetUnknown("--certificate and --key go together")
    return address, Upstream(
        bootstrap=(address,),
        tls=UpstreamTls(ca=ca, certificate=certificate, key=key, server_name=name) if by_tls else None,
        sasl=_sasl(config, sasl_mechanism, username, password_file),
    )


def config_of(file: Path | None, environment: Mapping[str, str]) -> Config | None:
    """Reads Kordon's own configuration, if it is named.

    Raises:
        TargetUnknown: There are mistakes in it.
    """
    if file is None:
        return None
    from kordon.proxy.config.config_load import ConfigError, load_config  # noqa: PLC0415

    try:
        return load_config(file, environment)
    except ConfigError as error:
        raise TargetUnknown(str(error)) from error


def _sasl(
    config: Config | None, mechanism: str | None, username: str | None, password_file: Path | None
) -> UpstreamSasl | None:
    if username is None and (mechanism is not None or password_file is not None):
        raise TargetUnknown("--sasl-mechanism and --password-file need --username")
    if username is None:
        return config.upstream.sasl if config is not None else None
    if password_file is not None:
        password = password_file.read_text().rstrip("\r\n")
    else:
        password = str(click.prompt(f"Password of {username}", hide_input=True, err=True))
    return UpstreamSasl.model_validate(
        {"mechanism": mechanism or _MECHANISM, "username": username, "password": SecretStr(password)}
    )
