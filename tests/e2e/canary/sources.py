"""Programs in every language that is understood, with a canary wherever text can be.

It is in comments, literals, defaults and in code that is broken: in everything that is no name.
"""

from __future__ import annotations

from typing import Final

CANARY: Final = "canary 4f1d-97ab of a customer"

SOURCES: Final = {
    "app/main.py": f'''
"""{CANARY}"""
# {CANARY}
import os
from app import other


def f(a: str = "{CANARY}", *, b: "str" = '{CANARY}') -> str:
    """{CANARY}"""
    return other.g("{CANARY}") + a


@decorate("{CANARY}")
class C(make("{CANARY}")):
    field: str = "{CANARY}"

    def m(self, x=f"{CANARY}{{1}}"):
        return f(x, b="{CANARY}")
''',
    "app/other.py": f'def g(text):\n    return text or """{CANARY}"""\n',
    "app/broken.py": f'def (: "{CANARY}"\n  {CANARY}\nclass "{CANARY}":\n  def x(self, "{CANARY}"',
    "web/index.js": f"""
// {CANARY}
import x from './lib.js'
export function f(a = '{CANARY}', {{ b = `{CANARY}` }} = {{}}) {{
  return x('{CANARY}', /{CANARY}/) }}
export default class {{ '{CANARY}'() {{ return f() }} ['{CANARY}' + 1]() {{}} }}
const o = {{ '{CANARY}': () => 1, "{CANARY}"() {{ return 2 }} }}
require('{CANARY}')
""",
    "web/lib.js": f"module.exports = function lib(a) {{ return '{CANARY}' }} // {CANARY}\n",
    "web/typed.ts": f"""
/* {CANARY} */
export type T = '{CANARY}' | {{ '{CANARY}': string }}
export interface I {{ '{CANARY}': number; m(a: '{CANARY}'): '{CANARY}' }}
export enum E {{ A = '{CANARY}' }}
export function f(a: '{CANARY}' = '{CANARY}'): `{CANARY}` {{ return a as any }}
declare module '{CANARY}' {{ export const x: 1 }}
""",
    "web/view.tsx": f"""
export const View = (p: {{ t: '{CANARY}' }}) =>
  <div title='{CANARY}'>{CANARY} {{f('{CANARY}')}}</div>
""",
    "j/A.java": f"""
// {CANARY}
package j;
@Note("{CANARY}")
class A extends B {{
  @Note("{CANARY}") String s = "{CANARY}";
  /** {CANARY} */
  String f(@Note("{CANARY}") String a) {{ return g("{CANARY}") + a; }}
  String g(String a) {{ return \"\"\"
    {CANARY}\"\"\"; }}
}}
""",
    "g/main.go": f"""
package main // {CANARY}
import "fmt"
const c = "{CANARY}"
type T struct {{ F string `json:"{CANARY}"` }}
func f(a string) string {{ fmt.Println(`{CANARY}`); return g("{CANARY}") }}
func g(a string) string {{ return a }}
""",
    "r/src/lib.rs": f"""
//! {CANARY}
#[doc = "{CANARY}"]
pub fn f(a: &str) -> String {{ println!("{CANARY}"); g("{CANARY}") }}
fn g(a: &str) -> String {{ format!("{CANARY}{{}}", a) }}
macro_rules! m {{ () => {{ "{CANARY}" }} }}
type A = [u8; {{ "{CANARY}".len() }}];
""",
    "c/main.c": f"""
/* {CANARY} */
#include "main.h"
#define TEXT "{CANARY}"
#define SHOW(x) puts("{CANARY}" x)
static const char *s = "{CANARY}";
int f(const char *a) {{ return g("{CANARY}"); }}
int g(const char *a) {{ return SHOW("{CANARY}"); }}
""",
    "c/main.h": f"int f(const char *a); /* {CANARY} */\nint g(const char *a);\n",
    "cpp/main.cpp": f"""
// {CANARY}
#include <string>
namespace n {{
class C {{ public: std::string m(std::string a = "{CANARY}") {{ return k(R"({CANARY})"); }}
  std::string k(std::string a) {{ return a + "{CANARY}"; }} }};
}}
template <char const *X = "{CANARY}"> int t() {{ return 1; }}
""",
    "cs/A.cs": f"""
// {CANARY}
using System;
[Note("{CANARY}")]
class A {{ string P {{ get; set; }} = "{CANARY}";
  string F(string a = "{CANARY}") {{ return G($"{CANARY}{{a}}"); }}
  string G([Note("{CANARY}")] string a) => @"{CANARY}"; }}
""",
    "rb/a.rb": f"""
# {CANARY}
class A
  attr_reader :"{CANARY}"
  def f(a = "{CANARY}", b: '{CANARY}')
    g("{CANARY}")
    define_method("{CANARY}") {{ 1 }}
    <<~TEXT
      {CANARY}
    TEXT
  end
  def g(a) = %q({CANARY})
end
require "{CANARY}"
""",
    "php/a.php": f"""<p>{CANARY}</p>
<?php
// {CANARY}
namespace N;
#[Note('{CANARY}')]
class A {{ const X = '{CANARY}'; public string $p = "{CANARY}";
  function f(string $a = '{CANARY}') {{ return $this->g("{CANARY}"); }}
  function g($a) {{ return <<<TEXT
{CANARY}
TEXT; }} }}
require '{CANARY}.php';
""",
    "package.json": f'{{"name": "shop", "description": "{CANARY}", "main": "web/index.js"}}',
    "go.mod": f"module example.com/g // {CANARY}\n",
    "Cargo.toml": f'[package]\nname = "r"\ndescription = "{CANARY}"\n',
    "composer.json": f'{{"name": "x/y", "description": "{CANARY}"}}',
    "tsconfig.json": f'{{// {CANARY}\n"compilerOptions": {{"baseUrl": "."}}}}',
    "README.md": CANARY,
    "data.bin": CANARY.encode() * 100,
}
