"""The command line as a person meets it: help, exit codes, one clear line per mistake."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import kordon
from kordon.proxy.commands.cli import main
from kordon.proxy.commands.topics_cli import topics
from kordon.proxy.config.config_options import options
from kordon.proxy.config.config_source import FLAGS, dotted, variable_of
from kordon.testing.ports import free_ports

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
PROXY = Path(__file__).parents[2] / "proxy"
ORDINARY = (
    *(f"{room}/*.py" for room in ("commands", "config", "core", "process", "relay", "runtime")),
    "kafka/topology.py",
)
GOOD = "upstream: {bootstrap: 'kafka:9092'}\nlisten: {address: '127.0.0.1:19092'}\n"


@pytest.fixture
def kordon_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a command in an empty folder, with no variables of ours set."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **environment: str) -> Result:
        return CliRunner().invoke(main, arguments, env=environment, catch_exceptions=False)

    return run


def test_version_is_the_package_s(kordon_cli: Callable[..., Result]) -> None:
    """`--version` is one line for bug reports."""
    assert kordon_cli("--version").output == f"kordon {kordon.__version__}\n"


@pytest.mark.parametrize("command", [[], ["run"], ["check"], ["status"], ["topics"], ["layouts"], ["sources"]])
def test_help_has_examples(kordon_cli: Callable[..., Result], command: list[str]) -> None:
    """Every help shows commands to copy."""
    result = kordon_cli(*command, "--help")
    assert result.exit_code == 0
    assert "Examples:\n" in result.output
    assert re.search(r"^ +(KORDON_\S+ )?kordon ", result.output, re.MULTILINE)


HELP_OF_ALL = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
import click
from click.testing import CliRunner
from kordon.commands import main
def tried(command, *names):
    helped = CliRunner().invoke(main, [*names, "--help"])
    print(*names, helped.exit_code, repr(helped.exception))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            tried(command.get_command(context, name), *names, name)
tried(main)
"""


def test_help_of_every_command_works_without_the_auditors_extra() -> None:
    """Help is read before anything is installed; what is missing is named when the command runs."""
    extras = tomllib.loads((PROXY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    missing = [re.split(r"[<>=]", each)[0] for each in extras["audit"] if not each.startswith("kordon")]
    tried = subprocess.run([sys.executable, "-c", HELP_OF_ALL, *missing], capture_output=True, text=True, check=False)
    lines = tried.stdout.splitlines()
    assert {"audit report 0 None", "audit run 0 None", "topics grow 0 None"} <= set(lines), tried.stderr
    assert [line for line in lines if not line.endswith("0 None")] == []


@pytest.mark.parametrize("command", ["--version", "run --help", "check --options", "topics --help", "layouts --help"])
def test_a_command_loads_nothing_that_only_a_running_proxy_needs(command: str) -> None:
    """Half of what a short command costs is what it imports, and the logger alone is a third of that."""
    program = "import sys; sys.modules['structlog'] = None; from kordon.commands import main; main(sys.argv[1:])"
    words = [sys.executable, "-c", program, *command.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_shells_complete_commands_and_options(kordon_cli: Callable[..., Result]) -> None:
    """The script has the shell ask kordon itself, which knows the commands that are loaded late, too."""
    for shell in ("bash", "zsh", "fish"):
        assert f"_KORDON_COMPLETE={shell}_complete" in kordon_cli("completion", shell).stdout
    words = {"_KORDON_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    shown = CliRunner().invoke(main, [], env={**words, "COMP_WORDS": "kordon topics gr"}, prog_name="kordon")
    assert shown.stdout == "plain,grow\n"
    shown = CliRunner().invoke(main, [], env={**words, "COMP_WORDS": "kordon status --ad"}, prog_name="kordon")
    assert shown.stdout == "plain,--admin\n"


def test_good_file_is_good(kordon_cli: Callable[..., Result]) -> None:
    """A usable file is said to be, with exit code 0."""
    Path("k.yaml").write_text(GOOD)
    result = kordon_cli("check", "k.yaml")
    assert (result.exit_code, result.stdout) == (0, "k.yaml: good\n")


def test_file_may_be_named_by_its_variable(kordon_cli: Callable[..., Result]) -> None:
    """KORDON_CONFIG names the file in `check` as in `run`."""
    Path("k.yaml").write_text(GOOD)
    assert kordon_cli("check", KORDON_CONFIG="k.yaml").exit_code == 0


def test_warnings_do_not_fail_the_check(kordon_cli: Callable[..., Result]) -> None:
    """What is possible but unwise is said, and leaves the exit code 0."""
    Path("k.yaml").write_text(GOOD + "admin: {address: '127.0.0.1:19093'}\n")
    result = kordon_cli("check", "k.yaml")
    assert result.exit_code == 0
    assert "warning: k.yaml:3:18: admin.address: " in result.stdout


@pytest.mark.parametrize("command", [["check", "k.yaml"], ["run", "--config", "k.yaml"]])
def test_mistakes_are_lines_on_standard_error(kordon_cli: Callable[..., Result], command: list[str]) -> None:
    """`check` and `run` tell the same mistakes, one a line, with exit code 2."""
    Path("k.yaml").write_text(GOOD + "workers: none\nlimit: {}\n")
    result = kordon_cli(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "k.yaml:3:10: workers: must be a whole number, not 'none'",
        "k.yaml:4:1: limit: no such option; did you mean limits?",
    ]


def test_mistake_in_a_flag_names_the_flag(kordon_cli: Callable[..., Result]) -> None:
    """A value given by a flag is told with it."""
    result = kordon_cli("run", "--bootstrap", "kafka", "--listen", "127.0.0.1:19092", "--workers", "0")
    assert result.exit_code == 2
    assert "--bootstrap: upstream.bootstrap[0]: the port is missing" in result.stderr
    assert "--workers: workers: must be at least 1" in result.stderr


def test_file_that_is_not_there_is_one_line(kordon_cli: Callable[..., Result]) -> None:
    """A wrong path is told without anything that follows from it."""
    result = kordon_cli("run", "--config", "gone.yaml")
    assert (result.exit_code, result.stderr) == (2, "gone.yaml: cannot be read: No such file or directory\n")


def test_nothing_given_asks_for_what_is_needed(kordon_cli: Callable[..., Result]) -> None:
    """`kordon run` alone names its two required options."""
    result = kordon_cli("run")
    assert result.exit_code == 2
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["upstream.bootstrap", "listen.address"]


def test_unknown_flag_is_a_usage_error(kordon_cli: Callable[..., Result]) -> None:
    """A misspelt flag is met with the right one."""
    result = kordon_cli("run", "--bootstrap-server", "x:1")
    assert result.exit_code == 2
    assert "--bootstrap" in result.stderr


def test_status_of_nobody_exits_with_one(kordon_cli: Callable[..., Result]) -> None:
    """No Kordon at the address is a failure with its cure."""
    port = free_ports(1)
    result = kordon_cli("status", KORDON_ADMIN__ADDRESS=f"127.0.0.1:{port}")
    assert result.exit_code == 1
    assert f"no Kordon answers at 127.0.0.1:{port}" in result.stderr


def test_status_at_no_address_is_a_usage_error(kordon_cli: Callable[..., Result]) -> None:
    """An address that is none is the command line's fault, not Kordon's."""
    result = kordon_cli("status", "--admin", "9190")
    assert result.exit_code == 2
    assert "the port is missing" in result.stderr


def test_worker_by_hand_is_a_usage_error() -> None:
    """A worker without a supervisor's pipe has no configuration to wait for."""
    result = subprocess.run(
        [sys.executable, "-m", "kordon.proxy", "worker", "0", "x.sock"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    assert "`kordon run --workers N` starts the workers" in result.stderr


def test_options_are_listed_with_their_variables(kordon_cli: Callable[..., Result]) -> None:
    """`check --options` shows every option, its variable and its flag."""
    output = kordon_cli("check", "--options").output
    for key in options():
        assert f"\n{dotted(key)}: " in f"\n{output}"
        assert variable_of(key) in output
    assert "KORDON_LISTEN__ADDRESS, --listen\n" in output


# Documentation


def flags_of(command: str) -> set[str]:
    """The flags of a command that have a value, as its help shows them."""
    subcommand = main.commands[command]
    return {option.opts[0] for option in subcommand.params if isinstance(option, click.Option) and not option.is_flag}


def test_documented_flags_are_those_there_are() -> None:
    """The manual's table of flags is that of `kordon run`, with the options they set."""
    rows = dict(re.findall(r"^\| `(--[a-z-]+) .*?` \| `([a-z.]+)` \|$", DOCS.read_text(), re.MULTILINE))
    assert rows == {flag: dotted(key) for key, flag in FLAGS.items()}
    assert flags_of("run") == {*rows, "--config"}


def test_documented_commands_of_topics_are_those_there_are() -> None:
    """The manual's table of `kordon topics` names each command with its arguments."""
    row = r"^\| `([a-z-]+)[^`]*` \| .* \| the (?:admin address|Kafka port) \|$"
    documented = set(re.findall(row, DOCS.read_text(), re.MULTILINE))
    assert documented == set(topics.commands)


def test_documented_events_are_those_that_are_logged() -> None:
    """Each event that a proxy of ordinary topics logs stands in the manual's table, and no others."""
    table = DOCS.read_text().split("| event | level | when |")[1]
    documented = {
        name for row in re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    source = "\n".join(path.read_text() for pattern in ORDINARY for path in sorted(PROXY.glob(pattern)))
    logged = set(re.findall(r"(?:log\.\w+|log\.warning\))\(\s*\"(\w+)\"", source))
    logged |= set(re.findall(r"\"(broker_up|broker_down)\"", source))
    assert documented == logged - {name for _, name in events_of_managed_topics()}


def events_of_managed_topics() -> set[tuple[str, str]]:
    """What the operators' page tells to look for in the log: levels with names."""
    table = DOCS.with_name("managing.md").read_text().split("| event | level | when |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (`.+?`) \| (\w+) \|", table, re.MULTILINE)
    return {(level, name) for names, level in rows for name in re.findall(r"`(\w+)`", names)}


def test_documented_events_of_managed_topics_are_logged() -> None:
    """What the operators' page tells to look for in the log can stand there, with that level."""
    source = "\n".join(path.read_text() for path in PROXY.rglob("*.py"))
    logged = set(re.findall(r"(?:log|told)\.(\w+)\(\s*\"(\w+)\"", source))
    assert events_of_managed_topics() - logged == set()


def test_documented_fields_of_status_are_those_of_a_proxy() -> None:
    """The manual's fields of /status are the keys in the code that makes it."""
    table = DOCS.read_text().split("| field of /status | meaning |")[1].split("\n\n")[0]
    documented = {
        name for row in re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    body = (PROXY / "process" / "server.py").read_text().split("def status(self)")[1].split("def ")[0]
    assert documented == {*re.findall(r"^ {12}\"(\w+)\":", body, re.MULTILINE), "ordering", "pid", "workers"}
