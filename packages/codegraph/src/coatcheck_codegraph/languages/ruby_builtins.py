"""What Ruby has without a ``require``."""

from __future__ import annotations

from typing import Final

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
