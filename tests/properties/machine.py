"""What the state machines have in common: the deployment they stand on, and how much they try.

With the tests: a fixed, small choice of histories, the same each time.
COATCHECK_PROPERTY_EXAMPLES=500 tries that many of each machine instead, longer ones, and others
each time (`make fuzz` does).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from hypothesis.strategies._internal.featureflags import FeatureFlags

from tests.databases import Databases
from tests.properties.stepped_deployment import SteppedDeployment, stepped_deployment

EXAMPLES_VARIABLE: Final = "COATCHECK_PROPERTY_EXAMPLES"
STEPS: Final = 30
STEPS_OF_LONG_RUNS: Final = 60

Item = TypeVar("Item")

at = st.integers(0, 11)
"""Which one of those there are, counted round and round: see ``pick``."""


def pick(items: Sequence[Item], number: int) -> Item:
    return items[number % len(items)]


def asked_examples() -> int | None:
    """How many examples the environment asks for, if it does."""
    given = os.environ.get(EXAMPLES_VARIABLE)
    return int(given) if given else None


class Machine(RuleBasedStateMachine):
    """A history on a database."""

    deployment: ClassVar[SteppedDeployment]
    fired: ClassVar[Counter[str]]
    """How often each rule was followed, and what came of it."""

    def __init__(self) -> None:
        super().__init__()
        if asked_examples() is None:
            # Hypothesis leaves some rules out of each history, which pays in the long run. With few
            # examples it would leave some out altogether.
            self._rules_strategy.enabled_rules_strategy = st.just(FeatureFlags())

    def followed(self, rule: str, outcome: object = None) -> None:
        """Note that a rule was followed, and what came of it."""
        self.fired[rule] += 1
        if outcome is not None:
            self.fired[f"{rule}: {outcome}"] += 1
            event(f"{rule}: {outcome}")

    @classmethod
    def rules_left_out(cls) -> set[str]:
        """The rules that were never followed."""
        return {each.function.__name__ for each in cls.setup_state().rules} - set(cls.fired)


def try_out(
    machine: type[Machine],
    databases: Databases,
    folder: Path,
    tables: Sequence[str],
    *,
    examples: int,
) -> None:
    """Play histories on a database of their own, and say what they were made of."""
    asked = asked_examples()
    machine.fired = Counter()
    with stepped_deployment(databases, folder, tables) as machine.deployment:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=asked or examples,
                stateful_step_count=STEPS_OF_LONG_RUNS if asked else STEPS,
                derandomize=asked is None,
                database=None,
                deadline=None,
                print_blob=True,
                report_multiple_bugs=False,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )
    for name, count in sorted(machine.fired.items()):
        print(f"{count:7} {name}")
    left_out = machine.rules_left_out()
    if asked is None:
        assert not left_out, f"rules that were never followed: {left_out}"
    elif left_out:  # by chance, in few histories: nothing is wrong, and it is to be known
        print(f"rules that were never followed: {', '.join(sorted(left_out))}")
