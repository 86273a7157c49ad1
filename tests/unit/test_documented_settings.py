"""Settings and configuration files that pages show are what Coatcheck takes."""

from __future__ import annotations

from pathlib import Path

from coatcheck import Settings
from coatcheck.cli.server_address import read_configuration
from coatcheck.remotes.definitions import ModalTarget, read_definition
from tests.markdown import REPOSITORY, Page
from tests.shell_variables import assigned

ON_A_REMOTE = Page(REPOSITORY / "docs/how-to/run-functions-on-a-remote.md")
STRIPE = Page(REPOSITORY / "docs/how-to/bill-with-stripe.md")
CHATS = Page(REPOSITORY / "docs/how-to/queue-chats.md")
SPEECH = Page(REPOSITORY / "docs/how-to/speak.md")
COMMANDS = Page(REPOSITORY / "docs/reference/cli.md")


def settings_after(script: str) -> Settings:
    """As a process reads them that a shell starts after these lines."""
    return Settings.from_environment(
        {"COATCHECK_DATABASE_URL": "postgresql://nowhere"} | assigned(script)
    )


def test_the_remote_that_is_lent_to_everybody_is_one() -> None:
    (script,) = [each.text for each in ON_A_REMOTE.blocks("sh") if "COATCHECK_REMOTES" in each.text]
    remotes = settings_after(script).remotes
    # As it is checked before any job meets it, but for the package modal: that need not be here.
    target = read_definition(remotes["render"].target)
    assert isinstance(target, ModalTarget)
    assert (target.app, target.function) == ("studio", "render")


def test_the_secret_of_stripes_endpoint_turns_billing_on() -> None:
    (script, _) = [each.text for each in STRIPE.blocks("sh")]
    assert settings_after("").stripe_webhook_secret == ""
    assert settings_after(script).stripe_webhook_secret == "whsec_..."


def test_usage_is_sent_to_stripe_with_what_the_guide_sets() -> None:
    (_, script) = [each.text for each in STRIPE.blocks("sh")]
    settings = settings_after(script)
    assert settings.stripe_api_key == "rk_live_..."
    meters = {"completed": "jobs_completed", "run_seconds": "job_seconds"}
    assert settings.stripe_meters == meters


def test_the_models_are_looked_for_where_the_guide_says() -> None:
    one = CHATS.blocks("sh")[0].text
    (several,) = [each.text for each in CHATS.blocks("json") if "rack" in each.text]
    (target,) = settings_after(one).llm_targets
    assert target.url == "http://127.0.0.1:11434"
    listed = Settings.from_environment(
        {"COATCHECK_DATABASE_URL": "postgresql://nowhere", "COATCHECK_LLM_TARGETS": several}
    )
    assert [(each.name, each.concurrency) for each in listed.llm_targets] == [
        ("workstation", 2),
        ("rack", 4),
    ]


def test_texts_are_spoken_by_the_remote_that_the_guide_starts() -> None:
    remote, up = SPEECH.blocks("sh")[:2]
    assert remote.text == 'make tts-remote ARGS="--port 8900 --folder tts-jobs"\n'
    target = settings_after(up.text).speech_target
    assert target is not None
    assert target.target["url"] == "http://127.0.0.1:8900"


def test_the_configuration_file_of_the_commands_is_read(tmp_path: Path) -> None:
    (file,) = COMMANDS.blocks("toml")
    (tmp_path / "config.toml").write_text(file.text)
    (tmp_path / "work-key").write_text("cck_of_work\n")
    read = read_configuration({"COATCHECK_CONFIG": str(tmp_path / "config.toml")})
    profile = read.profile(None)
    assert profile is not None
    assert (profile.name, profile.url, profile.org, profile.key()) == (
        "work",
        "https://jobs.example.org",
        "acme",
        "cck_of_work",
    )
