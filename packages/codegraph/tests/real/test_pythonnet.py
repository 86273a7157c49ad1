"""Python.NET: a bridge from C# to Python. What is asserted was read in its source."""

from __future__ import annotations

from functools import cache

from packages.codegraph.tests.graphs import Seen, analysed_folder
from tests.corpus import package

SRC = "runtime"
TYPES = f"{SRC}/PythonTypes"
CODECS = f"{SRC}/Codecs"
LIST = f"{TYPES}/PyList.cs:PyList"
ITER = f"{TYPES}/PyIter.cs:PyIter"
SEQUENCE = f"{TYPES}/PySequence.cs:PySequence"
ENCODERS = f"{CODECS}/EncoderGroup.cs:EncoderGroup"
RUNTIME = f"{SRC}/Runtime.cs:Runtime"
NEW = f"{SRC}/Native/NewReference.cs:NewReference"
LAST = f"{SRC}/PythonException.cs:PythonException.ThrowLastAsClrException"


@cache
def pythonnet() -> Seen:
    return analysed_folder(package("pythonnet") / "src")


def test_calls_lead_to_the_methods_that_they_run() -> None:
    decoders = f"{CODECS}/DecoderGroup.cs:DecoderGroup"
    conversions = f"{CODECS}/PyObjectConversions.cs:PyObjectConversions"

    assert {
        (f"{LIST}.FromObject", f"{LIST}.IsListType", 29),
        (f"{LIST}.PyList", f"{LIST}.FromObject", 44),
        (f"{LIST}.PyList", f"{RUNTIME}.PyList_New", 52),
        (f"{LIST}.PyList", f"{NEW}.StealOrThrow", 52),
        (f"{LIST}.FromArray", f"{RUNTIME}.PyList_SetItem", 66),
        (f"{LIST}.FromArray", f"{NEW}Extensions.Borrow", 66),
        (f"{LIST}.FromArray", f"{NEW}.Steal", 66),
        (f"{LIST}.AsList", f"{NEW}Extensions.IsNull", 104),  # not the static one of NewReference
        (f"{LIST}.AsList", LAST, 106),
        (f"{ITER}.GetIter", f"{RUNTIME}.PyObject_GetIter", 56),
        (f"{ITER}.GetIter", f"{NEW}.Steal", 58),
        (f"{ITER}.Dispose", f"{TYPES}/PyObject.cs:PyObject.Dispose", 64),
        (f"{ITER}.MoveNext", f"{SRC}/Exceptions.cs:Exceptions.ErrorOccurred", 72),
        (f"{SEQUENCE}.PySequence", f"{TYPES}/PyIterable.cs:PyIterable.PyIterable", 18),
        (f"{SEQUENCE}.FromObject", f"{SEQUENCE}.IsSequenceType", 29),
        (f"{ENCODERS}.TryEncode", f"{ENCODERS}Extensions.GetEncoders", 35),
        (f"{decoders}.TryDecode", f"{decoders}Extensions.GetDecoder", 37),
        (f"{conversions}.RegisterEncoder", f"{ENCODERS}.Add", 31),
    } <= pythonnet().calls


def test_the_number_of_arguments_tells_overloads_apart() -> None:
    converter = f"{SRC}/Converter.cs"

    assert {
        (converter, 99, converter, 120),  # ToPython(value, type), by one that takes a value alone
        (f"{TYPES}/PyList.cs", 23, f"{TYPES}/PySequence.cs", 18),  # base(info, context)
        (f"{TYPES}/PySequence.cs", 18, f"{TYPES}/PyIterable.cs", 13),
    } <= pythonnet().places
    assert (converter, 99, converter, 98) not in pythonnet().places


def test_overloads_that_take_as_many_are_not_guessed() -> None:
    lists = f"{TYPES}/PyList.cs"
    sequences = f"{TYPES}/PySequence.cs"

    # base(reference): of one that is borrowed, of one that is stolen, or of a PyObject.
    assert pythonnet().runs(lists, 16) == set()
    assert pythonnet().runs(sequences, 16) == set()
    # new PyList(op.Steal()): four take one argument.
    assert not any(
        (path, line, to) == (lists, 108, lists) for path, line, to, _ in pythonnet().places
    )


def test_usings_lead_to_files_or_to_namespaces_outside() -> None:
    conversions = f"{CODECS}/PyObjectConversions.cs"

    assert {
        (f"{TYPES}/PyList.cs", "System"),
        (f"{TYPES}/PyList.cs", "System.Linq"),
        (f"{TYPES}/PyIter.cs", "System.Collections.Generic"),
        (f"{CODECS}/EncoderGroup.cs", "System.Collections"),
        (conversions, f"{CODECS}/EncoderGroup.cs"),
        (conversions, f"{CODECS}/DecoderGroup.cs"),
    } <= pythonnet().imports


def test_classes_inherit_from_what_they_extend_and_implement() -> None:
    encoder = f"{CODECS}/IPyObjectEncoder.cs:IPyObjectEncoder"

    assert {
        (LIST, SEQUENCE),
        (SEQUENCE, f"{TYPES}/PyIterable.cs:PyIterable"),
        (ITER, f"{TYPES}/PyObject.cs:PyObject"),
        (ENCODERS, encoder),
    } <= pythonnet().inherits


def test_calls_of_what_is_elsewhere_lead_nowhere() -> None:
    lines = {(caller, line) for caller, _, line in pythonnet().calls}

    assert (f"{LIST}.FromArray", 59) not in lines  # Any() of an array
    assert (f"{ENCODERS}.Clear", 26) not in lines  # Clear() of a List
    assert (f"{ENCODERS}.TryEncode", 37) not in lines  # of an element of who knows what
    assert (f"{ENCODERS}.Dispose", 55) not in lines
    assert (f"{RUNTIME}.Py_Initialize", 686) not in lines  # a pointer to a native function


def test_most_calls_within_are_resolved() -> None:
    assert pythonnet().counts.resolved > 3_600
    assert pythonnet().counts.resolved_rate > 0.75  # of the others, most are overloads
