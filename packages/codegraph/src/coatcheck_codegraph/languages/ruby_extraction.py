"""Extracts the declarations and calls of a Ruby file.

Ruby distinguishes methods of a class from those of its objects by the receiver. The facts have one
namespace for both, so a method of the class is named as it is defined: ``self.create``, both where
it is declared and where it is called on a class.

A bare word that no assignment made a variable is a call of the object's own method. Classes and
modules are open: all declarations of one, in any file, are one thing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import tree_sitter_ruby
from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser

from coatcheck_codegraph.builder import Builder, name_of, named, text
from coatcheck_codegraph.extraction import STEPS_MAX, UNKNOWN, Extraction, Handler, lines_in
from coatcheck_codegraph.facts import Base, FileFacts, Ref, Step
from coatcheck_codegraph.language import words

# What Ruby has without a ``require``.

_KERNEL: Final = """
    abort at_exit autoload binding block_given? caller caller_locations catch eval exec exit
    exit! fail fork format freeze frozen? gets global_variables instance_of? is_a? kind_of?
    lambda load local_variables loop nil? object_id open p pp print printf proc putc puts raise
    rand readline readlines require require_relative respond_to? select set_trace_func sleep
    spawn sprintf srand syscall system test throw trap warn attr attr_accessor attr_reader
    attr_writer alias_method const_get const_set define_method extend include module_function
    prepend private private_class_method private_constant protected public public_class_method
    refine remove_method undef_method using instance_variable_get instance_variable_set method
    methods send public_send tap then dup clone hash inspect class Array Complex Float Hash
    Integer Rational String __dir__ __method__
    """
KERNEL: Final = frozenset(_KERNEL.split())
"""Methods that every object or class has."""

_CONSTANTS: Final = """
    ARGF ARGV ArgumentError Array BasicObject Binding Class ClosedQueueError Comparable Complex
    ConditionVariable Data Dir ENV EOFError Encoding EncodingError Enumerable Enumerator Errno
    Exception FalseClass Fiber FiberError File FileTest Float FloatDomainError FrozenError GC
    Hash IO IOError IndexError Integer Interrupt Kernel KeyError LoadError LocalJumpError
    Marshal MatchData Math Method Module Monitor Mutex NameError NilClass NoMatchingPatternError
    NoMethodError NotImplementedError Numeric Object ObjectSpace Proc Process Queue
    RUBY_PLATFORM RUBY_VERSION Ractor Random Range RangeError Rational Refinement Regexp
    RegexpError RubyVM RuntimeError STDERR STDIN STDOUT ScriptError SecurityError Set Signal
    SignalException SizedQueue StandardError StopIteration String Struct Symbol SyntaxError
    SystemCallError SystemExit SystemStackError Thread ThreadError ThreadGroup Time TracePoint
    TrueClass TypeError UnboundMethod UncaughtThrowError ZeroDivisionError
    """
CONSTANTS: Final = frozenset(_CONSTANTS.split())


# What small pieces of Ruby say: constants, symbols, parameters, bodies.

TOP: Final = "::"
"""Where constants are that are inside of no other."""

_NAME: Final = re.compile(r"\w+[?!=]?")
_NO_NODES: Final[Sequence[Node]] = ()


def statements_in(node: Node) -> Sequence[Node]:
    body = node.child_by_field_name("body")
    return _NO_NODES if body is None else body.named_children


def is_of_class(inside: Sequence[Node]) -> bool:
    """Whether a module's methods are its own, by ``extend self`` or ``module_function``."""
    for node in inside:
        if node.type == "identifier" and text(node) == "module_function":
            return True
        if node.type == "call" and name_of(node.child_by_field_name("method")) == "extend":
            arguments = node.child_by_field_name("arguments")
            if arguments is not None and any(
                each.type == "self" for each in arguments.named_children
            ):
                return True
    return False


def constant_names(node: Node | None) -> tuple[str, ...]:
    """``A::B`` as its names, ``::A`` from the TOP; nothing if it does not begin with a constant."""
    names: list[str] = []
    while node is not None and len(names) <= STEPS_MAX:
        if node.type == "constant":
            names.append(name_of(node))
            return tuple(reversed(names))
        if node.type != "scope_resolution":
            return ()
        names.append(name_of(node.child_by_field_name("name")))
        scope = node.child_by_field_name("scope")
        if scope is None:
            return (TOP, *reversed(names))
        node = scope
    return ()


def is_constant(name: str) -> bool:
    return name[:1].isupper()


def symbol(node: Node | None) -> str:
    """The name that a symbol or a string is, if it could be a method's."""
    name = name_of(node).strip(":\"'")
    return name if _NAME.fullmatch(name) else ""


def spelled_parameters(parameters: Node) -> list[str]:
    """The parameters by their names, without what they are if they are not given."""
    marks = {
        "block_parameter": "&{}",
        "hash_splat_parameter": "**{}",
        "keyword_parameter": "{}:",
        "splat_parameter": "*{}",
    }
    spelled = []
    for parameter in parameters.named_children:
        if parameter.type == "identifier":
            spelled.append(name_of(parameter))
        elif parameter.type != "comment":
            name = name_of(parameter.child_by_field_name("name"))
            spelled.append(marks.get(parameter.type, "{}").format(name) or "(...)")
    return spelled


RELATIVE: Final = "relative"
LOADED: Final = "loaded"

_OF_CLASS: Final = "self."
_PARSER: Final = Parser(Grammar(tree_sitter_ruby.language()))
_MADE_BY_CALL: Final = frozenset(
    {("Class", "new"), ("Data", "define"), ("Module", "new"), ("Struct", "new")}
)
_MIXES_IN: Final = frozenset({"extend", "include", "prepend"})
_REQUIRES: Final = {"load": LOADED, "require": LOADED, "require_relative": RELATIVE}
_ATTRIBUTES: Final = {
    "attr_accessor": ("{}", "{}="),
    "attr_reader": ("{}",),
    "attr_writer": ("{}=",),
}
_CLASS_OF_LITERAL: Final = {
    "array": "Array",
    "chained_string": "String",
    "float": "Float",
    "hash": "Hash",
    "heredoc_beginning": "String",
    "integer": "Integer",
    "regex": "Regexp",
    "simple_symbol": "Symbol",
    "string": "String",
    "string_array": "Array",
    "symbol_array": "Array",
}
_HOLDS_NOTHING: Final = words(
    """
    character class_variable comment complex constant encoding escape_sequence false file float
    global_variable hash_key_symbol heredoc_beginning heredoc_content heredoc_end instance_variable
    integer line nil operator rational self simple_symbol string_content true uninterpreted
    """
)
_NOTHING: Final[Sequence[Node]] = ()


def extract(path: str, source: bytes) -> FileFacts:
    """The facts of a file of Ruby."""
    root = _PARSER.parse(source).root_node
    builder = Builder(path, "ruby")
    _RubyWalk(builder).run(root)
    builder.facts.lines = lines_in(root)
    builder.facts.broken = root.has_error
    return builder.facts


class _RubyWalk:
    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._known: list[set[str]] = [set()]
        self._is_of_class = [False]
        self._values: set[str] = set()
        handlers: dict[str, Handler] = {
            "alias": self._alias,
            "assignment": self._assignment,
            "block": self._with_parameters,
            "call": self._call,
            "class": self._class,
            "do_block": self._with_parameters,
            "exception_variable": self._variables,
            "for": self._for,
            "identifier": self._word,
            "keyword_pattern": self._keyword_pattern,
            "lambda": self._with_parameters,
            "method": self._method,
            "module": self._class,
            "operator_assignment": self._assignment,
            "pair": self._pair,
            "scope_resolution": self._scope_resolution,
            "singleton_class": self._singleton_class,
            "singleton_method": self._method,
            "super": self._super,
            "undef": _nothing,
        }
        handlers |= dict.fromkeys(_HOLDS_NOTHING, _nothing)
        self._walk = Extraction(builder, handlers)

    def run(self, root: Node) -> None:
        self._walk.walk(root.named_children)

    # Classes and modules

    def _class(self, node: Node) -> Sequence[Node]:
        names = [name for name in constant_names(node.child_by_field_name("name")) if name != TOP]
        if not names:
            return node.named_children
        superclass = node.child_by_field_name("superclass")
        inside = [] if superclass is None else superclass.named_children
        extended = self._reference(inside[0])[0] if inside else None
        bases = [] if extended is None or extended.base != "name" else [extended]
        self._declare_class(names, node, bases, statements_in(node))
        return inside

    def _declare_class(
        self, names: Sequence[str], node: Node, bases: Sequence[Ref], inside: Sequence[Node]
    ) -> int:
        if len(names) > 1:
            around = self._builder.declare("namespace", names[0], node, partial=True)
            with self._builder.inside(around):
                return self._declare_class(names[1:], node, bases, inside)
        index = self._builder.declare("class", names[0], node, bases=bases, partial=True)
        with self._scope(of_class=is_of_class(inside)):
            self._walk.inside(index, inside)
        return index

    def _singleton_class(self, node: Node) -> Sequence[Node]:
        with self._scope(of_class=True):
            self._walk.walk(statements_in(node))
        return _NOTHING

    def _mix_in(self, modules: Sequence[Node]) -> None:
        around = self._builder.here_declared
        if around is not None and around.kind == "class":
            found = (self._reference(module)[0] for module in modules)
            around.bases += tuple(ref for ref in found if ref.base == "name")

    # Methods

    def _method(self, node: Node) -> Sequence[Node]:
        of_class = self._is_of_class[-1] or node.type == "singleton_method"
        name = name_of(node.child_by_field_name("name"))
        parameters = node.child_by_field_name("parameters")
        body = node.child_by_field_name("body")
        spelled = [] if parameters is None else spelled_parameters(parameters)
        index = self._declare_method(name, node, of_class, f"({', '.join(spelled)})")
        with self._scope(of_class=of_class):
            with self._builder.inside(index):
                returned = self._returned(body)
            self._builder.facts.declarations[index].returns = returned
            self._declare_parameters(parameters)
            inside = [node for node in (parameters, body) if node is not None]
            self._walk.inside(index, inside)
        return _NOTHING

    def _declare_method(self, name: str, node: Node, of_class: bool, parameters: str = "()") -> int:
        name = _OF_CLASS + name if of_class else name
        return self._builder.declare(
            "function", name, node, signature=name + parameters, static=of_class
        )

    def _returned(self, body: Node | None) -> Ref | None:
        """What a method evidently gives: an object that its last expression makes or keeps."""
        if body is not None and body.type == "body_statement":
            count = body.named_child_count
            body = body.named_child(count - 1) if count else None
        if body is not None and body.type in ("assignment", "operator_assignment"):
            body = body.child_by_field_name("right")
        if body is None or body.type not in ("call", "identifier", "instance_variable"):
            return None
        if body.type == "identifier" and name_of(body) != "new":
            return None
        ref = self._reference(body)[0]
        made = len(ref.steps) > 0 and ref.steps[-1].called and ref.base == "name"
        return ref if made or body.type == "instance_variable" else None

    def _declare_parameters(self, parameters: Node | None) -> None:
        for parameter in [] if parameters is None else parameters.named_children:
            name = parameter.child_by_field_name("name")
            if name is not None:
                self._known[-1].add(name_of(name))
            elif parameter.type == "identifier":
                self._known[-1].add(name_of(parameter))
            else:
                self._variables(parameter)

    def _attributes(self, node: Node, patterns: Sequence[str], names: Sequence[Node]) -> None:
        of_class = self._is_of_class[-1]
        for name in (symbol(argument) for argument in names):
            for pattern in patterns if name else ():
                index = self._declare_method(pattern.format(name), node, of_class)
                kept = Ref("self", (Step(f"@{name}"),))
                self._builder.facts.declarations[index].returns = kept

    def _alias(self, node: Node) -> Sequence[Node]:
        name = symbol(node.child_by_field_name("name"))
        if name and self._builder.innermost("function") is None:
            self._declare_method(name, node, self._is_of_class[-1])
        return _NOTHING

    # Variables

    def _assignment(self, node: Node) -> Sequence[Node]:
        left = node.child_by_field_name("left")
        right = node.child_by_field_name("right")
        if left is None or right is None:
            return node.named_children
        if left.type == "constant":
            return self._constant(node, name_of(left), right)
        evident = right.type in ("call", "constant") or right.type in _CLASS_OF_LITERAL
        held = self._reference(right)[0] if evident else UNKNOWN
        if held.base == "name" and held.steps[-1].name in ("[]", "new"):
            held = UNKNOWN
        if left.type == "identifier":
            self._known[-1].add(name_of(left))
            self._walk.local(name_of(left), held)
            return [right]
        if left.type == "instance_variable":
            if held.base == "name" and is_constant(held.steps[0].name):
                self._builder.field(name_of(left), held)
            return [right]
        if left.type == "call":
            return [*self._assigned_attribute(left), right]
        self._variables(left)
        return [left, right]

    def _assigned_attribute(self, left: Node) -> Sequence[Node]:
        """``object.name = value`` calls ``name=``."""
        callee, last = self._reference(left)
        if callee.steps and callee.steps[-1].called:
            setter = Step(f"{callee.steps[-1].name}=", True)
            self._builder.call(last or left, Ref(callee.base, (*callee.steps[:-1], setter)))
        receiver = left.child_by_field_name("receiver")
        return [] if receiver is None else [receiver]

    def _constant(self, node: Node, name: str, right: Node) -> Sequence[Node]:
        if right.type == "call":
            receiver = right.child_by_field_name("receiver")
            made = (name_of(receiver), name_of(right.child_by_field_name("method")))
            if made in _MADE_BY_CALL:
                return self._class_of_call(node, name, right, made)
        held = self._reference(right)[0]
        if right.type not in ("constant", "scope_resolution"):
            self._values.add(name)
        around = self._builder.here_declared
        if around is not None and around.kind == "class":
            self._builder.field(name, held)
        elif around is None:
            self._walk.local(name, held)
        return [right]

    def _class_of_call(
        self, node: Node, name: str, right: Node, made: tuple[str, str]
    ) -> Sequence[Node]:
        """``Point = Struct.new(:x, :y) do ... end`` declares a class."""
        listed = right.child_by_field_name("arguments")
        arguments = [] if listed is None else listed.named_children
        block = right.child_by_field_name("block")
        bases = [self._reference(each)[0] for each in arguments] if made[0] == "Class" else []
        inside = [] if block is None else statements_in(block)
        named_bases = [base for base in bases if base.base == "name"]
        index = self._declare_class((name,), node, named_bases, inside)
        if made[0] in ("Data", "Struct"):
            with self._builder.inside(index), self._scope(of_class=False):
                self._attributes(node, ("{}",), arguments)
        return _NOTHING

    def _variables(self, node: Node) -> Sequence[Node]:
        """All names in a pattern that assigns to them."""
        pending = [node]
        while pending:
            inner = pending.pop()
            if inner.type == "identifier":
                self._known[-1].add(name_of(inner))
                self._walk.local(name_of(inner), UNKNOWN)
            elif inner.type not in ("call", "element_reference", "optional_parameter"):
                pending.extend(inner.named_children)
        return _NOTHING

    def _for(self, node: Node) -> Sequence[Node]:
        pattern = node.child_by_field_name("pattern")
        if pattern is not None:
            self._variables(pattern)
        return [child for child in node.named_children if child != pattern]

    def _with_parameters(self, node: Node) -> Sequence[Node]:
        """A block sees the variables around it; its own hide them."""
        parameters = node.child_by_field_name("parameters")
        if parameters is not None:
            self._declare_parameters(parameters)
            for parameter in parameters.named_children:
                if parameter.type == "identifier":
                    self._walk.local(name_of(parameter), UNKNOWN)
        return node.named_children

    def _keyword_pattern(self, node: Node) -> Sequence[Node]:
        value = node.child_by_field_name("value")
        self._variables(node if value is None else value)
        return _NOTHING

    def _pair(self, node: Node) -> Sequence[Node]:
        key = node.child_by_field_name("key")
        return [child for child in node.named_children if child != key or child.type == "call"]

    # Calls

    def _call(self, node: Node) -> Sequence[Node]:
        method = node.child_by_field_name("method")
        receiver = node.child_by_field_name("receiver")
        listed = node.child_by_field_name("arguments")
        arguments = [] if listed is None else listed.named_children
        if receiver is None and method is not None and method.type == "identifier":
            block = node.child_by_field_name("block")
            declared = self._declaring_call(node, name_of(method), arguments, block)
            if declared is not None:
                return declared
        callee, last = self._reference(node)
        if callee.steps and callee.steps[-1].called:
            self._builder.call(last or node, callee)
        inside = node.named_children
        if receiver is not None and receiver.type == "identifier":
            inside = [child for child in inside if child != receiver]
            inside = [*self._word(receiver), *inside]
        return [child for child in inside if child != method]

    def _declaring_call(
        self, node: Node, name: str, arguments: Sequence[Node], block: Node | None
    ) -> Sequence[Node] | None:
        """What a call declares that is a statement in all but name; None if it is only a call."""
        if name in _REQUIRES and arguments:
            self._require(node, _REQUIRES[name], arguments[0])
            return arguments
        if name == "autoload" and len(arguments) == 2:
            self._require(node, LOADED, arguments[1])
            return _NOTHING
        if self._builder.innermost("function") is not None:
            return None
        if name in _MIXES_IN:
            self._mix_in(arguments)
            return arguments
        if name in _ATTRIBUTES:
            self._attributes(node, _ATTRIBUTES[name], arguments)
            return _NOTHING
        if name == "alias_method" and arguments:
            self._declare_method(symbol(arguments[0]), node, self._is_of_class[-1])
            return _NOTHING
        if name == "define_method" and arguments and block is not None and symbol(arguments[0]):
            index = self._declare_method(symbol(arguments[0]), node, self._is_of_class[-1])
            with self._scope(of_class=self._is_of_class[-1]):
                self._declare_parameters(block.child_by_field_name("parameters"))
                self._walk.inside(index, statements_in(block))
            return _NOTHING
        return None

    def _require(self, node: Node, kind: str, argument: Node) -> None:
        content = argument.named_children
        if argument.type == "string" and len(content) == 1 and content[0].type == "string_content":
            self._builder.imports(node, name_of(content[0]), kind=kind)

    def _word(self, node: Node) -> Sequence[Node]:
        """A word by itself: a variable, or a call without arguments."""
        if name_of(node) not in self._known[-1]:
            callee = self._own_method(name_of(node))
            if callee.steps:
                self._builder.call(node, callee)
        return _NOTHING

    def _super(self, node: Node) -> Sequence[Node]:
        around = self._builder.innermost("function")
        if around is not None:
            self._builder.call(node, Ref("super", (Step(around.name, True),)))
        return _NOTHING

    def _scope_resolution(self, node: Node) -> Sequence[Node]:
        scope = node.child_by_field_name("scope")
        return [] if scope is None or scope.type in ("constant", "scope_resolution") else [scope]

    # References

    def _reference(self, node: Node | None) -> tuple[Ref, Node | None]:
        """The names of an expression, and the node of the last of them."""
        chain: list[tuple[str, Node]] = []
        while node is not None and len(chain) <= STEPS_MAX:
            if node.type == "parenthesized_statements" and node.named_child_count == 1:
                node = node.named_child(0)
                continue
            if node.type != "call":
                break
            method = node.child_by_field_name("method")
            chain.append(("call" if method is None else name_of(method), method or node))
            node = node.child_by_field_name("receiver")
        last = chain[0][1] if chain else node
        chain.reverse()
        start, called_names = self._start(node, [name for name, _ in chain])
        steps = [*start.steps, *(Step(name, True) for name in called_names)]
        return Ref(start.base, tuple(steps)), last

    def _start(self, node: Node | None, called: list[str]) -> tuple[Ref, list[str]]:
        """Where a chain of calls begins, and those of them that follow."""
        if node is None:
            return self._own_method(called[0]) if called else UNKNOWN, called[1:]
        kind = node.type
        if kind == "self":
            if called[:1] == ["class"]:
                return self._of_class(self._class_name(), called[1:])
            if called and self._is_of_class[-1]:
                return self._own_method(called[0]), called[1:]
            return Ref("self", ()), called
        if kind in ("constant", "scope_resolution"):
            names = constant_names(node)
            if not names:
                return UNKNOWN, called
            if names[-1] in self._values:
                return named(*names), called
            return self._of_class(names, called)
        if kind == "identifier":
            name = name_of(node)
            if name in self._known[-1]:
                return named(self._walk.local_name(name)), called
            return self._own_method(name), called
        if kind in ("instance_variable", "class_variable"):
            return Ref("self", (Step(name_of(node)),)), called
        if kind == "super":
            around = self._builder.innermost("function")
            name = "" if around is None else around.name
            return Ref("super", (Step(name, True),)), called
        if kind in _CLASS_OF_LITERAL:
            return named(_CLASS_OF_LITERAL[kind], called=True), called
        return UNKNOWN, called

    def _of_class(self, names: Sequence[str], called: list[str]) -> tuple[Ref, list[str]]:
        """What a class is asked for: ``new`` makes an object of it."""
        if called[:1] == ["new"]:
            return named(*names, called=True), called[1:]
        if called:
            own = Step(_OF_CLASS + called[0], True)
            return Ref("name", (*(Step(name) for name in names), own)), called[1:]
        return named(*names), called

    def _own_method(self, name: str) -> Ref:
        base: Base = "self"
        if name == "super":
            function = self._builder.innermost("function")
            return UNKNOWN if function is None else Ref("super", (Step(function.name, True),))
        around = self._builder.here_declared
        if self._is_of_class[-1] or (around is not None and around.kind == "class"):
            if name == "new":
                return named(*self._class_name(), called=True)
            if name not in KERNEL:
                return Ref(base, (Step(_OF_CLASS + name, True),))
        if self._builder.innermost("class") is None or name in KERNEL:
            base = "name"
        return Ref(base, (Step(name, True),))

    def _class_name(self) -> tuple[str, ...]:
        around = self._builder.innermost("class")
        return ("",) if around is None else (around.name,)

    @contextmanager
    def _scope(self, *, of_class: bool) -> Iterator[None]:
        """Variables are not seen across this; ``of_class`` says whose methods are meant."""
        self._known.append(set())
        self._is_of_class.append(of_class)
        yield
        self._is_of_class.pop()
        self._known.pop()


def _nothing(_: Node) -> Sequence[Node]:
    return _NOTHING
