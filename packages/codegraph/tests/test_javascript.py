"""JavaScript: what a file declares and calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coatcheck_codegraph.facts import Ref, Step
from packages.codegraph.tests.graphs import analysed, parsed


def lines_of(source: str) -> dict[str, tuple[int, int]]:
    facts = parsed("a.js", source)
    return {one.qualified: (one.line, one.end_line) for one in facts.declarations}


# Declarations


def test_functions_and_classes_have_their_lines() -> None:
    source = """\
function one() {
  return 1;
}

class Two {
  go() {}
  static make() {
    return new Two();
  }
  #hidden() {}
  get size() { return 1; }
  [Symbol.iterator]() {}
  "quoted-name"() {}
  handler = () => {
    one();
  };
}
"""
    assert lines_of(source) == {
        "one": (1, 3),
        "Two": (5, 17),
        "Two.go": (6, 6),
        "Two.make": (7, 9),
        "Two.#hidden": (10, 10),
        "Two.size": (11, 11),
        "Two.[Symbol.iterator]": (12, 12),
        "Two.quoted-name": (13, 13),
        "Two.handler": (14, 16),
    }


def test_a_function_is_named_by_what_it_is_assigned_to() -> None:
    source = """\
const arrow = () => {};
let later;
later = function () {};
var expression = function inner() {};
exports.out = async () => {};
module.exports.more = function* () {};
Thing.prototype.method = function () {};
function Thing() { this.own = () => {}; }
const Klass = class extends Thing {};
"""
    assert set(lines_of(source)) == {
        "arrow",
        "later",
        "expression",
        "exports.out",
        "exports.more",
        "Thing.method",
        "Thing",
        "Thing.constructor",
        "Thing.constructor.own",
        "Klass",
    }


def test_an_object_that_holds_functions_is_a_class_and_others_are_not() -> None:
    source = """\
const api = { get() {}, put: () => {}, nested: { deep() {} }, size: 3 };
const options = { retries: 3, name: "x" };
"""
    assert set(lines_of(source)) == {"api", "api.get", "api.put", "api.nested", "api.nested.deep"}


def test_signatures_hold_no_default_values() -> None:
    source = "function f(a, b = 'secret', { c, d: [e] } = { c: 'secret' }, ...rest) {}"
    (declared,) = parsed("a.js", source).declarations
    assert declared.signature == "f(a, b?, {c, e}?, ...rest)"


# Calls in one file


def test_calls_of_functions_and_constructors_are_found_with_their_lines() -> None:
    seen = analysed(
        {
            "a.js": """\
function helper() {}
class Box {
  constructor() { helper(); }
}
class Bare {}
function run() {
  helper();
  new Box();
  new Bare();
}
run();
"""
        }
    )
    assert seen.any_calls == {
        ("a.js:Box.constructor", "a.js:helper", 3),
        ("a.js:run", "a.js:helper", 7),
        ("a.js:run", "a.js:Box.constructor", 8),
        ("a.js:run", "a.js:Bare", 9),
        ("a.js", "a.js:run", 11),
    }


def test_a_call_is_on_the_line_where_its_name_is_written() -> None:
    seen = analysed(
        {
            "a.js": """\
class Query {
  where() { return this; }
  limit() { return this; }
}
new Query()
  .where()
  .limit();
"""
        }
    )
    assert seen.any_calls == {
        ("a.js", "a.js:Query", 5),
        ("a.js", "a.js:Query.where", 6),
        ("a.js", "a.js:Query.limit", 7),
    }


def test_methods_are_found_through_this_and_super() -> None:
    seen = analysed(
        {
            "a.js": """\
class Base {
  constructor() {}
  close() {}
}
class File extends Base {
  constructor() { super(); this.open(); }
  open() { this.#read(); this.close(); super.close(); }
  #read() {}
  static make() { return this.prepare(); }
  static prepare() {}
  later() { setTimeout(() => this.open()); }
}
"""
        }
    )
    assert seen.any_calls == {
        ("a.js:File.constructor", "a.js:Base.constructor", 6),
        ("a.js:File.constructor", "a.js:File.open", 6),
        ("a.js:File.open", "a.js:File.#read", 7),
        ("a.js:File.open", "a.js:Base.close", 7),
        ("a.js:File.make", "a.js:File.prepare", 9),
        ("a.js:File.later", "a.js:File.open", 11),
    }
    assert seen.inherits == {("a.js:File", "a.js:Base")}


def test_this_of_another_function_is_not_taken_for_the_object() -> None:
    seen = analysed(
        {
            "a.js": """\
class A {
  go() {
    each(function () { this.stop(); });
    const self = this;
    each(function () { self.stop(); });
    each(function () { this.stop(); }.bind(this));
    return { next() { this.stop(); } };
  }
  stop() {}
}
function free() { this.stop(); }
"""
        }
    )
    assert {(caller, line) for caller, _, line in seen.any_calls} == {
        ("a.js:A.go", 5),
        ("a.js:A.go", 6),
    }


def test_what_anonymous_functions_call_is_called_by_the_declaration_around() -> None:
    seen = analysed(
        {
            "a.js": """\
function helper() {}
function outer() {
  [1].forEach(() => helper());
  (function () { helper(); })();
}
setTimeout(function () { helper(); });
"""
        }
    )
    assert seen.any_calls == {
        ("a.js:outer", "a.js:helper", 3),
        ("a.js:outer", "a.js:helper", 4),
        ("a.js", "a.js:helper", 6),
    }


def test_fields_and_variables_lead_to_the_methods_of_what_they_hold() -> None:
    seen = analysed(
        {
            "a.js": """\
class Engine { start() {} stop() {} }
class Car {
  spare = new Engine();
  constructor() { this.engine = new Engine(); }
  drive() { this.engine.start(); this.spare.stop(); }
}
const make = () => new Car();
const car = make();
car.drive();
let late;
late = new Engine();
late.start();
const { engine } = car;
engine.stop();
"""
        }
    )
    assert {
        ("a.js:Car.drive", "a.js:Engine.start", 5),
        ("a.js:Car.drive", "a.js:Engine.stop", 5),
        ("a.js", "a.js:make", 8),
        ("a.js", "a.js:Car.drive", 9),
        ("a.js", "a.js:Engine.start", 12),
        ("a.js", "a.js:Engine.stop", 14),
    } <= seen.any_calls


def test_prototypes_make_classes() -> None:
    seen = analysed(
        {
            "a.js": """\
var util = require('util');
function Animal(name) { this.name = name; }
Animal.prototype.speak = function () { this.breathe(); };
Animal.prototype.breathe = function () {};
function Dog() { Animal.call(this, 'dog'); }
util.inherits(Dog, Animal);
Dog.prototype.bark = function bark() { this.speak(); };
function Cat() {}
Cat.prototype = Object.create(Animal.prototype);
Cat.prototype.purr = function () { this.breathe(); Animal.prototype.speak.call(this); };
new Dog().bark();
"""
        }
    )
    assert seen.any_calls == {
        ("a.js:Animal.speak", "a.js:Animal.breathe", 3),
        ("a.js:Dog.constructor", "a.js:Animal.constructor", 5),
        ("a.js:Dog.bark", "a.js:Animal.speak", 7),
        ("a.js:Cat.purr", "a.js:Animal.breathe", 10),
        ("a.js:Cat.purr", "a.js:Animal.speak", 10),
        ("a.js", "a.js:Dog.constructor", 11),
        ("a.js", "a.js:Dog.bark", 11),
    }
    assert seen.inherits == {("a.js:Dog", "a.js:Animal"), ("a.js:Cat", "a.js:Animal")}


def test_objects_that_are_given_functions_are_classes() -> None:
    seen = analysed(
        {
            "a.js": """\
var app = exports = module.exports = {};
app.init = function init() { this.reset(); };
app.reset = function () { app.init(); };
""",
            "b.js": "var app = require('./a');\napp.init();\n",
        }
    )
    assert seen.any_calls == {
        ("a.js:app.init", "a.js:app.reset", 2),
        ("a.js:app.reset", "a.js:app.init", 3),
        ("b.js", "a.js:app.init", 2),
    }


def test_a_function_may_have_a_prototype_set() -> None:
    seen = analysed(
        {
            "a.js": """\
const proto = { run() { this.stop(); }, stop() {}, arrow: () => this.stop() };
function make() {
  function router() { router.run(); }
  Object.setPrototypeOf(router, proto);
  return router;
}
make().stop();
"""
        }
    )
    assert seen.any_calls == {
        ("a.js:proto.run", "a.js:proto.stop", 1),
        ("a.js:make.router", "a.js:proto.run", 3),
        ("a.js", "a.js:make", 7),
        ("a.js", "a.js:proto.stop", 7),
    }


def test_bound_functions_and_sequences_are_seen_through() -> None:
    seen = analysed(
        {
            "a.js": """\
function work() {}
function log() {}
const bound = work.bind(null, 1);
bound();
(log(), work)();
work.apply(null, []);
"""
        }
    )
    assert seen.any_calls == {
        ("a.js", "a.js:work", 4),
        ("a.js", "a.js:log", 5),
        ("a.js", "a.js:work", 5),
        ("a.js", "a.js:work", 6),
    }


def test_a_component_in_jsx_is_called() -> None:
    seen = analysed(
        {
            "a.jsx": """\
import * as ui from './ui';
import { Row } from './ui';
function title() {}
export default function Page() {
  return <div><Row label={title()}><ui.Cell /></Row></div>;
}
""",
            "ui.jsx": "export function Row() {}\nexport const Cell = () => null;\n",
        }
    )
    assert seen.any_calls == {
        ("a.jsx:Page", "a.jsx:title", 5),
        ("a.jsx:Page", "ui.jsx:Row", 5),
        ("a.jsx:Page", "ui.jsx:Cell", 5),
    }


# What is not certain is not resolved


def test_a_parameter_hides_the_function_of_its_name() -> None:
    seen = analysed(
        {
            "a.js": """\
function done() {}
function run(done) { done(); }
const each = (done) => done();
function loop(list) { for (const done of list) done(); }
function caught() { try {} catch (done) { done(); } }
function taken({ done }) { done(); }
function outer() { return function done() { done(); }; }
list.forEach(function (done) { done(); });
"""
        }
    )
    assert seen.callees == {("a.js:outer.done", "a.js:outer.done")}


def test_variables_of_two_callbacks_are_not_taken_for_each_other() -> None:
    seen = analysed(
        {
            "a.js": """\
class Cat { speak() {} }
class Dog { speak() {} }
it(() => { const pet = new Cat(); pet.speak(); });
it(() => { const pet = new Dog(); pet.speak(); });
it(() => { const pet = unknown; pet.speak(); });
it(() => { help(); function help() {} });
it(() => { help(); function help() {} });
"""
        }
    )
    methods = {call for call in seen.any_calls if call[1].endswith("speak")}
    assert methods == {("a.js", "a.js:Cat.speak", 3), ("a.js", "a.js:Dog.speak", 4)}
    assert (seen.runs("a.js", 6), seen.runs("a.js", 7)) == ({6}, {7})


def test_unknown_names_members_and_subscripts_stay_unresolved() -> None:
    seen = analysed(
        {
            "a.js": """\
function run() {}
mystery();
table[run]();
handlers['run']();
thing.run();
make()();
"""
        }
    )
    assert seen.any_calls == set()
    assert seen.counts.unresolved == 6


def test_an_exported_function_is_not_found_by_its_bare_name() -> None:
    seen = analysed(
        {
            "a.js": """\
exports.fetch = function () { return fetch(); };
exports.parse = () => parse();
"""
        }
    )
    assert seen.any_calls == set()
    assert (seen.counts.external, seen.counts.unresolved) == (1, 1)


# Any input


def test_code_that_is_nested_very_deep_is_walked() -> None:
    for source in (
        "f(" * 20_000 + ")" * 20_000,
        "[" * 20_000 + "]" * 20_000,
        "a" + ".b()" * 20_000,
        "x = " * 20_000 + "1",
        "(" * 20_000 + "1" + ")" * 20_000,
        "(" * 20_000,
        "1" + "+1" * 20_000,
        "if (a) {" * 20_000 + "}" * 20_000,
        "() => " * 20_000 + "1",
    ):
        assert parsed("a.js", source).path == "a.js"


def test_a_long_chain_is_followed_from_its_beginning() -> None:
    source = "function f() {}\nf()" + ".then(f())" * 100
    facts = parsed("a.js", source)
    assert len(facts.calls) == 201
    assert facts.calls[0].callee == Ref("name", (Step("f", True),))


def test_broken_code_gives_what_can_be_understood() -> None:
    facts = parsed("a.js", "function fine() {}\nfunction ( { ] \nclass Good {}\n")
    assert facts.broken
    assert "fine" in {one.name for one in facts.declarations}


_TOKENS = st.sampled_from(
    """
    a b this super new class function => ( ) { } [ ] . , ; = : ? ?. ! ... * async await import
    export default from as const let var require('x') module.exports exports prototype return
    extends static get set #p `t` 'x' 1 < > / for of in catch try typeof interface enum namespace
    declare abstract type implements private readonly @d <A/>
    """.split()  # noqa: SIM905
)


@given(st.one_of(st.text(), st.lists(_TOKENS, max_size=60).map(" ".join)))
def test_any_text_gives_facts_with_lines_in_range(source: str) -> None:
    for name in ("a.js", "a.ts", "a.tsx"):
        facts = parsed(name, source)
        for declared in facts.declarations:
            assert 1 <= declared.line <= declared.end_line <= source.count("\n") + 1
        for call in facts.calls:
            assert 1 <= call.line <= source.count("\n") + 1
            assert -1 <= call.caller < len(facts.declarations)


def test_the_names_of_deeply_nested_functions_stay_small() -> None:
    facts = parsed("a.js", "function inner() { " * 3_000 + "}" * 3_000)
    assert len(facts.declarations) == 3_000
    assert max(len(one.qualified) for one in facts.declarations) <= 1_000


def test_of_two_functions_of_one_name_the_last_is_meant_from_the_beginning() -> None:
    seen = analysed({"a.js": "f();\nfunction f() {}\nfunction f() { return 1; }\nf();\n"})
    calls = [(call.line, call.callee.declaration.line) for call in seen.resolution.calls["a.js"]]
    assert calls == [(1, 3), (4, 3)]


def test_a_variable_that_gets_another_function_may_hold_either() -> None:
    both = {"a.js:one", "a.js:two"}
    source = "class A { m() {} }\nfunction one() {}\nfunction two() {}\nfunction run(x) {\n"
    for body, expected in (
        ("let f = one; f();", {"a.js:one"}),
        ("let f = one; f = one; f();", {"a.js:one"}),
        ("let f = one; f = null; f();", {"a.js:one"}),
        ("let f; f = one; f();", {"a.js:one"}),
        ("let f = one; if (x) f = two; f();", both),
        ("let f = one; while (x) { f(); f = two; }", both),
        ("let f; f = one; f = x ? one : two; f();", both),
        ("let f = one; x.then(() => { f = two; }); f();", both),
        ("let f = one; [f] = x; f();", {"a.js:one"}),
        ("let f = one; f ||= x; f();", {"a.js:one"}),
        ("let f = () => {}; if (x) f = () => 1; f();", {"a.js:run.f"}),
        ("function f() {} if (x) f = two; f();", {"a.js:run.f", "a.js:two"}),
        ("var f = function () {}; var f = function () {}; f();", {"a.js:run.f"}),
        ("let a = new A(); a = x; a.m();", {"a.js:A"}),
        # In the block of its declaration, another value replaces the one before.
        ("let f = one; f(); f = two;", {"a.js:one"}),
        ("let f = one; f = two; f();", {"a.js:two"}),
        ("let f = one; const g = () => f(); f = two; x(g); g();", {*both, "a.js:run.g"}),
        ("one = two; one();", both),
    ):
        seen = analysed({"a.js": f"{source}{body}\n}}\n"})
        assert {callee for _, callee in seen.callees} == expected, body


def test_a_call_that_may_run_one_of_several_functions_is_possible() -> None:
    seen = analysed(
        {
            "a.js": """\
function one() {}
function two() {}
let f = one;
if (x) f = two;
f();
one();
"""
        }
    )
    calls = seen.resolution.calls["a.js"]
    assert [(call.line, call.possible) for call in calls] == [(5, True), (5, True), (6, False)]
    assert seen.counts.resolved == 2


def test_a_field_or_an_export_that_gets_another_function_may_hold_either() -> None:
    both = {"a.js:one", "a.js:two"}
    functions = "function one() {}\nfunction two() {}\n"
    for body, expected in (
        ("class A { constructor() { this.f = one; } go() { this.f(); } }", {"a.js:one"}),
        (
            "class A { constructor() { this.f = one; } s() { this.f = two; } go() { this.f(); } }",
            both,
        ),
        ("exports.f = one;\nexports.f();", {"a.js:one"}),
        ("exports.f = one;\nif (x) exports.f = two;\nexports.f();", both),
    ):
        seen = analysed({"a.js": f"{functions}{body}\n"})
        assert {callee for _, callee in seen.callees} == expected, body


def test_a_module_that_exports_one_of_two_things_may_mean_either() -> None:
    seen = analysed(
        {
            "index.js": "if (x) { module.exports = require('./a'); }\n"
            "else { module.exports = require('./b'); }\n",
            "a.js": "exports.f = function () {};\n",
            "b.js": "exports.f = function () {};\n",
            "main.js": "const lib = require('./index');\nlib.f();\n",
        }
    )
    assert seen.any_calls == {("main.js", "a.js:exports.f", 2), ("main.js", "b.js:exports.f", 2)}
