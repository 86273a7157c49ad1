"""JavaScript: how names lead from file to file, and which file a specifier means."""

from __future__ import annotations

from packages.codegraph.tests.graphs import analysed


def test_imported_names_aliases_defaults_and_namespaces_lead_to_their_files() -> None:
    seen = analysed(
        {
            "src/main.js": """\
import start, { stop, pause as rest } from './control.js';
import * as control from './control.js';
start();
stop();
rest();
control.stop();
""",
            "src/control.js": """\
export function stop() {}
function wait() {}
export { wait as pause };
export default function begin() { stop(); }
""",
        }
    )
    assert seen.imports == {("src/main.js", "src/control.js")}
    assert seen.any_calls == {
        ("src/main.js", "src/control.js:begin", 3),
        ("src/main.js", "src/control.js:stop", 4),
        ("src/main.js", "src/control.js:wait", 5),
        ("src/main.js", "src/control.js:stop", 6),
        ("src/control.js:begin", "src/control.js:stop", 4),
    }


def test_reexports_are_followed() -> None:
    seen = analysed(
        {
            "index.js": """\
export * from './a';
export { b as renamed, default as main } from './b';
export * as tools from './c';
import { local } from './c';
export { local };
""",
            "a.js": "export const a = () => {};\n",
            "b.js": "export function b() {}\nexport default class Main { run() {} }\n",
            "c.js": "export function c() {}\nexport function local() {}\n",
            "user.js": """\
import { a, renamed, main, tools, local } from '.';
a(); renamed(); new main().run(); tools.c(); local();
""",
        }
    )
    assert seen.any_calls == {
        ("user.js", "a.js:a", 2),
        ("user.js", "b.js:b", 2),
        ("user.js", "b.js:Main", 2),
        ("user.js", "b.js:Main.run", 2),
        ("user.js", "c.js:c", 2),
        ("user.js", "c.js:local", 2),
    }


def test_a_default_export_without_a_name_is_called_default() -> None:
    seen = analysed(
        {
            "a.js": "export default () => {};\n",
            "b.js": "export default { go() {}, other };\nfunction other() {}\n",
            "c.js": "import a from './a';\nimport b from './b';\na();\nb.go();\nb.other();\n",
        }
    )
    assert seen.any_calls == {
        ("c.js", "a.js:default", 3),
        ("c.js", "b.js:default.go", 4),
        ("c.js", "b.js:other", 5),
    }


def test_commonjs_modules_are_followed() -> None:
    seen = analysed(
        {
            "lib/index.js": """\
module.exports = { one, two: second, three() { this.four(); }, four: () => one() };
function one() {}
function second() {}
""",
            "lib/named.js": "exports.f = function () { exports.g(); };\nexports.g = () => {};\n",
            "lib/only.js": "module.exports = function only() {};\n",
            "lib/klass.js": "module.exports = class { go() {} };\n",
            "main.js": """\
const lib = require('./lib');
const { one, two: deux } = require('./lib');
const f = require('./lib/named').f;
const Klass = require('./lib/klass');
lib.three();
one();
deux();
f();
require('./lib/only')();
new Klass().go();
async function later() {
  const named = await import('./lib/named.js');
  named.g();
}
""",
            "esm.mjs": "import only from './lib/only.js';\nonly();\n",
        }
    )
    assert seen.any_calls == {
        ("lib/index.js:exports.three", "lib/index.js:exports.four", 1),
        ("lib/index.js:exports.four", "lib/index.js:one", 1),
        ("lib/named.js:exports.f", "lib/named.js:exports.g", 1),
        ("main.js", "lib/index.js:exports.three", 5),
        ("main.js", "lib/index.js:one", 6),
        ("main.js", "lib/index.js:second", 7),
        ("main.js", "lib/named.js:exports.f", 8),
        ("main.js", "lib/only.js:only", 9),
        ("main.js", "lib/klass.js:module.exports", 10),
        ("main.js", "lib/klass.js:module.exports.go", 10),
        ("main.js:later", "lib/named.js:exports.g", 13),
        ("esm.mjs", "lib/only.js:only", 2),
    }


def test_what_compilers_make_of_modules_is_understood() -> None:
    seen = analysed(
        {
            "a.js": """\
"use strict";
var __importDefault = (this && this.__importDefault) || function (mod) { return mod; };
__exportStar(require("./c"), exports);
const b_1 = require("./b");
const d_1 = __importDefault(require("./d"));
(0, b_1.f)();
(0, d_1.default)();
""",
            "b.js": "exports.f = void 0;\nfunction f() {}\nexports.f = f;\n",
            "c.js": "exports.c = c;\nfunction c() {}\n",
            "d.js": "exports.default = d;\nfunction d() {}\n",
            "e.js": "const { c } = require('./a');\nc();\n",
        }
    )
    assert seen.any_calls == {
        ("a.js", "b.js:f", 6),
        ("a.js", "d.js:d", 7),
        ("e.js", "c.js:c", 2),
    }


# Which file a specifier means


def test_specifiers_find_files_with_and_without_suffix_and_folders_by_their_index() -> None:
    seen = analysed(
        {
            "pkg-1.0/src/a.js": """\
import './b';
import './c.js';
import './folder';
import '../lib/d.mjs';
import './typed.js';
import './missing.css';
""",
            "pkg-1.0/src/b.js": "",
            "pkg-1.0/src/c.js": "",
            "pkg-1.0/src/folder/index.js": "",
            "pkg-1.0/lib/d.mjs": "",
            "pkg-1.0/src/typed.ts": "",
        }
    )
    assert {target for _, target in seen.imports} == {
        "pkg-1.0/src/b.js",
        "pkg-1.0/src/c.js",
        "pkg-1.0/src/folder/index.js",
        "pkg-1.0/lib/d.mjs",
        "pkg-1.0/src/typed.ts",
        "pkg-1.0/src/missing.css",
    }


def test_packages_of_a_workspace_are_found_by_their_name() -> None:
    seen = analysed(
        {
            "packages/core/package.json": '{"name": "@acme/core", "main": "dist/boot.js"}',
            "packages/core/src/boot.js": "export function boot() {}\n",
            "packages/core/src/extra.js": "export function extra() {}\n",
            "packages/app/package.json": '{"name": "app", "main": "./main"}',
            "packages/app/main.js": """\
import { boot } from '@acme/core';
import { extra } from '@acme/core/extra';
import '@acme/other/deep';
boot();
extra();
""",
            "test/app.js": "require('app');\n",
        }
    )
    assert seen.imports == {
        ("packages/app/main.js", "packages/core/src/boot.js"),
        ("packages/app/main.js", "packages/core/src/extra.js"),
        ("packages/app/main.js", "@acme/other"),
        ("test/app.js", "packages/app/main.js"),
    }
    assert seen.callees == {
        ("packages/app/main.js", "packages/core/src/boot.js:boot"),
        ("packages/app/main.js", "packages/core/src/extra.js:extra"),
    }


def test_packages_and_builtins_are_external_under_the_name_people_know() -> None:
    seen = analysed(
        {
            "a.js": """\
import fs from 'fs';
import { join } from 'node:path';
import { readFile } from 'fs/promises';
import fp from 'lodash/fp';
import x from '@scope/name/deep/file.js';
fs.readFileSync();
join();
fp.map();
console.log();
JSON.parse();
'text'.split().join();
"""
        }
    )
    assert {target for _, target in seen.imports} == {
        "node:fs",
        "node:path",
        "lodash",
        "@scope/name",
    }
    assert seen.counts.external == 6
    assert seen.any_calls == set()


def test_an_alias_that_is_no_package_means_the_root_of_the_sources() -> None:
    seen = analysed(
        {
            "web/package.json": '{"name": "web"}',
            "web/src/pages/home.js": "import { api } from '@/services/api';\napi();\n",
            "web/src/services/api.js": "export const api = () => {};\n",
        }
    )
    assert seen.imports == {("web/src/pages/home.js", "web/src/services/api.js")}
