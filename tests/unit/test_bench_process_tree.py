"""The bench's count of CPU time: nothing is lost when threads and processes end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import pytest

from bench.process_tree import LostTimeError, Tree

BURNT_SECONDS = 0.2
TICKS_SECONDS = 0.05
_PROGRAM = f"""
import os, signal, subprocess, sys, threading, time

def burn(clock=time.process_time):
    end = clock() + {BURNT_SECONDS}
    while clock() < end:
        pass

BURN_IN_A_CHILD = [
    sys.executable,
    "-c",
    "import time, sys\\n"
    "def burn():\\n"
    "    end = time.process_time() + {BURNT_SECONDS}\\n"
    "    while time.process_time() < end: pass\\n"
    "burn(); print('burnt', flush=True); sys.stdin.readline(); burn()",
]
for line in sys.stdin:
    match line.strip():
        case "burn":
            burn()
        case "thread":
            thread = threading.Thread(target=burn, args=[time.thread_time])
            thread.start()
            thread.join()
        case "child":
            child = subprocess.Popen(
                BURN_IN_A_CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            child.stdout.readline()
        case "end child":
            child.communicate()
        case "disown":
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("done", flush=True)
"""


class Program:
    """A process that does as it is told."""

    def __init__(self, pid: int, told: IO[str], answers: IO[str]) -> None:
        self.pid = pid
        self._told = told
        self._answers = answers

    def does(self, what: str) -> None:
        print(what, file=self._told, flush=True)
        assert self._answers.readline() == "done\n"

    def read(self) -> Tree:
        return Tree.read([self.pid])


@pytest.fixture
def program() -> Iterator[Program]:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Program(process.pid, process.stdin, process.stdout)
        process.stdin.close()


@pytest.mark.parametrize("work", ["burn", "thread"])
def test_a_process_counts_with_its_threads_that_have_ended(program: Program, work: str) -> None:
    before = program.read()
    program.does(work)
    spent = program.read().since(before)
    assert spent.of([program.pid]) >= BURNT_SECONDS - TICKS_SECONDS
    assert spent.total == pytest.approx(spent.of([program.pid]), abs=TICKS_SECONDS)


def test_the_time_before_the_first_reading_does_not_count(program: Program) -> None:
    program.does("burn")
    before = program.read()
    assert program.read().since(before).total < BURNT_SECONDS - TICKS_SECONDS


def test_a_descendant_counts_while_it_lives(program: Program) -> None:
    before = program.read()
    program.does("child")
    spent = program.read().since(before)
    assert spent.total - spent.of([program.pid]) >= BURNT_SECONDS - TICKS_SECONDS
    assert spent.ended < TICKS_SECONDS


def test_a_descendant_that_ended_counts_with_what_it_used_since_the_first_reading(
    program: Program,
) -> None:
    program.does("child")
    before = program.read()
    program.does("end child")
    spent = program.read().since(before)
    assert BURNT_SECONDS - TICKS_SECONDS <= spent.ended < 2 * BURNT_SECONDS - TICKS_SECONDS


def test_a_descendant_that_began_and_ended_between_the_readings_counts_whole(
    program: Program,
) -> None:
    before = program.read()
    program.does("child")
    program.does("end child")
    assert program.read().since(before).ended >= 2 * BURNT_SECONDS - TICKS_SECONDS


def test_time_that_nobody_waited_for_is_not_lost_silently(program: Program) -> None:
    program.does("disown")
    program.does("child")
    before = program.read()
    program.does("end child")
    with pytest.raises(LostTimeError, match=r"CPU time are lost"):
        program.read().since(before)
