"""hiredis: a client of Redis in C, and its binding to Python. What is asserted was read in it."""

from __future__ import annotations

from functools import cache

from packages.codegraph.tests.graphs import Seen, analysed_folder
from tests.corpus import package

LIB = "vendor/hiredis"
HIREDIS = f"{LIB}/hiredis.c"
ASYNC = f"{LIB}/async.c"
SDS = f"{LIB}/sds.c"
READER = "src/reader.c"


@cache
def hiredis() -> Seen:
    return analysed_folder(package("hiredis"))


def test_calls_lead_to_the_definitions_behind_the_headers() -> None:
    assert {
        (f"{HIREDIS}:freeReplyObject", f"{HIREDIS}:freeReplyObject", 110),
        (f"{HIREDIS}:redisFree", f"{SDS}:sdsfree", 745),
        (f"{HIREDIS}:redisFree", f"{LIB}/read.c:redisReaderFree", 746),
        (f"{HIREDIS}:redisFree", f"{LIB}/alloc.h:hi_free", 747),
        (f"{HIREDIS}:redisFreeKeepFd", f"{HIREDIS}:redisFree", 767),
        (f"{HIREDIS}:redisReconnect", f"{SDS}:sdsempty", 787),
        (f"{HIREDIS}:redisReconnect", f"{HIREDIS}:redisReaderCreate", 788),
        (f"{HIREDIS}:redisReconnect", f"{HIREDIS}:__redisSetError", 791),
        (f"{HIREDIS}:redisReconnect", f"{LIB}/net.c:redisContextConnectBindTcp", 797),
        (f"{HIREDIS}:redisReconnect", f"{LIB}/net.c:redisContextConnectUnix", 800),
    } <= hiredis().calls


def test_the_binding_calls_the_library_through_its_installed_name() -> None:
    assert {
        (f"{READER}:Reader_dealloc", f"{LIB}/read.c:redisReaderFree", 283),
        (f"{READER}:Reader_new", f"{LIB}/read.c:redisReaderCreateWithFunctions", 381),
        (f"{READER}:Reader_feed", f"{LIB}/read.c:redisReaderFeed", 425),
        (f"{READER}:Reader_gets", f"{LIB}/read.c:redisReaderGetReply", 442),
        (f"{READER}:Reader_gets", f"{LIB}/read.h:redisReaderGetError", 449),  # a macro
        (f"{READER}:Reader_gets", f"{READER}:createError", 451),
        # pack.c repeats prototypes by hand instead of including sds.h.
        ("src/pack.c:pack_command", f"{SDS}:sdscpylen", 62),
        ("src/pack.c:pack_command", f"{SDS}:sdsnewlen", 75),
    } <= hiredis().calls


def test_static_functions_of_a_file_that_is_included_whole_are_found_in_it() -> None:
    subscribe = f"{ASYNC}:__redisGetSubscribeCallback"
    assert {
        (f"{ASYNC}:redisAsyncInitialize", f"{LIB}/dict.c:dictCreate", 110),
        (subscribe, f"{LIB}/dict.c:dictFind", 498),
        (subscribe, f"{LIB}/dict.h:dictGetEntryVal", 499),
        (subscribe, f"{LIB}/dict.c:dictDelete", 513),
        (subscribe, f"{ASYNC}:__redisShiftCallback", 529),
        # async.c has a prototype of its own for this one.
        (subscribe, f"{HIREDIS}:__redisSetError", 541),
    } <= hiredis().calls


def test_a_name_that_a_macro_gives_leads_to_what_it_names() -> None:
    # sdsalloc.h: #define s_free hi_free
    assert (f"{SDS}:sdsfree", f"{LIB}/alloc.h:hi_free", 160) in hiredis().calls


def test_functions_of_one_name_in_two_files_are_told_apart() -> None:
    # Both reader.c and hiredis.c have a static createArrayObject, which is only pointed to.
    callees = {callee for _, callee in hiredis().callees}
    assert f"{READER}:createArrayObject" not in callees
    assert f"{HIREDIS}:createArrayObject" not in callees
    assert {f"{READER}:createArrayObject", f"{HIREDIS}:createArrayObject"} <= hiredis().declared


def test_calls_through_pointers_in_structs_stay_unresolved() -> None:
    lines = {
        (path, line)
        for caller, _, line in hiredis().calls
        for path in [caller.split(":")[0]]
        if path in (HIREDIS, ASYNC)
    }
    assert (HIREDIS, 742) not in lines  # c->funcs->close(c)
    assert (HIREDIS, 755) not in lines  # c->free_privdata(c->privdata)
    assert (ASYNC, 311) not in lines  # cb->fn(ac,reply,cb->privdata)
    assert (ASYNC, 319) not in lines  # ac->push_cb(ac, reply)


def test_what_python_and_the_system_provide_is_external() -> None:
    module = {
        line for caller, _, line in hiredis().calls if caller == "src/hiredis.c:PyInit_hiredis"
    }
    assert not module & {63, 67, 71}  # PyType_Ready, PyModule_Create, PyErr_NewException
    assert hiredis().counts.external > 600


def test_what_a_condition_may_leave_out_is_not_taken_for_what_the_system_provides() -> None:
    # win32.h: #ifdef _MSC_VER, #define snprintf c99_snprintf
    lines = {(caller.split(":")[0], line) for caller, _, line in hiredis().calls}
    assert not {(f"{LIB}/read.c", line) for line in (106, 107, 115)} & lines
    assert not {(f"{LIB}/net.c", line) for line in (591, 614)} & lines
    # So it is with the sockets of Windows, and with assert where NDEBUG is defined.
    callees = {callee for _, callee in hiredis().callees}
    assert not {f"{LIB}/sockcompat.h:close", f"{LIB}/win32.h:strerror_r"} & callees
    assert f"{ASYNC}:assert" not in callees


def test_includes_lead_to_headers_of_the_archive_or_out_of_it() -> None:
    assert {
        (HIREDIS, f"{LIB}/hiredis.h"),
        (HIREDIS, f"{LIB}/net.h"),
        (f"{LIB}/hiredis.h", f"{LIB}/read.h"),
        (ASYNC, f"{LIB}/dict.c"),
        (READER, "src/reader.h"),
        ("src/reader.h", "src/hiredis.h"),
        ("src/pack.c", f"{LIB}/alloc.h"),  # #include <hiredis/alloc.h>
        (READER, "Python.h"),
        (HIREDIS, "stdlib.h"),
    } <= hiredis().imports
    assert (READER, f"{LIB}/hiredis.h") not in hiredis().imports


def test_most_calls_that_do_not_leave_the_archive_are_resolved() -> None:
    assert hiredis().counts.resolved_rate > 0.85
