"""JPype: the Java half of a bridge from Python. What is asserted was read in its source."""

from __future__ import annotations

from functools import cache

from packages.codegraph.tests.graphs import Seen, analysed_folder
from tests.corpus import package

JAVA = "src/main/java/org/jpype"
HTML = f"{JAVA}/html"
PARSER = f"{HTML}/Parser.java:Parser"
TREE = f"{HTML}/HtmlTreeHandler.java:HtmlTreeHandler"
JAVADOC = f"{JAVA}/javadoc/JavadocExtractor.java"
PACKAGES = f"{JAVA}/pkg/JPypePackageManager.java"


@cache
def jpype() -> Seen:
    return analysed_folder(package("jpype1") / "native/jpype_module")


def test_calls_lead_to_the_methods_that_they_run() -> None:
    extractor = f"{JAVADOC}:JavadocExtractor"
    manager = f"{PACKAGES}:JPypePackageManager"

    assert {
        (f"{PARSER}.parse", f"{PARSER}.Grammar.start", 51),
        (f"{PARSER}.parse", f"{PARSER}.process", 62),
        (f"{PARSER}.parse", f"{PARSER}.flushTokens", 64),
        (f"{PARSER}.parse", f"{PARSER}.Grammar.end", 69),
        (f"{PARSER}.process", f"{PARSER}.State.getTokens", 90),
        (f"{PARSER}.process", f"{PARSER}.Token.matches", 92),
        (f"{PARSER}.process", f"{PARSER}.error", 99),
        (f"{PARSER}.processToken", f"{PARSER}.add", 141),
        (f"{PARSER}.processToken", f"{PARSER}.Rule.apply", 149),
        (f"{PARSER}.add", f"{PARSER}.Entity.Entity", 181),
        (f"{PARSER}.MatchRule.apply", f"{PARSER}.MatchRule.execute", 296),
        (f"{HTML}/HtmlParser.java:HtmlParser.HtmlParser", f"{PARSER}.Parser", 27),
        (f"{HTML}/HtmlParser.java:HtmlParser", f"{TREE}.HtmlTreeHandler", 23),
        (f"{TREE}.HtmlTreeHandler", f"{HTML}/AttrParser.java:AttrParser.AttrParser", 48),
        (f"{TREE}.startElement", f"{TREE}.endElement", 75),
        (f"{extractor}.getDocumentation", f"{extractor}.getDocumentationAsStream", 53),
        (f"{extractor}.getDocumentation", f"{HTML}/Html.java:Html.newParser", 57),
        (manager, f"{manager}.getModules", 59),
        (f"{manager}.isPackage", f"{manager}.isModulePackage", 75),
    } <= jpype().calls


def test_the_number_of_arguments_tells_overloads_apart() -> None:
    types = f"{JAVA}/manager/TypeManager.java"
    dom = f"{JAVA}/javadoc/DomUtilities.java"
    transformer = f"{JAVA}/javadoc/JavadocTransformer.java"

    assert {
        (f"{JAVA}/JPypeContext.java", 110, types, 60),  # of TypeManager() and of one that takes two
        (f"{HTML}/Parser.java", 181, f"{HTML}/Parser.java", 249),  # Entity(token, value)
        (transformer, 50, dom, 126),  # traverseChildren(node, operation, type, data)
        (transformer, 51, dom, 95),  # traverseDFS, as many
        (dom, 106, dom, 95),
    } <= jpype().places


def test_overloads_that_take_as_many_are_not_guessed() -> None:
    lines = {(caller, line) for caller, _, line in jpype().calls}

    assert f"{PARSER}.parse" in jpype().declared  # of an InputStream, and of a String
    assert (f"{TREE}.startElement", 91) not in lines
    assert not any(
        callee == f"{PARSER}.parse" and "getDocumentation" in caller
        for caller, callee, _ in jpype().calls
    )


def test_imports_lead_to_files_or_to_packages_outside() -> None:
    assert {
        (JAVADOC, f"{HTML}/Html.java"),
        (JAVADOC, f"{HTML}/Parser.java"),
        (JAVADOC, "javax.xml.xpath"),
        (JAVADOC, "org.w3c.dom"),
        (PACKAGES, f"{JAVA}/JPypeContext.java"),
        (PACKAGES, f"{JAVA}/JPypeKeywords.java"),
        (PACKAGES, "java.nio.file"),
    } <= jpype().imports


def test_classes_inherit_from_what_they_extend_and_implement() -> None:
    assert {
        (f"{HTML}/HtmlParser.java:HtmlParser", PARSER),
        (f"{HTML}/AttrParser.java:AttrParser", PARSER),
        (TREE, f"{HTML}/HtmlHandler.java:HtmlHandler"),
        (f"{PARSER}.MatchRule", f"{PARSER}.Rule"),
    } <= jpype().inherits


def test_calls_of_what_is_elsewhere_lead_nowhere() -> None:
    lines = {(caller, line) for caller, _, line in jpype().calls}

    assert (f"{PARSER}.parse", 50) not in lines  # clear() of a LinkedList
    assert (f"{PARSER}.Entity.toString", 259) not in lines  # toString() that no Token declares
    assert (f"{TREE}.startElement", 94) not in lines  # appendChild() of an org.w3c.dom.Node
    assert (f"{JAVADOC}:JavadocExtractor.getDocumentation", 63) not in lines  # System.err


def test_nearly_all_calls_within_are_resolved() -> None:
    assert jpype().counts.resolved > 500
    assert jpype().counts.resolved_rate > 0.94
