"""TypeScript: what types say, on top of what JavaScript says."""

from __future__ import annotations

from packages.codegraph.tests.graphs import analysed, parsed


def kinds_of(source: str, path: str = "a.ts") -> dict[str, str]:
    return {one.qualified: one.kind for one in parsed(path, source).declarations}


def signatures_of(source: str) -> dict[str, str]:
    return {one.qualified: one.signature for one in parsed("a.ts", source).declarations}


# Declarations


def test_interfaces_enums_aliases_and_namespaces_are_declared() -> None:
    source = """\
interface Shape { area(): number; readonly name: string }
enum Colour { Red, Green }
const enum Flag { On = 1 }
type Point = { x: number };
abstract class Base { abstract draw(): void; }
namespace Geo.Flat { export function side() {} }
declare function ambient(a: string): number;
declare module "plugin" { export function load(): void; }
"""
    assert kinds_of(source) == {
        "Shape": "class",
        "Shape.area": "function",
        "Colour": "class",
        "Flag": "class",
        "Point": "type",
        "Base": "class",
        "Base.draw": "function",
        "Geo": "namespace",
        "Geo.Flat": "namespace",
        "Geo.Flat.side": "function",
        "ambient": "function",
        "plugin": "namespace",
        "plugin.load": "function",
    }


def test_signatures_show_types_and_no_literal_default_or_comment() -> None:
    source = """\
function f<T extends Foo>(a: T, b?: Map<string, Bar[]>, c = "secret", ...rest: number[]): T {}
function g(mode: "secret" | 42, on: Set</* secret */ true>, t: `secret${string}`): Promise<void> {}
const h = async (this: Foo, { a, b }: Options): Promise<Bar> => {};
"""
    assert signatures_of(source) == {
        "f": "f<T extends Foo>(a: T, b?: Map<string, Bar[]>, c?, ...rest: number[]): T",
        "g": "g(mode: string | number, on: Set< boolean>, t: string): Promise<void>",
        "h": "h(this: Foo, {a, b}: Options): Promise<Bar>",
    }


def test_overloads_are_one_function_with_the_lines_of_its_body() -> None:
    source = """\
export function parse(text: string): Tree;
export function parse(text: Buffer): Tree;
export function parse(text: any): Tree {
  return text;
}
class Reader {
  read(): string;
  read(size: number): string;
  read(size?: number) { return ""; }
}
"""
    facts = parsed("a.ts", source)
    assert [(one.qualified, one.line, one.end_line) for one in facts.declarations] == [
        ("parse", 3, 5),
        ("Reader", 6, 10),
        ("Reader.read", 9, 9),
    ]


# Types lead to methods


def test_parameters_fields_and_results_lead_to_the_methods_of_their_types() -> None:
    seen = analysed(
        {
            "a.ts": """\
class Engine { start(): Engine { return this; } stop(): void {} }
interface Driver { steer(): void }
class Car {
  spare?: Engine | null;
  constructor(private readonly engine: Engine, public driver: Driver) {}
  go(other: Car, f: () => void): Engine {
    this.engine.start().stop();
    this.spare!.stop();
    this.driver.steer();
    other.go(other, f).start();
    f();
    return this.engine;
  }
  get motor(): Engine { return this.engine; }
  async load(): Promise<Engine> { return this.engine; }
  async use() { (await this.load()).stop(); this.motor.start(); }
}
function top(x: unknown, cars: Car[]) {
  (x as Car).use();
  (<Engine>x).stop();
  cars.use();
  const local: Driver = x as any;
  local.steer();
}
"""
        }
    )
    assert seen.any_calls == {
        ("a.ts:Car.go", "a.ts:Engine.start", 7),
        ("a.ts:Car.go", "a.ts:Engine.stop", 7),
        ("a.ts:Car.go", "a.ts:Engine.stop", 8),
        ("a.ts:Car.go", "a.ts:Driver.steer", 9),
        ("a.ts:Car.go", "a.ts:Car.go", 10),
        ("a.ts:Car.go", "a.ts:Engine.start", 10),
        ("a.ts:Car.use", "a.ts:Car.load", 16),
        ("a.ts:Car.use", "a.ts:Engine.stop", 16),
        ("a.ts:Car.use", "a.ts:Engine.start", 16),
        ("a.ts:Car.use", "a.ts:Car.motor", 16),
        ("a.ts:top", "a.ts:Car.use", 19),
        ("a.ts:top", "a.ts:Engine.stop", 20),
        ("a.ts:top", "a.ts:Driver.steer", 23),
    }


def test_bases_and_implemented_interfaces_are_inherited_from() -> None:
    seen = analysed(
        {
            "a.ts": """\
import { Base } from './base';
import * as api from './base';
export class Child<T> extends Base<T> implements api.Closing, Local { run() { this.close(); } }
interface Local extends api.Closing {}
""",
            "base.ts": "export class Base<T> { close() {} }\nexport interface Closing {}\n",
        }
    )
    assert seen.inherits == {
        ("a.ts:Child", "base.ts:Base"),
        ("a.ts:Child", "base.ts:Closing"),
        ("a.ts:Child", "a.ts:Local"),
        ("a.ts:Local", "base.ts:Closing"),
    }
    assert seen.callees == {("a.ts:Child.run", "base.ts:Base.close")}


def test_a_type_parameter_is_what_it_extends_and_hides_a_class_of_its_name() -> None:
    seen = analysed(
        {
            "a.ts": """\
class T { wrong() {} go() {} }
class Node2 { go() {} }
function visit<T extends Node2>(node: T) { node.go(); node.wrong(); }
function any<T>(node: T) { node.go(); }
class Box<T> { constructor(private held: T) {} open() { this.held.go(); } }
"""
        }
    )
    assert seen.any_calls == {("a.ts:visit", "a.ts:Node2.go", 3)}


def test_an_alias_of_a_type_means_that_type() -> None:
    seen = analysed(
        {
            "a.ts": "export class Real { go() {} }\nexport type Alias = Real;\n",
            "b.ts": """\
import type { Alias } from './a';
import { Real as R } from './a';
function f(x: Alias, make: typeof R) { x.go(); new make().go(); }
""",
        }
    )
    assert seen.callees == {
        ("b.ts:f", "a.ts:Real"),
        ("b.ts:f", "a.ts:Real.go"),
    }


def test_what_is_inside_a_namespace_sees_its_members() -> None:
    seen = analysed(
        {
            "a.ts": """\
export namespace Geo {
  export function side() { return helper(); }
  function helper() {}
}
import S = Geo.side;
Geo.side();
S();
"""
        }
    )
    assert seen.any_calls == {
        ("a.ts:Geo.side", "a.ts:Geo.helper", 2),
        ("a.ts", "a.ts:Geo.side", 6),
        ("a.ts", "a.ts:Geo.side", 7),
    }


def test_an_object_with_a_stated_type_is_a_class_of_that_type() -> None:
    seen = analysed(
        {
            "a.ts": """\
interface Clock { now(): number; zone(): string }
export const clock: Clock = { now() { return this.zone(); } };
clock.now();
"""
        }
    )
    assert seen.any_calls == {
        ("a.ts:clock.now", "a.ts:Clock.zone", 2),
        ("a.ts", "a.ts:clock.now", 3),
    }


def test_calls_in_decorators_and_initialisers_are_made_by_the_class() -> None:
    seen = analysed(
        {
            "a.ts": """\
function Injectable() {}
function Input(a: any) {}
function id() {}
@Injectable()
class Service {
  @Input(id()) value = id();
  static { id(); }
}
"""
        }
    )
    assert {
        ("a.ts:Service", "a.ts:Injectable", 4),
        ("a.ts:Service", "a.ts:Input", 6),
        ("a.ts:Service", "a.ts:id", 6),
        ("a.ts:Service", "a.ts:id", 7),
    } == seen.any_calls


# Modules


def test_a_specifier_of_what_is_compiled_means_its_source() -> None:
    seen = analysed(
        {
            "src/a.ts": """\
import { b } from './b.js';
import { View } from './view.jsx';
import old = require('./old');
b(); View(); old.run();
""",
            "src/b.ts": "export const b = () => {};\n",
            "src/view.tsx": "export function View() { return <T,>(x: T) => <b>{x}</b>; }\n",
            "src/old.ts": "function run() {}\nexport = { run };\n",
        }
    )
    assert seen.imports == {
        ("src/a.ts", "src/b.ts"),
        ("src/a.ts", "src/view.tsx"),
        ("src/a.ts", "src/old.ts"),
    }
    assert seen.callees == {
        ("src/a.ts", "src/b.ts:b"),
        ("src/a.ts", "src/view.tsx:View"),
        ("src/a.ts", "src/old.ts:run"),
    }


def test_paths_and_base_url_of_the_configuration_are_followed() -> None:
    seen = analysed(
        {
            "app/tsconfig.json": """\
{
  // where things are
  "compilerOptions": {
    "baseUrl": "./src",
    "paths": { "@lib/*": ["library/*"], "config": ["settings/index"], },
  },
}
""",
            "app/src/main.ts": """\
import { f } from '@lib/tools';
import { g } from 'config';
import { h } from 'shared/helper';
import { i } from 'outside';
f(); g(); h(); i();
""",
            "app/src/library/tools.ts": "export function f() {}\n",
            "app/src/settings/index.ts": "export function g() {}\n",
            "app/src/shared/helper.ts": "export function h() {}\n",
        }
    )
    assert seen.imports == {
        ("app/src/main.ts", "app/src/library/tools.ts"),
        ("app/src/main.ts", "app/src/settings/index.ts"),
        ("app/src/main.ts", "app/src/shared/helper.ts"),
        ("app/src/main.ts", "outside"),
    }
    assert len(seen.any_calls) == 3
    assert seen.counts.external == 1


def test_a_variable_that_gets_its_value_later_can_be_imported() -> None:
    seen = analysed(
        {
            "a.ts": """\
export class Store { get() {} }
export let store;
export function setup() { store = new Store(); }
""",
            "b.ts": "import { store } from './a';\nstore.get();\n",
        }
    )
    assert ("b.ts", "a.ts:Store.get", 2) in seen.any_calls


def test_a_variable_that_gets_another_function_may_hold_either() -> None:
    source = (
        "class A { m(): void {} }\nfunction one() {}\nfunction two() {}\nfunction run(x: any) {\n"
    )
    for body, expected in (
        ("let f = one; f();", {"a.ts:one"}),
        ("let f = one; if (x) f = two; f();", {"a.ts:one", "a.ts:two"}),
        # The type of a variable is that which is stated, or that of its first value.
        ("let a: A = x; a = x.other; a.m();", {"a.ts:A.m"}),
        ("let a = new A(); a = x; a.m();", {"a.ts:A", "a.ts:A.m"}),
    ):
        seen = analysed({"a.ts": f"{source}{body}\n}}\n"})
        assert {callee for _, callee in seen.callees} == expected, body
