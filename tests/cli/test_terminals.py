"""Commands on a terminal: bars, live screens, Ctrl-C."""

from __future__ import annotations

import json
import re
import signal

from tests.cli.conftest import Live
from tests.cli.terminal import Terminal


def test_ctrl_c_ends_the_watching_and_not_the_job(live: Live) -> None:
    arguments = ["submit", "desk/hold", '{"gate": "opened"}', "--method", "PUT", "--watch"]
    with Terminal(arguments, live.folder, live.variables) as terminal:
        terminal.wait_until_seen("25%")
        terminal.wait_until_seen("waiting for opened")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait() == 130
        assert "The job keeps running." in terminal.seen
        assert "Traceback" not in terminal.seen
        found = re.search(r"watch ([0-9A-Z]{26})", terminal.seen)
    assert found is not None
    assert live.shown("job", found[1])["state"] == "processing"
    live.open_gate("opened")
    ended = live.run("watch", found[1])
    assert json.loads(ended.stdout)["result"] == "let go"


def test_top_is_live_until_q_and_without_colours_where_they_are_not_wanted(live: Live) -> None:
    live.failed()
    variables = live.variables | {"NO_COLOR": "1"}
    with Terminal(["top", "--every", "0.5"], live.folder, variables) as terminal:
        terminal.wait_until_seen("q to quit")
        terminal.wait_until_seen("submitted")
        terminal.wait_until_seen("standard")
        terminal.press("q")
        assert terminal.wait() == 0
        assert "Traceback" not in terminal.seen
        assert "\x1b[?1049l" in terminal.raw  # the screen that was there before is back
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal.raw)


def test_a_job_is_shown_in_words_and_with_colours(live: Live) -> None:
    failed = live.failed()
    with Terminal(["job", failed["id"]], live.folder, live.variables) as terminal:
        assert terminal.wait() == 0
        assert "\x1b[31m" in terminal.raw
        assert "max_retries_exhausted" in terminal.seen
        assert "[bold]markup[/bold]" in terminal.seen
