"""Where `kordon topics` finds the Kordon that is to change something, and as whom it asks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, Unpack

import click
from pydantic import SecretStr

from kordon.proxy.config.config import Config, Upstream, UpstreamSasl, UpstreamTls
from kordon.proxy.config.host_port import WILDCARD_HOSTS, HostPort

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MECHANISM: Final = "SCRAM-SHA-512"


Command = TypeVar("Command", bound="Callable[..., object]")


class TargetFlags(TypedDict):
    """What the options of `connection_options` say; what wins over `file`, Kordon's own configuration."""

    bootstrap: str | None
    file: Path | None
    tls: bool
    ca: Path | None
    certificate: Path | None
    key: Path | None
    """The private key of `certificate`."""
    server_name: str | None
    sasl_mechanism: str | None
    username: str | None
    password_file: Path | None
    """Holds the password; it is asked for where there is none."""


def connection_options(
    whom: str, bootstrap: str, config: str, *, of_variables: bool = False
) -> Callable[[Command], Command]:
    """Adds the options that say where to connect and as whom.

    Args:
        whom: The other side of the connection, as help names it.
        of_variables: The environment may say where to connect and as whom, too.
    """

    def variable(name: str) -> str | None:
        return f"KORDON_{name}" if of_variables else None

    a_file = click.Path(path_type=Path, exists=True, dir_okay=False)

    def decorate(command: Command) -> Command:
        for option in (
            click.option(
                "--password-file",
                metavar="FILE",
                type=a_file,
                help="A file with the password. Without it the command asks.",
                envvar=variable("PASSWORD_FILE"),
                show_envvar=of_variables,
            ),
            click.option(
                "--username",
                metavar="NAME",
                help="The user name of the SASL log-in.",
                envvar=variable("USERNAME"),
                show_envvar=of_variables,
            ),
            click.option(
                "--sasl-mechanism",
                type=click.Choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
                help="The SASL mechanism.  [default: SCRAM-SHA-512]",
            ),
            click.option("--server-name", metavar="NAME", help=f"The name that {whom}'s certificate must have."),
            click.option("--key", metavar="FILE", type=a_file, help="The private key of --certificate."),
            click.option(
                "--certificate", metavar="FILE", type=a_file, help=f"The certificate to show to {whom} (PEM)."
            ),
            click.option(
                "--ca", metavar="FILE", type=a_file, help=f"The authorities that sign {whom}'s certificate (PEM)."
            ),
            click.option("--tls", is_flag=True, help="Connect by TLS. The other TLS options imply it."),
            click.option(
                "--config",
                "file",
                metavar="FILE",
                envvar="KORDON_CONFIG",
                show_envvar=True,
                type=click.Path(path_type=Path),
                help=config,
            ),
            click.option(
                "--bootstrap",
                metavar="HOST:PORT",
                help=bootstrap,
                envvar=variable("BOOTSTRAP"),
                show_envvar=of_variables,
            ),
        ):
            command = option(command)
        return command

    return decorate


def target_options(command: Command) -> Command:
    """Adds the options that name a Kordon and the user who asks it."""
    config = "Kordon's own configuration, for its address and its own log-in (upstream.sasl)."
    return connection_options("Kordon", "The Kafka port of a Kordon.", config, of_variables=True)(command)


class TargetUnknown(Exception):  # noqa: N818 - says what is missing
    """Raised when flags and files do not say where to connect, or how; the message says what would."""


def target_of(environment: Mapping[str, str], **said: Unpack[TargetFlags]) -> tuple[HostPort, Upstream]:
    """Makes an address and a way to connect out of Kordon's configuration and of flags, which win.

    Args:
        environment: Variables, which count as in `kordon run`.

    Raises:
        TargetUnknown: Something is missing or wrong.
    """
    config = config_of(said["file"], environment)
    bootstrap, ca, certificate, key = said["bootstrap"], said["ca"], said["certificate"], said["key"]
    name = said["server_name"]
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
        raise TargetUnknown(
            "name a Kordon: --bootstrap HOST:PORT or the variable KORDON_BOOTSTRAP, "
            "or its own configuration: --config FILE or the variable KORDON_CONFIG"
        )
    by_tls = said["tls"] or any((ca, certificate, name)) or (listen is not None and listen.tls is not None)
    if name is None and listen is not None and bootstrap is None:
        name = listen.sni.bootstrap if listen.sni is not None else listen.advertise
    if (certificate is None) != (key is None):
        raise TargetUnknown("--certificate and --key go together")
    return address, Upstream(
        bootstrap=(address,),
        tls=UpstreamTls(ca=ca, certificate=certificate, key=key, server_name=name) if by_tls else None,
        sasl=_sasl(config, said["sasl_mechanism"], said["username"], said["password_file"]),
    )


def brokers_of(environment: Mapping[str, str], **said: Unpack[TargetFlags]) -> tuple[Upstream, Config | None]:
    """Returns how brokers are reached, and Kordon's own configuration if it is named.

    Args:
        environment: Variables, which count as in `kordon run`.
        said: The address may be several with commas between, and wins over the configuration.

    Raises:
        TargetUnknown: Something is missing or wrong.
    """
    config = config_of(said["file"], environment)
    if said["bootstrap"] is None:
        if config is None:
            raise TargetUnknown("name a broker: --bootstrap HOST:PORT, or Kordon's own configuration by --config FILE")
        return config.upstream, config
    first, *others = said["bootstrap"].split(",")
    flags: TargetFlags = {**said, "bootstrap": first, "file": None}
    address, upstream = target_of(environment, **flags)
    try:
        more = [HostPort.parse(other) for other in others]
    except ValueError as error:
        raise TargetUnknown(f"--bootstrap: {error}") from error
    return upstream.model_copy(update={"bootstrap": (address, *more)}), config


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
