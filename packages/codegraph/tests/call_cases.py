"""Small programs in Python, by construct, with the calls that running them makes.

Each case lists all edges between its own functions; ``m`` is the file itself. They are what
``call_scores.py`` measures, and hold what is not found today as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import Final


@dataclass(frozen=True)
class Case:
    """A file ``m.py`` (and others), and ``caller -> callee`` for every call inside of them."""

    construct: str
    source: str
    edges: frozenset[tuple[str, str]]
    others: tuple[tuple[str, str], ...] = ()


def _case(construct: str, source: str, edges: str, **others: str) -> Case:
    pairs = [line.split(" -> ") for line in dedent(edges).strip().splitlines()]
    return Case(
        construct,
        dedent(source).lstrip("\n"),
        frozenset((caller.strip(), callee.strip()) for caller, callee in pairs),
        tuple((f"{name}.py", dedent(text).lstrip("\n")) for name, text in others.items()),
    )


CASES: Final = (
    _case(
        "arguments",
        """
        def shout(): pass
        def whisper(): pass
        def twice(say):
            say()
            say()
        def relay(act):
            twice(act)
        relay(shout)
        twice(say=whisper)
        """,
        """
        m -> relay
        m -> twice
        relay -> twice
        twice -> shout
        twice -> whisper
        """,
    ),
    _case(
        "arguments",
        """
        def fallback(): pass
        def given(): pass
        def run(action=fallback, *rest, **named):
            action()
            rest[0]()
            named["last"]()
        def second(): pass
        def third(): pass
        run(given, second, last=third)
        """,
        """
        m -> run
        run -> fallback
        run -> given
        run -> second
        run -> third
        """,
    ),
    _case(
        "arguments",
        """
        def one(): pass
        def two(): pass
        def both(a, b):
            a()
            b()
        pair = (one, two)
        both(*pair)
        options = {"a": two, "b": one}
        both(**options)
        """,
        """
        m -> both
        both -> one
        both -> two
        """,
    ),
    _case(
        "returns",
        """
        def inner_work(): pass
        def make():
            def made():
                inner_work()
            return made
        make()()
        kept = make()
        kept()
        """,
        """
        m -> make
        m -> make.made
        make.made -> inner_work
        """,
    ),
    _case(
        "assignments",
        """
        def a(): pass
        def b(): pass
        def c(): pass
        x = y = a
        x()
        y()
        p, (q, r) = a, (b, c)
        q()
        r()
        first, *others = b, c
        first()
        others[0]()
        z = a
        z = b
        z()
        """,
        """
        m -> a
        m -> b
        m -> c
        """,
    ),
    _case(
        "assignments",
        """
        def old(): pass
        def new(): pass
        def run(flag):
            act = old
            act()
            act = new
        def pick(flag):
            if flag:
                chosen = old
            else:
                chosen = new
            chosen()
        run(1)
        pick(1)
        """,
        """
        m -> run
        m -> pick
        run -> old
        pick -> old
        pick -> new
        """,
    ),
    _case(
        "dicts",
        """
        def add(): pass
        def drop(): pass
        def wait(): pass
        commands = {"add": add, "drop": drop}
        commands["wait"] = wait
        commands["add"]()
        name = "wait"
        def dispatch(key):
            commands[key]()
        dispatch("drop")
        commands[name]()
        """,
        """
        m -> add
        m -> wait
        m -> dispatch
        dispatch -> drop
        """,
    ),
    _case(
        "dicts",
        """
        def add(): pass
        def drop(): pass
        class Table:
            handlers = {"add": add, "drop": drop}
            def run(self, key):
                handler = self.handlers.get(key)
                handler()
        Table().run(input())
        for each in Table.handlers.values():
            each()
        """,
        """
        m -> Table.run
        m -> add
        m -> drop
        Table.run -> add
        Table.run -> drop
        """,
    ),
    _case(
        "dicts",
        """
        def old(): pass
        def new(): pass
        table = {"go": old}
        table["go"] = new
        table["go"]()
        """,
        """
        m -> new
        """,
    ),
    _case(
        "lists",
        """
        def a(): pass
        def b(): pass
        def c(): pass
        steps = [a, b]
        steps[0]()
        queue = []
        queue.append(c)
        queue.pop()()
        def run_all(todo):
            for step in todo:
                step()
        run_all([b])
        [each() for each in (a,)]
        """,
        """
        m -> a
        m -> c
        m -> run_all
        run_all -> b
        """,
    ),
    _case(
        "decorators",
        """
        def traced(function):
            def wrapper(*args):
                return function(*args)
            return wrapper
        def plain(function):
            return function
        def with_option(option):
            return traced
        @traced
        def first(): pass
        @plain
        def second(): pass
        @with_option(1)
        def third(): pass
        first()
        second()
        third()
        """,
        """
        m -> traced
        m -> traced.wrapper
        m -> plain
        m -> second
        m -> with_option
        traced.wrapper -> first
        traced.wrapper -> third
        """,
    ),
    _case(
        "decorators",
        """
        import functools
        def logged(function):
            @functools.wraps(function)
            def wrapper(self):
                return function(self)
            return wrapper
        class A:
            @logged
            def go(self):
                self.done()
            def done(self): pass
            @functools.lru_cache(maxsize=None)
            def kept(self): pass
        a = A()
        a.go()
        a.kept()
        """,
        """
        m -> logged.wrapper
        A -> logged
        logged.wrapper -> A.go
        A.go -> A.done
        m -> A.kept
        """,
    ),
    _case(
        "decorators",
        """
        known = []
        def registered(name):
            def register(function):
                kept = function
                known.append(kept)
                return kept
            return register
        @registered("one")
        def one(): pass
        @registered("two")
        def two():
            one()
        two()
        """,
        """
        m -> registered
        m -> registered.register
        m -> two
        two -> one
        """,
    ),
    _case(
        "lambdas",
        """
        def work(): pass
        def call(function):
            function()
        later = lambda: work()
        later()
        call(lambda: work())
        """,
        """
        m -> <lambda>1
        m -> call
        call -> <lambda>2
        <lambda>1 -> work
        <lambda>2 -> work
        """,
    ),
    _case(
        "lambdas",
        """
        def rank(item): pass
        sorted([1, 2], key=rank)
        list(map(lambda each: rank(each), [1]))
        """,
        """
        m -> rank
        m -> <lambda>1
        <lambda>1 -> rank
        """,
    ),
    _case(
        "with",
        """
        from contextlib import contextmanager
        class Lock:
            def __enter__(self):
                return self
            def __exit__(self, *what): pass
            def poke(self): pass
        with Lock() as lock:
            lock.poke()
        class Thing:
            def use(self): pass
        @contextmanager
        def opened():
            yield Thing()
        with opened() as thing:
            thing.use()
        """,
        """
        m -> Lock.__enter__
        m -> Lock.__exit__
        m -> Lock.poke
        m -> opened
        m -> Thing.use
        """,
    ),
    _case(
        "iteration",
        """
        def task(): pass
        class Tasks:
            def __iter__(self):
                return self
            def __next__(self):
                return task
        for each in Tasks():
            each()
        def produce():
            yield task
        def relay():
            yield from produce()
        for made in relay():
            made()
        """,
        """
        m -> Tasks.__iter__
        m -> Tasks.__next__
        m -> task
        m -> relay
        relay -> produce
        """,
    ),
    _case(
        "iteration",
        """
        class Once:
            def __init__(self): pass
            def __iter__(self):
                return iter([stop])
            def __aiter__(self): return self
            async def __anext__(self): return stop
        def stop(): pass
        async def main():
            async for each in Once():
                each()
        for number, each in enumerate(Once()):
            each()
        """,
        """
        m -> Once.__init__
        m -> Once.__iter__
        m -> stop
        main -> Once.__init__
        main -> Once.__aiter__
        main -> Once.__anext__
        main -> stop
        """,
    ),
    _case(
        "classes",
        """
        class Base:
            def __init__(self, action):
                self.action = action
            def run(self):
                self.action()
                self.step()
            def step(self): pass
        class Child(Base):
            def step(self): pass
        def act(): pass
        Child(act).run()
        Base(act).run()
        """,
        """
        m -> Base.__init__
        m -> Base.run
        Base.run -> act
        Base.run -> Child.step
        Base.run -> Base.step
        """,
    ),
    _case(
        "classes",
        """
        class Engine:
            def start(self): pass
            @classmethod
            def build(cls):
                return cls()
            @staticmethod
            def check(): pass
            @property
            def part(self):
                return self
        class Car:
            def __init__(self, engine):
                self.engine = engine
            def drive(self):
                self.engine.start()
                go = self.engine.start
                go()
            def __call__(self):
                self.drive()
        car = Car(Engine.build())
        car()
        Engine.check()
        Engine().part.start()
        """,
        """
        m -> Car.__init__
        m -> Engine.build
        m -> Car.__call__
        m -> Engine.check
        m -> Engine.start
        Car.__call__ -> Car.drive
        Car.drive -> Engine.start
        """,
    ),
    _case(
        "inheritance",
        """
        class A:
            def __init__(self): pass
            def go(self): pass
        class B(A):
            def go(self):
                super().go()
        class C(A):
            def go(self):
                super().go()
        class D(B, C):
            pass
        D().go()
        B().go()
        """,
        """
        m -> A.__init__
        m -> B.go
        B.go -> C.go
        B.go -> A.go
        C.go -> A.go
        """,
    ),
    _case(
        "exceptions",
        """
        class Failed(Exception):
            def __init__(self, why="?"):
                self.why = why
            def tell(self): pass
        class Worse(Failed): pass
        def fail():
            raise Failed
        def worse():
            raise Worse("no") from None
        try:
            fail()
            worse()
        except Failed as error:
            error.tell()
        """,
        """
        m -> fail
        m -> worse
        m -> Failed.tell
        fail -> Failed.__init__
        worse -> Failed.__init__
        """,
    ),
    _case(
        "files",
        """
        import plugins
        from plugins import *
        from plugins import registry as known
        known["one"]()
        two()
        plugins.alias()
        """,
        """
        m -> plugins:one
        m -> plugins:two
        """,
        plugins="""
        def one(): pass
        def two(): pass
        alias = two
        registry = {"one": one}
        """,
    ),
    _case(
        "closures",
        """
        def work(): pass
        def counter():
            act = None
            def set_to(function):
                nonlocal act
                act = function
            def run():
                act()
            return set_to, run
        set_to, run = counter()
        set_to(work)
        run()
        """,
        """
        m -> counter
        m -> counter.set_to
        m -> counter.run
        counter.run -> work
        """,
    ),
    _case(
        "partial",
        """
        from functools import partial
        def apply(function, value):
            function()
        def work(): pass
        ready = partial(apply, work)
        ready(1)
        """,
        """
        m -> apply
        apply -> work
        """,
    ),
    _case(
        "dynamic",
        """
        class A:
            def run(self): pass
        def late(): pass
        getattr(A(), "run")()
        A.extra = late
        A().extra
        globals()["late"]()
        """,
        """
        m -> A.run
        m -> late
        """,
    ),
)
