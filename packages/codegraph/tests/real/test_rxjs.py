"""RxJS: TypeScript of classes, generics, overloads and many small files.

Every call and import named here was looked up in the source by hand.
"""

from __future__ import annotations

import pytest

from packages.codegraph.tests.graphs import Seen, analysed_folder
from tests.corpus import package

OBSERVABLE = "internal/Observable.ts"
SUBJECT = "internal/Subject.ts"
SUBSCRIBER = "internal/Subscriber.ts"
SUBSCRIPTION = "internal/Subscription.ts"
ACTION = "internal/scheduler/AsyncAction.ts"
MERGE_MAP = "internal/operators/mergeMap.ts"

IN_SUBSCRIBE = "Observable.subscribe.(anonymous)"


@pytest.fixture(scope="module")
def seen() -> Seen:
    return analysed_folder(package("rxjs") / "src")


def test_calls_lead_to_their_definitions(seen: Seen) -> None:
    assert {
        (f"{OBSERVABLE}:Observable.lift", f"{OBSERVABLE}:Observable.constructor", 68),
        (f"{OBSERVABLE}:Observable.subscribe", f"{OBSERVABLE}:isSubscriber", 218),
        (f"{OBSERVABLE}:Observable.subscribe", f"{SUBSCRIBER}:SafeSubscriber.constructor", 218),
        # const { operator, source } = this; operator.call(...): a field whose type is Operator
        (f"{OBSERVABLE}:{IN_SUBSCRIBE}", "internal/Operator.ts:Operator.call", 226),
        # an operator is a function, as a matter of fact, and called by the `call` of functions
        (
            f"{OBSERVABLE}:{IN_SUBSCRIBE}",
            "internal/util/lift.ts:operate.(anonymous).(anonymous)",
            226,
        ),
        # this._subscribe() in an arrow function inside of the method, which errorContext calls
        (f"{OBSERVABLE}:{IN_SUBSCRIBE}", f"{OBSERVABLE}:Observable._subscribe", 231),
        # this.source?.subscribe(subscriber), with source: Observable<any> | undefined
        (f"{OBSERVABLE}:Observable._subscribe", f"{OBSERVABLE}:Observable.subscribe", 334),
        (f"{OBSERVABLE}:Observable.pipe", "internal/util/pipe.ts:pipeFromArray", 437),
        (f"{SUBJECT}:Subject.constructor", f"{OBSERVABLE}:Observable.constructor", 43),
        (f"{SUBJECT}:Subject.lift", f"{SUBJECT}:AnonymousSubject.constructor", 48),
        (f"{SUBJECT}:Subject.next.(anonymous)", f"{SUBJECT}:Subject._throwIfClosed", 62),
        # by `super`
        (f"{SUBJECT}:Subject._trySubscribe", f"{OBSERVABLE}:Observable._trySubscribe", 113),
        # subscriber.error(...), a parameter with a type
        (f"{SUBJECT}:Subject._checkFinalizedStatuses", f"{SUBSCRIBER}:Subscriber.error", 141),
        # source is a field of what AnonymousSubject's base class extends
        (f"{SUBJECT}:AnonymousSubject._subscribe", f"{OBSERVABLE}:Observable.subscribe", 187),
        # an immediately called function that initialises a static field
        (f"{SUBSCRIPTION}:Subscription", f"{SUBSCRIPTION}:Subscription.constructor", 21),
        (f"{SUBSCRIPTION}:Subscription.unsubscribe", f"{SUBSCRIPTION}:execFinalizer", 84),
        (f"{SUBSCRIPTION}:Subscription.remove", "internal/util/arrRemove.ts:arrRemove", 193),
        (f"{MERGE_MAP}:mergeMap", f"{MERGE_MAP}:mergeMap", 90),
        (f"{MERGE_MAP}:mergeMap", "internal/operators/map.ts:map", 90),
        (f"{MERGE_MAP}:mergeMap", "internal/util/lift.ts:operate", 95),
        (f"{MERGE_MAP}:mergeMap", "internal/operators/mergeInternals.ts:mergeInternals", 95),
        (f"{ACTION}:AsyncAction.schedule", f"{ACTION}:AsyncAction.recycleAsyncId", 53),
        (f"{ACTION}:AsyncAction.execute", f"{ACTION}:AsyncAction._execute", 95),
        # intervalProvider is an object with a stated type, and functions of its own
        (
            f"{ACTION}:AsyncAction.recycleAsyncId",
            "internal/scheduler/intervalProvider.ts:intervalProvider.clearInterval",
            79,
        ),
    } <= seen.any_calls


def test_calls_lead_to_what_values_bring_there(seen: Seen) -> None:
    assert {
        # a field that is a Subscription, an array of them, or null
        (f"{SUBSCRIPTION}:Subscription.unsubscribe", f"{SUBSCRIPTION}:Subscription.remove", 66),
        # an element of an array of Subscribers
        (f"{SUBJECT}:Subject.next.(anonymous)", f"{SUBSCRIBER}:Subscriber.next", 68),
        (f"{SUBJECT}:Subject.error.(anonymous)", f"{SUBSCRIBER}:Subscriber.error", 82),
    } <= seen.any_calls


def test_imports_lead_to_files(seen: Seen) -> None:
    assert {
        ("index.ts", OBSERVABLE),
        (OBSERVABLE, "internal/Operator.ts"),
        (OBSERVABLE, "internal/symbol/observable.ts"),
        (SUBJECT, OBSERVABLE),
        (SUBJECT, "internal/util/arrRemove.ts"),
        (ACTION, "internal/types.ts"),
        (ACTION, SUBSCRIPTION),
        ("operators/index.ts", MERGE_MAP),
    } <= seen.imports


def test_bases_are_found(seen: Seen) -> None:
    assert {
        (f"{SUBJECT}:Subject", f"{OBSERVABLE}:Observable"),
        (f"{SUBJECT}:Subject", "internal/types.ts:SubscriptionLike"),
        (f"{SUBSCRIBER}:Subscriber", f"{SUBSCRIPTION}:Subscription"),
        (f"{ACTION}:AsyncAction", "internal/scheduler/Action.ts:Action"),
    } <= seen.inherits


def test_what_neither_types_nor_values_tell_stays_unresolved(seen: Seen) -> None:
    resolved = {(caller, line) for caller, _, line in seen.any_calls}
    assert not resolved & {
        # new promiseCtor(...), a parameter
        (f"{OBSERVABLE}:Observable.forEach", 315),
        # a function in a field, which may be one of too many
        (f"{ACTION}:AsyncAction._execute", 120),
        # a parameter that is a function or an object
        (f"{SUBSCRIPTION}:execFinalizer", 212),
        (f"{SUBSCRIPTION}:execFinalizer", 214),
    }
