"""JPype: the C++ half of a bridge from Python to Java. What is asserted was read in its source."""

from __future__ import annotations

from functools import cache

from packages.codegraph.tests.graphs import Seen, analysed_folder
from tests.corpus import package

COMMON = "common"
HEADERS = "common/include"
ARRAY = f"{COMMON}/jp_array.cpp:JPArray"
ARRAY_CLASS = f"{HEADERS}/jp_arrayclass.h:JPArrayClass"
FRAME = f"{HEADERS}/jp_javaframe.h:JPJavaFrame"


@cache
def jpype() -> Seen:
    return analysed_folder(package("jpype1") / "native")


def test_methods_that_headers_declare_are_found_where_they_are_defined() -> None:
    assert {
        (f"{ARRAY}.JPArray", f"{COMMON}/jp_class.cpp:JPClass.toString", 33),
        (f"{ARRAY}.JPArray", f"{COMMON}/jp_javaframe.cpp:JPJavaFrame.GetArrayLength", 39),
        (f"{ARRAY}.setRange", f"{COMMON}/jp_class.cpp:JPClass.setArrayRange", 98),
        (f"{ARRAY}.setItem", f"{COMMON}/jp_class.cpp:JPClass.setArrayItem", 113),
        (f"{ARRAY}.getItem", f"{COMMON}/jp_class.cpp:JPClass.getArrayItem", 129),
        (f"{ARRAY}.clone", f"{COMMON}/jp_arrayclass.cpp:JPArrayClass.newArray", 134),
        (f"{ARRAY}.setRange", "python/jp_pythontypes.cpp:JPPySequence.size", 84),
    } <= jpype().calls


def test_methods_that_are_defined_in_headers_are_found_there() -> None:
    assert {
        (f"{ARRAY}.JPArray", f"{HEADERS}/jp_value.h:JPValue.getClass", 29),
        (f"{ARRAY}.JPArray", f"{FRAME}.outer", 30),
        (f"{ARRAY}.JPArray", f"{HEADERS}/jp_array.h:JPArray.getJava", 49),
        # m_Object is a typedef of a template: JPRef<jarray>.
        (f"{ARRAY}.JPArray", f"{HEADERS}/jp_context.h:JPRef.get", 36),
        # m_Class is declared with a class that jpype.h only announces.
        (f"{ARRAY}.setRange", f"{ARRAY_CLASS}.getComponentType", 82),
        (f"{ARRAY}.setRange", "python/include/jp_pythontypes.h:JPPySequence.use", 83),
    } <= jpype().calls


def test_the_number_of_arguments_tells_overloads_apart() -> None:
    hints = f"{COMMON}/jp_classhints.cpp"

    assert {
        (f"{COMMON}/jp_booleantype.cpp", 224, hints, 31),  # JPMatch(frame, object)
        (f"{COMMON}/jp_typefactory.cpp", 181, f"{COMMON}/jp_class.cpp", 32),  # not JPClass(a, b)
        ("python/pyjp_array.cpp", 306, f"{COMMON}/jp_array.cpp", 161),  # JPArrayView(array, all)
    } <= jpype().places


def test_overloads_that_take_as_many_are_not_guessed() -> None:
    header = f"{HEADERS}/jp_value.h"

    # JPValue(this, v): of a jvalue, or of a jobject; never the one that takes nothing.
    assert jpype().runs(f"{COMMON}/jp_arrayclass.cpp", 98) == set()
    # getValue() is there twice, once for what is const.
    assert f"{header}:JPValue.getValue" in jpype().declared
    array = f"{COMMON}/jp_array.cpp"
    assert not any((path, line, to) == (array, 27, header) for path, line, to, _ in jpype().places)


def test_macros_are_called() -> None:
    assert {
        (f"{ARRAY}.JPArray", f"{HEADERS}/jp_exception.h:ASSERT_NOT_NULL", 32),
        (f"{ARRAY}.setRange", f"{HEADERS}/jpype.h:JP_RAISE", 79),
    } <= jpype().calls


def test_a_call_through_a_base_is_not_one_of_a_class_below_it() -> None:
    # compType is a JPClass: which class below it has the method that runs, only running tells.
    callees = {
        callee
        for caller, callee, line in jpype().calls
        if line == 98 and caller == f"{ARRAY}.setRange"
    }
    assert f"{COMMON}/jp_booleantype.cpp:JPBooleanType.setArrayRange" in jpype().declared
    assert f"{COMMON}/jp_booleantype.cpp:JPBooleanType.setArrayRange" not in callees


def test_what_python_and_the_standard_library_provide_is_external() -> None:
    lines = {
        (callee, line) for caller, callee, line in jpype().calls if caller == f"{ARRAY}.setRange"
    }
    assert not any("PySequence_Check" in callee for callee, _ in lines)  # line 78
    assert {callee for callee, line in lines if line == 93} == {f"{HEADERS}/jpype.h:JP_RAISE"}


def test_classes_inherit_across_headers() -> None:
    assert {
        (ARRAY_CLASS, f"{HEADERS}/jp_class.h:JPClass"),
        (
            f"{HEADERS}/jp_booleantype.h:JPBooleanType",
            f"{HEADERS}/jp_primitivetype.h:JPPrimitiveType",
        ),
        (f"{HEADERS}/jp_primitivetype.h:JPPrimitiveType", f"{HEADERS}/jp_class.h:JPClass"),
    } <= jpype().inherits


def test_includes_lead_to_headers_in_other_folders_or_out_of_the_archive() -> None:
    assert {
        (f"{COMMON}/jp_array.cpp", f"{HEADERS}/jpype.h"),
        (f"{COMMON}/jp_array.cpp", "python/include/pyjp.h"),
        (f"{COMMON}/jp_array.cpp", f"{HEADERS}/jp_arrayclass.h"),
        (f"{HEADERS}/jpype.h", "jni_include/jni.h"),
        (f"{HEADERS}/jpype.h", "python/include/jp_pythontypes.h"),
        (f"{HEADERS}/jpype.h", f"{HEADERS}/jp_javaframe.h"),
        (f"{HEADERS}/jpype.h", "vector"),
        (f"{HEADERS}/jpype.h", "map"),
    } <= jpype().imports


def test_most_calls_that_do_not_leave_the_archive_are_resolved() -> None:
    # JP_TRACE, JP_PY_TRY and their like are there twice: which is meant, the preprocessor decides.
    assert jpype().counts.resolved_rate > 0.7
