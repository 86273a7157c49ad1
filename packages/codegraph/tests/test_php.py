"""PHP: what is seen in its files, and which names lead where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coatcheck_codegraph.facts import FileFacts
from coatcheck_codegraph.languages import load
from coatcheck_codegraph.project import MANIFEST, Project
from packages.codegraph.tests.graphs import analysed, parsed, seen_in

MODEL = """\
<?php
namespace App\\Model;

abstract class Model implements Saves {
    use Logs;
    private static ?Store $store = null;
    public function __construct(protected Store $kept, $plain = null) { }
    public function save(): static {
        $this->log();
        $this->kept->write();
        self::$store->write();
        static::boot();
        return $this;
    }
    public static function boot(): void { }
}
interface Saves { public function save(); }
trait Logs { protected function log() { $this->line(); } private function line() { } }
class Store { public function write(): self { return $this; } public function flush() { } }
"""
USER = """\
<?php
namespace App;

use App\\Model\\Model as Base;
use App\\Model\\{Store, Saves};
use function App\\Tools\\tidy;
use Vendor\\Mail\\Mailer;

final class User extends Base {
    private $mailer;
    public function __construct(Store $store, Mailer $mailer) {
        parent::__construct($store);
        $this->mailer = $mailer;
        $this->extra = new Store();
    }
    public function rename() {
        $this->save()->boot();
        $this->extra->write()->flush();
        $this->mailer->send();
        tidy(new self($this->kept, null));
        \\App\\Tools\\tidy(1);
        Tools\\tidy(2);
        strlen('x');
        \\strlen('x');
    }
}
"""
TOOLS = """\
<?php
namespace App\\Tools;
function tidy($what) { return helper($what); }
function helper(\\App\\Model\\Store $store) { $store->flush(); }
"""
APP = {"src/Model/Model.php": MODEL, "src/User.php": USER, "src/tools.php": TOOLS}


def test_members_constructors_traits_and_imported_names_are_found() -> None:
    seen = analysed(APP)
    model, user, tidy = "src/Model/Model.php", "src/User.php:User", "src/tools.php:tidy"

    assert seen.calls == {
        (f"{model}:Model.save", f"{model}:Logs.log", 9),
        (f"{model}:Model.save", f"{model}:Store.write", 10),
        (f"{model}:Model.save", f"{model}:Store.write", 11),
        (f"{model}:Model.save", f"{model}:Model.boot", 12),
        (f"{model}:Logs.log", f"{model}:Logs.line", 18),
        (f"{user}.__construct", f"{model}:Model.__construct", 12),
        (f"{user}.__construct", f"{model}:Store", 14),
        (f"{user}.rename", f"{model}:Model.save", 17),
        (f"{user}.rename", f"{model}:Model.boot", 17),
        (f"{user}.rename", f"{model}:Store.write", 18),
        (f"{user}.rename", f"{model}:Store.flush", 18),
        (f"{user}.rename", f"{user}.__construct", 20),
        (f"{user}.rename", tidy, 20),
        (f"{user}.rename", tidy, 21),
        (f"{user}.rename", tidy, 22),
        (tidy, "src/tools.php:helper", 3),
        ("src/tools.php:helper", f"{model}:Store.flush", 4),
    }
    assert (seen.counts.external, seen.counts.unresolved) == (3, 0)
    assert seen.inherits == {
        (f"{model}:Model", f"{model}:Logs"),
        (f"{model}:Model", f"{model}:Saves"),
        (user, f"{model}:Model"),
    }
    assert seen.imports == {
        ("src/User.php", model),
        ("src/User.php", "src/tools.php"),
        ("src/User.php", "Vendor\\Mail"),
    }


def test_included_files_are_found_by_their_path() -> None:
    seen = analysed(
        {
            "pkg-1.0/index.php": """\
<html><?php
require_once __DIR__ . '/lib/one.php';
include 'lib/two.php';
require dirname(__FILE__) . "/lib/three.php";
require $anything;
require 'nowhere.php';
one(); two(); three();
$box = new Box();
$box->open();
?></html>
""",
            "pkg-1.0/lib/one.php": "<?php function one() { }\n",
            "pkg-1.0/lib/two.php": "<?php if (true) { function two() { } }\n",
            "pkg-1.0/lib/three.php": "<?php function three() { } class Box { function open() { } }",
        }
    )
    index, lib = "pkg-1.0/index.php", "pkg-1.0/lib"

    assert seen.imports == {
        (index, f"{lib}/one.php"),
        (index, f"{lib}/two.php"),
        (index, f"{lib}/three.php"),
        (index, "nowhere.php"),
    }
    assert seen.calls == {
        (index, f"{lib}/one.php:one", 7),
        (index, f"{lib}/two.php:two", 7),
        (index, f"{lib}/three.php:three", 7),
        (index, f"{lib}/three.php:Box", 8),
        (index, f"{lib}/three.php:Box.open", 9),
    }


def test_of_two_copies_of_a_class_the_one_counts_that_composer_says() -> None:
    copy = "<?php\nnamespace Acme;\nclass Tool { static function run() { } }\n"
    use = "<?php\nuse Acme\\Tool;\nTool::run();\n"
    manifest = FileFacts("app/composer.json", MANIFEST, 1)
    manifest.properties = {"composer.psr4": '{"Acme\\\\": ["gone/", "lib/"]}'}
    sources = {"app/lib/Tool.php": copy, "app/old/Tool.php": copy, "app/web/use.php": use}

    seen = seen_in(Project([manifest, *(parsed(path, text) for path, text in sources.items())]))
    assert seen.callees == {("app/web/use.php", "app/lib/Tool.php:Tool.run")}
    assert analysed(sources).callees == set()  # and without it, nobody can tell


def test_enums_typed_variables_and_closures_lead_to_methods() -> None:
    seen = analysed(
        {
            "a.php": """\
<?php
enum Suit: string {
    case Hearts = 'h';
    public function label(): string { return self::Hearts->color()->name(); }
    public function color(): Color { return new Color; }
}
class Color {
    function name() { }
    static function all(Color $first, ?Color $second, Color|null $third, Color|Suit $either) {
        $first->name(); $second?->name(); $third->name(); $either->name();
        $f = fn(Suit $s) => $s->label();
        $g = function (Suit $t) { $t->label(); };
        try { } catch (Oops $oops) { $oops->tell(); }
        (new Color)->name();
        Suit::Hearts->label();
        $object = new class extends Color { function own() { $this->name(); } };
    }
}
class Oops extends Exception { function tell() { $this->getMessage(); } }
"""
        }
    )
    names = [line for caller, _, line in sorted(seen.calls) if caller == "a.php:Color.all"]

    assert ("a.php:Suit.label", "a.php:Suit.color", 4) in seen.calls
    assert ("a.php:Suit.label", "a.php:Color.name", 4) in seen.calls
    assert sorted(set(names)) == [10, 11, 12, 13, 14, 15]
    assert ("a.php:Color.all.class@1.own", "a.php:Color.name", 16) in seen.calls
    assert seen.counts.unresolved == 1  # $either
    assert seen.counts.external == 1  # getMessage


def test_what_is_not_certain_stays_unresolved() -> None:
    seen = analysed(
        {
            "a.php": """\
<?php
namespace A;
class One { function run() { } }
class Two { function run() { } }
function go($untyped, $name) {
    if ($name) { $either = new One(); } else { $either = new Two(); }
    $either->run();
    $untyped->run();
    $name();
    $untyped->$name();
    if (isset($name) && !empty($name)) { exit(1); }
    missing();
    Missing::run();
}
""",
            "b.php": "<?php\nnamespace B;\nfunction missing() { }\n",
        }
    )

    assert {callee for _, callee in seen.callees} == {"a.php:One", "a.php:Two"}
    assert seen.counts.unresolved == 6


def test_a_file_of_several_namespaces_keeps_their_names_apart() -> None:
    seen = analysed(
        {
            "a.php": """\
<?php
namespace A { function run() { } function go() { run(); } }
namespace B { function run() { } function go() { run(); \\A\\run(); } }
"""
        }
    )

    assert seen.calls == {
        ("a.php:go", "a.php:run", 2),
        ("a.php:B.go", "a.php:B.run", 3),
        ("a.php:B.go", "a.php:run", 3),
    }


def test_declarations_have_their_lines_and_signatures_without_values() -> None:
    facts = parsed(
        "a.php",
        """\
<?php
#[Attribute('secret')]
class A {
    const KEY = 'secret';
    public function find(?int $id = 42, string|array &...$rest): ?self
    {
        return "secret {$this->find()}";
    }
}
function top(#[Sensitive] \\A\\B $b, $plain = 'secret') { }
""",
    )
    found = {one.qualified: (one.kind, one.line, one.end_line) for one in facts.declarations}
    signatures = {one.qualified: one.signature for one in facts.declarations}

    assert found == {
        "A": ("class", 2, 9),
        "A.find": ("function", 5, 8),
        "top": ("function", 10, 10),
    }
    assert signatures["A.find"] == "find(?int $id, string|array ...$rest): ?self"
    assert signatures["top"] == "top(\\A\\B $b, $plain)"
    assert [(call.line, call.caller) for call in facts.calls] == [(7, 1)]


def test_code_nested_without_end_and_broken_code_give_what_can_be_made_out() -> None:
    deep = "<?php function go() { x(" + "(" * 50_000 + "y" + ")" * 50_000 + "); }"
    chain = "<?php class A { function go() { $this->a()" + "->a()" * 2_000 + "; } }"

    assert parsed("deep.php", deep).lines == 1
    assert len(parsed("chain.php", chain).calls) == 2_001
    assert parsed("nested.php", "<?php " + "class A { function f() { " * 3_000).broken
    broken = parsed("broken.php", "<?php class A { function good() { b(); } function bad( { }")
    assert broken.broken
    assert "good" in {one.name for one in broken.declarations}


WORDS = (
    "class A { } ( ) \\ $ $x -> :: , ; new $this self static parent use function namespace ? : => "
    "[ ] \" ' // /* */ enum trait interface int fn foo = instanceof match foreach as try catch ?-> "
    "require __DIR__ . extends <?php ?> # \n"
)


@given(
    st.lists(st.sampled_from(WORDS.split(" ")), max_size=60).map(" ".join) | st.text(max_size=200)
)
def test_no_text_is_too_much(text: str) -> None:
    source = f"<?php {text}"
    facts = load("php").extract("a.php", source.encode())

    for declaration in facts.declarations:
        assert 1 <= declaration.line <= declaration.end_line <= facts.lines
    assert all(1 <= call.line <= facts.lines for call in facts.calls)
    analysed({"a.php": source})


def test_of_functions_and_classes_that_a_condition_chooses_from_none_is_certain() -> None:
    seen = analysed(
        {
            "a.php": "<?php\nif ($x) {\n  function f() {}\n  class A { function m() {} }\n"
            "} else {\n  function f() {}\n  class A { function m() {} }\n}\n"
            "function run() { f(); $a = new A(); $a->m(); }\n"
            "if (!function_exists('g')) {\n  function g() {}\n}\ng();\n"
        }
    )
    assert seen.calls == {("a.php", "a.php:g", 13)}
