"""Express: JavaScript of CommonJS modules, prototypes and objects that are given functions.

Every call and import named here was looked up in the source by hand.
"""

from __future__ import annotations

import pytest

from packages.codegraph.tests.graphs import Seen, analysed_folder
from tests.corpus import package

APPLICATION = "lib/application.js"
RESPONSE = "lib/response.js"
ROUTER = "lib/router/index.js"
LAYER = "lib/router/layer.js"
VIEW = "lib/view.js"
UTILS = "lib/utils.js"


@pytest.fixture(scope="module")
def seen() -> Seen:
    return analysed_folder(package("express"))


def test_calls_lead_to_their_definitions(seen: Seen) -> None:
    assert {
        # app is an object that is given functions; `this` in them is app
        (f"{APPLICATION}:app.init", f"{APPLICATION}:app.defaultConfiguration", 69),
        # new Router(...), where Router = require('./router') is a function that is exported
        (f"{APPLICATION}:app.lazyrouter", f"{ROUTER}:proto", 146),
        # this._router.use(query(...)): a Router's prototype is set to proto, which has use
        (f"{APPLICATION}:app.lazyrouter", f"{ROUTER}:proto.use", 151),
        (f"{APPLICATION}:app.lazyrouter", "lib/middleware/query.js:query", 151),
        (f"{APPLICATION}:app.lazyrouter", "lib/middleware/init.js:exports.init", 152),
        # var router = this._router; router.handle(...)
        (f"{APPLICATION}:app.handle", f"{ROUTER}:proto.handle", 181),
        (f"{APPLICATION}:app.use", f"{APPLICATION}:app.lazyrouter", 221),
        # a member of a module, taken where it is required
        (f"{APPLICATION}:app.set", f"{UTILS}:exports.compileETag", 383),
        (f"{APPLICATION}:app.set", f"{APPLICATION}:app.set", 386),
        (f"{APPLICATION}:app.render", f"{APPLICATION}:tryRender", 609),
        # res.contentType = res.type = function: this.type() calls it
        (f"{RESPONSE}:res.send", f"{RESPONSE}:res.contentType", 137),
        (f"{RESPONSE}:res.sendFile", f"{UTILS}:exports.isAbsolute", 440),
        (f"{RESPONSE}:res.sendFile", f"{RESPONSE}:sendfile", 449),
        # this.location(address).get('Location'): location returns this.set(...), and that this
        (f"{RESPONSE}:res.redirect", f"{RESPONSE}:res.location", 963),
        (f"{RESPONSE}:res.redirect", f"{RESPONSE}:res.get", 963),
        (f"{ROUTER}:proto.use", f"{ROUTER}:gettype", 469),
        (f"{ROUTER}:proto.use", f"{LAYER}:Layer.constructor", 475),
        (f"{ROUTER}:proto.route", "lib/router/route.js:Route.constructor", 503),
        (f"{LAYER}:Layer.constructor", f"{LAYER}:Layer.constructor", 35),
        (f"{VIEW}:View.constructor", f"{VIEW}:View.lookup", 94),
        (f"{VIEW}:View.lookup", f"{VIEW}:View.resolve", 119),
        # exports.normalizeType(...) in the module that exports it
        (f"{UTILS}:exports.normalizeTypes", f"{UTILS}:exports.normalizeType", 99),
    } <= seen.any_calls


def test_imports_lead_to_files_or_packages(seen: Seen) -> None:
    assert {
        ("index.js", "lib/express.js"),
        ("lib/express.js", APPLICATION),
        ("lib/express.js", ROUTER),
        ("lib/express.js", "body-parser"),
        ("lib/express.js", "node:events"),
        (APPLICATION, "lib/middleware/init.js"),
        (APPLICATION, "finalhandler"),
        (ROUTER, LAYER),
        (LAYER, "path-to-regexp"),
        (VIEW, "node:fs"),
        (UTILS, "node:querystring"),
    } <= seen.imports


def test_what_only_running_it_would_tell_stays_unresolved(seen: Seen) -> None:
    resolved = {(caller, line) for caller, _, line in seen.any_calls}
    assert not resolved & {
        # app gets handle and init from a mixin
        ("lib/express.js:createApplication.app", 39),
        ("lib/express.js:createApplication", 55),
        # the class of a view is a setting; View, the variable, hides View, the import
        (f"{APPLICATION}:app.render", 587),
        (f"{APPLICATION}:tryRender", 657),
        # `this` of a plain function
        (f"{APPLICATION}:logerror", 647),
        # callbacks
        (f"{RESPONSE}:res.sendFile", 450),
        (f"{RESPONSE}:res.sendFile", 451),
        # debug() is what require('debug')(name) gave
        (f"{LAYER}:Layer.constructor", 38),
    }


def test_the_shapes_of_the_package_are_seen(seen: Seen) -> None:
    assert {
        f"{LAYER}:Layer",
        f"{LAYER}:Layer.match",
        f"{APPLICATION}:app",
        f"{APPLICATION}:app.listen",
        f"{ROUTER}:proto.handle.next",
    } <= seen.declared
    assert not any(facts.broken for facts in seen.resolution.project.files.values())
