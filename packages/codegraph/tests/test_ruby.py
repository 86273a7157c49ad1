"""What is seen in Ruby: open classes, methods of classes and of objects, constants, requires."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coatcheck_codegraph.facts import Declaration
from packages.codegraph.tests.graphs import analysed, parsed

SHOP = """\
module Shop
  class Cart < Base
    include Priced
    attr_reader :owner
    LIMIT = 10
    def initialize(owner, limit = 99, *rest, mode:, **options, &block)
      super(owner)
      @owner = Customer.new(owner)
      check
    end
    def self.empty
      new(nil)
    end
    def check
      total = sum
      owner.greet
      @owner.greet
      self.log(total)
      [1].each { |line| log(line) }
    end
    class << self
      def open; empty; end
    end
    private
    def log(text); end
  end
end
"""


def _declared(source: str) -> dict[str, Declaration]:
    return {found.qualified: found for found in parsed("a.rb", source).declarations}


def test_classes_modules_and_methods_are_declared_with_their_lines() -> None:
    declared = _declared(SHOP)
    assert {name: found.kind for name, found in declared.items()} == {
        "Shop": "class",
        "Shop.Cart": "class",
        "Shop.Cart.owner": "function",
        "Shop.Cart.initialize": "function",
        "Shop.Cart.self.empty": "function",
        "Shop.Cart.check": "function",
        "Shop.Cart.self.open": "function",
        "Shop.Cart.log": "function",
    }
    assert (declared["Shop.Cart"].line, declared["Shop.Cart"].end_line) == (2, 26)
    assert declared["Shop.Cart.initialize"].signature == (
        "initialize(owner, limit, *rest, mode:, **options, &block)"
    )
    assert declared["Shop.Cart.self.empty"].static


def test_calls_of_own_methods_need_no_self() -> None:
    seen = analysed(
        {
            "shop.rb": SHOP,
            "lib/base.rb": "class Base\n  def initialize(name); end\nend\n",
            "lib/priced.rb": "module Priced\n  def sum; 0; end\nend\n",
            "lib/customer.rb": "class Customer\n  def greet; end\nend\n",
        }
    )
    cart = "shop.rb:Shop.Cart"
    assert seen.calls == {
        (f"{cart}.initialize", "lib/base.rb:Base.initialize", 7),
        (f"{cart}.initialize", "lib/customer.rb:Customer", 8),
        (f"{cart}.initialize", f"{cart}.check", 9),
        (f"{cart}.self.empty", f"{cart}.initialize", 12),
        (f"{cart}.check", "lib/priced.rb:Priced.sum", 15),
        (f"{cart}.check", f"{cart}.owner", 16),
        (f"{cart}.check", "lib/customer.rb:Customer.greet", 16),
        (f"{cart}.check", "lib/customer.rb:Customer.greet", 17),
        (f"{cart}.check", f"{cart}.log", 18),
        (f"{cart}.check", f"{cart}.log", 19),
        (f"{cart}.self.open", f"{cart}.self.empty", 22),
    }
    assert seen.inherits == {(cart, "lib/base.rb:Base"), (cart, "lib/priced.rb:Priced")}


def test_a_class_that_is_opened_again_is_one_class() -> None:
    seen = analysed(
        {
            "a.rb": "module A\n  class Job\n    def run; stop; end\n  end\nend\n",
            "b.rb": "module A\n  class Job\n    def stop; end\n  end\nend\n",
            "c.rb": "class A::Job\n  def again; run; end\nend\nA::Job.new.stop\n",
        }
    )
    assert ("a.rb:A.Job.run", "b.rb:A.Job.stop", 3) in seen.calls
    assert ("c.rb:A.Job.again", "a.rb:A.Job.run", 2) in seen.calls
    assert ("c.rb", "b.rb:A.Job.stop", 4) in seen.calls


def test_constants_are_looked_for_from_the_inside_outwards() -> None:
    seen = analysed(
        {
            "a.rb": "module Outer\n"
            "  class Tool\n    def self.use; end\n  end\n"
            "  module Inner\n"
            "    class Tool\n      def self.use; end\n    end\n"
            "    def self.run\n      Tool.use\n      Outer::Tool.use\n      ::Tool.use\n    end\n"
            "  end\n"
            "end\n"
            "class Tool\n  def self.use; end\nend\n"
        }
    )
    run = "a.rb:Outer.Inner.self.run"
    assert (run, "a.rb:Outer.Inner.Tool.self.use", 10) in seen.calls
    assert (run, "a.rb:Outer.Tool.self.use", 11) in seen.calls
    assert (run, "a.rb:Tool.self.use", 12) in seen.calls


def test_methods_of_a_class_are_not_those_of_its_objects() -> None:
    seen = analysed(
        {
            "a.rb": "class User\n"
            "  def name; end\n"
            "  def self.find; new; end\n"
            "end\n"
            "User.name\n"
            "User.find.name\n"
            "user = User.new\n"
            "user.find\n"
            "user.name\n"
        }
    )
    assert seen.calls == {
        ("a.rb:User.self.find", "a.rb:User", 3),
        ("a.rb", "a.rb:User.self.find", 6),
        ("a.rb", "a.rb:User.name", 6),
        ("a.rb", "a.rb:User", 7),
        ("a.rb", "a.rb:User.name", 9),
    }


def test_super_calls_the_same_method_of_the_superclass() -> None:
    seen = analysed(
        {
            "a.rb": "class A\n  def go(x); end\n  def self.make; end\nend\n"
            "class B < A\n  def go(x)\n    super\n  end\n  def self.make\n    super()\n  end\nend\n"
        }
    )
    assert seen.calls == {
        ("a.rb:B.go", "a.rb:A.go", 7),
        ("a.rb:B.self.make", "a.rb:A.self.make", 10),
    }


def test_a_word_that_was_assigned_is_a_variable_and_no_call() -> None:
    seen = analysed(
        {
            "a.rb": "class A\n"
            "  def count; 1; end\n"
            "  def run(given)\n"
            "    count = 2\n"
            "    count\n"
            "    given\n"
            "    list.each { |item| item }\n"
            "  end\n"
            "  def other\n    count\n  end\n"
            "  def list; []; end\n"
            "end\n"
        }
    )
    assert seen.calls == {("a.rb:A.run", "a.rb:A.list", 7), ("a.rb:A.other", "a.rb:A.count", 10)}


def test_requires_lead_to_files_of_the_archive_or_to_gems() -> None:
    seen = analysed(
        {
            "gem-1.0/lib/thing.rb": "require 'json'\n"
            "require 'active_support/core_ext'\n"
            "require 'thing/part'\n"
            "require_relative 'thing/other'\n"
            "autoload :Late, 'thing/late'\n"
            "require name_of_plugin\n",
            "gem-1.0/lib/thing/part.rb": "",
            "gem-1.0/lib/thing/other.rb": "",
            "gem-1.0/lib/thing/late.rb": "",
            "gem-1.0/app/models/json.rb": "",
        }
    )
    assert seen.imports == {
        ("gem-1.0/lib/thing.rb", "json"),
        ("gem-1.0/lib/thing.rb", "active_support"),
        ("gem-1.0/lib/thing.rb", "gem-1.0/lib/thing/part.rb"),
        ("gem-1.0/lib/thing.rb", "gem-1.0/lib/thing/other.rb"),
        ("gem-1.0/lib/thing.rb", "gem-1.0/lib/thing/late.rb"),
    }


def test_structs_and_methods_that_are_made_by_calls_are_declared() -> None:
    declared = _declared(
        "Point = Struct.new(:x, :y, keyword_init: true) do\n  def length; x; end\nend\n"
        "Sub = Class.new(Base) do\n  def go; end\nend\n"
        "class A\n"
        "  attr_accessor :level\n"
        "  alias old level\n"
        "  alias_method :older, :level\n"
        "  define_method(:made) { |n| level }\n"
        "  private def hidden; end\n"
        "end\n"
    )
    assert {
        "Point.x",
        "Point.y",
        "Point.length",
        "Sub.go",
        "A.level",
        "A.level=",
        "A.old",
        "A.older",
        "A.made",
        "A.hidden",
    } <= set(declared)
    assert declared["Sub"].bases[0].steps[0].name == "Base"


def test_methods_of_a_module_that_extends_itself_are_the_modules_own() -> None:
    seen = analysed(
        {
            "a.rb": "module Text\n  extend self\n"
            "  def trim(s); clean(s); end\n  def clean(s); end\nend\n"
            "module Math2\n  module_function\n  def half(n); end\nend\n"
            "Text.trim('x')\nMath2.half(2)\n"
        }
    )
    assert seen.callees == {
        ("a.rb:Text.self.trim", "a.rb:Text.self.clean"),
        ("a.rb", "a.rb:Text.self.trim"),
        ("a.rb", "a.rb:Math2.self.half"),
    }


def test_attributes_are_assigned_by_their_own_methods() -> None:
    seen = analysed(
        {
            "a.rb": "class Item\n  attr_accessor :price\nend\n"
            "item = Item.new\nitem.price = 3\nitem.price\n"
        }
    )
    assert ("a.rb", "a.rb:Item.price=", 5) in seen.calls
    assert ("a.rb", "a.rb:Item.price", 6) in seen.calls


def test_what_ruby_has_is_external_and_what_is_not_known_is_unresolved() -> None:
    seen = analysed({"a.rb": "def run(thing)\n  puts 'x'\n  File.open('y')\n  thing.greet\nend\n"})
    assert seen.calls == set()
    assert (seen.counts.external, seen.counts.unresolved) == (2, 1)


def test_literals_are_objects_of_their_classes_which_may_be_opened() -> None:
    seen = analysed(
        {
            "a.rb": "class String\n  def shout; end\nend\n",
            "b.rb": "'x'.shout\nname = 'y'\nname.shout\n[1].push(2)\n",
        }
    )
    assert seen.calls == {("b.rb", "a.rb:String.shout", 1), ("b.rb", "a.rb:String.shout", 3)}
    assert (seen.counts.external, seen.counts.unresolved) == (1, 0)


def test_a_constant_that_nothing_declares_is_external() -> None:
    seen = analysed({"a.rb": "Pod::UI.puts 'x'\nRails.application.routes\n"})
    assert (seen.counts.external, seen.counts.unresolved) == (3, 0)


def test_a_method_of_an_unknown_object_is_not_guessed_by_its_name() -> None:
    seen = analysed(
        {"a.rb": "class A\n  def only_here; end\nend\ndef run(x)\n  x.only_here\nend\n"}
    )
    assert seen.calls == set()


def test_a_method_that_a_superclass_outside_may_have_is_not_guessed() -> None:
    seen = analysed(
        {
            "a.rb": "module Store\n  def self.save; end\n"
            "  class Row < ActiveRecord::Base\n    def run; save; end\n  end\nend\n"
        }
    )
    assert seen.calls == set()


def test_code_that_is_nested_without_end_is_read() -> None:
    assert parsed("a.rb", "x = " + "[" * 50_000 + "1" + "]" * 50_000 + "\nrun(1)\n").path == "a.rb"
    assert parsed("a.rb", "a" + ".b(1)" * 5_000 + "\n").calls
    assert parsed("a.rb", "(" * 5_000 + "a" + ".b)" * 5_000 + ".c\n").calls
    assert parsed("a.rb", "class " + "::".join(["A"] * 5_000) + "\n  def x; end\nend\n").path
    assert parsed("a.rb", "module M\n" * 3_000 + "end\n" * 3_000).declarations


@given(st.text(alphabet=st.sampled_from("abAB:@.(){}|&=\n ") | st.characters(codec="utf-8")))
def test_any_text_gives_facts_whose_lines_are_in_range(source: str) -> None:
    facts = parsed("a.rb", source)
    assert all(1 <= one.line <= one.end_line <= facts.lines for one in facts.declarations)
    assert all(1 <= call.line <= facts.lines for call in facts.calls)


@given(st.lists(st.sampled_from([*SHOP.split(), "\n"]), max_size=60))
def test_any_order_of_the_words_of_the_language_gives_facts(words: list[str]) -> None:
    assert parsed("a.rb", " ".join(words)).lines >= 1
