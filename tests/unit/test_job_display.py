"""The bar of a job that is followed."""

from __future__ import annotations

import pytest
from rich.progress import Progress

from coatcheck.cli.job_display import Bar


@pytest.fixture
def bar() -> tuple[Bar, Progress]:
    progress = Progress()
    return Bar(progress), progress


def shown(progress: Progress) -> tuple[str, float | None]:
    (task,) = progress.tasks
    return task.description, None if task.total is None else task.completed


def test_progress_that_is_told_before_the_job_is_said_to_process_is_kept(
    bar: tuple[Bar, Progress],
) -> None:
    display, progress = bar
    display.state("dispatching", 1)
    display.progress(0.25, "begun")
    display.state("processing", 1)
    assert shown(progress) == ("processing  begun", 0.25)


def test_another_attempt_begins_anew(bar: tuple[Bar, Progress]) -> None:
    display, progress = bar
    display.state("processing", 1)
    display.progress(0.5, None)
    display.state("retrying", 1)
    assert shown(progress) == ("retrying", 0.0)
    display.state("processing", 2)
    display.progress(0.1, None)
    display.state("processing", 2)
    assert shown(progress) == ("processing (attempt 2)", 0.1)
